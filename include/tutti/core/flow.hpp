#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tutti/base/fifo.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/ring.hpp"
#include "tutti/base/task.hpp"
#include "tutti/core/control.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/leader.hpp"
#include "tutti/core/model_memory.hpp"
#include "tutti/core/observer.hpp"
#include "tutti/core/state_memory.hpp"
#include "tutti/optimizer/none.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/monitor.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// A coroutine that waits for a tensor.
struct arrival_waiter {
  arrival_waiter* next{};
  std::coroutine_handle<> coroutine{};
};

/// A tensor's place in the step. `readied` counts gradients given, `arrived` results received.
template <class Mark>
struct tensor_state {
  std::atomic<std::uint64_t> readied{0};
  std::atomic<std::uint64_t> arrived{0};
  unsigned accumulated = 0;
  unsigned pieces = 0;  ///< chunks that hold some of it
  unsigned pieces_left = 0;
  Mark written{};
  Mark current{};
  fifo<arrival_waiter> waiting{};

  bool is_current() const {
    return arrived.load(std::memory_order_acquire) == readied.load(std::memory_order_relaxed);
  }
};

/// A gradient's way through a worker: tensors fill buckets, chunks start when the schedule (or rank
/// 0) says so, are exchanged, and make tensors arrive. It neither waits nor polls; `Owner` is told
/// of failures.
template <class Types, class Owner>
class flow {
  using transport = typename Types::transport;
  using optimizer = typename Types::optimizer;
  using schedule = typename Types::schedule;
  using compression = typename Types::compression;
  using architecture = typename Types::architecture;
  using queue_type = typename transport::queue_type;
  using mark = typename queue_type::mark;
  using observer_type = observer<typename Types::monitor, transport>;
  static constexpr bool tells_first = is_stream_ordered<transport>;
  /// Where a stream moves chunks, they have been enqueued before they leave.
  static constexpr bool leaves_later = schedule::limits_in_flight && !Types::virtual_time &&
                                       !std::is_same_v<queue_type, inline_queue>;

 public:
  flow(transport& world, const plan& made, const model_memory<queue_type>& model,
       const typename Types::options& set, int workers, tag decisions_tag, optimizer& values,
       observer_type& watched, Owner& owner)
      : world_(&world),
        plan_(&made),
        model_(&model),
        workers_(workers),
        average_(1.0f / (static_cast<float>(workers) * static_cast<float>(set.run.accumulation))),
        follows_(Types::needs_one_order && set.run.decisions == decisions::led &&
                 world.rank() != 0),
        compression_(make_policy<compression>(set.compression)),
        optimizer_(&values),
        observer_(&watched),
        owner_(&owner),
        schedule_(made, set.schedule),
        tensors_(made.backward.size()),
        filled_(made.buckets.size()),
        chunks_(made.chunks.size()),
        told_(made.chunks.size() + 1),
        leaving_(leaves_later ? made.chunks.size() + 1 : 1),
        worker_memory_(world.queue(), facts::memory_per_element<compression>, model.remembered()),
        owner_memory_(world.queue(),
                      Types::has_servers ? 0 : facts::memory_per_element<typename Types::relay>,
                      model.remembered()),
        momenta_(world.queue(), Types::owns_parameters ? 0 : optimizer::memory_per_element,
                 model.remembered()) {
    set_up_chunks();
    if (Types::needs_one_order && set.run.decisions == decisions::led && world.rank() == 0) {
      leader_.emplace(world, decisions_tag, made.chunks.size());
    }
  }
  flow(const flow&) = delete;
  flow& operator=(const flow&) = delete;

  // ---- events in

  /// The gradient of the tensor at `position` of the backward order is there.
  void fill(std::size_t position) {
    observer_->record(event::ready, static_cast<std::uint32_t>(index(plan_->at(position))));
    const std::uint32_t number = plan_->bucket_of[position];
    const bucket& filling = plan_->buckets[number];
    if (++filled_[number] < filling.tensors) {
      return;
    }
    filled_[number] = 0;
    for (std::uint32_t i = 0; i < filling.chunks; ++i) {
      chunks_[filling.first_chunk + i].state = chunk_state::ready;
    }
    if (follows_) {
      start_what_was_told();
    } else {
      schedule_.ready(number);
      start_what_may_go();
    }
  }

  /// Rank 0 has decided.
  void hear(std::span<const std::byte> decided) {
    for (std::size_t i = 0; i < decided.size(); i += sizeof(std::uint32_t)) {
      std::uint32_t number = 0;
      std::memcpy(&number, decided.data() + i, sizeof number);
      told_.push(number);
    }
    start_what_was_told();
  }

  /// Starts what this rank has decided and told the others. Whoever starts on a stream, and then
  /// blocks until the stream has come so far, could tell them no more.
  bool carry_out() {
    const bool any = has_decided();
    if (any) {
      start_what_was_told();
    }
    if (any || (out_of_room_ && leader_->has_room())) {
      start_what_may_go();
    }
    return let_go() || any;
  }
  bool has_decided() const { return tells_first && leader_ && !told_.empty() && may_carry_out(); }

  // ---- what there is to see

  tensor_state<mark>& at(std::size_t position) { return tensors_[position]; }
  bool follows() const { return follows_; }
  std::uint64_t agenda() const { return agenda_.value(); }
  std::uint64_t steps() const { return chunks_.empty() ? 0 : chunks_.front().steps; }
  std::array<std::span<float>, 3> memories() {
    return {worker_memory_.floats(), owner_memory_.floats(), momenta_.floats()};
  }
  bool outstanding() const {
    return !std::ranges::all_of(tensors_, [](const auto& each) { return each.is_current(); });
  }
  bool communicates() const {
    return !std::ranges::all_of(chunks_, [](const auto& each) { return each.running.done(); });
  }
  bool at_rest() const { return (!leader_ || leader_->at_rest()) && !communicates(); }

  /// Goes on from step `steps`; only where nothing is outstanding.
  void resume(std::uint64_t steps) {
    for (auto& each : chunks_) {
      each.steps = steps;
    }
    for (auto& each : tensors_) {
      each.readied = steps;
      each.arrived = steps;
    }
  }

  /// No more gradients: ends when the others have read every decision.
  task finish() {
    if (leader_) {
      co_await leader_->finish();
    }
  }
  void stop_leading() {
    if (leader_) {
      leader_->close();
    }
  }
  /// Coroutines that wait for tensors go on, to find out why nothing will come.
  void release_waiters() {
    for (auto& each : tensors_) {
      wake(each);
    }
  }

  /// The first chunk that has begun here and not ended, with its step; none if this rank waits for
  /// something else.
  std::optional<std::pair<std::uint32_t, std::uint64_t>> stuck() const {
    if constexpr (is_stream_ordered<transport>) {
      if (const auto at = stuck_on_stream()) {
        return at;
      }
    }
    if (follows_ && !told_.empty()) {  // the others have it already
      return std::pair{told_.front(), chunks_[told_.front()].steps};
    }
    const auto found = std::ranges::find_if(chunks_, [](const chunk_record& each) {
      return each.state == chunk_state::started || each.state == chunk_state::ready;
    });
    if (found == chunks_.end()) {
      return std::nullopt;
    }
    return std::pair{static_cast<std::uint32_t>(found - chunks_.begin()), found->steps};
  }

  /// What a chunk is doing here, for a rank that is in step `step` of it.
  void describe(std::uint32_t number, std::uint64_t step, control_message& answer) const {
    answer.tensor = no_tensor;
    if (number >= chunks_.size()) {
      answer.state = chunk_state::started;
      return;
    }
    const auto& record = chunks_[number];
    answer.state = record.steps > step ? chunk_state::finished : record.state;
    if (record.steps > step || record.state != chunk_state::finished) {
      return;
    }
    answer.state = chunk_state::waits_for_gradient;
    const bucket& group = plan_->buckets[plan_->chunks[number].bucket];
    for (std::size_t i = 0; i < group.tensors; ++i) {
      const std::size_t position = group.first_tensor + i;
      if (tensors_[position].readied.load() <= step) {
        answer.tensor = static_cast<std::uint32_t>(index(plan_->at(position)));
        return;
      }
    }
  }

 private:
  struct chunk_record {
    chunk_state state{chunk_state::finished};
    std::uint64_t steps{};
    std::uint64_t started{};  ///< among all starts, from 1 on
    mark moved{};             ///< where a stream moves chunks
    bool released{};
    memory_of<std::byte, queue_type> workspace{};
    memory_of<std::byte, queue_type> scratch{};
    task running{};
  };

  /// The first chunk that the stream has not come past.
  std::optional<std::pair<std::uint32_t, std::uint64_t>> stuck_on_stream() const {
    const chunk_record* first = nullptr;
    for (const chunk_record& each : chunks_) {
      const bool earlier = first == nullptr || each.started < first->started;
      if (each.started != 0 && earlier && !queue_type::passed(each.moved)) {
        first = &each;
      }
    }
    if (first == nullptr) {
      return std::nullopt;
    }
    return std::pair{static_cast<std::uint32_t>(first - chunks_.data()), first->steps - 1};
  }

  void set_up_chunks() {
    for (std::size_t number = 0; number < chunks_.size(); ++number) {
      const chunk& piece = plan_->chunks[number];
      if (!model_->phantom()) {
        chunks_[number].workspace = allocate<std::byte>(
            world_->queue(),
            architecture{}.workspace_bytes(compression_, piece.elements, world_->size()));
        chunks_[number].scratch = allocate<std::byte>(
            world_->queue(), std::max(scratch_bytes(compression_, piece.elements),
                                      scratch_bytes(relay(compression_), piece.elements)));
      }
      for_each_tensor(piece, [&](std::size_t position) { ++tensors_[position].pieces; });
    }
    for (auto& each : tensors_) {
      each.pieces_left = each.pieces;
    }
  }

  /// The tensors that a chunk holds some of; one without elements counts to its bucket's first
  /// chunk.
  template <class Visit>
  void for_each_tensor(const chunk& piece, Visit visit) const {
    const bucket& group = plan_->buckets[piece.bucket];
    const std::size_t end = piece.first_element + piece.elements;
    const bool first_chunk = &piece == &plan_->chunks[group.first_chunk];
    for (std::size_t i = 0; i < group.tensors; ++i) {
      const std::size_t position = group.first_tensor + i;
      const std::size_t first = plan_->first_element[position];
      const std::size_t last = plan_->first_element[position + 1];
      if (first == last ? first_chunk : first < end && piece.first_element < last) {
        visit(position);
      }
    }
  }

  // A chunk that completes at once comes back here; the outermost call goes on with the rest.
  void start_what_may_go() {
    if (std::exchange(deciding_, true)) {
      return;
    }
    while (has_room()) {
      const auto next = schedule_.next();
      if (!next) {
        break;
      }
      if (leader_) {
        leader_->decide(*next);
      }
      if (tells_first && leader_) {
        told_.push(*next);
      } else {
        start(*next);
      }
    }
    deciding_ = false;
  }

  /// Chunks that end on a stream do not keep rank 0 from running ahead of the others.
  bool has_room() {
    out_of_room_ = tells_first && leader_ && !leader_->has_room();
    return !out_of_room_;
  }

  bool may_carry_out() const { return !leader_ || carried_out_ < leader_->told(); }

  void start_what_was_told() {
    if (std::exchange(deciding_, true)) {
      return;
    }
    while (!told_.empty() && chunks_[told_.front()].state == chunk_state::ready &&
           may_carry_out()) {
      ++carried_out_;
      start(told_.pop());
    }
    deciding_ = false;
  }

  void start(std::uint32_t number) {
    auto& record = chunks_[number];
    agenda_.feed(number);
    record.state = chunk_state::started;
    record.started = ++starts_;
    record.released = false;
    observer_->record(event::started, number);
    record.running = task();  // its frame is the next one's
    record.running = run(number);
    record.running.start(world_->ready_coroutines());
  }

  task run(std::uint32_t number) {
    auto& record = chunks_[number];
    const chunk& piece = plan_->chunks[number];
    auto& queue = world_->queue();
    try {
      for_each_tensor(piece, [&](std::size_t position) { queue.wait(tensors_[position].written); });
      model_->pack(queue, number);
      const auto released = [this, number] { release(number, moved_so_far()); };
      parcel<compression, decltype(released)> contents{
          model_->data(piece),
          &compression_,
          worker_memory_.at(piece.first_element, span_of(record.scratch), record.steps),
          owner_memory_.at(piece.first_element, span_of(record.scratch), record.steps),
          span_of(record.workspace),
          average_,
          workers_,
          piece.server,
          released};
      if (piece.elements > 0) {
        co_await architecture_.exchange(endpoint<transport>(*world_, tag{channel::data, number, 0}),
                                        contents);
      }
      if constexpr (has_virtual_time<transport>) {
        if (const seconds left = queue.record() - world_->now(); left > 0) {
          co_await world_->sleep(left);
        }
      }
      finish(number);
    } catch (...) {
      owner_->chunk_failed(std::current_exception());
    }
  }

  struct departure {
    mark after{};
    std::uint32_t number{};
  };

  mark moved_so_far() {
    if constexpr (is_stream_ordered<transport> || leaves_later) {
      return world_->queue().record();
    } else {
      return {};
    }
  }

  /// The chunk's bytes have left, or will have after that mark: then its credit is free.
  void release(std::uint32_t number, const mark& after) {
    if (std::exchange(chunks_[number].released, true)) {
      return;
    }
    if constexpr (leaves_later) {
      leaving_.push({after, number});
    } else {
      free_credit(number);
    }
  }
  /// Frees what the stream has come past.
  bool let_go() {
    bool any = false;
    if constexpr (leaves_later) {
      while (!leaving_.empty() && queue_type::passed(leaving_.front().after)) {
        free_credit(leaving_.pop().number);
        any = true;
      }
    }
    return any;
  }
  void free_credit(std::uint32_t number) {
    observer_->record(event::released, number);
    if (!follows_) {
      schedule_.released(number);
      start_what_may_go();
    }
  }

  void finish(std::uint32_t number) {
    auto& record = chunks_[number];
    record.moved = moved_so_far();
    release(number, record.moved);
    record.state = chunk_state::finished;
    observer_->record(event::finished, number);
    for_each_tensor(plan_->chunks[number], [&](std::size_t position) {
      auto& mine = tensors_[position];
      if (--mine.pieces_left == 0) {
        mine.pieces_left = mine.pieces;
        arrive(position, record.steps);
      }
    });
    ++record.steps;
  }

  void arrive(std::size_t position, std::uint64_t step) {
    auto& mine = tensors_[position];
    if (!model_->phantom()) {
      update(position, step);
    }
    mine.current = world_->queue().record();
    mine.arrived.fetch_add(1, std::memory_order_release);
    observer_->record(event::arrived, static_cast<std::uint32_t>(index(plan_->at(position))));
    wake(mine);
  }

  void wake(tensor_state<mark>& mine) {
    while (arrival_waiter* waiter = mine.waiting.pop()) {
      world_->ready_coroutines().push(waiter->coroutine);
    }
  }

  /// What came back goes where the model looks for it.
  void update(std::size_t position, std::uint64_t step) {
    auto& queue = world_->queue();
    const tensor& to = model_->at(position);
    const std::span<float> mean = model_->data(position);
    if constexpr (Types::owns_parameters) {
      queue.copy(to.parameter.data(), mean.data(), mean.size_bytes());
    } else if constexpr (std::is_same_v<optimizer, tutti::optimizer::none>) {
      if (mean.data() != to.gradient.data()) {
        queue.copy(to.gradient.data(), mean.data(), mean.size_bytes());
      }
    } else {
      optimizer_->apply(queue, to.parameter, std::span<const float>(mean),
                        momenta_.at(plan_->first_element[position], {}, step));
    }
  }

  transport* world_;
  const plan* plan_;
  const model_memory<queue_type>* model_;
  int workers_;
  float average_;
  bool follows_;
  compression compression_;
  architecture architecture_{};
  optimizer* optimizer_;
  observer_type* observer_;
  Owner* owner_;
  typename schedule::state schedule_;
  std::vector<tensor_state<mark>> tensors_;
  std::vector<std::size_t> filled_;
  std::vector<chunk_record> chunks_;
  ring<std::uint32_t> told_;
  ring<departure> leaving_;
  state_memory<queue_type> worker_memory_;
  state_memory<queue_type> owner_memory_;
  state_memory<queue_type> momenta_;
  std::optional<leader<transport>> leader_{};
  running_hash agenda_{};
  std::uint64_t starts_ = 0;
  std::size_t carried_out_ = 0;
  bool out_of_room_ = false;
  bool deciding_ = false;
};

}  // namespace tutti

#pragma once

#include <algorithm>
#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/base/fifo.hpp"
#include "tutti/base/gate.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/ring.hpp"
#include "tutti/base/task.hpp"
#include "tutti/coordination/decided.hpp"
#include "tutti/coordination/local.hpp"
#include "tutti/core/announcer.hpp"
#include "tutti/core/control.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/fusion_buffers.hpp"
#include "tutti/core/model_memory.hpp"
#include "tutti/core/observer.hpp"
#include "tutti/core/state_memory.hpp"
#include "tutti/core/surroundings.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/coordination.hpp"
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
  std::atomic<unsigned> accumulated{0};  ///< passes; the trainer's, others may look
  unsigned pieces = 0;                   ///< chunks that hold some of it
  unsigned pieces_left = 0;
  Mark written{};
  Mark current{};
  fifo<arrival_waiter> waiting{};

  bool is_current() const {
    return arrived.load(std::memory_order_acquire) == readied.load(std::memory_order_relaxed);
  }
};

/// A gradient's way through a rank that trains: tensors fill buckets, chunks start when the
/// coordination's machine says so, are exchanged as the architecture's state says, and make tensors
/// arrive. It neither waits nor polls; `Owner` is told of failures.
template <class Types, class Owner>
class flow {
  using transport = typename Types::transport;
  using schedule = typename Types::schedule;
  using compression = typename Types::compression;
  using architecture = typename Types::architecture;
  using surroundings_type = surroundings<Types>;
  using state_type = typename architecture::template state<surroundings_type>;
  using coordination = typename Types::coordination;
  using machine_type = typename coordination::template state<typename Types::choice>;
  using launch_type = launch<compression>;
  using queue_type = typename transport::queue_type;
  using mark = typename queue_type::mark;
  using observer_type = observer<typename Types::monitor, transport>;
  static_assert(coordination_machine<machine_type>);
  static constexpr bool gathers = Types::choice::gathers;
  static constexpr bool joins = facts::joins<coordination>;
  static constexpr bool speaks = !std::is_same_v<coordination, tutti::coordination::local>;
  static constexpr bool tells_first = speaks && is_stream_ordered<transport>;
  /// Where a stream moves chunks, they have been enqueued before they leave.
  static constexpr bool leaves_later = schedule::limits_in_flight && !Types::virtual_time &&
                                       !std::is_same_v<queue_type, inline_queue>;
  static constexpr bool splits = surroundings_type::splits_phases;
  static constexpr bool delays = facts::delay<architecture> > 0;
  static constexpr std::size_t owner_lanes =
      facts::encodes_means<architecture> ? facts::memory_per_element<typename Types::relay> : 0;
  using buffers_type = fusion_buffers<queue_type>;
  using buffer_type = typename buffers_type::buffer;
  static constexpr written written_by =
      facts::has_outgoing<state_type> ? written::by_the_architecture : written::by_the_model;

 public:
  /// Launches follow the order of the first step.
  static constexpr bool learns = requires(machine_type & its) { its.book(); };

  flow(transport& world, const plan& made, const model_memory<queue_type>& model,
       const typename Types::options& set, surroundings_type& around, state_type& state,
       tag words_tag, observer_type& watched, Owner& owner)
      : world_(&world),
        plan_(&made),
        model_(&model),
        around_(&around),
        state_(&state),
        observer_(&watched),
        owner_(&owner),
        machine_(made, model.forward(), {world.rank(), around.workers()}, set.coordination,
                 typename Types::choice(made, set.schedule, set.fusion)),
        tensors_(made.backward.size()),
        filled_(made.buckets.size()),
        chunks_(made.chunks.size()),
        second_half_(made, set.schedule),
        leaving_(leaves_later ? made.chunks.size() + 1 : 1),
        worker_memory_(world.queue(), facts::memory_per_element<compression>, model.remembered()),
        owner_memory_(world.queue(), owner_lanes, model.remembered()),
        answered_(world.ready_coroutines()) {
    set_up_chunks();
    if constexpr (gathers) {
      set_up_buffers(make_policy<typename Types::strategy::fusion>(set.fusion).most_bytes(made) /
                     sizeof(float));
    }
    if constexpr (speaks) {
      if (world.rank() == 0 && around.workers() > 1) {
        announcer_.emplace(world, words_tag, 1, around.workers(), most_words(), *this);
      } else if (world.rank() != 0) {
        announcer_.emplace(world, words_tag, 0, 1, 1, *this);
      }
      heard_.reserve(most_words());
    }
  }
  flow(const flow&) = delete;
  flow& operator=(const flow&) = delete;

  // ---- events in

  /// The gradient of the tensor at `position` of the backward order is there.
  void fill(std::size_t position) {
    observer_->record(event::ready, static_cast<std::uint32_t>(index(plan_->at(position))));
    const std::uint64_t step = tensors_[position].arrived.load(std::memory_order_relaxed);
    if constexpr (facts::has_depart<state_type>) {
      world_->queue().wait(tensors_[position].written);
      state_->depart(position, step);
    }
    const std::uint32_t number = plan_->bucket_of[position];
    const bucket& filling = plan_->buckets[number];
    const bool full = ++filled_[number] == filling.tensors;
    if (full) {
      filled_[number] = 0;
    }
    if constexpr (facts::has_sends<state_type>) {
      if (!state_->sends(step)) {
        pass_by(position, step, full ? &filling : nullptr);
        return;
      }
    }
    if (!full) {
      return;
    }
    for (std::uint32_t i = 0; i < filling.chunks; ++i) {
      chunks_[filling.first_chunk + i].state = chunk_state::ready;
    }
    machine_.ready(number, now());
    go_on();
  }

  /// What another rank's machine has said.
  void hear(int peer, std::span<const std::byte> words) {
    heard_.resize(words.size() / sizeof(std::uint32_t));
    std::memcpy(heard_.data(), words.data(), words.size());
    machine_.hear(peer, heard_, now());
    go_on();
    answered_.open();
  }
  /// A rank has read all that was said to it.
  void heard_by(int) {
    if (world_->rank() != 0) {
      go_on();
      answered_.open();
    }
  }

  /// Starts what this rank has decided and told the others. Whoever starts on a stream, and then
  /// blocks until the stream has come so far, could tell them no more.
  bool carry_out() {
    bool any = has_decided();
    if constexpr (gathers) {
      any = any || (waits_for_buffer_ && buffers_->any_free());
    }
    if (any) {
      go_on();
    }
    return let_go() || any;
  }
  bool has_decided() const {
    if constexpr (tells_first) {
      return world_->rank() == 0 && announcer_ && announcer_->told() != carried_out_;
    } else {
      return false;
    }
  }

  // ---- what there is to see

  tensor_state<mark>& at(std::size_t position) { return tensors_[position]; }
  /// Other ranks' machines may speak to this one's.
  bool listens() const {
    if constexpr (speaks) {
      return announcer_.has_value();
    } else {
      return false;
    }
  }
  std::uint64_t agenda() const { return agenda_.value(); }
  /// Steps that the model's last tensor has come to the end of.
  std::uint64_t steps() const {
    return tensors_.empty() ? 0 : tensors_.front().arrived.load(std::memory_order_acquire);
  }
  /// What is remembered from step to step of each element sent, of each mean, and, where tensors
  /// arrive before their launch has ended, what came of the last ones.
  std::vector<std::span<float>> memories() {
    std::vector<std::span<float>> all{worker_memory_.floats(), owner_memory_.floats()};
    for (chunk_record& each : chunks_) {
      if (each.remembered.size() != 0) {
        all.push_back(span_of(each.remembered));
      }
    }
    if constexpr (delays) {
      for (const chunk& each : plan_->chunks) {
        all.push_back(model_->phantom() ? std::span<float>() : model_->data(each));
      }
    }
    return all;
  }
  /// The launches of a step in their order, as this rank has learned it.
  std::span<const std::uint32_t> book() const requires learns { return machine_.book(); }
  void resume_by(std::span<const std::uint32_t> book) requires learns { machine_.resume(book); }
  bool outstanding() const {
    return !std::ranges::all_of(tensors_, [](const auto& each) { return each.is_current(); });
  }
  /// Some launch is on its way. For any thread.
  bool communicates() const { return in_flight_.load(std::memory_order_acquire) != 0; }
  bool at_rest() const {
    if constexpr (speaks) {
      if (announcer_ && !announcer_->at_rest()) {
        return false;
      }
    }
    if constexpr (gathers) {
      if (!ticker_.done()) {
        return false;
      }
    }
    return std::ranges::all_of(
        chunks_, [](const auto& each) { return each.running.done() && each.before.done(); });
  }

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

  /// This rank has no more batches, and all that it handed in has arrived.
  void join() requires joins {
    machine_.join(now());
    go_on();
  }

  /// No more gradients: ends when every launch has, and the others have read and answered all.
  task finish() {
    if constexpr (delays) {
      for (std::size_t i = 0; i < chunks_.size(); ++i) {
        const task& last = chunks_[i].running;
        co_await last;
      }
    }
    if constexpr (speaks) {
      gate& answer = answered_;
      say_that_it_leaves();
      while (machine_.expects_words() && !stopped_) {
        co_await answer;
      }
      if (announcer_) {
        co_await announcer_->finish();
      }
    }
    co_return;
  }
  /// An exception ends this rank's part: others hear of that.
  void leave_unsaid() { leaves_unsaid_ = true; }
  /// Nobody need hear anything any more.
  void stop_speaking() {
    stopped_ = true;
    answered_.open();
    if constexpr (speaks) {
      if (announcer_) {
        announcer_->close();
      }
    }
  }
  /// Coroutines that wait for tensors go on, to find out why nothing will come; exchanges between
  /// their halves do, too.
  void release_waiters() {
    stopped_ = true;
    answered_.open();
    if constexpr (splits) {
      for (auto& each : chunks_) {
        each.second_half->open();
      }
    }
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
    // What rank 0 counts may not be due yet; what it has told the others have begun already.
    const auto late = machine_.stuck(chunk_is_ready{this});
    if (late && (world_->rank() != 0 || !communicates())) {
      return std::pair{*late, chunks_[*late].steps};
    }
    // What is merely ready may wait for the others' credit: they come last.
    const auto order = [](const chunk_record& each) {
      const int place = each.state == chunk_state::started ? 0
                        : each.state == chunk_state::ready ? 1
                                                           : 2;
      return std::pair{place, each.steps};
    };
    const auto found = std::ranges::min_element(chunks_, {}, order);
    if (found == chunks_.end() || order(*found).first == 2) {
      return std::nullopt;
    }
    const bool counted = delays && found->state == chunk_state::started;  // its step is over
    return std::pair{static_cast<std::uint32_t>(found - chunks_.begin()), found->steps - counted};
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
  /// What a schedule that leaves exchanges whole has in place of a second half.
  struct no_second_half {
    no_second_half(const plan&, const options_of<schedule>&) {}
  };
  static auto second_half_of() {
    if constexpr (splits) {
      return std::type_identity<typename schedule::second_half>();
    } else {
      return std::type_identity<no_second_half>();
    }
  }

  struct chunk_record {
    chunk_state state{chunk_state::finished};
    std::uint64_t steps{};
    std::uint64_t started{};  ///< among all starts, from 1 on
    mark moved{};             ///< where a stream moves chunks
    bool released{};
    memory_of<std::byte, queue_type> workspace{};
    memory_of<std::byte, queue_type> scratch{};
    memory_of<float, queue_type> remembered{};  ///< of its tensor, by its compressor
    task running{};
    std::conditional_t<splits, std::optional<gate>, std::monostate> second_half{};
    task before{};  ///< the launch before, where the next may begin before it has ended
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

  struct chunk_is_ready {
    const flow* self;
    bool operator()(std::uint32_t chunk) const {
      return self->chunks_[chunk].state == chunk_state::ready;
    }
  };

  std::size_t most_words() const { return tutti::coordination::decided<gathers>::room(*plan_); }

  void set_up_chunks() {
    for (std::size_t number = 0; number < chunks_.size(); ++number) {
      const chunk& piece = plan_->chunks[number];
      if (!model_->phantom() && (!gathers || is_alone(piece))) {
        chunks_[number].workspace =
            allocate<std::byte>(world_->queue(), workspace_of(*state_, piece));
        with_compressor(around_->compressor(), piece.chosen,
                        [&](const auto& its) { set_up(its, chunks_[number], piece); });
      }
      if constexpr (splits) {
        chunks_[number].second_half.emplace(world_->ready_coroutines());
      }
      for_each_tensor(piece, [&](std::size_t position) { ++tensors_[position].pieces; });
    }
    for (auto& each : tensors_) {
      each.pieces_left = each.pieces;
    }
  }

  /// What the chunk's compressor works with.
  template <class C>
  void set_up(const C& its, chunk_record& record, const chunk& piece) {
    if constexpr (facts::in_rounds<C>) {
      const tensor_facts& tensor = around_->tensor_of(piece);
      record.scratch = allocate<std::byte>(world_->queue(), its.scratch_bytes(tensor));
      record.remembered = allocate_zeros<float>(world_->queue(), its.remembers(tensor));
    } else {
      record.scratch = allocate<std::byte>(
          world_->queue(),
          std::max(scratch_bytes(its, piece.elements), scratch_bytes(relay(its), piece.elements)));
    }
  }

  /// Its compressor works on the one tensor that it holds: it is a launch by itself.
  bool is_alone(const chunk& piece) const {
    return with_compressor(around_->compressor(), piece.chosen, [](const auto& its) {
      return facts::works_on_tensors<std::remove_cvref_t<decltype(its)>>;
    });
  }

  /// Buffers for launches of either class of tensors, unless those are launches by themselves.
  void set_up_buffers(std::size_t most) {
    std::size_t workspace = 0;
    std::size_t scratch = 0;
    for (const bool chosen : {false, true}) {
      chunk largest{};
      largest.elements = most;
      largest.chosen = chosen;
      if (is_alone(largest)) {
        continue;
      }
      workspace = std::max(workspace, workspace_of(*state_, largest));
      with_compressor(around_->compressor(), chosen, [&](const auto& its) {
        if constexpr (!facts::in_rounds<std::remove_cvref_t<decltype(its)>>) {
          scratch = std::max({scratch, scratch_bytes(its, most), scratch_bytes(relay(its), most)});
        }
      });
    }
    buffers_.emplace(
        world_->queue(), *plan_, *model_, most, workspace, scratch,
        remembered_lanes{worker_memory_.floats(), facts::memory_per_element<compression>},
        remembered_lanes{owner_memory_.floats(), owner_lanes});
  }

  /// The tensors that a chunk holds some of; one without elements counts to its bucket's first
  /// chunk.
  template <class Visit>
  void for_each_tensor(const chunk& piece, Visit visit) const {
    const bucket& group = plan_->buckets[piece.bucket];
    const bool first_chunk = &piece == &plan_->chunks[group.first_chunk];
    for (std::size_t i = group.first_tensor; i < group.first_tensor + group.tensors; ++i) {
      if (plan_->backward[i].elements == 0 ? first_chunk : plan_->holds_some(piece, i)) {
        visit(i);
      }
    }
  }

  /// Cycles alone are timed.
  seconds now() const {
    if constexpr (gathers) {
      return world_->now();
    } else {
      return 0;
    }
  }

  /// After every event. A chunk that completes at once comes back here; the outermost call goes on
  /// with the rest.
  void go_on() {
    if (std::exchange(deciding_, true)) {
      return;
    }
    speak();
    const std::size_t left = words_left();
    while (has_buffer()) {
      const auto next = machine_.next(chunk_is_ready{this}, left);
      if (!next) {
        break;
      }
      if constexpr (gathers) {
        start_together(*next);
      } else {
        start(*next);
      }
    }
    carried_out_ = left;
    speak();
    deciding_ = false;
    if constexpr (joins) {
      if (machine_.all_have_joined()) {
        take_back();
      }
    }
    if constexpr (gathers) {
      if (machine_.due() && ticker_.done()) {
        ticker_ = task();
        ticker_ = tick();
        ticker_.start(world_->ready_coroutines());
      }
    }
  }

  /// Whoever decides must know who hands in nothing any more.
  void say_that_it_leaves() {
    if constexpr (requires { machine_.leave(); }) {
      if (leaves_unsaid_) {
        return;
      }
      try {
        machine_.leave();
      } catch (...) {
        owner_->chunk_failed(std::current_exception());
        throw;
      }
      go_on();
    }
  }

  /// All ranks have joined: the zeros that were handed in last travel nowhere.
  void take_back() {
    owner_->all_have_joined();
    for (auto& each : chunks_) {
      each.state = chunk_state::finished;
    }
    for (auto& each : tensors_) {
      each.readied.store(each.arrived.load(std::memory_order_relaxed), std::memory_order_relaxed);
      wake(each);
    }
  }

  /// Launches wait for a buffer in their order, the same on all ranks.
  bool has_buffer() {
    if constexpr (gathers) {
      waits_for_buffer_ = !buffers_->any_free();
      return !waits_for_buffer_;
    } else {
      return true;
    }
  }

  /// As long as the machine wants to be told the time.
  task tick() {
    try {
      while (const auto due = machine_.due()) {
        if (const seconds left = *due - world_->now(); left > 0) {
          co_await world_->sleep(left);
        }
        machine_.tick(world_->now());
        go_on();
      }
    } catch (...) {
      owner_->chunk_failed(std::current_exception());
    }
  }

  void speak() {
    if constexpr (speaks) {
      if (announcer_ && (world_->rank() == 0 || announcer_->is_read())) {
        machine_.speak([this](std::span<const std::uint32_t> words) { announcer_->say(words); });
      }
    }
  }

  /// On a stream what this rank decides goes when it has left for the others.
  std::size_t words_left() const {
    if constexpr (tells_first) {
      if (world_->rank() == 0 && announcer_) {
        return announcer_->told();
      }
    }
    return std::numeric_limits<std::size_t>::max();
  }

  void start(std::uint32_t number) {
    auto& record = chunks_[number];
    agenda_.feed(number);
    record.state = chunk_state::started;
    record.started = ++starts_;
    observer_->record(event::started, number);
    in_flight_.store(in_flight_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if constexpr (delays) {
      record.before = std::move(record.running);
    } else {
      record.released = false;
      record.running = task();  // its frame is the next one's
    }
    record.running = run(number);
    record.running.start(world_->ready_coroutines());
  }

  /// A launch of one or more chunks, under the number of the first.
  void start_together(std::uint32_t number) {
    buffer_type& mine = buffers_->take();
    for (std::uint32_t each = number; each != tutti::coordination::no_chunk;
         each = machine_.after(each)) {
      mine.chunks.push_back(each);
      agenda_.feed(each);
      chunks_[each].state = chunk_state::started;
      chunks_[each].started = ++starts_;
    }
    agenda_.feed(tutti::coordination::no_chunk);
    auto& record = chunks_[number];
    record.released = false;
    observer_->record(event::started, number);
    in_flight_.store(in_flight_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    record.running = task();  // its frame is the next one's
    record.running = run_together(number, mine);
    record.running.start(world_->ready_coroutines());
  }

  task run_together(std::uint32_t number, buffer_type& mine) {
    auto& queue = world_->queue();
    try {
      for (const std::uint32_t each : mine.chunks) {
        for_each_tensor(plan_->chunks[each],
                        [&](std::size_t position) { queue.wait(tensors_[position].written); });
      }
      buffers_->lay_out(mine, chunks_[number].steps, written_by);
      if constexpr (facts::has_outgoing<state_type>) {
        for_each_part(mine, [this](const chunk& piece, std::span<float> part) {
          state_->outgoing(piece, part);
        });
      } else {
        for (const std::uint32_t each : mine.chunks) {
          model_->pack(queue, each);
        }
      }
      buffers_->gather(queue, mine);
      launch_type what = launch_of(number);
      if (!is_alone(plan_->chunks[number])) {
        what.data = mine.data;
        what.worker = in_buffer(what.worker, mine.worker);
        what.owner = in_buffer(what.owner, mine.owner);
        what.workspace = span_of(mine.workspace);
      }
      if (!what.data.empty()) {
        co_await state_->exchange(endpoint<transport>(*world_, tag{channel::data, number, 0}),
                                  what);
      }
      buffers_->scatter(queue, mine);
      if constexpr (facts::has_incoming<state_type>) {
        for_each_part(mine, [this](const chunk& piece, std::span<float> part) {
          state_->incoming(piece, part);
        });
      }
      if constexpr (has_virtual_time<transport>) {
        if (const seconds left = queue.record() - world_->now(); left > 0) {
          co_await world_->sleep(left);
        }
      }
      finish_together(number, mine);
    } catch (...) {
      owner_->chunk_failed(std::current_exception());
    }
    in_flight_.store(in_flight_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  }

  static site in_buffer(site where, const site& lies) {
    where.memory = lies.memory;
    where.stride = lies.stride;
    where.scratch = lies.scratch;
    where.first_element = lies.first_element;
    return where;
  }

  template <class Visit>
  void for_each_part(const buffer_type& mine, Visit visit) const {
    std::size_t place = 0;
    for (const std::uint32_t each : mine.chunks) {
      const chunk& piece = plan_->chunks[each];
      visit(piece,
            model_->phantom() ? std::span<float>() : mine.data.subspan(place, piece.elements));
      place += piece.elements;
    }
  }

  void finish_together(std::uint32_t number, buffer_type& mine) {
    const mark moved = moved_so_far();
    for (const std::uint32_t each : mine.chunks) {
      chunks_[each].moved = moved;
      chunks_[each].state = chunk_state::finished;
    }
    release(number, moved);
    observer_->record(event::finished, number);
    for (const std::uint32_t each : mine.chunks) {
      make_tensors_arrive(each);
    }
    buffers_->give_back(world_->queue(), mine);
    go_on();
  }

  task run(std::uint32_t number) {
    auto& record = chunks_[number];
    const chunk& piece = plan_->chunks[number];
    auto& queue = world_->queue();
    try {
      if constexpr (delays) {
        const task& before = record.before;
        co_await before;  // until then the chunk's credit and state are its own
        record.released = false;
        record.state = chunk_state::started;
      }
      for_each_tensor(piece, [&](std::size_t position) { queue.wait(tensors_[position].written); });
      const launch_type what = launch_of(number);
      if constexpr (delays) {
        swap_with_gradient(piece);
        make_tensors_arrive(number);
      } else if constexpr (facts::has_outgoing<state_type>) {
        state_->outgoing(piece, what.data);
      } else {
        model_->pack(queue, number);
      }
      if (piece.elements > 0) {
        co_await state_->exchange(endpoint<transport>(*world_, tag{channel::data, number, 0}),
                                  what);
      }
      if constexpr (facts::has_incoming<state_type>) {
        state_->incoming(piece, what.data);
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
    in_flight_.store(in_flight_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  }

  site with_tensor(site where, chunk_record& record, const chunk& piece) const {
    where.rank = static_cast<std::uint64_t>(world_->rank());
    if constexpr (facts::works_on_tensors<compression> || selects<compression>) {
      where.tensor = &around_->tensor_of(piece);
      where.remembered = record.remembered.size() == 0 ? nullptr : record.remembered.data();
    }
    return where;
  }

  launch_type launch_of(std::uint32_t number) {
    auto& record = chunks_[number];
    const chunk& piece = plan_->chunks[number];
    const auto release = [](void* self, std::uint32_t which) {
      auto* mine = static_cast<flow*>(self);
      mine->release(which, mine->moved_so_far());
    };
    return {
        number,
        record.steps,
        model_->data(piece),
        &around_->compressor(),
        with_tensor(worker_memory_.at(piece.first_element, span_of(record.scratch), record.steps),
                    record, piece),
        with_tensor(owner_memory_.at(piece.first_element, span_of(record.scratch), record.steps),
                    record, piece),
        span_of(record.workspace),
        average(),
        piece.placed_on,
        piece.chosen,
        release,
        [](void* self) { static_cast<flow*>(self)->half_done(); },
        this,
        gate_of(record)};
  }

  gate* gate_of([[maybe_unused]] chunk_record& record) {
    if constexpr (splits) {
      return &*record.second_half;
    } else {
      return nullptr;
    }
  }

  void half_done() {
    if constexpr (splits) {
      second_half_.half_done();
      begin_second_halves();
    }
  }
  void begin_second_halves() {
    if constexpr (splits) {
      while (const auto next = second_half_.next()) {
        chunks_[*next].second_half->open();
      }
    }
  }

  float average() const {
    if constexpr (facts::has_average<state_type>) {
      return state_->average();
    } else {
      return 1.0f /
             (static_cast<float>(around_->workers()) * static_cast<float>(around_->accumulation()));
    }
  }

  /// What came of the last launch takes the gradient's place, and the gradient what travels.
  void swap_with_gradient(const chunk& piece) {
    if (model_->phantom()) {
      return;
    }
    const std::span<float> buffer = model_->data(piece);
    model_->for_each_run(piece, [&](std::size_t position, std::size_t offset, std::size_t count,
                                    std::size_t in_chunk) {
      kernels::swap(world_->queue(), model_->at(position).gradient.subspan(offset, count),
                    buffer.subspan(in_chunk, count));
    });
  }

  /// The architecture has nothing to send in this step: the tensor arrives as it is.
  void pass_by(std::size_t position, std::uint64_t step, const bucket* full) {
    world_->queue().wait(tensors_[position].written);
    if (full != nullptr) {
      for (std::uint32_t i = 0; i < full->chunks; ++i) {
        ++chunks_[full->first_chunk + i].steps;
      }
    }
    arrive(position, step);
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
    machine_.released(number, now());
    go_on();
  }

  void finish(std::uint32_t number) {
    auto& record = chunks_[number];
    record.moved = moved_so_far();
    release(number, record.moved);
    if constexpr (splits) {
      if (plan_->chunks[number].elements > 0) {
        second_half_.done();
        begin_second_halves();
      }
    }
    if (record.state == chunk_state::started) {  // or the next launch's gradient is here already
      record.state = chunk_state::finished;
    }
    observer_->record(event::finished, number);
    if constexpr (!delays) {
      make_tensors_arrive(number);
    }
  }

  /// Those whose last piece this is. The chunk's step is over before anybody can see that.
  void make_tensors_arrive(std::uint32_t number) {
    const std::uint64_t step = chunks_[number].steps++;
    for_each_tensor(plan_->chunks[number], [&](std::size_t position) {
      auto& mine = tensors_[position];
      if (--mine.pieces_left == 0) {
        mine.pieces_left = mine.pieces;
        arrive(position, step);
      }
    });
  }

  void arrive(std::size_t position, std::uint64_t step) {
    auto& mine = tensors_[position];
    if constexpr (facts::has_arrive<state_type>) {
      state_->arrive(position, step);
    } else if constexpr (!delays) {
      around_->update(position, step, model_->data(position));
    } else if (step > 0) {
      around_->update(position, step - 1, model_->at(position).gradient);
    }
    mine.current = world_->queue().record();
    observer_->record(event::arrived, static_cast<std::uint32_t>(index(plan_->at(position))));
    mine.arrived.fetch_add(1, std::memory_order_release);  // from here on it is the caller's
    wake(mine);
  }

  void wake(tensor_state<mark>& mine) {
    while (arrival_waiter* waiter = mine.waiting.pop()) {
      world_->ready_coroutines().push(waiter->coroutine);
    }
  }

  transport* world_;
  const plan* plan_;
  const model_memory<queue_type>* model_;
  surroundings_type* around_;
  state_type* state_;
  observer_type* observer_;
  Owner* owner_;
  machine_type machine_;
  std::vector<tensor_state<mark>> tensors_;
  std::vector<std::size_t> filled_;
  std::vector<chunk_record> chunks_;
  [[no_unique_address]] typename decltype(second_half_of())::type second_half_;
  ring<departure> leaving_;
  state_memory<queue_type> worker_memory_;
  state_memory<queue_type> owner_memory_;
  std::atomic<std::size_t> in_flight_{0};  ///< launches; written by the loop's owner alone
  struct silence {};
  std::conditional_t<speaks, std::optional<announcer<transport, flow>>, silence> announcer_{};
  std::vector<std::uint32_t> heard_{};
  gate answered_;
  std::conditional_t<gathers, std::optional<buffers_type>, silence> buffers_{};
  std::conditional_t<gathers, task, silence> ticker_{};
  bool waits_for_buffer_ = false;
  running_hash agenda_{};
  std::uint64_t starts_ = 0;
  std::size_t carried_out_ = 0;
  bool stopped_ = false;
  bool leaves_unsaid_ = false;
  bool deciding_ = false;
};

}  // namespace tutti

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/gate.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/task.hpp"
#include "tutti/coordination/decided.hpp"
#include "tutti/core/architecture_world.hpp"
#include "tutti/core/chunk_records.hpp"
#include "tutti/core/control.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/fusion_buffers.hpp"
#include "tutti/core/model_memory.hpp"
#include "tutti/core/observer.hpp"
#include "tutti/core/order_of_starts.hpp"
#include "tutti/core/tensor_state.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/norms.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/coordination.hpp"
#include "tutti/role/monitor.hpp"
#include "tutti/role/optimizer.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

namespace detail {

[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_to_start(std::uint32_t number) {
  throw usage_error(sentence({"a schedule's or coordination's next() returned chunk ", number,
                              ", which is not ready, or has been started already. Fix: return "
                              "each chunk of a bucket once, after ready(bucket)"}));
}

}  // namespace detail

/// The way of gradients through a rank that trains. Tensors fill buckets, chunks start when the
/// coordination's machine says so, are exchanged by the architecture's state, and make tensors
/// arrive. It neither blocks nor polls, and reports failures to `Owner`. One file although it is
/// long, because it reads in the order in which a gradient goes.
template <class Types, class Owner>
class flow {
  using transport = typename Types::transport;
  using schedule = typename Types::schedule;
  using compression = typename Types::compression;
  using architecture = typename Types::architecture;
  using world_type = architecture_world<typename Types::exchange>;
  using state_type = typename architecture::template state<world_type>;
  using launch_type = launch<compression>;
  using queue_type = typename transport::queue_type;
  using queue_event = typename queue_type::event;
  using observer_type = observer<typename Types::monitor, transport>;
  static constexpr bool gathers = Types::choice::gathers;
  static constexpr bool joins = facts::joins<typename Types::coordination>;
  static constexpr bool splits = world_type::splits_phases;
  static constexpr bool delays = facts::delay<architecture> > 0;
  static constexpr bool undoes = world_type::undoes_steps;
  using records_type = chunk_records<typename Types::exchange>;
  using record_type = typename records_type::record;
  using order_type = order_of_starts<Types, flow>;
  friend order_type;
  using buffer_type = typename records_type::buffers::buffer;
  static constexpr written written_by =
      facts::has_outgoing<state_type> && facts::has_arrive<state_type>
          ? written::by_the_architecture
          : written::by_the_model;

 public:
  /// Whether launches follow an order that ranks learn in the first steps (coordination::learned).
  static constexpr bool learns = order_type::learns;
  /// Whether ranks tell each other in which order launches start.
  static constexpr bool speaks = order_type::speaks;

  [[gnu::cold]] flow(transport& world, const plan& made, model_memory<queue_type>& model,
                     const typename Types::options& set, world_type& around, state_type& state,
                     tag words_tag, observer_type& watched, Owner& owner)
      : world_(&world),
        plan_(&made),
        model_(&model),
        around_(&around),
        state_(&state),
        observer_(&watched),
        owner_(&owner),
        tensors_(made),
        filled_(made.buckets.size()),
        chunks_(world, made, model, around, state,
                gathers ? chunk_memory::of_launches : chunk_memory::of_chunks),
        second_half_(made, set.schedule),
        order_(world, made, model, set, around.workers(), words_tag, watched, *this) {
    if constexpr (gathers) {
      chunks_.make_buffers(
          buffers_, make_policy<typename Types::strategy::fusion>(set.fusion).most_bytes(made) /
                        sizeof(float));
    }
  }
  flow(const flow&) = delete;
  flow& operator=(const flow&) = delete;
  [[gnu::cold]] ~flow() = default;

  // ---- events in

  /// Takes in the gradient of the tensor at `position` of the backward order.
  void fill(std::size_t position) {
    observer_->record(event::ready, static_cast<std::uint32_t>(index(plan_->at(position))));
    const std::uint64_t step = tensors_[position].arrived.load(std::memory_order_relaxed);
    if (gradient_memory& moved = tensors_[position].moved; !moved.empty()) {
      model_->move(position, std::exchange(moved, {}));
    }
    if constexpr (facts::has_depart<state_type>) {
      world_->queue().wait(tensors_[position].written);
      state_->depart(position, step);
    }
    const std::uint32_t number = plan_->bucket_of[position];
    const bucket& filling = plan_->buckets[number];
    const bool full = ++filled_[number] == filling.tensors;
    if (full) {
      filled_[number] = 0;
      model_->settle(world_->queue(), number);
      if constexpr (undoes) {
        const bool keeps = restores_residuals<compression>(around_->values());
        for (std::uint32_t i = 0; i < filling.chunks && keeps; ++i) {
          chunks_.keep(filling.first_chunk + i);
        }
      }
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
    order_.ready(number);
  }

  /// Takes in what another rank's machine says about the order of launches.
  void hear(int peer, std::span<const std::byte> words) { order_.hear(peer, words); }
  bool carry_out() { return order_.carry_out(); }
  bool has_decided() const { return order_.has_decided(); }

  // ---- what there is to see

  tensor_state<queue_event>& at(std::size_t position) { return tensors_[position]; }
  bool listens() const { return order_.listens(); }
  std::uint64_t agenda() const { return agenda_.value(); }
  /// Steps that have ended for the model's last tensor.
  std::uint64_t steps() const { return tensors_.steps(); }
  /// What is remembered from step to step. Where tensors arrive before their launch has ended, this
  /// includes the results of the last launches.
  [[gnu::cold]] std::vector<std::span<float>> memories() {
    std::vector<std::span<float>> all = chunks_.memories();
    if constexpr (delays) {
      for (const std::uint32_t number : plan_->chunks_by_place()) {
        all.push_back(model_->phantom() ? std::span<float>() : model_->data(plan_->chunks[number]));
      }
    }
    return all;
  }
  void rescale(float factor) { chunks_.rescale(factor); }
  void scale_memory(float factor) requires undoes { chunks_.scale(factor); }
  /// The launches of a step in their order, as this rank has learned it.
  std::span<const std::uint32_t> learned_order() const requires learns {
    return order_.learned_order();
  }
  /// Launches by an order that an earlier run has learned for this plan.
  void resume_by(std::span<const std::uint32_t> order) requires learns { order_.resume(order); }
  bool outstanding() const { return !tensors_.all_are_current(); }
  /// Returns whether any launch is in flight. For any thread.
  bool communicates() const { return in_flight_.load(std::memory_order_acquire) != 0; }
  bool at_rest() const { return order_.at_rest() && deciding_.done() && chunks_.at_rest(); }

  /// Continues from step `steps`. Only where no tensor is outstanding.
  [[gnu::cold]] void resume(std::uint64_t steps) {
    for (auto& each : chunks_) {
      each.steps = steps;
    }
    tensors_.resume(steps);
  }

  /// Says that this rank has no more batches. All that it has handed in must have arrived.
  void join() requires joins { order_.join(); }

  /// Ends when every launch has ended, and other ranks have read and answered everything that was
  /// said to them. No more gradients may follow.
  task finish() {
    if constexpr (delays || undoes) {
      return finish_launches();
    } else {
      return order_.finish();  // launches have ended, because their tensors have arrived
    }
  }
  /// Keeps `finish` from announcing that this rank leaves: an exception ends its part, of which the
  /// others hear otherwise.
  void leave_unsaid() { order_.leave_unsaid(); }
  void stop_speaking() { order_.stop_speaking(); }
  /// Resumes coroutines that wait for tensors, which then find out why none will come, and
  /// exchanges that wait between their halves.
  [[gnu::cold]] void release_waiters() {
    order_.stop_waiting();
    if constexpr (splits) {
      for (auto& each : chunks_) {
        each.second_half->open();
      }
    }
    tensors_.wake(world_->ready_coroutines());
  }

  /// Returns the first chunk that has begun here and not ended, with its step. Nothing if this rank
  /// waits for something else.
  [[gnu::cold]] std::optional<chunk_step> stuck() const {
    if constexpr (is_stream_ordered<transport>) {
      if (const auto at = chunks_.first_on_stream()) {
        return at;
      }
    }
    // On rank 0 `late` may not be due yet, whereas the others have been told to start what is in
    // flight.
    const auto late = order_.stuck();
    if (late && (world_->rank() != 0 || !communicates())) {
      return chunk_step{*late, chunks_[*late].steps};
    }
    return chunks_.first_begun();
  }

  /// Fills in what the chunk is doing here, for a rank that is in step `step` of it.
  [[gnu::cold]] void describe(std::uint32_t number, std::uint64_t step,
                              control_message& answer) const {
    answer.tensor = no_tensor;
    if (number >= chunks_.size()) {
      answer.state = chunk_state::started;
      return;
    }
    const auto& record = chunks_[number];
    answer.state = record.steps > step ? chunk_state::finished : record.state;
    if (record.steps > step) {
      return;
    }
    if (record.state == chunk_state::finished) {
      answer.state = chunk_state::waits_for_gradient;
      answer.tensor = tensors_.lacking(bucket_of(number), step);
    } else if (record.state == chunk_state::ready) {  // maybe queued behind one that is not ready
      if (const auto late = order_.stuck()) {
        answer.tensor = tensors_.lacking(bucket_of(*late), chunks_[*late].steps);
      } else if constexpr (facts::holds_back<schedule>) {
        // Where the schedule limits credit, only tensors before the chunk's own hold it up for
        // certain.
        answer.tensor =
            tensors_.lacking({.tensors = schedule::limits_in_flight ? bucket_of(number).first_tensor
                                                                    : tensors_.size()},
                             record.steps);
      }
    }
  }

 private:
  [[gnu::cold]] task finish_launches() {
    if constexpr (delays) {
      for (auto& each : chunks_) {
        const task& last = each.running;
        co_await last;
      }
    }
    task silence = order_.finish();
    co_await silence;
    const task& last = deciding_;
    co_await last;
  }

  const bucket& bucket_of(std::uint32_t chunk) const {
    return plan_->buckets[plan_->chunks[chunk].bucket];
  }

  /// Takes the place of the second half where the schedule leaves exchanges whole.
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

  // ---- called by the order of starts

  bool is_ready(std::uint32_t chunk) const {
    return chunk < chunks_.size() && chunks_[chunk].state == chunk_state::ready;
  }
  bool has_buffer() const requires gathers { return buffers_->any_free(); }
  void start(std::uint32_t number) {
    if (!is_ready(number)) {
      detail::refuse_to_start(number);
    }
    if constexpr (gathers) {
      start_together(number);
    } else {
      start_alone(number);
    }
  }
  /// Ends the last zeros that were handed in: since all ranks have joined, they never travel.
  void all_have_joined() {
    owner_->all_have_joined();
    for (auto& each : chunks_) {
      each.state = chunk_state::finished;
    }
    tensors_.give_up(world_->ready_coroutines());
  }
  void chunk_failed(std::exception_ptr why) { owner_->broken(std::move(why)); }

  // ---- a launch

  void start_alone(std::uint32_t number) {
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
      record.running = task();  // the next coroutine reuses the frame's memory
    }
    record.running = run(number);
    record.running.start(world_->ready_coroutines());
  }

  /// Starts a launch of one or more chunks, which has the number of the first.
  void start_together(std::uint32_t number) {
    std::size_t elements = 0;
    for (std::uint32_t each = number; each != tutti::coordination::no_chunk;
         each = order_.after(each)) {
      elements += plan_->chunks[each].elements;
    }
    buffer_type& mine = buffers_->take(world_->queue(), elements,
                                       [this](std::size_t n) { return chunks_.room_of(n); });
    for (std::uint32_t each = number; each != tutti::coordination::no_chunk;
         each = order_.after(each)) {
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
    record.running = task();  // the next coroutine reuses the frame's memory
    record.running = run_together(number, mine);
    record.running.start(world_->ready_coroutines());
  }

  task run_together(std::uint32_t number, buffer_type& mine) {
    try {
      const launch_type what = gather(number, mine);
      if (!what.data.empty()) {
        const task moving = exchange(number, what);
        co_await moving;
      }
      scatter(what, mine);
      if constexpr (has_virtual_time<transport>) {
        if (const seconds left = world_->queue().record() - world_->now(); left > 0) {
          co_await world_->sleep(left);
        }
      }
      finish_together(number, mine);
    } catch (...) {
      chunk_failed(std::current_exception());
    }
    in_flight_.store(in_flight_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  }

  // Functions of their own, because the coroutine's frame would hold their variables.

  [[gnu::noinline]] launch_type gather(std::uint32_t number, buffer_type& mine) {
    auto& queue = world_->queue();
    for (const std::uint32_t each : mine.chunks) {
      wait_for_gradients(plan_->chunks[each]);
    }
    buffers_->lay_out(queue, mine, chunks_[number].steps, written_by);
    if constexpr (!facts::has_outgoing<state_type>) {
      for (const std::uint32_t each : mine.chunks) {
        model_->pack(queue, each);
      }
    }
    buffers_->gather(queue, mine);
    if constexpr (facts::has_outgoing<state_type>) {
      buffers_->for_each_part(mine, [this](const chunk& piece, std::span<float> part) {
        state_->outgoing(piece, part);
      });
    }
    launch_type what = launch_of(number);
    what.chunks = mine.chunks;
    if (!chunks_.is_alone(plan_->chunks[number])) {
      what.data = mine.data;
      what.worker = in_buffer(what.worker, mine.worker);
      what.owner = in_buffer(what.owner, mine.owner);
      what.workspace = span_of(mine.workspace);
      what.shares = mine.shares;
    }
    send_zeros_unless_finite(what.data);
    return what;
  }
  [[gnu::noinline]] void scatter(const launch_type& what, buffer_type& mine) {
    around_->count_overflow(what.data);
    if constexpr (facts::has_incoming<state_type>) {
      buffers_->for_each_part(mine, [this](const chunk& piece, std::span<float> part) {
        state_->incoming(piece, part);
      });
    }
    buffers_->scatter(world_->queue(), mine);
  }

  static chunk_context in_buffer(chunk_context where, const chunk_context& lies) {
    where.memory = lies.memory;
    where.stride = lies.stride;
    where.scratch = lies.scratch;
    where.first_element = lies.first_element;
    where.random_offset = lies.random_offset;
    return where;
  }

  void finish_together(std::uint32_t number, buffer_type& mine) {
    const queue_event moved = moved_so_far();
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
    order_.go_on();
  }

  task run(std::uint32_t number) {
    try {
      if constexpr (delays) {
        auto& record = chunks_[number];
        const task& before = record.before;
        co_await before;  // until it has ended, the chunk's credit and state belong to it
        record.released = false;
        record.state = chunk_state::started;
      }
      const launch_type what = pack(number);
      if (plan_->chunks[number].elements > 0) {
        const task moving = exchange(number, what);
        co_await moving;
      }
      unpack(number, what);
      if constexpr (has_virtual_time<transport>) {
        if (const seconds left = world_->queue().record() - world_->now(); left > 0) {
          co_await world_->sleep(left);
        }
      }
      finish(number);
    } catch (...) {
      chunk_failed(std::current_exception());
    }
    in_flight_.store(in_flight_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  }

  [[gnu::noinline]] launch_type pack(std::uint32_t number) {
    const chunk& piece = plan_->chunks[number];
    wait_for_gradients(piece);
    launch_type what = launch_of(number);
    if constexpr (delays && facts::has_incoming<state_type>) {
      if (what.step > 0) {
        state_->incoming(piece, what.data);
      }
    }
    if constexpr (facts::has_outgoing<state_type>) {
      state_->outgoing(piece, model_->data(piece));
    } else if constexpr (delays) {
      swap_with_gradient(piece);
    } else {
      model_->pack(world_->queue(), number);
    }
    if constexpr (delays) {
      make_tensors_arrive(number);
    }
    if (piece.elements > 0) {
      send_zeros_unless_finite(what.data);
    }
    return what;
  }
  [[gnu::noinline]] void unpack([[maybe_unused]] std::uint32_t number, const launch_type& what) {
    if (!what.data.empty()) {
      around_->count_overflow(what.data);
    }
    if constexpr (facts::has_incoming<state_type> && !delays) {
      state_->incoming(plan_->chunks[number], what.data);
    }
  }

  /// A function of its own, because a coroutine would write the arguments to its frame and read
  /// them back.
  task exchange(std::uint32_t number, const launch_type& what) {
    return state_->exchange(endpoint<transport>(*world_, tag{channel::data, number, 0}), what);
  }

  /// Makes the queue wait until the model has written the chunk's gradients.
  void wait_for_gradients(const chunk& piece) {
    if constexpr (!std::is_same_v<queue_type, inline_queue>) {
      for (const std::size_t position : plan_->tensors_of(piece)) {
        world_->queue().wait(tensors_[position].written);
      }
    }
  }

  launch_type launch_of(std::uint32_t number) {
    auto& record = chunks_[number];
    const chunk& piece = plan_->chunks[number];
    const auto release = [](void* self, std::uint32_t which) {
      auto* mine = static_cast<flow*>(self);
      mine->release(which, mine->moved_so_far());
    };
    return {number,
            record.steps,
            data_of(piece, record.steps),
            &around_->compressor(),
            chunks_.worker_context(number),
            chunks_.owner_context(number),
            span_of(record.workspace),
            average(),
            piece.placed_on,
            piece.chosen,
            release,
            [](void* self) { static_cast<flow*>(self)->half_done(); },
            this,
            gate_of(record)};
  }

  /// The data that travels: the chunk's part of its bucket or, in steps that exchange momenta, of
  /// the optimizer's momentum.
  std::span<float> data_of(const chunk& piece, [[maybe_unused]] std::uint64_t step) const {
    if constexpr (facts::exchanges_momenta<architecture>) {
      if (around_->values().exchanges_momenta(step)) {
        return around_->momenta_of(piece, 0);
      }
    }
    return model_->data(piece);
  }

  gate* gate_of([[maybe_unused]] record_type& record) {
    if constexpr (splits) {
      return &*record.second_half;
    } else {
      return nullptr;
    }
  }

  void half_done() {
    if constexpr (splits) {
      try {
        second_half_.half_done();
        begin_second_halves();
      } catch (...) {  // must not leave a coroutine that waits, and that the gate will resume
        chunk_failed(std::current_exception());
      }
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

  /// Swaps the mean of the last launch, which goes where the model has its gradient, with the
  /// gradient, which goes where it travels from.
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

  /// Handles a tensor in a step in which the architecture sends nothing: it arrives as it is.
  /// `full` is its bucket, if the tensor has completed it.
  void pass_by(std::size_t position, std::uint64_t step, const bucket* full) {
    world_->queue().wait(tensors_[position].written);
    if (full != nullptr) {
      for (std::uint32_t i = 0; i < full->chunks; ++i) {
        ++chunks_[full->first_chunk + i].steps;
      }
    }
    arrive(position, step);
  }

  queue_event moved_so_far() {
    if constexpr (is_stream_ordered<transport> || order_type::leaves_later) {
      return world_->queue().record();
    } else {
      return {};
    }
  }

  /// Says that the chunk's bytes have left, or will have once the event passes.
  void release(std::uint32_t number, const queue_event& after) {
    if (!std::exchange(chunks_[number].released, true)) {
      order_.released(number, after);
    }
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
    if (record.state == chunk_state::started) {  // else the next launch's gradient is there
      record.state = chunk_state::finished;
    }
    observer_->record(event::finished, number);
    if constexpr (!delays) {
      make_tensors_arrive(number);
    }
  }

  /// Makes those tensors arrive of which this chunk is the last piece. Counts the chunk's step
  /// first, so that nobody sees a tensor arrive before that.
  void make_tensors_arrive(std::uint32_t number) {
    const std::uint64_t step = chunks_[number].steps++;
    for (const std::size_t position : plan_->tensors_of(plan_->chunks[number])) {
      auto& mine = tensors_[position];
      if (--mine.pieces_left == 0) {
        mine.pieces_left = mine.pieces;
        arrive(position, step);
      }
    }
  }

  void arrive(std::size_t position, std::uint64_t step) {
    if constexpr (facts::has_arrive<state_type>) {
      state_->arrive(position, step);
    } else if constexpr (facts::needs_all_gradients<typename Types::optimizer>) {
      update_together(step);
      return;
    } else if constexpr (!delays) {
      update(position, step, model_->data(position));
    } else if (step > 0) {
      update(position, step - 1, model_->at(position).gradient);
    }
    has_arrived(position);
  }

  void update(std::size_t position, std::uint64_t step, std::span<const float> mean) {
    show(position, mean);
    around_->update(position, step, mean);
  }
  void show(std::size_t position, std::span<const float> mean) {
    if (!model_->phantom()) {
      observer_->mean(static_cast<std::uint32_t>(index(plan_->at(position))), mean);
    }
  }

  /// Counts the mean of one more tensor. With the last one of the step, the optimizer is given the
  /// sum of their squares, before it updates any tensor. Until then no tensor arrives, so that none
  /// is in the next step.
  void update_together(std::uint64_t step) {
    if (++means_ < tensors_.size()) {
      return;
    }
    means_ = 0;
    observer_->scaled(scale_of(around_->values()));
    if constexpr (undoes) {
      deciding_ = task();  // the next coroutine reuses the frame's memory
      deciding_ = decide(step);
      deciding_.start(world_->ready_coroutines());
    } else {
      const float factor = owner_->begin_step(squares_of_means());
      if (factor == 0) {
        owner_->undo_step();
      }
      update_all(step, factor);
    }
  }

  /// Sends zeros in place of a gradient that holds an infinity or NaN, where a compressor remembers
  /// or its payloads do not add. The optimizer will skip the step, and some compressors cannot
  /// encode such values.
  void send_zeros_unless_finite([[maybe_unused]] std::span<float> gradient) {
    if constexpr (undoes) {
      if (!model_->phantom()) {
        const std::uint64_t before = nonfinite_;
        kernels::count_nonfinite(world_->queue(), gradient, &nonfinite_);
        if (nonfinite_ != before) {
          world_->queue().clear(gradient.data(), gradient.size_bytes());
        }
      }
    }
  }
  /// Decides whether the step updates anything. A rank whose gradient holds an infinity or NaN
  /// tells the others, because no mean shows it. If the step is skipped, whatever was remembered
  /// before it is restored. What is remembered also follows a change of the optimizer's loss scale.
  task decide(std::uint64_t step) {
    try {
      auto nonfinite = static_cast<double>(std::exchange(nonfinite_, 0));
      co_await owner_->average_of_step(nonfinite);
      const auto before = around_->values();
      const bool kept = restores_residuals<compression>(before);
      const float factor =
          owner_->begin_step(nonfinite != 0 ? std::numeric_limits<double>::infinity()
                             : kept         ? squares_of_means()
                                            : 0.0);
      if (factor == 0) {
        owner_->undo_step();
        if (kept) {
          chunks_.undo_step();
          co_await owner_->undo_on_servers();
        }
      }
      if (const float change = change_of_scale(before, around_->values()); change != 1) {
        chunks_.scale(change);
        co_await owner_->tell_values();
      }
      update_all(step, factor);
    } catch (...) {
      chunk_failed(std::current_exception());
    }
  }

  double squares_of_means() const {
    double squares = 0;
    for (std::size_t position = 0; position < tensors_.size() && !model_->phantom(); ++position) {
      double its = 0;
      kernels::sum_of_squares(world_->queue(), model_->data(position), &its);
      squares += its;
    }
    return squares;
  }
  void update_all(std::uint64_t step, float factor) {
    for (std::size_t position = 0; position < tensors_.size(); ++position) {
      if (factor != 0) {
        show(position, model_->data(position));  // not yet scaled, as the workers' own gradients
        if (factor != 1 && !model_->phantom()) {
          kernels::scale(world_->queue(), model_->data(position), factor);
        }
        around_->update(position, step, model_->data(position));
      }
    }
    for (std::size_t position = 0; position < tensors_.size(); ++position) {
      has_arrived(position);
    }
  }

  void has_arrived(std::size_t position) {
    auto& mine = tensors_[position];
    mine.current = world_->queue().record();
    observer_->record(event::arrived, static_cast<std::uint32_t>(index(plan_->at(position))));
    mine.arrived.store(mine.arrived.load(std::memory_order_relaxed) + 1,
                       std::memory_order_release);  // from here on the tensor belongs to the caller
    mine.wake(world_->ready_coroutines());
  }

  transport* world_;
  const plan* plan_;
  model_memory<queue_type>* model_;
  world_type* around_;
  state_type* state_;
  observer_type* observer_;
  Owner* owner_;
  tensor_states<queue_event> tensors_;
  std::vector<std::size_t> filled_;
  records_type chunks_;
  [[no_unique_address]] typename decltype(second_half_of())::type second_half_;
  std::atomic<std::size_t> in_flight_{0};  ///< launches; written by the loop's owner alone
  struct no_buffers {};
  std::conditional_t<gathers, std::optional<typename records_type::buffers>, no_buffers> buffers_{};
  std::size_t means_ = 0;        ///< of this step that have come, where updates need them all
  std::uint64_t nonfinite_ = 0;  ///< infinities and NaN in what this rank was to send in this step
  task deciding_{};              ///< decides whether this step updates anything
  running_hash agenda_{};
  std::uint64_t starts_ = 0;
  order_type order_;
};

}  // namespace tutti

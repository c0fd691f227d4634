#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/post_box.hpp"
#include "tutti/base/predicate.hpp"
#include "tutti/base/push_counts.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/core/architecture_world.hpp"
#include "tutti/core/arrival.hpp"
#include "tutti/core/claim.hpp"
#include "tutti/core/control.hpp"
#include "tutti/core/engine_base.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/engine_types.hpp"
#include "tutti/core/failure.hpp"
#include "tutti/core/flow.hpp"
#include "tutti/core/gradient_intake.hpp"
#include "tutti/core/joining.hpp"
#include "tutti/core/model_memory.hpp"
#include "tutti/core/observer.hpp"
#include "tutti/core/plan_for.hpp"
#include "tutti/core/replan.hpp"
#include "tutti/core/rules.hpp"
#include "tutti/core/services.hpp"
#include "tutti/core/settings.hpp"
#include "tutti/core/state_memory.hpp"
#include "tutti/core/tensor_state.hpp"
#include "tutti/core/waiting.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/monitor.hpp"
#include "tutti/role/optimizer.hpp"
#include "tutti/role/schedule.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

namespace detail {

[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_role(std::string_view why) {
  throw usage_error(sentence({why, ". Fix: if (engine.serves()) return engine.serve();"}));
}

}  // namespace detail

/// An engine without its public interface: owns the parts of core, begins and ends them, and lets
/// each call the others. Users have it as an `engine`. One file, because beginning, failing and
/// ending an engine touch all of its parts.
template <class Strategy, transport_policy Transport, optimizer_policy Optimizer,
          monitor_policy Monitor>
class engine_core : engine_base<Transport> {
  using base = engine_base<Transport>;
  using base::has_posts;
  using base::heard;
  using base::is_started_;
  using base::posts_;
  using base::unwritten_;

 protected:
  using base::broken;
  using base::end_with;
  using base::fail;
  using base::failed;
  using base::failure_;
  using base::hear_of_failure;
  using base::model_;
  using base::plan_;
  using base::tensors;
  using base::world_;
  using types = engine_types<Strategy, Transport, Optimizer, Monitor>;
  using strategy = typename types::strategy;
  using options = typename types::options;
  using compression = typename types::compression;
  using architecture = typename types::architecture;
  using queue_event = typename Transport::queue_type::event;
  static constexpr bool virtual_time = types::virtual_time;
  static constexpr bool delays = facts::delay<architecture> > 0;
  /// What workers average where they only need a barrier.
  static constexpr std::span<double> nothing{};
  using world_type = architecture_world<typename types::exchange>;
  using state_type = typename architecture::template state<world_type>;
  using flow_type = flow<types, engine_core>;
  using gradients = gradient_intake<types, engine_core>;
  static_assert(
      architecture_state<state_type, world_type>,
      "tutti: a verb of this architecture's state cannot be called as role/architecture.hpp says. "
      "Fix: correct its arguments and its result, or give it another name.");

  static_assert(sizeof(engine_rules<types>) > 0);
  using compiled_first =
      typename rule::compiles_for_the_queue<compression, typename Transport::queue_type>::needed;

  [[gnu::cold]] engine_core(Transport& world, std::vector<tensor> forward, Optimizer optimizer,
                            options set, Monitor monitor)
      // The base moves from `forward` after its other arguments, which read it, have been made.
      : base(std::type_identity<engine_core>(), world, std::move(forward),
             planned_for(world.size(), forward, set, make_policy<compression>(set.compression),
                         optimizer),
             buffers_wanted(world.rank() >= workers_of(set, world.size())),
             gradients::most_lent(set)),
        set_(std::move(set)),
        workers_(workers_of(set_, world.size())),
        compression_(make_policy<compression>(set_.compression)),
        optimizer_(optimizer),
        room_per_element_(optimizer.memory_per_element()),
        observer_(world, std::move(monitor)),
        around_(
            world, plan_, model_, compression_, optimizer_, workers_, set_.run.accumulation,
            [](void* self, std::exception_ptr why) {
              static_cast<engine_core*>(self)->broken(std::move(why));
            },
            this),
        state_(std::in_place, around_, set_.architecture),
        services_(world, plan_, workers_, *this),
        joining_(*this, world.ready_coroutines(), plan_.backward.size()),
        waits_(world, *this, failure_, set_.run.deadline) {
    static_assert(base::template has_all<engine_core>());
    expect_run_options<typename strategy::fusion>(set_, plan_, set_.run.deadline, world);
    expect_one_momentum<compression>(optimizer_);
    expect_values(optimizer_);
    if constexpr (delays) {
      detail::expect_floats(model_.forward());
    }
    for (const tensor& each : model_.forward()) {
      gradients::expect_reachable(*this, each);
    }
    gradients::expect_gradients_come_back(*this, set_, plan_);
    [[maybe_unused]] const progress wanted = progress_wanted();  // unused in virtual time
    open_flow();
    if (!serves()) {
      observer_.begin_sums(
          services_.own_tag(own::sums), workers_, plan_.backward.size(),
          [](void* self, std::exception_ptr why) {
            static_cast<engine_core*>(self)->broken(std::move(why));
          },
          this);
    }
    startup_ = start_up();
    startup_.start(world.ready_coroutines());
    if constexpr (!virtual_time) {
      if (in_real_time(world)) {
        begin_in_real_time(wanted);
      }
    }
  }
  engine_core(const engine_core&) = delete;
  engine_core& operator=(const engine_core&) = delete;

  [[gnu::cold]] ~engine_core() {
    waits_.stop_thread();
    if (services_.closed()) {
      finish_answers();
      return;
    }
    say_what_was_not_told();  // and not that this rank has left, which only the others hear
    end_with(failure_.last_words([this] { return outstanding(); },
                                 [this] { return listens_to_all(world_->rank()); }));
    if constexpr (is_stream_ordered<Transport>) {
      try {
        synchronize();
      } catch (...) {
      }  // a destructor has nobody to tell, and every rank has been told
    }
    if constexpr (!virtual_time) {
      if (in_real_time(*world_) && !failed()) {
        if (flow_ && failure_.unwinds()) {
          flow_->leave_unsaid();
          observer_.stop();
        }
        if constexpr (delays) {  // tensors have arrived although their launches have not ended
          waits_.in_time([this] { return !communicates(); });
        }
        closing_ = close();
        closing_.start(world_->ready_coroutines());
        waits_.however_long([this] { return closing_.done(); });
        if (!failure_.unwinds()) {
          expect_closed();
          say_what_was_not_told();
        }
      }
    }
    if (services_.closed()) {
      finish_answers();
    } else {
      quiesce();
      leave(*world_);
    }
  }

  // ---- called by the public interface and by the parts of core

  /// Begins a call that all workers make, which ends when the result is destroyed. Throws
  /// usage_error on a server.
  typename base::collective_call begin_collective(const char* name) {
    expect_to_train();
    return {*this, name};
  }

  /// Ends this rank's part once its gradients have arrived.
  task close() { return services_.close(startup_); }
  bool serves() const { return world_->rank() >= workers_; }
  /// Throws usage_error on a server.
  void expect_to_train() const {
    if (serves()) [[unlikely]] {
      detail::refuse_role("this rank is a server and does not train");
    }
  }
  void expect_to_serve() const {
    if (!serves()) {
      detail::refuse_role("this rank trains and is no server");
    }
  }
  std::uint64_t steps() const { return flow_ ? flow_->steps() : 0; }
  std::uint64_t overflowed() const { return around_.overflowed(); }
  auto arrival(tensor_id id) { return arrival_operation<Transport>(failure_, at(id)); }

  friend base;
  friend loop_round go_round<>(Transport&, engine_core&);
  friend flow_type;
  friend gradients;
  friend replan_steps<types, engine_core>;
  friend joining<engine_core>;

  using audience = typename base::audience;
  using services_type = services<Transport>;
  using own = typename services_type::own;

  // ---- the plan

  /// The settings that must be equal on all ranks.
  std::string settings(const options& set) const { return settings_of<Strategy>(set, optimizer_); }
  /// Takes values for the optimizer that every rank is to be given alike.
  void give(const Optimizer& values) {
    optimizer_ = values;
    given_ = hash_of_values(values);
  }
  static int workers_of(const options& set, int size) {
    return workers_among<architecture>(set.architecture, size);
  }
  static plan planned_for(int size, std::span<const tensor> forward, const options& set,
                          const compression& compressor, const Optimizer& values) {
    return plan_for<types>(forward, set, compressor, size, settings_of<Strategy>(set, values));
  }
  [[gnu::cold]] void open_flow() {
    using schedule = typename strategy::schedule;
    if (serves()) {
      return;
    }
    if constexpr (facts::plans_options<schedule>) {
      options set = set_;
      if (!plan_.backward.empty()) {
        set.profile.payload = class_of(compression_, plan_.backward.front()).payload;
      }
      set.schedule = schedule::planned(set.schedule, plan_, set.profile);
      open_flow_by(set);
    } else {
      open_flow_by(set_);
    }
  }
  void open_flow_by(const options& set) {
    flow_.emplace(*world_, plan_, model_, set, around_, *state_,
                  services_.service_tag(service::words), observer_, *this);
  }
  static buffers buffers_wanted(bool serves) {
    if (serves) {
      return buffers::none;
    }
    return facts::has_outgoing<state_type> || delays ? buffers::separate : buffers::views;
  }

  /// Returns who is to drive this rank. A rank that answers others while it trains needs a thread,
  /// so that they need not wait for its next call. Throws usage_error if it needs one and the
  /// transport allows none.
  progress progress_wanted() const {
    const bool answers = !serves() && listens_to_all(world_->rank());
    if constexpr (requires { world_->single_threaded(); }) {
      if (answers && world_->single_threaded()) {
        throw usage_error(
            "this architecture needs a second thread, which answers other ranks during "
            "computation, but MPI was started for one thread only. Fix: call MPI_Init_thread with "
            "MPI_THREAD_MULTIPLE, or let transport::mpi start MPI");
      }
    }
    return answers && set_.run.progress == progress::automatic ? progress::by_thread
                                                               : set_.run.progress;
  }

  task start_up() {
    std::string mine = settings(set_);  // may throw, and nothing has begun yet
    if constexpr (!virtual_time) {
      if (in_real_time(*world_)) {
        waits_.start_answering();  // a rank must answer while it waits for others here
      }
    }
    return services_.begin(model_.phantom() ? std::span<const tensor>() : model_.forward(),
                           std::move(mine));
  }
  [[gnu::cold]] void begin_in_real_time(progress wanted) {
    try {
      waits_.until([this] { return startup_.done(); });
      synchronize();
      waits_.start_thread(wanted);
    } catch (...) {
      quiesce();  // the destructor does not run after the constructor has thrown
      throw;
    }
  }
  [[gnu::cold]] void begun() {
    resume_architecture(0);
    if constexpr (facts::has_serve<state_type> || flow_type::speaks) {
      if (listens_to_all(world_->rank()) || serves() || flow_->listens()) {
        services_.start_listening();
      }
    }
    is_started_.store(true, std::memory_order_release);
    open_posts();
  }

  // ---- tensors

  tensor_state<queue_event>& at(tensor_id id) {
    failure_.rethrow();
    expect_to_train();
    if (index(id) >= plan_.position_of.size()) [[unlikely]] {
      detail::refuse_tensor(id, plan_.position_of.size());
    }
    return flow_->at(plan_.position(id));
  }

  // ---- a rank that has joined

  bool is_in_a_step() { return gradients::is_in_a_step(*this); }
  std::uint64_t steps_begun() { return gradients::steps_begun(*this); }
  std::uint64_t steps_ended(tensor_id id) { return at(id).arrived; }
  /// Says that the tensor has no gradient in the passes that its step still lacks.
  void absent_to_the_end(tensor_id id) {
    do {
      gradients::absent(*this, id, world_->queue());
    } while (at(id).accumulated.load(std::memory_order_relaxed) != 0);
  }
  void say_joined() { flow_->join(); }
  void all_have_joined() { joining_.all_have_joined(); }

  // ---- the loop

  bool open_posts() {
    bool any = false;
    unwritten_.store(false, std::memory_order_relaxed);
    while (has_posts()) {
      if constexpr (sends_what_is_written<Transport>) {
        const auto next = posts_.oldest();
        if (next && !Transport::queue_type::passed(flow_->at(*next).written)) {
          unwritten_.store(true, std::memory_order_relaxed);
          break;
        }
      }
      if (const auto position = posts_.take()) {
        flow_->fill(*position);
        any = true;
      }
    }
    return any;
  }
  bool carry_out() {
    hear_of_failure();
    return flow_ && flow_->carry_out();
  }
  bool has_decided() const { return flow_ && flow_->has_decided(); }

  // ---- waiting

  bool outstanding() const { return flow_ && flow_->outstanding(); }
  bool communicates() const { return flow_ && flow_->communicates(); }

  void wait_for(tensor_id id) {
    auto& mine = at(id);
    wait_until([&mine] { return mine.is_current(); }, static_cast<std::uint32_t>(index(id)));
  }

  /// Waits until the device has done what is enqueued. If that has failed, ends every rank's part.
  void synchronize() {
    try {
      if constexpr (is_stream_ordered<Transport>) {
        waits_.until_the_stream_has_come();
      }
      world_->queue().synchronize();
    } catch (...) {
      tell_and_rethrow();
    }
  }

  void wait_until(predicate done, std::uint32_t which) {
    if (done()) {
      failure_.rethrow();
    } else {
      block_until(done, which);
    }
  }
  [[gnu::noinline]] void block_until(predicate done, std::uint32_t which) {
    tell_of_wait(event::wait_begins, which);
    const seconds begin = world_->now();
    waits_.until(done);
    exposed_.fetch_add(world_->now() - begin, std::memory_order_relaxed);
    tell_of_wait(event::wait_ends, which);
  }
  /// Tells the monitor on the caller's thread, where nothing else would tell the other ranks what
  /// it throws.
  [[gnu::noinline]] void tell_of_wait(event what, std::uint32_t which) {
    try {
      observer_.record(what, which);
    } catch (...) {
      tell_and_rethrow();
    }
  }

  // ---- failure

  /// Ends every rank's part with the exception that this thread, which is not the loop's owner,
  /// handles, and throws it again.
  [[gnu::cold, gnu::noinline]] void tell_and_rethrow() {
    const auto why = std::current_exception();
    waits_.exclusively([&] { fail(why, audience::everybody); });
    failure_.rethrow();
  }

  [[gnu::cold]] void release_waiters() {
    observer_.stop();
    if (flow_) {
      flow_->release_waiters();
    }
  }

  /// The chunk that this rank waits for, with its step.
  chunk_step stuck() const {
    const auto found = flow_ ? flow_->stuck() : std::nullopt;
    return found.value_or(chunk_step{no_chunk, 0});
  }

  [[gnu::cold]] void describe(const chunk_step& about, control_message& answer) {
    answer.tensor = no_tensor;
    answer.state = chunk_state::started;
    answer.averages = serves() ? ~std::uint64_t{0} : averages_.load(std::memory_order_relaxed);
    answer.waiting = waits_.threads();
    answer.handed_in = gradients::handed_in(*this);
    answer.call = {};
    base::called().copy(answer.call.data(), answer.call.size() - 1);
    if (flow_) {
      flow_->describe(about.chunk, about.step, answer);
    }
    if constexpr (facts::has_holds_back<state_type>) {
      if (state_ && serves() && state_->holds_back(about.chunk)) {
        answer.state = chunk_state::held;
      }
    }
  }

  void hear(int peer, std::span<const std::byte> words) { flow_->hear(peer, words); }
  bool listens_to_all(int rank) const {
    return listens<architecture>(set_.architecture, rank, world_->size());
  }
  task serve_chunk([[maybe_unused]] typename base::message_type&& asked) {
    if constexpr (facts::has_serve<state_type>) {
      const auto self = around_.endpoint_of(asked.number());
      return state_->serve(self, std::move(asked));
    } else {
      return {};
    }
  }
  void take_values(std::span<const std::byte> bytes) {
    Optimizer values = optimizer_;
    std::memcpy(static_cast<void*>(&values), bytes.data(), sizeof values);
    follow(values);
    optimizer_ = values;
  }
  /// Converts what this rank remembers of gradients and means to the learning rate and scale of
  /// `values`.
  void follow(const Optimizer& values) {
    rescale(change_of_rate(rate_of_residuals_, rate_of(values)));
    if constexpr (world_type::undoes_steps) {
      const float change = change_of_scale(optimizer_, values);
      if (change != 1 && flow_) {
        flow_->scale_memory(change);
      } else if (change != 1 && serves()) {  // such a server only adds, and remembers nothing else
        for (const std::span<float> each : remembered()) {
          follow_gradients<typename types::relay>(world_->queue(), each, change);
        }
      }
    }
  }
  /// Restores what the architecture remembered before the last step.
  void undo_step() {
    if constexpr (facts::has_undo_step<state_type>) {
      state_->undo_step();
    }
  }
  /// Multiplies by `factor` whatever this rank remembers in units of the optimizer's step.
  void rescale([[maybe_unused]] float factor) {
    // Residuals of differences or parameters are in units of the parameters, whatever the rate.
    if constexpr (facts::carries_of<architecture> == carries::gradient) {
      if (facts::rescales<compression> && factor != 1.0f && flow_) {
        flow_->rescale(factor);
      }
      if constexpr (facts::has_rescale<state_type>) {
        if (factor != 1.0f && state_) {
          state_->rescale(factor);
        }
      }
    }
  }
  std::vector<std::span<float>> remembered() {
    if constexpr (facts::has_memories<state_type>) {
      return state_->memories();
    } else {
      return {};
    }
  }
  std::size_t optimizer_floats() const {
    std::size_t floats = around_.momenta().size();
    if constexpr (facts::has_optimizer_floats<state_type>) {
      floats += state_->optimizer_floats();
    }
    return floats;
  }
  void resume_architecture([[maybe_unused]] std::uint64_t steps) {
    if constexpr (facts::has_resume<state_type>) {
      state_->resume(steps);
    }
  }
  task converse([[maybe_unused]] int worker, [[maybe_unused]] service what) {
    if constexpr (facts::has_servers<architecture>) {
      return what == service::replan ? replan_steps<types, engine_core>::as_told(*this)
                                     : services_.converse(worker, what);
    } else if constexpr (facts::has_counted_pushes<state_type>) {
      return services_.converse(worker, what);
    } else {
      return {};
    }
  }
  task worker_left(int worker) {
    waits_.excuse(worker);
    if constexpr (facts::has_worker_left<state_type>) {
      return state_->worker_left(worker);
    } else {
      return {};
    }
  }
  push_counts counted_pushes() const {
    if constexpr (facts::has_counted_pushes<state_type>) {
      push_counts all = counted_before_;
      all += state_ ? state_->counted_pushes() : push_counts();
      return all;
    } else {
      return {};
    }
  }
  float begin_step(double squares) { return optimizer_.begin_step(squares); }
  task average_of_step(double& value) {
    return average_over_workers(endpoint<Transport>(*world_, services_.own_tag(own::decision)),
                                workers_, std::span(&value, 1));
  }
  task undo_on_servers() { return services_.tell(service::undo, {}); }
  task tell_values() {
    return services_.tell(service::change, std::as_bytes(std::span(&optimizer_, 1)));
  }

  task finish_gradients() {
    if constexpr (facts::has_sums<Monitor>) {
      return finish_steps();
    } else {
      return flow_->finish();
    }
  }
  task finish_steps() {
    co_await flow_->finish();
    observer_.end_sums();  // and goes on, since other ranks wait to hear that this one ends
  }
  task finish_architecture() {
    if constexpr (facts::has_finish<state_type>) {
      return finish_state();
    } else {
      return around_.finish();
    }
  }
  task finish_state() {
    co_await state_->finish();
    co_await around_.finish();
  }
  task finish_sums() { return observer_.finish(); }
  task stop_answering() {
    if constexpr (!virtual_time) {
      if (in_real_time(*world_)) {
        return waits_.stop_answering();
      }
    }
    return {};
  }

  /// Ends this rank's part and waits until nothing of it is in flight. Only then may its memory be
  /// freed.
  [[gnu::cold]] void quiesce() {
    fail(std::make_exception_ptr(communication_error("the engine has ended")), audience::nobody);
    if (flow_) {
      flow_->stop_speaking();
    }
    if constexpr (!virtual_time) {
      if (in_real_time(*world_)) {
        waits_.settle([this] { return world_->in_flight() == 0 && at_rest(); });
        return;
      }
    }
    world_->ready_coroutines().drain();
  }

  /// If this rank has failed while it closed, tells the other ranks why.
  [[gnu::cold]] void expect_closed() {
    if (!failed()) {
      try {
        closing_.result();
      } catch (...) {
        fail(std::current_exception(), audience::everybody);
      }
    }
  }
  /// Prints what this rank has failed with since the user last asked it for anything, because a
  /// destructor cannot throw, and the other ranks may have ended. An exception that unwinds the
  /// stack says more.
  [[gnu::cold]] void say_what_was_not_told() {
    if constexpr (!virtual_time) {
      const std::exception_ptr why = failure_.untold();
      if (why && in_real_time(*world_) && !failure_.unwinds()) {
        std::fprintf(stderr, "tutti: %s\n", verdict_of(world_->rank(), why).c_str());
        failure_.note_told();
      }
    }
  }

  /// Waits for answers that are still on their way. A rank that asked and has gone on takes its
  /// answer, unless it has ended meanwhile: then this rank stops waiting after a deadline.
  [[gnu::cold]] void finish_answers() {
    if constexpr (!virtual_time) {
      if (!waits_.for_a_deadline([this] { return waits_.at_rest(); })) {
        quiesce();
      }
    }
  }

  bool at_rest() const {
    if constexpr (facts::has_finish<state_type>) {
      if (state_ && !state_->at_rest()) {
        return false;
      }
    }
    return around_.at_rest() && (!flow_ || flow_->at_rest()) && waits_.at_rest() &&
           startup_.done() && services_.listening().done() && joining_.at_rest() &&
           observer_.at_rest() && closing_.done();
  }

  options set_;
  int workers_;
  compression compression_;
  Optimizer optimizer_;
  std::uint64_t given_ = hash_of_values(optimizer_);  ///< of the values that were last given
  double rate_of_residuals_ = rate_of(optimizer_);    ///< the last rate that was not 0
  std::size_t room_per_element_;
  observer<Monitor, Transport> observer_;
  world_type around_;
  std::optional<state_type> state_;  // empty if making another plan has failed halfway
  struct uncounted {};
  [[no_unique_address]] std::conditional_t<facts::has_counted_pushes<state_type>, push_counts,
                                           uncounted>
      counted_before_{};  // pushes counted under earlier plans
  services_type services_;
  joining<engine_core> joining_;
  waiting<Transport> waits_;
  std::optional<flow_type> flow_{};
  task startup_{};
  task closing_{};
  std::atomic<seconds> exposed_{0};         // atomic, since several threads may wait
  std::atomic<std::uint64_t> averages_{0};  // calls of `average` and `replan` begun
};

}  // namespace tutti

#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/push_counts.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/core/engine_core.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/failure.hpp"
#include "tutti/core/joining.hpp"
#include "tutti/core/remote_memories.hpp"
#include "tutti/core/replan.hpp"
#include "tutti/core/report.hpp"
#include "tutti/core/rules.hpp"
#include "tutti/core/services.hpp"
#include "tutti/monitor/none.hpp"
#include "tutti/optimizer/none.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/monitor.hpp"
#include "tutti/role/optimizer.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// Trains with a strategy: takes gradients while the backward pass makes them, and gives back
/// parameters when the next forward pass needs them.
///
/// `ready(id)` says that this step's gradient of a tensor is final; it belongs to the engine until
/// the tensor arrives. `wait(id)` returns when the parameter is current. Both may be called from
/// several threads. Where the transport's time is virtual, no call may block: await `started()`,
/// `arrival(id)`, `served()` and `close()` instead.
///
/// Every rank makes its engine with the same tensors and options, and receives rank 0's parameters.
/// An engine must not be moved, and is the only one of its transport. An error ends every wait on
/// every rank with one sentence (communication_error).
template <class Strategy, transport_policy Transport, optimizer_policy Optimizer,
          monitor_policy Monitor = monitor::none>
class engine : engine_core<Strategy, Transport, Optimizer, Monitor> {
  using core = engine_core<Strategy, Transport, Optimizer, Monitor>;
  using audience = typename failure<Transport>::audience;
  using types = typename core::types;
  using gradients = typename core::gradients;
  static constexpr bool virtual_time = core::virtual_time;
  using core::around_;
  using core::at;
  using core::averages_;
  using core::exposed_;
  using core::failure_;
  using core::flow_;
  using core::follow;
  using core::joining_;
  using core::model_;
  using core::observer_;
  using core::optimizer_;
  using core::optimizer_floats;
  using core::outstanding;
  using core::plan_;
  using core::rate_of_residuals_;
  using core::remembered;
  using core::resume_architecture;
  using core::room_per_element_;
  using core::services_;
  using core::set_;
  using core::startup_;
  using core::synchronize;
  using core::wait_for;
  using core::wait_until;
  using core::waits_;
  using core::workers_;
  using core::world_;

 public:
  using strategy = typename types::strategy;
  using options = typename types::options;
  using compression = typename types::compression;
  using architecture = typename types::architecture;
  /// Whether launches wait for a timer (such as Horovod's cycle), for which a thread must be awake.
  static constexpr bool has_cycle = types::ticks;

  [[gnu::cold]] engine(Transport& world, std::vector<tensor> tensors, Optimizer optimizer,
                       options set, Monitor monitor = {})
      : core(world, std::move(tensors), optimizer, std::move(set), std::move(monitor)) {}

  /// Ends every wait on every rank with the words of `why`, because this rank cannot go on. Call it
  /// where your loop catches an exception: the destructor cannot know which one passes, and tells
  /// the others only that this rank has left.
  /// `catch (...) { engine.fail(std::current_exception()); throw; }`
  void fail(std::exception_ptr why) {
    failure_.note_told();
    if constexpr (!virtual_time) {
      if (in_real_time(*world_)) {
        return waits_.exclusively([&] { core::fail(std::move(why), audience::everybody); });
      }
    }
    core::fail(std::move(why), audience::everybody);
  }

  // ---- memory that is lent

  /// Returns memory for this step's gradient of tensor `id`, lent where the model has none of its
  /// own and the strategy gives gradients back (architecture::sharded). Its content is undefined on
  /// a step's first pass; later passes find what earlier ones left there. Write it, call
  /// `ready(id)`, and do not touch it again. Throws usage_error where nothing is lent, or before
  /// the tensor's last gradient has arrived. Where the strategy limits what is lent and time is
  /// real, waits until buckets in flight give memory back. Cost: a lock, and an allocation while
  /// fewer buffers exist than buckets hold memory at once.
  std::span<float> gradient(tensor_id id) requires(
      !has_own_memory<typename Transport::queue_type>) {
    return gradients::lend(*this, id).first;
  }
  /// Returns such memory for a gradient that is written by work enqueued on `stream` from now on.
  std::span<float> gradient(tensor_id id, device_queue auto& stream) {
    const auto [memory, after] = gradients::lend(*this, id);
    stream.wait(after);
    return memory;
  }

  // ---- the two verbs

  /// Says that the gradient of tensor `id` is final. Throws usage_error if its last one has not
  /// arrived yet.
  void ready(tensor_id id) { gradients::ready(*this, id, world_->queue().record()); }

  /// Says that the gradient is final once the work that `stream` has so far is done.
  void ready(tensor_id id, device_queue auto& stream) {
    gradients::ready(*this, id, stream.record());
  }

  /// Says that the gradient is final and lies in `gradient`, from this step on until another place
  /// is given. Throws usage_error unless it has the tensor's type and length. The memory must stay
  /// until the tensor's next `ready`, because `absent` writes zeros there. Where a step has several
  /// passes, the memory given for the last must hold their sum. Cost: none while the gradients of a
  /// bucket are floats and neighbours, also at new places. Once they are not, a copy of each tensor
  /// in every step from then on, into a buffer allocated once.
  void ready(tensor_id id, std::span<float> gradient) {
    gradients::ready_in(*this, id, {.wide = gradient}, world_->queue().record());
  }
  void ready(tensor_id id, std::span<std::uint16_t> gradient) {
    gradients::ready_in(*this, id, {.narrow = gradient}, world_->queue().record());
  }
  void ready(tensor_id id, std::span<float> gradient, device_queue auto& stream) {
    gradients::ready_in(*this, id, {.wide = gradient}, stream.record());
  }
  void ready(tensor_id id, std::span<std::uint16_t> gradient, device_queue auto& stream) {
    gradients::ready_in(*this, id, {.narrow = gradient}, stream.record());
  }

  /// Says that tensor `id` has no gradient in this pass, which counts as zero. Where a step has
  /// several passes, the sum of the earlier ones stays. Throws usage_error where `ready` does, and
  /// then touches nothing.
  void absent(tensor_id id) { gradients::absent(*this, id, world_->queue()); }
  /// Likewise where the step's other passes are written on `stream`, which then writes the zeros.
  void absent(tensor_id id, device_queue auto& stream) { gradients::absent(*this, id, stream); }

  /// Returns when the result of the last `ready` of tensor `id` has arrived. Throws
  /// communication_error if that can no longer happen.
  void wait(tensor_id id) requires(!virtual_time) {
    wait_for(id);
    synchronize();
  }

  /// Makes whatever is enqueued on `stream` from now on see tensor `id` current. The host waits
  /// only for peers and, under a window of credit, for the messages that must leave first.
  void wait(tensor_id id, device_queue auto& stream) {
    wait_for(id);
    stream.wait(at(id).current);
  }

  /// Returns when every tensor has arrived: a global barrier.
  void wait() requires(!virtual_time) {
    wait_until([this] { return !outstanding(); }, no_tensor);
    synchronize();
  }

  /// Says that this rank has no more batches. Until every rank has joined, it contributes zeros to
  /// each step that others take, and its parameters follow the mean as everybody's do. Passes that
  /// it has accumulated for an unfinished step are sent first, the missing ones counting as zero.
  /// Returns when all ranks have joined; training may then go on, from the same step on every rank.
  ///
  /// The mean stays one over all ranks, so a step with fewer batches is smaller. Residuals travel
  /// with the zeros, so that error feedback loses nothing; a compressor that cannot encode zero,
  /// such as sign, sends what it makes of it. The wait has no deadline. No rank may call `average`,
  /// `change`, `replan`, save or load while only some have joined. After: Horovod's join.
  void join() requires(!virtual_time) {
    const auto due = begin_collective("join()");
    task mine = joined();
    waits_.run_however_long(mine);
    synchronize();
  }

  // ---- the same for coroutines

  /// What `join` does, for coroutines: `co_await engine.joined()`.
  task joined() {
    static_assert(sizeof(rule::check_joins_are_negotiated<typename types::coordination>) > 0);
    static_assert(sizeof(rule::check_joined_ranks_send_zeros<architecture, Optimizer,
                                                             typename core::state_type>) > 0);
    return joining_.join();
  }

  /// What `wait(id)` does, for coroutines: `co_await engine.arrival(id)`.
  using core::arrival;

  /// Ends when plans have been compared and parameters broadcast: `co_await engine.started()`.
  const task& started() const { return startup_; }

  /// A server's listening, which ends when no worker is left to serve.
  const task& served() const { return services_.listening(); }

  /// Ends this rank's part once its gradients have arrived. The destructor does so if it may block.
  using core::close;

  // ---- roles

  /// Returns whether this rank serves and does not train. If so, call `serve` and return.
  using core::serves;
  /// Serves until every worker's engine has ended. Returns the exit status, 0.
  int serve() requires(!virtual_time) {
    core::expect_to_serve();
    waits_.however_long([this] { return services_.have_ended(); });
    failure_.rethrow();
    return 0;
  }
  int worker() const { return world_->rank(); }
  int workers() const { return workers_; }
  int servers() const { return world_->size() - workers_; }

  // ---- values

  /// Returns the mean of the workers' values. Every worker must call it, each with its own value.
  double average(double value) requires(!virtual_time) {
    average(std::span(&value, 1));
    return value;
  }
  /// Likewise for each value. Throws disagreement, on all workers, if they give unequally many.
  void average(std::span<double> values) requires(!virtual_time) {
    const auto due = begin_collective("average()");
    task asking = averaged(values);
    waits_.run(asking);
  }
  /// What `average` does, for coroutines, one at a time. `values` must outlive the task.
  task averaged(std::span<double> values) {
    core::expect_to_train();
    averages_.fetch_add(1, std::memory_order_relaxed);
    return average_and_compare(
        endpoint<Transport>(*world_, services_.own_tag(services<Transport>::own::average)),
        workers_, values, core::given_);
  }
  task averaged(double& value) { return averaged(std::span(&value, 1)); }

  /// Gives the optimizer other values from the next step on. Every worker must call it between the
  /// same two steps with the same values, or else the next `average` throws disagreement. Change
  /// what `values` returns after `wait`: steps under way may still change it. Residuals measured in
  /// steps follow the learning rate (compression/rescaled_error_feedback.hpp). Throws usage_error,
  /// and changes nothing, if values need more memory an element than there is room for, add a
  /// momentum to the compressor's, stop an exchange of momenta, or are refused by the optimizer.
  void change(const Optimizer& values) requires(!virtual_time) {
    const auto due = begin_collective("change()");
    expect_one_momentum<compression>(values);
    expect_values(values);
    if (values.memory_per_element() > room_per_element_) {
      throw usage_error(sentence(
          {"with these values the optimizer remembers ", values.memory_per_element(),
           " floats per element, but this engine was made with room for ", room_per_element_,
           ". Fix: make the engine with values that need as much memory, and change them before "
           "the first step"}));
    }
    wait();
    expect_momenta_go_on<compression>(optimizer_, values, steps());
    waits_.exclusively([&] { follow(values); });
    tell(values);
  }
  const Optimizer& values() const { return optimizer_; }
  /// The options that the engine was made with or last re-planned to.
  const options& asked() const { return set_; }

  /// Changes the options: from the next step on this engine is as one made with `set` that has
  /// trained so far. The strategy stays the same type, while thresholds, partitions, windows,
  /// credit, a compressor's density and the architecture's options may change. Residuals, momenta
  /// and the architecture's memories are kept by their place in the model, and move to the rank
  /// that now owns that place. If the passes of a step change, residuals of gradients are rescaled
  /// to keep their weight. Every worker must call it between the same two steps with the same
  /// options; servers are told. Who serves, which tensors a compressor selects, the deadline and
  /// `run.progress` stay as they were.
  ///
  /// Waits for every tensor first. Errors end the engine on every rank: as usage_error if options
  /// differ or are refused, as communication_error with its name if a rank does not call. Cost:
  /// three rounds of small messages through rank 0, and the plan and its buffers are made again.
  /// Memories of servers, and of ranks that encode means or update parameters by parts of chunks,
  /// travel through rank 0. In the latter case each rank meanwhile holds the memories of all.
  void replan(const options& set) requires(!virtual_time) {
    drain();
    const auto due = begin_collective("replan()");
    averages_.fetch_add(1, std::memory_order_relaxed);
    task asking = replanned(set);
    waits_.run(asking);
    synchronize();
  }
  /// What `replan` does, for coroutines, once every tensor has arrived. `set` must outlive the
  /// task.
  task replanned(const options& set) { return replan_steps<types, core>::to(*this, set); }

  const plan& planned() const { return plan_; }
  const std::vector<tensor>& tensors() const { return core::tensors(); }
  /// Hash of all starts of this plan so far, in order. Equal on all ranks that need one order.
  std::uint64_t agenda() const { return flow_ ? flow_->agenda() : 0; }
  Monitor& observed() { return observer_.monitor; }
  Transport& world() { return *world_; }
  tutti::report report() const {
    return {world_->rank(),
            workers_,
            servers(),
            steps(),
            plan_.elements(),
            plan_.buckets.size(),
            plan_.chunks.size(),
            plan_.hash,
            counted(),
            exposed(),
            sizeof(float) * optimizer_floats(),
            model_.own_bytes() + model_.bucket_bytes(),
            model_.own_bytes(),
            core::counted_pushes(),
            counted_observing(),
            observer_.spent(),
            has_cycle && in_real_time(*world_) && !waits_.has_thread(),
            overflowed()};
  }
  /// Elements that have come back as infinity or NaN in all steps so far, where the compressor may
  /// have made them of finite numbers (fp16 above 65504); equal on all ranks that train. 0 under
  /// any other compressor. On a stream the host waits for it.
  std::uint64_t overflowed() const { return core::overflowed(); }
  /// Returns the push counts of all ranks that count pushes, on worker 0; nothing on the others.
  /// Cost: a message to each of those ranks and back.
  push_counts pushes() requires(!virtual_time) {
    push_counts all;
    task asking = collect_pushes(all);
    waits_.run(asking);
    return all;
  }
  /// What `pushes` does, for coroutines. `all` must outlive the task.
  task collect_pushes(push_counts& all) {
    if (world_->rank() == 0 && facts::has_counted_pushes<typename core::state_type>) {
      all += core::counted_pushes();
      co_await services_.collect_pushes(all);
    }
  }
  /// Seconds that `wait` has taken so far.
  seconds exposed() const { return exposed_.load(std::memory_order_relaxed); }
  /// What this rank has sent, except for its monitor's sums.
  traffic counted() const {
    const traffic all = world_->counted();
    const traffic observing = counted_observing();
    return {all.bytes_sent - observing.bytes_sent, all.messages_sent - observing.messages_sent};
  }
  /// What this rank has sent for its monitor's sums.
  traffic counted_observing() const { return observer_.counted(); }
  /// Returns whether any launch of this rank is in flight.
  using core::communicates;

  // ---- state, for core/checkpoint.hpp: to be touched between steps only

  using core::begin_collective;
  std::uint64_t steps() const { return core::steps(); }
  /// Returns whether some tensor lacks passes of a step that it or another has begun.
  using core::is_in_a_step;
  /// The learning rate in whose steps residuals are measured: the last that was not 0.
  double rate_of_residuals() const { return rate_of_residuals_; }
  /// Waits for every tensor, every launch in flight, and the monitor's sums of every step.
  void drain() requires(!virtual_time) {
    core::expect_to_train();
    wait();
    waits_.until([this] { return !communicates() && observer_.sums_are_there(); });
    synchronize();
  }

  /// Returns when every worker has called it, where launches complete alone: otherwise workers
  /// would ask this rank meanwhile for what a checkpoint reads or writes. Elsewhere, at once.
  void meet() requires(!virtual_time) {
    if constexpr (architecture::completes_alone) {
      average(core::nothing);
    }
  }

  /// Everything that this rank's policies remember.
  std::vector<std::span<float>> memories() {
    std::vector<std::span<float>> all = flow_->memories();
    all.push_back(around_.momenta());
    const auto others = remembered();
    all.insert(all.end(), others.begin(), others.end());
    return all;
  }

  /// Whether launches follow an order that ranks learn in the first steps (coordination::learned).
  static constexpr bool learns = core::flow_type::learns;
  /// The learned order; empty while it is being learned.
  std::span<const std::uint32_t> learned_order() const requires learns {
    return flow_->learned_order();
  }
  /// Launches by an order that an earlier run has learned. Every worker must call it. Throws
  /// usage_error if the order is not of this plan.
  void resume_by(std::span<const std::uint32_t> order) requires(learns && !virtual_time) {
    waits_.exclusively([&] { flow_->resume_by(order); });
  }

  /// Returns what policies remember on ranks that do not train, rank by rank, on worker 0; nothing
  /// on the others. Every worker must call it. The result includes whatever the workers have pushed
  /// before the call, and nothing later.
  std::vector<memories_of_rank> collect_from_others() requires(!virtual_time) {
    std::vector<memories_of_rank> all;
    if (servers() == 0) {
      return all;
    }
    average(core::nothing);
    if (world_->rank() == 0) {
      all.resize(static_cast<std::size_t>(servers()));
      task asking = services_.collect(all);
      waits_.run(asking);
    }
    average(core::nothing);
    return all;
  }

  /// Continues from step `steps` with the parameters as they are. This rank remembers `mine`, and
  /// ranks that do not train `theirs`, which only worker 0 needs to give. Both are in steps of the
  /// learning rate `residuals`. Every worker must call it.
  void resume(std::uint64_t steps, const Optimizer& values, double residuals,
              const std::vector<memories_of_rank>& theirs,
              const memories_of_rank& mine) requires(!virtual_time) {
    waits_.exclusively([&] {
      flow_->resume(steps);
      resume_architecture(steps);
      const auto all = memories();
      for (std::size_t i = 0; i < all.size(); ++i) {
        fill_from_host(world_->queue(), all[i],
                       [&](std::span<float> into) { std::ranges::copy(mine[i], into.begin()); });
      }
    });
    rate_of_residuals_ = residuals;
    if (rate_of(values) != residuals) {  // servers rescale from one rate to the next
      tell(at_rate(values, residuals));
    }
    tell(values);
    if (servers() > 0) {
      if (world_->rank() == 0) {
        task restoring = services_.restore(steps, model_.forward(), theirs);
        waits_.run(restoring);
      }
      average(core::nothing);
    }
  }

 private:
  void tell(const Optimizer& values) {
    core::give(values);
    if (servers() > 0) {
      if constexpr (facts::stale<architecture>) {
        average(core::nothing);  // until what all workers have handed in has taken effect
      }
      task telling = core::tell_values();
      waits_.run(telling);
      average(core::nothing);
    }
  }
};

/// Makes an engine for `Strategy`, a named strategy or a composition. The architecture decides
/// where `optimizer` runs; without one, averaged gradients come back for an optimizer of your own.
/// If it throws on one rank, it throws on all.
template <class Strategy, class Transport, optimizer_policy Optimizer = optimizer::none,
          class Monitor = monitor::none>
auto make_engine(Transport& world, std::vector<tensor> tensors, Optimizer optimizer = {},
                 engine_options<Strategy> options = {}, Monitor monitor = {}) {
  try {
    return engine<Strategy, Transport, Optimizer, Monitor>(world, std::move(tensors), optimizer,
                                                           std::move(options), std::move(monitor));
  } catch (...) {
    detail::tell_of_failed_start(world);
    throw;
  }
}

}  // namespace tutti

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

/// Trains with a strategy: takes gradients as the backward pass makes them, gives parameters as the
/// next forward pass needs them.
///
/// `ready(id)`: the gradient of this step is final, and the engine's until the tensor arrives.
/// `wait(id)`: returns when the parameter is current. Both may be called from several threads.
/// Where the transport's time is virtual nothing may block: await `started()`, `arrival(id)`,
/// `served()` and `close()` instead.
///
/// Every rank makes its engine with the same tensors and options; rank 0's parameters become
/// everybody's. An engine stays where it was made, and is the only one of its transport. Errors end
/// every wait on every rank with one sentence (communication_error).
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
  using core::due_call_;
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
  /// Launches wait for a tick, which wants somebody who is there when it comes.
  static constexpr bool has_cycle = requires(const options& set) { set.fusion.cycle; };

  [[gnu::cold]] engine(Transport& world, std::vector<tensor> tensors, Optimizer optimizer,
                       options set, Monitor monitor = {})
      : core(world, std::move(tensors), optimizer, std::move(set), std::move(monitor)) {}

  /// This rank cannot go on, for a reason of yours: every wait on every rank ends with its words.
  /// Call it where your loop catches an exception, for the destructor cannot know which one passes,
  /// and tells the others only that this rank has left:
  /// `catch (...) { engine.fail(std::current_exception()); throw; }`
  void fail(std::exception_ptr why) {
    if constexpr (!virtual_time) {
      if (in_real_time(*world_)) {
        waits_.exclusively([&] { core::fail(std::move(why), audience::everybody); });
        return;
      }
    }
    core::fail(std::move(why), audience::everybody);
  }

  // ---- memory that is lent

  /// Memory for this step's gradient of tensor `id`, where the model has none and the strategy
  /// gives gradients back (architecture::sharded): undefined on a step's first pass, and what
  /// earlier passes have left there on any later one. Write it, say `ready(id)`, and touch it no
  /// more. Throws usage_error where nothing is lent, or before the last one has arrived. Where the
  /// strategy limits what is lent, and time is real, waits for what is on its way to be given back.
  /// Cost: a lock, and memory for a bucket while there are fewer than are held at once.
  std::span<float> gradient(tensor_id id) requires(
      !has_own_memory<typename Transport::queue_type>) {
    return gradients::lend(*this, id).first;
  }
  /// Memory for a gradient that `stream` writes from now on.
  template <class Stream>
  requires device_queue<Stream> std::span<float> gradient(tensor_id id, Stream& stream) {
    const auto [memory, after] = gradients::lend(*this, id);
    stream.wait(after);
    return memory;
  }

  // ---- the two verbs

  /// The gradient of tensor `id` is final. Throws usage_error if its last one has not arrived yet.
  void ready(tensor_id id) { gradients::ready(*this, id, world_->queue().record()); }

  /// The gradient is final once the work on the caller's stream so far is done.
  template <class Stream>
  requires device_queue<Stream>
  void ready(tensor_id id, Stream& stream) { gradients::ready(*this, id, stream.record()); }

  /// The gradient is final and lies in `gradient`, from this step on until told otherwise: of the
  /// tensor's type and length, else usage_error. It must stay until the tensor's next `ready`: for
  /// a pass without a gradient, zeros are written there. Where passes accumulate, it is their sum
  /// that the last one's memory holds. Cost: while the gradients of a bucket are floats and
  /// neighbours, also where they lie now, nothing; from then on that they are not, a copy of each
  /// tensor, into a buffer that is allocated once.
  void ready(tensor_id id, std::span<float> gradient) {
    gradients::ready_in(*this, id, {.wide = gradient}, world_->queue().record());
  }
  void ready(tensor_id id, std::span<std::uint16_t> gradient) {
    gradients::ready_in(*this, id, {.narrow = gradient}, world_->queue().record());
  }
  template <class Stream>
  requires device_queue<Stream>
  void ready(tensor_id id, std::span<float> gradient, Stream& stream) {
    gradients::ready_in(*this, id, {.wide = gradient}, stream.record());
  }
  template <class Stream>
  requires device_queue<Stream>
  void ready(tensor_id id, std::span<std::uint16_t> gradient, Stream& stream) {
    gradients::ready_in(*this, id, {.narrow = gradient}, stream.record());
  }

  /// Tensor `id` has no gradient in this pass: it counts as zero. Where passes accumulate, what
  /// earlier ones have added up stays. Throws usage_error as `ready` does, and touches nothing
  /// then.
  void absent(tensor_id id) { gradients::absent(*this, id); }

  /// Returns when what was last ready of tensor `id` has arrived. Throws communication_error if
  /// that can no longer happen.
  void wait(tensor_id id) requires(!virtual_time) {
    wait_for(id);
    synchronize();
  }

  /// What `stream` does from now on sees tensor `id` current; the host waits for peers alone, and
  /// where there is a window of credit for what has to leave before.
  template <class Stream>
  requires device_queue<Stream>
  void wait(tensor_id id, Stream& stream) {
    wait_for(id);
    stream.wait(at(id).current);
  }

  /// Returns when every tensor is up to date: a global barrier.
  void wait() requires(!virtual_time) {
    wait_until([this] { return !outstanding(); }, no_tensor);
    synchronize();
  }

  /// No more batches on this rank: until every rank has joined, it takes part with zeros in each
  /// step that others take, and its parameters follow the mean as everybody's do. Passes that it
  /// has added up for a step are sent first, without the missing ones. Returns when all ranks have
  /// joined; then training may go on, from the same step on every rank.
  ///
  /// The mean stays one over all ranks: a step that fewer have batches for is a smaller one. What
  /// a compressor remembers still travels with the zeros, so that error feedback loses nothing;
  /// one that has no zero, as a sign has none, sends what it makes of it. No deadline ends this
  /// wait: others compute. Nobody calls `average`, `change` or `replan`, saves or loads while some
  /// have joined and some have not. Only coordination::negotiated knows who is ready; elsewhere it
  /// does not compile. After: Horovod's join.
  void join() requires(!virtual_time) {
    task mine = joined();
    waits_.run_however_long(mine);
    synchronize();
  }

  // ---- the same for coroutines

  /// `co_await engine.joined()`: as `join()`.
  task joined() {
    static_assert(sizeof(rule::check_joins_are_negotiated<typename types::coordination>) > 0);
    static_assert(sizeof(rule::check_joined_ranks_send_zeros<architecture, Optimizer,
                                                             typename core::state_type>) > 0);
    return joining_.join();
  }

  /// `co_await engine.arrival(id)`: as `wait(id)`.
  using core::arrival;

  /// `co_await engine.started()`: plans are compared and parameters broadcast.
  const task& started() const { return startup_; }

  /// A server's whole life.
  const task& served() const { return services_.listening(); }

  /// Ends this rank's part once its gradients have arrived. The destructor does it where blocking
  /// is allowed.
  using core::close;

  // ---- roles

  /// This rank does not train: call `serve` and return.
  using core::serves;
  /// Serves until every worker's engine has ended. Answers the exit status, 0.
  int serve() requires(!virtual_time) {
    waits_.however_long([this] { return services_.have_ended(); });
    failure_.rethrow();
    return 0;
  }
  int worker() const { return world_->rank(); }
  int workers() const { return workers_; }
  int servers() const { return world_->size() - workers_; }

  // ---- values

  /// The mean of `value` over the workers, each with its own. Every worker must call it.
  double average(double value) requires(!virtual_time) {
    task asking = averaged(value);
    waits_.run(asking);
    return value;
  }
  /// Each value becomes its mean over the workers, as many on every one of them: of models that
  /// have drifted apart, say. Cost: all values from each worker to rank 0 and back.
  void average(std::span<double> values) requires(!virtual_time) {
    averages_.fetch_add(1, std::memory_order_relaxed);
    task asking = average_over_workers(
        endpoint<Transport>(*world_, services_.own_tag(services<Transport>::own::average)),
        workers_, values);
    waits_.run(asking);
  }
  /// What `average` does, for coroutines: `value` becomes the mean, and must outlive the task.
  task averaged(double& value) {
    averages_.fetch_add(1, std::memory_order_relaxed);
    return average_over_workers(
        endpoint<Transport>(*world_, services_.own_tag(services<Transport>::own::average)),
        workers_, value);
  }

  /// Other values for the optimizer from the next step on. Every worker must call it, between the
  /// same steps, with the same values. Residuals that are steps follow the learning rate
  /// (compression/rescaled_error_feedback.hpp). Throws usage_error, and changes nothing, if they
  /// need more memory an element than those that the engine was made with, have a second momentum,
  /// no longer exchange momenta of which a part is still to be sent, or are refused by the
  /// optimizer.
  void change(const Optimizer& values) requires(!virtual_time) {
    expect_one_momentum<compression>(values);
    expect_values(values);
    if (values.memory_per_element() > room_per_element_) {
      throw usage_error(sentence(
          {"with these values the optimizer remembers ", values.memory_per_element(),
           " floats an element, and this engine was made with room for ", room_per_element_,
           ". Fix: make the engine with values that need as much; they may be changed "
           "before the first step"}));
    }
    wait();
    expect_momenta_go_on<compression>(optimizer_, values, steps());
    waits_.exclusively([&] { follow(values); });
    tell(values);
  }
  const Optimizer& values() const { return optimizer_; }
  /// The options that it was made with, or has been re-planned to.
  const options& asked() const { return set_; }

  /// From the next step on this engine is as one made with `set` that has trained so far: the
  /// strategy is the same type, and thresholds, partitions, windows, credit, a compressor's density
  /// and the architecture's values may be others. Residuals, momenta and what architectures
  /// remember are kept by their place in the model, and move to whoever owns that place now; what
  /// waits of gradients weighs what it did where a step has other passes now. Every worker must
  /// call it between the same two steps, with the same options; servers hear of it. Who serves,
  /// which tensors a compressor selects, the deadline and who makes progress stay as they were.
  ///
  /// Waits for every tensor first. Errors end the engine on every rank: options that differ or are
  /// refused, as usage_error; a rank that does not call, as communication_error by its name.
  /// Cost: three rounds of small messages through rank 0, the plan and its buffers once more;
  /// servers' memories, and those of whoever encodes means again or updates parts of chunks, go
  /// through rank 0; of the latter every rank holds what all remember meanwhile.
  void replan(const options& set) requires(!virtual_time) {
    drain();
    due_call_.store("replan()", std::memory_order_relaxed);
    averages_.fetch_add(1, std::memory_order_relaxed);
    task asking = replanned(set);
    waits_.run(asking);
    due_call_.store("average()", std::memory_order_relaxed);
    synchronize();
  }
  /// What `replan` does, for coroutines, once every tensor has arrived; `set` must outlive the
  /// task.
  task replanned(const options& set) { return replan_steps<types, core>::to(*this, set); }

  const plan& planned() const { return plan_; }
  const std::vector<tensor>& tensors() const { return core::tensors(); }
  /// Hash of every start of this plan so far, in order: equal on all ranks where one is needed.
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
  /// Elements that have come back as an infinity or NaN so far, step after step, where the
  /// compressor may have made them of numbers (fp16 above 65504): as many on every rank that
  /// trains. 0 under any other. On a stream the host waits for it.
  std::uint64_t overflowed() const { return core::overflowed(); }
  /// What all ranks that count pushes have counted so far: on worker 0; nothing on the others.
  /// Cost: a message to each of them and back.
  push_counts pushes() requires(!virtual_time) {
    push_counts all;
    task asking = collect_pushes(all);
    waits_.run(asking);
    return all;
  }
  /// What `pushes` does, for coroutines; `all` must outlive the task.
  task collect_pushes(push_counts& all) {
    if (world_->rank() == 0 && facts::has_counted_pushes<typename core::state_type>) {
      all += core::counted_pushes();
      co_await services_.collect_pushes(all);
    }
  }
  /// Seconds that `wait` took so far.
  seconds exposed() const { return exposed_.load(std::memory_order_relaxed); }
  /// What this rank has sent, without what its monitor has.
  traffic counted() const {
    const traffic all = world_->counted();
    const traffic observing = counted_observing();
    return {all.bytes_sent - observing.bytes_sent, all.messages_sent - observing.messages_sent};
  }
  /// What it has sent for its monitor's sums.
  traffic counted_observing() const { return observer_.counted(); }
  /// Some chunk is on its way.
  using core::communicates;

  // ---- state, for core/checkpoint.hpp: to be touched between steps only

  std::uint64_t steps() const { return core::steps(); }
  /// Some gradient is the sum of fewer passes than a step has.
  using core::adds_up_passes;
  /// The learning rate that residuals are in steps of: the last that was not 0.
  double rate_of_residuals() const { return rate_of_residuals_; }
  /// Waits for every tensor, for what is on its way, and for the monitor's sums of every step.
  void drain() requires(!virtual_time) {
    wait();
    waits_.until([this] { return !communicates() && observer_.sums_are_there(); });
    synchronize();
  }

  /// Returns when every worker has called it, where launches complete alone: others would ask this
  /// rank meanwhile for what a checkpoint reads or writes. At once under any other architecture.
  void meet() requires(!virtual_time) {
    if constexpr (architecture::completes_alone) {
      average(0);
    }
  }

  /// What this rank's policies remember.
  std::vector<std::span<float>> memories() {
    std::vector<std::span<float>> all = flow_->memories();
    all.push_back(around_.momenta());
    for (const std::span<float> each : remembered()) {
      all.push_back(each);
    }
    return all;
  }

  /// Launches follow the order of the first step.
  static constexpr bool learns = core::flow_type::learns;
  /// That order, as coordination::learned keeps it; empty while it is being learned.
  std::span<const std::uint32_t> book() const requires learns { return flow_->book(); }
  /// Launches by an order that an earlier run has learned; every worker must call it. Throws
  /// usage_error if it was not learned for this plan.
  void resume_by(std::span<const std::uint32_t> book) requires(learns && !virtual_time) {
    waits_.exclusively([&] { flow_->resume_by(book); });
  }

  /// What policies remember on ranks that do not train, rank by rank: on worker 0; nothing on the
  /// others. Every worker must call it: what each has pushed is in it, and no more.
  std::vector<memories_of_rank> collect_from_others() requires(!virtual_time) {
    std::vector<memories_of_rank> all;
    if (servers() == 0) {
      return all;
    }
    average(0);
    if (world_->rank() == 0) {
      all.resize(static_cast<std::size_t>(servers()));
      task asking = services_.collect(all);
      waits_.run(asking);
    }
    average(0);
    return all;
  }

  /// Goes on from step `steps` with parameters as they are, remembering `mine` here and `theirs` on
  /// ranks that do not train, in steps of the rate `residuals`. Every worker must call it.
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
    if (rate_of(values) != residuals) {  // servers follow from one rate to the next
      tell(at_rate(values, residuals));
    }
    tell(values);
    if (servers() > 0) {
      if (world_->rank() == 0) {
        task restoring = services_.restore(steps, model_.forward(), theirs);
        waits_.run(restoring);
      }
      average(0);
    }
  }

 private:
  void tell(const Optimizer& values) {
    optimizer_ = values;
    if (servers() > 0) {
      task telling = core::tell_values();
      waits_.run(telling);
      average(0);
    }
  }
};

/// An engine for `Strategy`, named or composed. `optimizer` runs where the architecture says; leave
/// it out and averaged gradients come back for your own. Throws on every rank if it does on one.
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

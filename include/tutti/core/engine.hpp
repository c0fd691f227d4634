#pragma once

#include <algorithm>
#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
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
#include "tutti/base/task.hpp"
#include "tutti/core/claim.hpp"
#include "tutti/core/control.hpp"
#include "tutti/core/engine_base.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/engine_types.hpp"
#include "tutti/core/failure.hpp"
#include "tutti/core/flow.hpp"
#include "tutti/core/joining.hpp"
#include "tutti/core/model_memory.hpp"
#include "tutti/core/observer.hpp"
#include "tutti/core/plan_maker.hpp"
#include "tutti/core/remote_memories.hpp"
#include "tutti/core/replan.hpp"
#include "tutti/core/report.hpp"
#include "tutti/core/rules.hpp"
#include "tutti/core/services.hpp"
#include "tutti/core/settings.hpp"
#include "tutti/core/startup.hpp"
#include "tutti/core/surroundings.hpp"
#include "tutti/core/waiting.hpp"
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
///
/// One file although it is long: what a user may call, each with its promise, and behind it only
/// how the parts of core reach one another.
template <class Strategy, transport_policy Transport, optimizer_policy Optimizer,
          monitor_policy Monitor = monitor::none>
class engine : engine_base<Transport> {
  using base = engine_base<Transport>;
  using base::has_posts;
  using base::is_started_;
  using base::posts_;
  using base::unwritten_;
  using types = engine_types<Strategy, Transport, Optimizer, Monitor>;
  using queue_event = typename Transport::queue_type::event;
  static constexpr bool virtual_time = types::virtual_time;
  static constexpr bool delays = facts::delay<typename types::architecture> > 0;

 public:
  using strategy = typename types::strategy;
  using options = typename types::options;
  /// Launches wait for a tick, which wants somebody who is there when it comes.
  static constexpr bool has_cycle = requires(const options& set) { set.fusion.cycle; };
  using compression = typename types::compression;
  using architecture = typename types::architecture;

 private:
  using world_type = surroundings<types>;
  using state_type = typename architecture::template state<world_type>;
  using flow_type = flow<types, engine>;
  static_assert(architecture_state<state_type, world_type>,
                "tutti: a verb of this architecture's state cannot be called as "
                "role/architecture.hpp says. Fix: its arguments and its result, or another name.");

  static_assert(sizeof(rule::check_halves_need_an_exchange_of_two<typename types::schedule,
                                                                  architecture, compression>) > 0);
  static_assert(sizeof(rule::check_owners_need_an_optimizer<architecture, Optimizer>) > 0);
  static_assert(sizeof(rule::check_pieces_need_an_elementwise_optimizer<architecture, Optimizer>) >
                0);
  static_assert(sizeof(rule::check_optimizers_travel_as_bytes<Optimizer>) > 0);
  static_assert(sizeof(rule::check_peers_must_be_addressable<architecture, Transport>) > 0);
  static_assert(sizeof(rule::check_native_needs_the_transport<architecture, Transport>) > 0);
  static_assert(sizeof(rule::check_senders_must_be_known<architecture, Transport>) > 0);
  static_assert(sizeof(rule::check_lengths_must_be_known<compression, Transport>) > 0);
  using compiled_first =
      typename rule::compiles_for_the_queue<compression, typename Transport::queue_type>::needed;

 public:
  engine(Transport& world, std::vector<tensor> tensors, Optimizer optimizer, options set,
         Monitor monitor = {})
      : base(std::type_identity<engine>(), tensors.size()),
        world_(&world),
        failure_(world),
        claim_(world.ready_coroutines(), world.rank()),
        set_(std::move(set)),
        workers_(workers_among<architecture>(set_.architecture, world.size())),
        compression_(make_policy<compression>(set_.compression)),
        optimizer_(optimizer),
        room_per_element_(optimizer.memory_per_element()),
        observer_(world, std::move(monitor)),
        plan_(planned_for(tensors, set_, compression_)),
        model_(world.queue(), std::move(tensors), plan_, buffers_wanted(), most_lent(set_)),
        around_(
            world, plan_, model_, compression_, optimizer_, workers_, set_.run.accumulation,
            [](void* self, std::exception_ptr why) {
              static_cast<engine*>(self)->chunk_failed(std::move(why));
            },
            this),
        state_(std::in_place, around_, set_.architecture),
        services_(world, plan_, workers_, *this),
        joining_(*this, world.ready_coroutines(), plan_.backward.size()),
        waits_(world, *this, failure_, set_.run.deadline) {
    if constexpr (delays) {
      detail::expect_floats(model_.forward());
    }
    for (const tensor& each : model_.forward()) {
      expect_reachable(each);
    }
    if (model_.lends() && !facts::gives_gradients_back<architecture>) {
      throw usage_error(
          "the model's gradients have no memory, and this strategy lends none. Fix: "
          "tensor(name, parameter, gradient), or architecture::sharded<..., "
          "gradients::given_back>");
    }
    expect_gradients_come_back(set_, plan_);
    [[maybe_unused]] const progress wanted = progress_wanted();  // where nothing may block, none
    open_flow();
    if (!serves()) {
      observer_.begin_sums(
          services_.own_tag(own::sums), workers_, plan_.backward.size(),
          [](void* self, std::exception_ptr why) {
            static_cast<engine*>(self)->chunk_failed(std::move(why));
          },
          this);
    }
    startup_ = start_up();
    startup_.start(world.ready_coroutines());
    if constexpr (!virtual_time) {
      try {
        waits_.until([this] { return startup_.done(); });
        synchronize();
      } catch (...) {
        quiesce();  // the destructor does not run where the constructor throws
        throw;
      }
      waits_.start_thread(wanted);
    }
  }
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  [[gnu::cold]] ~engine() {
    waits_.stop_thread();
    if (services_.closed()) {
      return;
    }
    end_with(failure_.last_words([this] { return outstanding(); },
                                 [this] { return listens_to_all(world_->rank()); }));
    if constexpr (is_stream_ordered<Transport>) {
      try {
        synchronize();
      } catch (...) {
      }  // a destructor has nobody to tell, and every rank has been told
    }
    if constexpr (!virtual_time) {
      if (!failed()) {
        if (flow_ && failure_.unwinds()) {
          flow_->leave_unsaid();
        }
        closing_ = close();
        closing_.start(world_->ready_coroutines());
        waits_.however_long([this] { return closing_.done(); });
      }
    }
    if (!services_.closed()) {
      quiesce();
      if constexpr (!virtual_time && requires { world_->leave(); }) {
        world_->leave();  // nobody polls any more for what peers send
      }
    }
  }

  /// This rank cannot go on, for a reason of yours: every wait on every rank ends with its words.
  /// Call it where your loop catches an exception, for the destructor cannot know which one passes,
  /// and tells the others only that this rank has left:
  /// `catch (...) { engine.fail(std::current_exception()); throw; }`
  void fail(std::exception_ptr why) {
    if constexpr (virtual_time) {
      fail(std::move(why), audience::everybody);
    } else {
      waits_.exclusively([&] { fail(std::move(why), audience::everybody); });
    }
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
    return lend(id).first;
  }
  /// Memory for a gradient that `stream` writes from now on.
  template <class Stream>
  requires device_queue<Stream> std::span<float> gradient(tensor_id id, Stream& stream) {
    const auto [memory, after] = lend(id);
    stream.wait(after);
    return memory;
  }

  // ---- the two verbs

  /// The gradient of tensor `id` is final. Throws usage_error if its last one has not arrived yet.
  void ready(tensor_id id) { ready(id, world_->queue().record()); }

  /// The gradient is final once the work on the caller's stream so far is done.
  template <class Stream>
  requires device_queue<Stream>
  void ready(tensor_id id, Stream& stream) { ready(id, stream.record()); }

  /// The gradient is final and lies in `gradient`, from this step on until told otherwise: of the
  /// tensor's type and length, else usage_error. It must stay until the tensor's next `ready`: for
  /// a pass without a gradient, zeros are written there. Where passes accumulate, it is their sum
  /// that the last one's memory holds. Cost: while the gradients of a bucket are floats and
  /// neighbours, also where they lie now, nothing; from then on that they are not, a copy of each
  /// tensor, into a buffer that is allocated once.
  void ready(tensor_id id, std::span<float> gradient) { ready_in(id, {.wide = gradient}); }
  void ready(tensor_id id, std::span<std::uint16_t> gradient) {
    ready_in(id, {.narrow = gradient});
  }
  template <class Stream>
  requires device_queue<Stream>
  void ready(tensor_id id, std::span<float> gradient, Stream& stream) {
    ready_in(id, {.wide = gradient}, stream.record());
  }
  template <class Stream>
  requires device_queue<Stream>
  void ready(tensor_id id, std::span<std::uint16_t> gradient, Stream& stream) {
    ready_in(id, {.narrow = gradient}, stream.record());
  }

  /// Tensor `id` has no gradient in this pass: it counts as zero. Where passes accumulate, what
  /// earlier ones have added up stays. Throws usage_error as `ready` does, and touches nothing
  /// then.
  void absent(tensor_id id) {
    const bool is_first = expect_arrived(id).accumulated.load(std::memory_order_relaxed) == 0;
    const tensor& its = model_.forward()[index(id)];
    if (model_.lends()) {
      const auto [memory, after] = lend(id);
      world_->queue().wait(after);
      if (is_first) {
        world_->queue().clear(memory.data(), memory.size_bytes());
      }
    } else if (is_first) {
      if (its.gradient_type == element_type::fp32) {
        world_->queue().clear(its.gradient.data(), its.gradient.size_bytes());
      } else {
        world_->queue().clear(its.narrow_gradient.data(), its.narrow_gradient.size_bytes());
      }
    }
    ready(id);
  }

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
    static_assert(sizeof(rule::check_joined_ranks_send_zeros<architecture, Optimizer, state_type>) >
                  0);
    return joining_.join();
  }

  /// `co_await engine.arrival(id)`: as `wait(id)`.
  auto arrival(tensor_id id) { return arrival_operation(*this, id); }

  /// `co_await engine.started()`: plans are compared and parameters broadcast.
  const task& started() const { return startup_; }

  /// A server's whole life.
  const task& served() const { return services_.listening(); }

  /// Ends this rank's part once its gradients have arrived. The destructor does it where blocking
  /// is allowed.
  task close() { return services_.close(startup_); }

  // ---- roles

  /// This rank does not train: call `serve` and return.
  bool serves() const { return world_->rank() >= workers_; }
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
  /// What `average` does, for coroutines: `value` becomes the mean, and must outlive the task.
  task averaged(double& value) {
    averages_.fetch_add(1, std::memory_order_relaxed);
    return average_over_workers(endpoint<Transport>(*world_, services_.own_tag(own::average)),
                                workers_, value);
  }

  /// Other values for the optimizer from the next step on. Every worker must call it, between the
  /// same steps, with the same values. Residuals that are steps follow the learning rate
  /// (compression/rescaled_error_feedback.hpp). Throws usage_error, and changes nothing, if they
  /// need more memory an element than those that the engine was made with.
  void change(const Optimizer& values) requires(!virtual_time) {
    if (values.memory_per_element() > room_per_element_) {
      throw usage_error(sentence(
          {"with these values the optimizer remembers ", values.memory_per_element(),
           " floats an element, and this engine was made with room for ", room_per_element_,
           ". Fix: make the engine with values that need as much; they may be changed "
           "before the first step"}));
    }
    wait();
    waits_.exclusively([&] { rescale(change_of_rate(optimizer_, values)); });
    tell(values);
  }
  const Optimizer& values() const { return optimizer_; }

  /// From the next step on this engine is as one made with `set` that has trained so far: the
  /// strategy is the same type, and thresholds, partitions, windows, credit, a compressor's density
  /// and the architecture's values may be others. Residuals, momenta and what architectures
  /// remember are kept by their place in the model, and move to whoever owns that place now. Every
  /// worker must call it between the same two steps, with the same options; servers hear of it. Who
  /// serves, which tensors a compressor selects, the deadline and who makes progress stay as they
  /// were.
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
  task replanned(const options& set) { return replan_steps<types, engine>::to(*this, set); }

  const plan& planned() const { return plan_; }
  const std::vector<tensor>& tensors() const { return model_.forward(); }
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
            has_cycle && !virtual_time && !waits_.has_thread()};
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
  bool communicates() const { return flow_ && flow_->communicates(); }

  // ---- state, for core/checkpoint.hpp: to be touched between steps only

  std::uint64_t steps() const { return flow_ ? flow_->steps() : 0; }
  /// Waits for every tensor, and until nothing of this rank's is on its way and its monitor has the
  /// sums of every step.
  void drain() requires(!virtual_time) {
    wait();
    waits_.until([this] { return !communicates() && observer_.sums_are_there(); });
    synchronize();
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
  static constexpr bool learns = flow<types, engine>::learns;
  /// That order, as coordination::learned keeps it; empty while it is being learned.
  std::span<const std::uint32_t> book() const requires learns { return flow_->book(); }
  /// Launches by an order that an earlier run has learned; every worker must call it. Throws
  /// usage_error if it was not learned for this plan.
  void resume_by(std::span<const std::uint32_t> book) requires(learns && !virtual_time) {
    waits_.exclusively([&] { flow_->resume_by(book); });
  }

  /// What policies remember on ranks that do not train, rank by rank: on worker 0; nothing on the
  /// others.
  std::vector<memories_of_rank> collect_from_others() requires(!virtual_time) {
    std::vector<memories_of_rank> all;
    if (world_->rank() == 0 && servers() > 0) {
      all.resize(static_cast<std::size_t>(servers()));
      task asking = services_.collect(all);
      waits_.run(asking);
    }
    return all;
  }

  /// Goes on from step `steps` with the parameters as they are now, remembering `mine` here and
  /// `theirs` on the ranks that do not train. Every worker must call it.
  void resume(std::uint64_t steps, const Optimizer& values,
              const std::vector<memories_of_rank>& theirs,
              const memories_of_rank& mine) requires(!virtual_time) {
    waits_.exclusively([&] {
      flow_->resume(steps);
      resume_architecture(steps);
      const auto all = memories();
      for (std::size_t i = 0; i < all.size(); ++i) {
        fill_from_host(world_->queue(), all[i], [&](std::span<float> into) {
          std::copy(mine[i].begin(), mine[i].end(), into.begin());
        });
      }
    });
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
  friend base;
  friend loop_round go_round<>(Transport&, engine&);
  friend flow_type;
  friend replan_steps<types, engine>;
  friend joining<engine>;

  using audience = typename failure<Transport>::audience;
  using model_type = model_memory<typename Transport::queue_type>;
  using services_type = services<Transport>;
  using own = typename services_type::own;

  /// What every rank must set alike.
  std::string settings(const options& set) const { return settings_of<Strategy>(set, optimizer_); }
  plan planned_for(std::span<const tensor> forward, const options& set,
                   const compression& compressor) const {
    const auto place = [&](plan& made) {
      if constexpr (requires { architecture::place(made, set.architecture, 1); }) {
        architecture::place(made, set.architecture, world_->size());
      }
    };
    const int serve =
        world_->size() - workers_among<architecture>(set.architecture, world_->size());
    const auto partition =
        among(make_policy<typename strategy::partition>(set.partition), std::max(1, serve));
    return make_plan(forward, make_policy<typename strategy::fusion>(set.fusion), partition,
                     set.profile, place, settings(set), [&](const tensor_facts& each) {
                       tensor_class its = class_of(compressor, each);
                       if (facts::keeps_types_apart(set.fusion)) {
                         its.type = forward[index(each.id)].gradient_type;
                       }
                       return its;
                     });
  }
  void open_flow() {
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
  buffers buffers_wanted() const {
    if (serves()) {
      return buffers::none;
    }
    return facts::has_outgoing<state_type> || facts::delay<architecture> > 0 ? buffers::separate
                                                                             : buffers::views;
  }

  /// Whoever answers others while it trains must not leave them waiting until it calls again.
  /// Throws usage_error where the transport allows no thread for that.
  progress progress_wanted() const {
    const bool answers = !serves() && listens_to_all(world_->rank());
    if constexpr (requires { world_->single_threaded(); }) {
      if (answers && world_->single_threaded()) {
        throw usage_error(
            "this architecture has ranks answer each other while they compute, which takes a "
            "thread, but MPI was started for one thread. Fix: MPI_Init_thread with "
            "MPI_THREAD_MULTIPLE, or let transport::mpi start MPI");
      }
    }
    return answers && set_.run.progress == progress::automatic ? progress::by_thread
                                                               : set_.run.progress;
  }

  /// A device's kernels cannot follow a pointer into memory that is the host's alone.
  void expect_reachable(const tensor& its, const void* memory) {
    if constexpr (requires { world_->queue().reaches(nullptr); }) {
      if (memory != nullptr && !world_->queue().reaches(memory)) {
        throw usage_error(its.name +
                          " does not lie in memory of this transport's device. Fix: allocate it "
                          "on the device, or train over transport::in_process");
      }
    }
  }
  void expect_reachable(const tensor& its) {
    expect_reachable(its, its.parameter.data());
    expect_reachable(its, its.gradient.data());
    expect_reachable(its, its.narrow_gradient.data());
  }

  task start_up() {
    if constexpr (!virtual_time) {
      waits_.start_answering();  // a rank that waits for others here answers, too
    }
    return services_.begin(model_.phantom() ? std::span<const tensor>() : model_.forward(),
                           settings(set_));
  }
  [[gnu::cold]] void begun() {
    resume_architecture(0);
    if (listens_to_all(world_->rank()) || serves() || flow_->listens()) {
      services_.start_listening();
    }
    is_started_.store(true, std::memory_order_release);
    open_posts();
  }
  void disagreed(std::exception_ptr why) { fail(std::move(why), audience::nobody); }

  // ---- gradients in

  tensor_state<queue_event>& at(tensor_id id) {
    failure_.rethrow();
    return flow_->at(plan_.position(id));
  }

  /// The tensor's gradient is the caller's, not on its way.
  tensor_state<queue_event>& expect_arrived(tensor_id id) {
    auto& mine = at(id);
    if (!mine.is_current()) {
      throw usage_error(model_.forward()[index(id)].name +
                        " is ready again before its last gradient arrived. Fix: wait(id) first");
    }
    return mine;
  }

  void ready_in(tensor_id id, const gradient_memory& memory) {
    ready_in(id, memory, world_->queue().record());
  }
  std::pair<std::span<float>, queue_event> lend(tensor_id id) {
    expect_arrived(id);
    if (!model_.lends()) {
      throw usage_error(model_.forward()[index(id)].name +
                        " has memory for its gradient, or is a phantom, and is lent none. Fix: "
                        "declare it by tensor::without_gradient");
    }
    const std::size_t position = plan_.position(id);
    if constexpr (!virtual_time) {  // the loop hands in a joined rank's zeros, and must not wait
      wait_until([this, position] { return joining_.joined() || model_.has_room(position); },
                 static_cast<std::uint32_t>(index(id)));
    }
    return model_.lend(world_->queue(), position);
  }
  /// Who waits for room must not wait for gradients that he has to write himself.
  [[gnu::cold]] void expect_gradients_come_back([[maybe_unused]] const options& set,
                                                [[maybe_unused]] const plan& made) const {
    if constexpr (facts::gives_gradients_back<architecture>) {
      if (!model_.lends() || most_lent(set) == 0) {
        return;
      }
      if (facts::holds_back<typename strategy::schedule>) {
        throw usage_error(
            "architecture.lent_bytes wants a bucket to go when it is full, and this schedule may "
            "hold it back until others are. Fix: schedule::as_ready, or lent_bytes 0");
      }
      for (const chunk& each : made.chunks) {
        if (each.elements != 0 && around_.parameters(each).empty()) {
          throw usage_error(
              sentence({"architecture.lent_bytes wants a bucket's parameters side by "
                        "side, and those of bucket ",
                        each.bucket, " are not. Fix: an arena, or lent_bytes 0"}));
        }
      }
    }
  }
  void gradient_is_there(tensor_id id, typename model_type::pass which) {
    if constexpr (facts::gives_gradients_back<architecture>) {
      model_.gradient_is_there(plan_.position(id), which);
    }
  }
  /// Bytes of gradients; 0 for as many as it takes.
  static std::size_t most_lent(const options& set) {
    if constexpr (requires { set.architecture.lent_bytes; }) {
      return set.architecture.lent_bytes;
    } else {
      return 0;
    }
  }

  void ready_in(tensor_id id, const gradient_memory& memory, queue_event when) {
    auto& mine = expect_arrived(id);
    const tensor& its = model_.forward()[index(id)];
    if (model_.lends()) {
      throw usage_error(its.name +
                        " is ready with values elsewhere than in the memory that was lent for "
                        "them. Fix: write them where gradient(id) says, and ready(id)");
    }
    model_.expect_gradient(its, memory);
    const bool stays = memory.wide.data() == its.gradient.data() &&
                       memory.narrow.data() == its.narrow_gradient.data();
    if (!stays) {
      expect_reachable(its, memory.wide.data());
      expect_reachable(its, memory.narrow.data());
    }
    mine.moved = stays ? gradient_memory() : memory;
    ready(id, when);
  }

  void ready(tensor_id id, queue_event when) {
    auto& mine = expect_arrived(id);
    if constexpr (facts::gives_gradients_back<architecture>) {
      if (model_.lacks_gradient(plan_.position(id))) {
        throw usage_error(model_.forward()[index(id)].name +
                          " is ready, and its gradient has no memory yet. Fix: write it where "
                          "gradient(id) says, in every pass");
      }
    }
    const unsigned passes = mine.accumulated.load(std::memory_order_relaxed) + 1;
    if (passes < set_.run.accumulation) {
      mine.accumulated.store(passes, std::memory_order_relaxed);
      gradient_is_there(id, model_type::pass::any);
      waits_.nudge();  // others may ask meanwhile
      return;
    }
    mine.accumulated.store(0, std::memory_order_relaxed);
    mine.written = when;
    mine.readied.fetch_add(1, std::memory_order_relaxed);
    gradient_is_there(id, model_type::pass::last);
    posts_.post(static_cast<std::uint32_t>(plan_.position(id)));
    waits_.nudge();
  }

  // ---- a rank that has joined

  bool adds_up_passes() {
    for (std::size_t position = 0; position < plan_.backward.size(); ++position) {
      if (flow_->at(position).accumulated.load(std::memory_order_relaxed) != 0) {
        return true;
      }
    }
    return false;
  }
  /// The tensor has no gradient in the passes that its step still lacks.
  void absent_to_the_end(tensor_id id) {
    do {
      absent(id);
    } while (at(id).accumulated.load(std::memory_order_relaxed) != 0);
  }
  void say_joined() { flow_->join(); }
  void all_have_joined() { joining_.all_have_joined(); }

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

  void wait_for(tensor_id id) {
    auto& mine = at(id);
    wait_until([&mine] { return mine.is_current(); }, static_cast<std::uint32_t>(index(id)));
  }

  /// Lets the device come so far; what its work has refused ends every rank's part.
  void synchronize() {
    try {
      if constexpr (is_stream_ordered<Transport>) {
        waits_.until_the_stream_has_come();
      }
      world_->queue().synchronize();
    } catch (...) {
      const auto why = std::current_exception();
      waits_.exclusively([&] { fail(why, audience::everybody); });
      throw;
    }
  }

  /// The transport's failure is this engine's, also where no coroutine awaits anything of it.
  void hear_of_failure() {
    if constexpr (requires { world_->failure(); }) {
      if (world_->failure()) {
        heard(world_->failure());
      }
    }
  }

  void wait_until(predicate done, std::uint32_t which) {
    if (done()) {
      failure_.rethrow();
      return;
    }
    observer_.record(event::wait_begins, which);
    const seconds begin = world_->now();
    waits_.until(done);
    exposed_.fetch_add(world_->now() - begin, std::memory_order_relaxed);
    observer_.record(event::wait_ends, which);
  }

  class arrival_operation : arrival_waiter {
   public:
    arrival_operation(engine& of, tensor_id id) : engine_(&of), state_(&of.at(id)) {}
    arrival_operation(const arrival_operation&) = delete;
    arrival_operation& operator=(const arrival_operation&) = delete;

    bool await_ready() const { return state_->is_current() || engine_->failed(); }
    void await_suspend(std::coroutine_handle<> waiter) {
      this->coroutine = waiter;
      state_->waiting.push(*this);
    }
    void await_resume() const { engine_->failure_.rethrow(); }

   private:
    engine* engine_;
    tensor_state<queue_event>* state_;
  };

  // ---- failure

  [[gnu::cold]] void end_with(const std::string& sentence) {
    if (!sentence.empty()) {
      fail(std::make_exception_ptr(communication_error(sentence)), audience::everybody);
    }
  }

  /// What this rank waits for.
  chunk_step stuck() const {
    const auto found = flow_ ? flow_->stuck() : std::nullopt;
    return found.value_or(chunk_step{no_chunk, 0});
  }

  [[gnu::cold]] void describe(const chunk_step& about, control_message& answer) {
    answer.tensor = no_tensor;
    answer.state = chunk_state::started;
    answer.averages = serves() ? ~std::uint64_t{0} : averages_.load(std::memory_order_relaxed);
    answer.waiting = waits_.threads();
    answer.handed_in = handed_in();
    if (flow_) {
      flow_->describe(about.chunk, about.step, answer);
    }
  }

  /// Gradients that `ready` has taken so far, in every pass. Summed when somebody asks.
  [[gnu::cold]] std::uint64_t handed_in() {
    std::uint64_t sum = 0;
    for (std::size_t position = 0; flow_ && position < plan_.backward.size(); ++position) {
      const auto& each = flow_->at(position);
      sum += each.readied.load(std::memory_order_relaxed) * set_.run.accumulation +
             each.accumulated.load(std::memory_order_relaxed);
    }
    return sum;
  }

  void heard(std::exception_ptr why) { fail(std::move(why), audience::nobody); }
  void hear(int peer, std::span<const std::byte> words) { flow_->hear(peer, words); }
  std::string_view due_call() const { return due_call_.load(std::memory_order_relaxed); }
  bool listens_to_all(int rank) const {
    return listens<architecture>(set_.architecture, rank, world_->size());
  }
  task serve_chunk(typename base::message_type asked) {
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
    rescale(change_of_rate(optimizer_, values));
    optimizer_ = values;
  }
  void tell(const Optimizer& values) {
    optimizer_ = values;
    if (servers() > 0) {
      task telling = services_.tell_values(std::as_bytes(std::span(&optimizer_, 1)));
      waits_.run(telling);
      average(0);
    }
  }
  /// What this rank remembers in steps of the optimizer becomes `factor` times as much.
  void rescale([[maybe_unused]] float factor) {
    if constexpr (facts::rescales<compression>) {
      if (factor != 1.0f && flow_) {
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
      return what == service::replan ? replan_steps<types, engine>::as_told(*this)
                                     : services_.converse(worker, what);
    } else {
      return {};
    }
  }
  void broken(std::exception_ptr why) { fail(std::move(why), audience::everybody); }
  void chunk_failed(std::exception_ptr why) { fail(std::move(why), audience::everybody); }

  [[gnu::cold]] void fail(std::exception_ptr why, audience who) {
    if (failure_.end(std::move(why), who) && flow_) {
      observer_.stop();
      flow_->release_waiters();
    }
  }
  task finish_gradients() {
    if constexpr (facts::has_sums<Monitor>) {
      return finish_sums();
    } else {
      return flow_->finish();
    }
  }
  task finish_sums() {
    co_await flow_->finish();
    co_await observer_.finish();
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
  task stop_answering() {
    if constexpr (virtual_time) {
      return {};
    } else {
      return waits_.stop_answering();
    }
  }
  bool failed() const { return failure_.happened(); }

  /// Waits until nothing of this rank is in flight: only then may its memory go.
  [[gnu::cold]] void quiesce() {
    fail(std::make_exception_ptr(communication_error("the engine has ended")), audience::nobody);
    if (flow_) {
      flow_->stop_speaking();
    }
    if constexpr (virtual_time) {
      world_->ready_coroutines().drain();
    } else {
      waits_.settle([this] { return world_->in_flight() == 0 && at_rest(); });
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

  Transport* world_;
  failure<Transport> failure_;
  claim claim_;
  options set_;
  int workers_;
  compression compression_;
  Optimizer optimizer_;
  std::size_t room_per_element_;
  observer<Monitor, Transport> observer_;
  plan plan_;
  model_type model_;
  world_type around_;
  std::optional<state_type> state_;  // empty where a plan was given up half made
  services_type services_;
  joining<engine> joining_;
  waiting<Transport> waits_;
  std::optional<flow_type> flow_{};
  task startup_{};
  task closing_{};
  std::atomic<seconds> exposed_{0};         // several threads may wait
  std::atomic<std::uint64_t> averages_{0};  // and re-plans
  std::atomic<const char*> due_call_{"average()"};
};

/// An engine for `Strategy`, named or composed. `optimizer` runs where the architecture says; leave
/// it out and averaged gradients come back for your own.
template <class Strategy, class Transport, optimizer_policy Optimizer = optimizer::none,
          class Monitor = monitor::none>
auto make_engine(Transport& world, std::vector<tensor> tensors, Optimizer optimizer = {},
                 engine_options<Strategy> options = {}, Monitor monitor = {}) {
  try {
    return engine<Strategy, Transport, Optimizer, Monitor>(world, std::move(tensors), optimizer,
                                                           std::move(options), std::move(monitor));
  } catch (const usage_error&) {  // every rank's, or refused before others could wait for it
    throw;
  } catch (const communication_error&) {  // every rank has it
    throw;
  } catch (...) {
    world.abort(verdict_of(world.rank(), std::current_exception()));
    throw;
  }
}

}  // namespace tutti

#pragma once

#include <array>
#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/post_box.hpp"
#include "tutti/base/predicate.hpp"
#include "tutti/base/task.hpp"
#include "tutti/core/control.hpp"
#include "tutti/core/driver.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/engine_types.hpp"
#include "tutti/core/flow.hpp"
#include "tutti/core/model_memory.hpp"
#include "tutti/core/observer.hpp"
#include "tutti/core/plan_maker.hpp"
#include "tutti/core/report.hpp"
#include "tutti/core/rules.hpp"
#include "tutti/core/server.hpp"
#include "tutti/core/server_memories.hpp"
#include "tutti/core/startup.hpp"
#include "tutti/core/watch.hpp"
#include "tutti/monitor/none.hpp"
#include "tutti/optimizer/none.hpp"
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
/// everybody's. An engine stays where it was made. Errors end every wait on every rank with one
/// sentence (communication_error).
template <class Strategy, transport_policy Transport, optimizer_policy Optimizer,
          monitor_policy Monitor = monitor::none>
class engine {
  using types = engine_types<Strategy, Transport, Optimizer, Monitor>;
  using mark = typename Transport::queue_type::mark;
  static constexpr bool virtual_time = types::virtual_time;
  static constexpr bool has_servers = types::has_servers;

 public:
  using strategy = typename types::strategy;
  using options = typename types::options;
  using compression = typename types::compression;
  using architecture = typename types::architecture;

 private:
  using server_type = tutti::server<architecture, compression, Optimizer, Transport>;

  static_assert(sizeof(rule::check_owners_need_an_optimizer<architecture, Optimizer>) > 0);
  static_assert(sizeof(rule::check_peers_must_be_addressable<architecture, Transport>) > 0);
  static_assert(sizeof(rule::check_native_needs_the_transport<architecture, Transport>) > 0);
  static_assert(sizeof(rule::check_senders_must_be_known<architecture, Transport>) > 0);
  using compiled_first =
      typename rule::compiles_for_the_queue<compression, typename Transport::queue_type>::needed;

 public:
  engine(Transport& world, std::vector<tensor> tensors, Optimizer optimizer, options set,
         Monitor monitor = {})
      : world_(&world),
        set_(std::move(set)),
        servers_(server_count()),
        workers_(world.size() - servers_),
        compression_(make_policy<compression>(set_.compression)),
        optimizer_(optimizer),
        observer_(world, std::move(monitor)),
        plan_(make_plan(tensors, make_policy<typename strategy::fusion>(set_.fusion),
                        make_policy<typename strategy::partition>(set_.partition), set_.profile,
                        workers_, servers_)),
        model_(world.queue(), std::move(tensors), plan_),
        posts_(plan_.backward.size()),
        driver_(world, *this),
        watch_(world, *this) {
    expect_reachable();
    if (!serves()) {
      flow_.emplace(world, plan_, model_, set_, workers_, service_tag(service::decisions),
                    optimizer_, observer_, *this);
    } else if constexpr (has_servers) {
      server_.emplace(world, plan_, model_, compression_, optimizer_, workers_,
                      set_.run.accumulation);
    }
    startup_ = start_up();
    startup_.start(world.ready_coroutines());
    if constexpr (!virtual_time) {
      try {
        block_until([this] { return startup_.done(); });
        synchronize();
      } catch (...) {
        quiesce();  // whoever throws here has no destructor
        throw;
      }
      driver_.start_thread(set_.run.progress);
    }
  }
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  ~engine() {
    driver_.stop_thread();
    if (closed_) {
      return;
    }
    if (outstanding() || unwinds_before_the_stream()) {
      fail(std::make_exception_ptr(communication_error(sentence(
               {"rank ", world_->rank(), " left while its gradients were still on their way"}))),
           audience::everybody);
    }
    if constexpr (is_stream_ordered<Transport>) {
      try {
        synchronize();
      } catch (...) {
      }  // a destructor has nobody to tell, and every rank has been told
    }
    if constexpr (!virtual_time) {
      if (!failed()) {
        closing_ = close();
        closing_.start(world_->ready_coroutines());
        driver_.drive_until([this] { return closing_.done(); }, set_.run.deadline);
      }
    }
    if (!closed_) {
      quiesce();
    }
  }

  // ---- the two verbs

  /// The gradient of tensor `id` is final. Throws usage_error if its last one has not arrived yet.
  void ready(tensor_id id) { ready(id, world_->queue().record()); }

  /// The same, once the work on the caller's stream so far is done.
  template <class Stream>
  requires device_queue<Stream>
  void ready(tensor_id id, Stream& stream) { ready(id, stream.record()); }

  /// Tensor `id` has no gradient in this step: it counts as zero.
  void absent(tensor_id id) {
    const auto gradient = model_.forward()[index(id)].gradient;
    world_->queue().clear(gradient.data(), gradient.size_bytes());
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

  /// The same for every tensor: a global barrier.
  void wait() requires(!virtual_time) {
    wait_until([this] { return !outstanding(); }, no_tensor);
    synchronize();
  }

  // ---- the same for coroutines

  /// `co_await engine.arrival(id)`: as `wait(id)`.
  auto arrival(tensor_id id) { return arrival_operation(*this, id); }

  /// `co_await engine.started()`: plans are compared and parameters broadcast.
  const task& started() const { return startup_; }

  /// A server's whole life.
  const task& served() const { return listening_; }

  /// Ends this rank's part once its gradients have arrived. The destructor does it where blocking
  /// is allowed.
  task close() {
    co_await startup_;
    if (!serves()) {
      for (int server = workers_; server < world_->size(); ++server) {
        co_await world_->send(server, service_tag(service::farewell), {});
      }
      co_await flow_->finish();
      if (flow_->follows()) {
        co_await world_->send(world_->rank(), service_tag(service::farewell), {});
      }
    }
    co_await listening_;
    if constexpr (has_servers) {
      if (server_) {
        co_await server_->finish();
      }
    }
    if constexpr (!virtual_time) {
      co_await watch_.stop();
    }
    closed_ = true;
  }

  // ---- roles

  /// This rank is a parameter server: call `serve` and return.
  bool serves() const { return world_->rank() >= workers_; }
  /// Serves until every worker's engine has ended. Answers the exit status, 0.
  int serve() requires(!virtual_time) {
    block_until([this] { return has_served_.load(std::memory_order_acquire); });
    return 0;
  }
  int worker() const { return world_->rank(); }
  int workers() const { return workers_; }
  int servers() const { return servers_; }

  // ---- values

  /// The mean of `value` over the workers, each with its own. Every worker must call it.
  double average(double value) requires(!virtual_time) {
    task asking =
        average_over_workers(endpoint<Transport>(*world_, own_tag(own::average)), workers_, value);
    run(asking);
    return value;
  }

  /// Other values for the optimizer from the next step on. Every worker must call it, between the
  /// same steps, with the same values.
  void change(const Optimizer& values) requires(!virtual_time) {
    wait();
    optimizer_ = values;
    if constexpr (has_servers) {
      task telling = tell_servers();
      run(telling);
      average(0);
    }
  }
  const Optimizer& values() const { return optimizer_; }

  const plan& planned() const { return plan_; }
  const std::vector<tensor>& tensors() const { return model_.forward(); }
  /// Hash of every start so far, in order: equal on all ranks where an order is needed.
  std::uint64_t agenda() const { return flow_ ? flow_->agenda() : 0; }
  Monitor& observed() { return observer_.monitor; }
  Transport& world() { return *world_; }
  tutti::report report() const {
    return {world_->rank(),
            workers_,
            servers_,
            steps(),
            plan_.elements(),
            plan_.buckets.size(),
            plan_.chunks.size(),
            plan_.hash,
            world_->counted(),
            exposed()};
  }
  /// Seconds that `wait` took so far.
  seconds exposed() const { return exposed_.load(std::memory_order_relaxed); }
  traffic counted() const { return world_->counted(); }
  /// Some chunk is on its way.
  bool communicates() const { return flow_ && flow_->communicates(); }

  // ---- state, for core/checkpoint.hpp: to be touched between steps only

  std::uint64_t steps() const { return flow_ ? flow_->steps() : 0; }
  /// What this worker's policies remember.
  std::array<std::span<float>, 3> memories() { return flow_->memories(); }

  /// What the servers' policies remember, on worker 0; nothing on the others.
  std::vector<std::vector<float>> collect_from_servers() requires(!virtual_time) {
    std::vector<std::vector<float>> all;
    if constexpr (has_servers) {
      if (world_->rank() == 0) {
        task asking = ask_servers(all);
        run(asking);
      }
    }
    return all;
  }

  /// Goes on from step `steps` with the parameters and memories as they are now, and with the
  /// servers' as `served` has them. Every worker must call it.
  void resume(std::uint64_t steps, const Optimizer& values,
              const std::vector<std::vector<float>>& served) requires(!virtual_time) {
    flow_->resume(steps);
    change(values);
    if constexpr (has_servers) {
      if (world_->rank() == 0) {
        task restoring = restore_servers(steps, served);
        run(restoring);
      }
      average(0);
    }
  }

 private:
  friend flow<types, engine>;
  friend driver<Transport, engine>;
  friend watch<Transport, engine>;

  enum class audience { nobody, everybody };
  /// What an engine sends beside chunks, numbered after the last chunk where there are any.
  enum class own : std::uint32_t { hello, parameters, average, change, memory };
  enum class service : std::uint32_t { decisions = 8, farewell, change, collect, restore };

  tag own_tag(own what) const {
    const auto number = static_cast<std::uint32_t>(what);
    if (what == own::hello || what == own::average) {
      return {channel::host, number, 0};  // no plan is in it: hello asks whether they are equal
    }
    return {channel::data, static_cast<std::uint32_t>(plan_.chunks.size()) + number, 0};
  }
  tag service_tag(service what) const {
    return {channel::service,
            static_cast<std::uint32_t>(plan_.chunks.size()) + static_cast<std::uint32_t>(what), 0};
  }
  endpoint<Transport> memory_endpoint() const {
    return endpoint<Transport>(*world_, own_tag(own::memory));
  }

  int server_count() const {
    if constexpr (has_servers) {
      const int wanted = set_.architecture.servers;
      if (wanted < 1 || wanted >= world_->size()) {
        throw usage_error(
            sentence({wanted, " servers among ", world_->size(),
                      " ranks leave no worker or no server. Fix: at least 1 of each"}));
      }
      return wanted;
    } else {
      return 0;
    }
  }

  /// A device's kernels cannot follow a pointer into memory that is the host's alone.
  void expect_reachable() {
    if constexpr (requires { world_->queue().reaches(nullptr); }) {
      for (const tensor& each : model_.forward()) {
        for (const float* memory : {each.parameter.data(), each.gradient.data()}) {
          if (memory != nullptr && !world_->queue().reaches(memory)) {
            throw usage_error(each.name +
                              " does not lie in memory of this transport's device. Fix: allocate "
                              "it on the device, or train over transport::in_process");
          }
        }
      }
    }
  }

  /// An exception of the user's leaves this engine, and peers wait for what it has not submitted.
  bool unwinds_before_the_stream() {
    if constexpr (is_stream_ordered<Transport>) {
      auto& queue = world_->queue();
      return std::uncaught_exceptions() > 0 && !failed() && !queue.passed(queue.record());
    } else {
      return false;
    }
  }

  task start_up() {
    try {
      co_await agree(endpoint<Transport>(*world_, own_tag(own::hello)), plan_, model_.forward());
      if (!model_.phantom()) {
        co_await broadcast_parameters(endpoint<Transport>(*world_, own_tag(own::parameters)),
                                      model_.forward());
      }
    } catch (...) {
      fail(std::current_exception(), audience::nobody);
      throw;
    }
    if (serves() || flow_->follows()) {
      listening_ = listen();
      listening_.start(world_->ready_coroutines());
    }
    if constexpr (!virtual_time) {
      watch_.start();
    }
    is_started_.store(true, std::memory_order_release);
    open_posts();
  }

  // ---- gradients in

  tensor_state<mark>& at(tensor_id id) { return flow_->at(plan_.position(id)); }

  void ready(tensor_id id, mark when) {
    rethrow_failure();
    auto& mine = at(id);
    if (!mine.is_current()) {
      throw usage_error(model_.forward()[index(id)].name +
                        " is ready again before its last gradient arrived. Fix: wait(id) first");
    }
    if (++mine.accumulated < set_.run.accumulation) {
      return;
    }
    mine.accumulated = 0;
    mine.written = when;
    mine.readied.fetch_add(1, std::memory_order_relaxed);
    posts_.post(static_cast<std::uint32_t>(plan_.position(id)));
    driver_.nudge();
  }

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
  bool has_posts() const {
    return is_started_.load(std::memory_order_acquire) && !posts_.empty() &&
           !unwritten_.load(std::memory_order_relaxed);
  }

  // ---- what others send

  /// Decisions of rank 0, or what workers want of this server.
  task listen() {
    int farewells = 0;
    try {
      while (farewells < (serves() ? workers_ : 1)) {
        int peer = 0;
        std::uint32_t what = 0;
        {
          const auto mail = co_await world_->receive_any(channel::service);
          peer = mail.peer();
          what = mail.where().chunk;
          if (what == service_tag(service::farewell).chunk) {
            ++farewells;
          } else if (what == service_tag(service::decisions).chunk) {
            flow_->hear(mail.bytes());
          } else if (what == service_tag(service::change).chunk) {
            std::memcpy(static_cast<void*>(&optimizer_), mail.bytes().data(), sizeof optimizer_);
          } else if constexpr (has_servers) {
            if (what < plan_.chunks.size()) {
              co_await server_->take(what, peer, mail.bytes());
            }
          }
        }  // only now does the sender go on, and can be asked for more
        if constexpr (has_servers) {
          co_await converse(peer, what);
        }
      }
    } catch (...) {
      fail(std::current_exception(), audience::everybody);
    }
    has_served_.store(true, std::memory_order_release);
  }

  task converse(int worker, std::uint32_t what) {
    if (what == service_tag(service::change).chunk) {
      co_await world_->send(worker, own_tag(own::change), {});
    } else if (what == service_tag(service::collect).chunk) {
      co_await send_memories(memory_endpoint(), worker, *server_);
    } else if (what == service_tag(service::restore).chunk) {
      co_await receive_restored(memory_endpoint(), worker, model_.forward(), *server_);
    }
  }

  task tell_servers() {
    if (world_->rank() != 0) {
      co_return;
    }
    const auto bytes = std::as_bytes(std::span(&optimizer_, 1));
    for (int server = workers_; server < world_->size(); ++server) {
      co_await world_->send(server, service_tag(service::change), bytes);
      co_await world_->receive(server, own_tag(own::change), {});
    }
  }

  task ask_servers(std::vector<std::vector<float>>& all) {
    for (int server = workers_; server < world_->size(); ++server) {
      co_await world_->send(server, service_tag(service::collect), {});
      co_await receive_memories(memory_endpoint(), server, server_type::memory_count, all);
    }
  }

  task restore_servers(std::uint64_t steps, const std::vector<std::vector<float>>& served) {
    for (int server = workers_; server < world_->size(); ++server) {
      const auto first = static_cast<std::size_t>(server - workers_) * server_type::memory_count;
      co_await world_->send(server, service_tag(service::restore), {});
      co_await send_restored(memory_endpoint(), server, steps, model_.forward(),
                             std::span(served).subspan(first, server_type::memory_count));
    }
  }

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
        come_so_far();
      }
      world_->queue().synchronize();
    } catch (...) {
      const auto why = std::current_exception();
      driver_.exclusively([&] { fail(why, audience::everybody); });
      throw;
    }
  }

  /// Where peers hold up the stream, the host looks at it until the deadline: it must neither block
  /// for ever nor take for a result what a failure has left.
  void come_so_far() {
    auto& queue = world_->queue();
    const auto end = queue.record();
    const auto passed = [&] { return queue.passed(end); };
    driver_.drive_until([&] { return passed() || world_->troubled(); }, set_.run.deadline);
    driver_.exclusively([this] { hear_of_failure(); });
    if (!passed() && !failed()) {
      diagnose(passed);
      driver_.exclusively([this] { hear_of_failure(); });
    }
    rethrow_failure();
  }

  /// The transport's failure is this engine's, also where no coroutine awaits anything of it.
  void hear_of_failure() {
    if constexpr (is_stream_ordered<Transport>) {
      if (world_->failure()) {
        fail(world_->failure(), audience::nobody);
      }
    }
  }

  void wait_until(predicate done, std::uint32_t which) {
    if (done()) {
      rethrow_failure();
      return;
    }
    observer_.record(event::wait_begins, which);
    const seconds begin = world_->now();
    block_until(done);
    exposed_.fetch_add(world_->now() - begin, std::memory_order_relaxed);
    observer_.record(event::wait_ends, which);
  }

  void block_until(predicate done) {
    if (!driver_.drive_until(done, set_.run.deadline)) {
      diagnose(done);
    }
    rethrow_failure();
  }

  /// Blocks until `asking` has ended, also when it fails: it refers to what its caller owns. Its
  /// steps are the loop's, whichever thread that is.
  void run(task& asking) {
    std::atomic<bool> ended{false};
    const auto done = [&ended] { return ended.load(std::memory_order_acquire); };
    task watched = tell_when_ended(asking, ended);
    driver_.exclusively([&] { watched.start(world_->ready_coroutines()); });
    if (!driver_.drive_until(done, set_.run.deadline)) {
      diagnose(done);
    }
    settle(done);
    driver_.exclusively([] {});  // the loop has left the coroutine
    rethrow_failure();
    asking.result();
  }

  task tell_when_ended(const task& asking, std::atomic<bool>& ended) {
    try {
      co_await asking;
    } catch (...) {
    }  // it stays in `asking`
    ended.store(true, std::memory_order_release);
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
    void await_resume() const { engine_->rethrow_failure(); }

   private:
    engine* engine_;
    tensor_state<mark>* state_;
  };

  // ---- failure

  /// At the deadline: ask everybody about the chunk that does not come, and say what they answer.
  [[gnu::cold]] void diagnose(predicate done) {
    std::optional<std::pair<std::uint32_t, std::uint64_t>> mine;
    driver_.exclusively([&] {
      if (flow_) {
        mine = flow_->stuck();
      }
      watch_.ask(mine ? mine->first : no_chunk, mine ? mine->second : 0);
    });
    const auto over = [&] { return done() || failed(); };
    driver_.drive_for([&] { return over() || watch_.everybody_answered(); },
                      std::min(set_.run.deadline, answer_time));
    if (!mine && watch_.everybody_answered()) {
      // Whoever is stuck knows better who is to blame; our question has put off its own deadline.
      driver_.drive_for(over, 2 * set_.run.deadline);
    }
    driver_.exclusively([&] {
      if (!over()) {
        fail(std::make_exception_ptr(communication_error(verdict(mine))), audience::everybody);
      }
    });
  }

  /// Why nothing moves: what this rank has not done, or what the others have answered.
  [[gnu::cold]] std::string verdict(
      const std::optional<std::pair<std::uint32_t, std::uint64_t>>& mine) const {
    const auto asked = [&] {
      return watch_.verdict(mine ? mine->first : no_chunk, model_.forward());
    };
    if constexpr (is_stream_ordered<Transport>) {
      const std::string& complaint = world_->complaint();
      if (!complaint.empty()) {
        return watch_.everybody_answered() ? complaint : sentence({asked(), " (", complaint, ")"});
      }
    }
    control_message here;
    here.tensor = no_tensor;
    if (mine) {
      describe(mine->first, mine->second, here);
    }
    return here.tensor == no_tensor ? asked()
                                    : sentence({"rank ", world_->rank(), " never submitted ",
                                                model_.forward()[here.tensor].name});
  }

  void describe(std::uint32_t chunk, std::uint64_t step, control_message& answer) const {
    answer.tensor = no_tensor;
    answer.state = chunk_state::started;
    if (flow_) {
      flow_->describe(chunk, step, answer);
    }
  }
  void heard(const std::string& verdict) {
    fail(std::make_exception_ptr(communication_error(verdict)), audience::nobody);
  }
  void chunk_failed(std::exception_ptr why) { fail(std::move(why), audience::everybody); }

  [[gnu::cold]] void fail(std::exception_ptr why, audience who) {
    if (failed()) {
      return;
    }
    if (who == audience::everybody) {
      watch_.proclaim(verdict_of(world_->rank(), why));
    }
    failure_ = why;
    failed_.store(true, std::memory_order_release);
    world_->fail(std::move(why));
    if (flow_) {
      flow_->release_waiters();
    }
  }

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  void rethrow_failure() const {
    if (failed()) {
      std::rethrow_exception(failure_);
    }
  }

  /// Waits until nothing of this rank is in flight: only then may its memory go.
  void quiesce() {
    fail(std::make_exception_ptr(communication_error("the engine has ended")), audience::nobody);
    if (flow_) {
      flow_->stop_leading();
    }
    if constexpr (virtual_time) {
      world_->ready_coroutines().drain();
    } else {
      settle([this] { return world_->in_flight() == 0 && at_rest(); });
    }
  }

  bool at_rest() const {
    if constexpr (has_servers) {
      if (server_ && !server_->at_rest()) {
        return false;
      }
    }
    return (!flow_ || flow_->at_rest()) && watch_.at_rest() && startup_.done() &&
           listening_.done() && closing_.done();
  }

  void settle(predicate done) {
    if (!driver_.drive_for(done, settle_time)) {
      abandon(*world_, failure_ ? what(failure_) : "a peer does not answer");
    }
  }

  static constexpr std::uint32_t no_chunk = 0xffffffff;
  static constexpr seconds answer_time = 2;

  Transport* world_;
  options set_;
  int servers_;
  int workers_;
  compression compression_;
  Optimizer optimizer_;
  observer<Monitor, Transport> observer_;
  plan plan_;
  model_memory<typename Transport::queue_type> model_;
  post_box posts_;
  driver<Transport, engine> driver_;
  watch<Transport, engine> watch_;
  std::optional<flow<types, engine>> flow_{};
  std::conditional_t<has_servers, std::optional<server_type>, std::monostate> server_{};
  task startup_{};
  task listening_{};
  task closing_{};
  std::atomic<bool> is_started_{false};
  std::atomic<bool> unwritten_{false};  // the oldest post's gradient, when last looked at
  std::atomic<bool> failed_{false};
  std::atomic<bool> has_served_{false};
  std::exception_ptr failure_{};
  bool closed_ = false;
  std::atomic<seconds> exposed_{0};  // several threads may wait
};

/// An engine for `Strategy`, named or composed. `optimizer` runs where the architecture says; leave
/// it out and averaged gradients come back for your own.
template <class Strategy, class Transport, optimizer_policy Optimizer = optimizer::none,
          class Monitor = monitor::none>
auto make_engine(Transport& world, std::vector<tensor> tensors, Optimizer optimizer = {},
                 engine_options<Strategy> options = {}, Monitor monitor = {}) {
  return engine<Strategy, Transport, Optimizer, Monitor>(world, std::move(tensors), optimizer,
                                                         std::move(options), std::move(monitor));
}

}  // namespace tutti

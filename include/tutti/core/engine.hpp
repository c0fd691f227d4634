#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/architecture/replicated.hpp"
#include "tutti/base/assert.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/fifo.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/post_box.hpp"
#include "tutti/base/task.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/control.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/leader.hpp"
#include "tutti/core/model_memory.hpp"
#include "tutti/core/plan_maker.hpp"
#include "tutti/core/rules.hpp"
#include "tutti/core/server.hpp"
#include "tutti/core/startup.hpp"
#include "tutti/core/state_memory.hpp"
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
 public:
  using strategy = strategy_of<Strategy>;
  using options = engine_options<Strategy>;
  using compression = typename strategy::compression;
  using architecture = typename tutti::architecture::resolved<typename strategy::architecture,
                                                              compression, Transport>::type;

 private:
  using schedule = typename strategy::schedule;
  using mark = typename Transport::queue_type::mark;
  using relay_type = decltype(relay(std::declval<const compression&>()));
  using server_type = tutti::server<architecture, compression, Optimizer, Transport>;

  static_assert(sizeof(rule::check_owners_need_an_optimizer<architecture, Optimizer>) > 0);
  static_assert(sizeof(rule::check_peers_must_be_addressable<architecture, Transport>) > 0);
  static_assert(sizeof(rule::check_native_needs_the_transport<architecture, Transport>) > 0);

  static constexpr bool has_servers = facts::has_servers<architecture>;
  static constexpr bool owns_parameters = facts::owns_parameters<architecture>;
  /// A window of credit held while peers decide otherwise is a deadlock; so is a started order that
  /// differs where one is needed.
  static constexpr bool needs_one_order =
      !architecture::completes_alone &&
      (schedule::limits_in_flight ||
       (facts::ordered_start<architecture> && !schedule::static_order));
  static constexpr bool virtual_time = Transport::virtual_time;

 public:
  engine(Transport& world, std::vector<tensor> tensors, Optimizer optimizer, options set,
         Monitor monitor = {})
      : world_(&world),
        set_(std::move(set)),
        servers_(server_count()),
        workers_(world.size() - servers_),
        compression_(make_policy<compression>(set_.compression)),
        optimizer_(optimizer),
        monitor_(std::move(monitor)),
        plan_(make_plan(tensors, make_policy<typename strategy::fusion>(set_.fusion),
                        make_policy<typename strategy::partition>(set_.partition), set_.profile,
                        workers_, servers_)),
        model_(std::move(tensors), plan_),
        schedule_(plan_, set_.schedule),
        tensors_(plan_.backward.size()),
        filled_(plan_.buckets.size()),
        chunks_(plan_.chunks.size()),
        posts_(plan_.backward.size()),
        told_(plan_.chunks.size() + 1),
        worker_memory_(serves() ? 0 : facts::memory_per_element<compression>, plan_.elements()),
        owner_memory_(has_servers ? 0 : facts::memory_per_element<relay_type>, plan_.elements()),
        momenta_(owns_parameters || serves() ? 0 : Optimizer::memory_per_element,
                 plan_.elements()) {
    if (serves()) {
      server_.emplace(world, plan_, model_, compression_, optimizer_, workers_);
    } else {
      set_up_chunks();
    }
    if (needs_one_order && set_.run.decisions == decisions::led && world.rank() == 0) {
      leader_.emplace(world, service_tag(service::decisions), plan_.chunks.size());
    }
    startup_ = start_up();
    startup_.start(world.ready_coroutines());
    if constexpr (!virtual_time) {
      block_until([this] { return startup_.done(); });
      startup_.result();
      if (by_thread()) {
        progress_thread_ = std::thread([this] { run_progress_thread(); });
      }
    }
  }
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  ~engine() {
    if (progress_thread_.joinable()) {
      leaving_.store(true, std::memory_order_release);
      progress_thread_.join();
    }
    if (closed_) {
      return;
    }
    if (outstanding() && !failure_) {
      fail(std::make_exception_ptr(
               communication_error("rank " + std::to_string(world_->rank()) +
                                   " left while its gradients were still on their way")),
           audience::everybody);
    }
    if constexpr (!virtual_time) {
      if (!failure_) {
        closing_ = close();
        closing_.start(world_->ready_coroutines());
        drive_until([this] { return closing_.done(); }, set_.run.deadline);
      }
    }
    if (!failure_ && !closing_.done()) {
      fail(std::make_exception_ptr(communication_error("a peer does not close")), audience::nobody);
    }
    if (failure_ || !closed_) {
      quiesce();
    }
  }

  // ---- the two verbs

  /// The gradient of tensor `id` is final. Throws usage_error if its last one has not arrived yet.
  void ready(tensor_id id) { ready(id, world_->queue().record()); }

  /// The same, once the work on the caller's stream so far is done.
  void ready(tensor_id id, mark when) {
    rethrow_failure();
    auto& mine = tensors_[plan_.position(id)];
    if (mine.readied.load(std::memory_order_relaxed) !=
        mine.arrived.load(std::memory_order_acquire)) {
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
    if (!progress_thread_.joinable()) {
      make_progress();
    }
  }

  /// Tensor `id` has no gradient in this step: it counts as zero.
  void absent(tensor_id id) {
    const auto gradient = model_.forward()[index(id)].gradient;
    float* values = gradient.data();
    world_->queue().for_each(gradient.size(), [values](std::size_t i) { values[i] = 0.0f; });
    ready(id);
  }

  /// Returns when what was last ready of tensor `id` has arrived. Throws communication_error if
  /// that can no longer happen.
  void wait(tensor_id id) requires(!virtual_time) {
    auto& mine = tensors_[plan_.position(id)];
    wait_until([&mine] { return mine.is_current(); }, static_cast<std::uint32_t>(index(id)));
    world_->queue().synchronize();
  }

  /// The same for every tensor: a global barrier.
  void wait() requires(!virtual_time) {
    wait_until([this] { return !outstanding(); }, no_tensor);
    world_->queue().synchronize();
  }

  /// What `stream` does from now on sees tensor `id` current; the host waits only for peers.
  template <class Stream>
  void wait(tensor_id id, Stream& stream) requires(!virtual_time) {
    auto& mine = tensors_[plan_.position(id)];
    wait_until([&mine] { return mine.is_current(); }, static_cast<std::uint32_t>(index(id)));
    stream.wait(mine.current);
  }
  template <class Stream>
  requires device_queue<Stream>
  void ready(tensor_id id, Stream& stream) { ready(id, stream.record()); }

  // ---- the same for coroutines

  class arrival_operation;

  /// `co_await engine.arrival(id)`: as `wait(id)`.
  auto arrival(tensor_id id) { return arrival_operation(*this, plan_.position(id)); }

  /// `co_await engine.started()`: plans are compared and parameters broadcast.
  const task& started() const { return startup_; }

  /// A server's whole life, in virtual time.
  const task& served() const { return listening_; }

  /// Ends this rank's part when all of its gradients have arrived; the destructor does it where
  /// blocking is allowed.
  task close() {
    co_await startup_;
    if (has_servers && !serves()) {
      for (int peer = workers_; peer < world_->size(); ++peer) {
        co_await world_->send(peer, service_tag(service::farewell), {});
      }
    }
    if (leader_) {
      co_await leader_->finish();
    } else if (needs_one_order && world_->rank() != 0) {
      co_await world_->send(world_->rank(), service_tag(service::farewell), {});
    }
    co_await listening_;
    if (server_) {
      co_await server_->finish();
    }
    if constexpr (!virtual_time) {
      stop_listening_.what = control_message::kind::stop;
      co_await world_->send(world_->rank(), tag{channel::control, 0, 0},
                            std::as_bytes(std::span(&stop_listening_, 1)));
      co_await control_;
    }
    closed_ = true;
  }

  // ---- roles

  /// This rank is a parameter server: call `serve` and return.
  bool serves() const { return world_->rank() >= workers_; }
  /// Serves until every worker's engine has ended. Answers the exit status, 0.
  int serve() requires(!virtual_time) {
    wait_until([this] { return listening_.done(); }, no_tensor);
    listening_.result();
    return 0;
  }
  int worker() const { return world_->rank(); }
  int workers() const { return workers_; }
  int servers() const { return servers_; }

  // ---- values

  const plan& planned() const { return plan_; }
  /// Hash of every decision so far: equal on all ranks where an order is needed.
  std::uint64_t agenda() const { return agenda_.value(); }
  Monitor& observed() { return monitor_; }
  Transport& world() { return *world_; }
  /// Seconds that `wait` took so far.
  seconds exposed() const { return exposed_; }
  traffic counted() const { return world_->counted(); }

  /// The mean of `value` over the workers, each with its own. Blocks; every worker must call it.
  double average(double value) requires(!virtual_time) {
    task asking =
        average_over_workers(endpoint<Transport>(*world_, own_tag(own::average)), workers_, value);
    run(asking);
    return value;
  }

  /// Exchanges the optimizer's values from the next step on. Every worker must call it, between the
  /// same steps, with the same values.
  void change(const Optimizer& values) requires(!virtual_time) {
    wait();
    if constexpr (has_servers) {
      task telling = tell_servers(values);
      run(telling);
      average(0);
    }
    optimizer_ = values;
  }
  const Optimizer& values() const { return optimizer_; }

  // ---- state, for core/checkpoint.hpp: to be touched between steps only

  std::uint64_t steps() const { return chunks_.empty() ? 0 : chunks_.front().steps; }
  /// What this rank's policies remember.
  std::array<std::span<float>, 3> memories() {
    return {worker_memory_.floats(), owner_memory_.floats(), momenta_.floats()};
  }
  /// What the servers' policies remember, on worker 0; nothing on the others.
  std::vector<std::vector<float>> collect_from_servers() requires(!virtual_time) {
    std::vector<std::vector<float>> all;
    if (world_->rank() == 0 && has_servers) {
      task asking = ask_servers(all);
      run(asking);
    }
    return all;
  }
  /// Goes on from step `steps` with the parameters and memories as they are now. Every worker must
  /// call it.
  void resume(std::uint64_t steps, const Optimizer& values,
              const std::vector<std::vector<float>>& served) requires(!virtual_time) {
    for (auto& each : chunks_) {
      each.steps = steps;
    }
    for (auto& each : tensors_) {
      each.readied = steps;
      each.arrived = steps;
    }
    optimizer_ = values;
    if constexpr (has_servers) {
      task telling = tell_servers(values);
      run(telling);
      if (world_->rank() == 0) {
        task restoring = restore_servers(steps, served);
        run(restoring);
      }
      average(0);
    }
  }
  const std::vector<tensor>& tensors() const { return model_.forward(); }

 private:
  enum class audience { nobody, everybody };
  /// What this engine sends itself and its peers beside chunks; numbered after the last chunk.
  enum class own : std::uint32_t { hello, parameters, average, change, memory };
  enum class service : std::uint32_t { decisions = 8, farewell, change, collect, restore };

  struct tensor_state {
    std::atomic<std::uint64_t> readied{0};
    std::atomic<std::uint64_t> arrived{0};
    unsigned accumulated = 0;
    unsigned pieces = 0;  // chunks that hold some of it
    unsigned pieces_left = 0;
    mark written{};
    mark current{};
    fifo<arrival_operation> waiting{};

    bool is_current() const {
      return arrived.load(std::memory_order_acquire) == readied.load(std::memory_order_relaxed);
    }
  };

  struct chunk_record {
    chunk_state state{chunk_state::finished};
    std::uint64_t steps{};
    bool released{};
    std::vector<std::byte> workspace{};
    std::vector<std::byte> scratch{};
    task running{};
  };

  // ---- set-up

  int server_count() const {
    if constexpr (has_servers) {
      const int wanted = set_.architecture.servers;
      if (wanted < 1 || wanted >= world_->size()) {
        throw usage_error(std::to_string(wanted) + " servers among " +
                          std::to_string(world_->size()) +
                          " ranks leave no worker or no server. Fix: at least 1 of each");
      }
      return wanted;
    } else {
      return 0;
    }
  }

  void set_up_chunks() {
    for (std::size_t number = 0; number < chunks_.size(); ++number) {
      const chunk& piece = plan_.chunks[number];
      if (!model_.phantom()) {
        chunks_[number].workspace.resize(
            architecture{}.workspace_bytes(compression_, piece.elements, world_->size()));
        chunks_[number].scratch.resize(
            std::max(scratch_bytes(compression_, piece.elements),
                     scratch_bytes(relay(compression_), piece.elements)));
      }
      for_each_tensor(piece, [&](std::size_t position) { ++tensors_[position].pieces; });
    }
    for (auto& each : tensors_) {
      each.pieces_left = each.pieces;
    }
  }

  /// The tensors that a chunk holds some of. One without elements belongs to its bucket's first.
  template <class Visit>
  void for_each_tensor(const chunk& piece, Visit visit) const {
    const bucket& group = plan_.buckets[piece.bucket];
    const std::size_t end = piece.first_element + piece.elements;
    for (std::size_t i = 0; i < group.tensors; ++i) {
      const std::size_t position = group.first_tensor + i;
      const std::size_t first = plan_.first_element[position];
      const std::size_t last = plan_.first_element[position + 1];
      const bool empty = first == last;
      if (empty ? piece.first_element == group.first_element &&
                      &piece == &plan_.chunks[group.first_chunk]
                : first < end && piece.first_element < last) {
        visit(position);
      }
    }
  }

  tag own_tag(own what) const {
    return {channel::data,
            static_cast<std::uint32_t>(plan_.chunks.size()) + static_cast<std::uint32_t>(what), 0};
  }
  tag service_tag(service what) const {
    return {channel::service,
            static_cast<std::uint32_t>(plan_.chunks.size()) + static_cast<std::uint32_t>(what), 0};
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
    if (serves() || (needs_one_order && world_->rank() != 0)) {
      listening_ = listen();
      listening_.start(world_->ready_coroutines());
    }
    if constexpr (!virtual_time) {
      control_ = listen_to_control();
      control_.start(world_->ready_coroutines());
    }
    is_started_ = true;
    open_posts();
  }

  // ---- the machine: tensors become ready, chunks start, finish and make tensors arrive

  bool open_posts() {
    bool any = false;
    while (is_started_) {
      const auto position = posts_.take();
      if (!position) {
        break;
      }
      any = true;
      observe(event::ready, static_cast<std::uint32_t>(index(plan_.at(*position))));
      const std::uint32_t number = plan_.bucket_of[*position];
      if (++filled_[number] == plan_.buckets[number].tensors) {
        filled_[number] = 0;
        fill(number);
      }
    }
    return any;
  }

  void fill(std::uint32_t number) {
    const bucket& full = plan_.buckets[number];
    for (std::uint32_t i = 0; i < full.chunks; ++i) {
      chunks_[full.first_chunk + i].state = chunk_state::ready;
    }
    if (follows()) {
      start_what_was_told();
    } else {
      schedule_.ready(number);
      start_what_may_go();
    }
  }

  bool follows() const {
    return needs_one_order && set_.run.decisions == decisions::led && world_->rank() != 0;
  }

  void start_what_may_go() {
    if (std::exchange(deciding_, true)) {
      return;  // a chunk that completed at once came back here; the outer loop goes on
    }
    while (const auto next = schedule_.next()) {
      agenda_.feed(*next);
      if (leader_) {
        leader_->decide(*next);
      }
      start(*next);
    }
    deciding_ = false;
  }

  void start_what_was_told() {
    if (std::exchange(deciding_, true)) {
      return;
    }
    while (told_head_ != told_tail_ && chunks_[told_[told_head_]].state == chunk_state::ready) {
      const std::uint32_t number = told_[told_head_];
      told_head_ = (told_head_ + 1) % told_.size();
      agenda_.feed(number);
      start(number);
    }
    deciding_ = false;
  }

  void start(std::uint32_t number) {
    auto& record = chunks_[number];
    record.state = chunk_state::started;
    record.released = false;
    observe(event::started, number);
    record.running = run_chunk(number);
    record.running.start(world_->ready_coroutines());
  }

  task run_chunk(std::uint32_t number) {
    auto& record = chunks_[number];
    const chunk& piece = plan_.chunks[number];
    auto& queue = world_->queue();
    try {
      for_each_tensor(piece, [&](std::size_t position) { queue.wait(tensors_[position].written); });
      model_.pack(queue, piece);
      const auto released = [this, number] { release(number); };
      parcel<compression, decltype(released)> contents{
          model_.data(piece),
          &compression_,
          worker_memory_.at(piece.first_element, record.scratch, record.steps),
          owner_memory_.at(piece.first_element, record.scratch, record.steps),
          record.workspace,
          1.0f / (static_cast<float>(workers_) * static_cast<float>(set_.run.accumulation)),
          workers_,
          piece.server,
          released};
      if (piece.elements > 0) {
        co_await architecture_.exchange(endpoint<Transport>(*world_, tag{channel::data, number, 0}),
                                        contents);
      }
    } catch (...) {
      fail(std::current_exception(), audience::everybody);
      co_return;
    }
    finish(number);
  }

  /// The chunk's bytes have left: its credit is free.
  void release(std::uint32_t number) {
    if (std::exchange(chunks_[number].released, true)) {
      return;
    }
    observe(event::released, number);
    if (!follows()) {
      schedule_.released(number);
      start_what_may_go();
    }
  }

  void finish(std::uint32_t number) {
    release(number);
    auto& record = chunks_[number];
    record.state = chunk_state::finished;
    observe(event::finished, number);
    for_each_tensor(plan_.chunks[number], [&](std::size_t position) {
      auto& mine = tensors_[position];
      if (--mine.pieces_left == 0) {
        mine.pieces_left = mine.pieces;
        arrive(position, record);
      }
    });
    ++record.steps;
    if (!follows()) {
      start_what_may_go();
    }
  }

  void arrive(std::size_t position, chunk_record& record) {
    auto& mine = tensors_[position];
    const tensor& to = model_.at(position);
    if (!model_.phantom()) {
      update(position, to, record);
    }
    mine.current = world_->queue().record();
    mine.arrived.fetch_add(1, std::memory_order_release);
    observe(event::arrived, static_cast<std::uint32_t>(index(plan_.at(position))));
    while (arrival_operation* waiter = mine.waiting.pop()) {
      waiter->arrive();
    }
  }

  void update(std::size_t position, const tensor& to, chunk_record& record) {
    auto& queue = world_->queue();
    const std::span<float> mean = model_.data(position);
    if constexpr (owns_parameters) {
      queue.copy(to.parameter.data(), mean.data(), mean.size_bytes());
    } else if constexpr (std::is_same_v<Optimizer, optimizer::none>) {
      if (mean.data() != to.gradient.data()) {
        queue.copy(to.gradient.data(), mean.data(), mean.size_bytes());
      }
    } else {
      optimizer_.apply(queue, to.parameter, std::span<const float>(mean),
                       momenta_.at(plan_.first_element[position], {}, record.steps));
    }
  }

  // ---- what others send

  /// Decisions of rank 0, or pushes to this server.
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
          } else if (what == service_tag(service::change).chunk) {
            std::memcpy(static_cast<void*>(&optimizer_), mail.bytes().data(), sizeof optimizer_);
          } else if (what == service_tag(service::decisions).chunk) {
            hear(mail.bytes());
          } else if (server_ && what < plan_.chunks.size()) {
            co_await server_->take(what, peer, mail.bytes());
          }
        }  // the sender goes on only now, and may then be asked for more
        if (what == service_tag(service::change).chunk) {
          co_await world_->send(peer, own_tag(own::change), {});
        } else if (what == service_tag(service::collect).chunk) {
          co_await send_memories(peer);
        } else if (what == service_tag(service::restore).chunk) {
          co_await receive_memories(peer);
        }
      }
    } catch (...) {
      fail(std::current_exception(), audience::everybody);
    }
  }

  void hear(std::span<const std::byte> decided) {
    for (std::size_t i = 0; i < decided.size(); i += sizeof(std::uint32_t)) {
      std::memcpy(&told_[told_tail_], decided.data() + i, sizeof(std::uint32_t));
      told_tail_ = (told_tail_ + 1) % told_.size();
    }
    start_what_was_told();
  }

  task tell_servers(const Optimizer& values) {
    if (world_->rank() == 0) {
      const auto bytes = std::as_bytes(std::span(&values, 1));
      for (int peer = workers_; peer < world_->size(); ++peer) {
        co_await world_->send(peer, service_tag(service::change), bytes);
        co_await world_->receive(peer, own_tag(own::change), {});
      }
    }
  }

  task ask_servers(std::vector<std::vector<float>>& all) {
    for (int peer = workers_; peer < world_->size(); ++peer) {
      co_await world_->send(peer, service_tag(service::collect), {});
      for (int memory = 0; memory < 2; ++memory) {
        std::uint64_t length = 0;
        co_await world_->receive(peer, own_tag(own::memory), writable(length));
        all.emplace_back(length);
        co_await world_->receive(peer, own_tag(own::memory),
                                 std::as_writable_bytes(std::span(all.back())));
      }
    }
  }

  task send_memories(int peer) {
    for (const std::span<float> each : server_->memories()) {
      std::uint64_t length = each.size();
      co_await world_->send(peer, own_tag(own::memory), writable(length));
      co_await world_->send(peer, own_tag(own::memory), std::as_bytes(each));
    }
  }

  task restore_servers(std::uint64_t steps, const std::vector<std::vector<float>>& served) {
    std::size_t memory = 0;
    for (int peer = workers_; peer < world_->size(); ++peer) {
      co_await world_->send(peer, service_tag(service::restore), {});
      co_await world_->send(peer, own_tag(own::memory), writable(steps));
      for (const auto& each : model_.forward()) {
        co_await world_->send(peer, own_tag(own::memory), std::as_bytes(each.parameter));
      }
      for (int i = 0; i < 2; ++i) {
        co_await world_->send(peer, own_tag(own::memory),
                              std::as_bytes(std::span(served[memory++])));
      }
      co_await world_->receive(peer, own_tag(own::change), {});
    }
  }

  task receive_memories(int peer) {
    std::uint64_t steps = 0;
    co_await world_->receive(peer, own_tag(own::memory), writable(steps));
    for (const auto& each : model_.forward()) {
      co_await world_->receive(peer, own_tag(own::memory), std::as_writable_bytes(each.parameter));
    }
    for (const std::span<float> each : server_->memories()) {
      co_await world_->receive(peer, own_tag(own::memory), std::as_writable_bytes(each));
    }
    server_->resume(steps);
    co_await world_->send(peer, own_tag(own::change), {});
  }

  static std::span<std::byte> writable(std::uint64_t& value) {
    return std::as_writable_bytes(std::span(&value, 1));
  }

  task listen_to_control() {
    try {
      for (;;) {
        control_message heard;
        {
          const auto mail = co_await world_->receive_any(channel::control);
          std::memcpy(&heard, mail.bytes().data(), sizeof heard);
          heard_from_ = mail.peer();
        }
        if (heard.what == control_message::kind::stop) {
          co_return;
        }
        handle(heard);
      }
    } catch (...) {
    }  // the transport has failed, and whoever waits learns why from it
  }

  void handle(const control_message& heard) {
    if (heard.what == control_message::kind::question) {
      reply_.what = control_message::kind::answer;
      reply_.chunk = heard.chunk;
      describe(heard.chunk, heard.step, reply_);
      if (replying_.done()) {
        replying_ = say(heard_from_, reply_);
        replying_.start(world_->ready_coroutines());
      }
    } else if (heard.what == control_message::kind::answer) {
      answers_[static_cast<std::size_t>(heard_from_)] = heard;
    } else if (heard.what == control_message::kind::verdict) {
      fail(std::make_exception_ptr(communication_error(std::string(heard.said()))),
           audience::nobody);
    }
  }

  task say(int peer, const control_message& message) {
    try {
      co_await world_->send(peer, tag{channel::control, 0, 0},
                            std::as_bytes(std::span(&message, 1)));
    } catch (...) {
    }  // a peer that cannot hear has its own error
  }

  /// What a chunk is doing here, as seen from a rank that is in step `step` of it.
  void describe(std::uint32_t number, std::uint64_t step, control_message& answer) const {
    answer.tensor = no_tensor;
    if (serves()) {
      answer.state = chunk_state::started;
      return;
    }
    const auto& record = chunks_[number];
    answer.state = record.steps > step ? chunk_state::finished : record.state;
    if (record.steps <= step && record.state == chunk_state::finished) {
      answer.state = chunk_state::waits_for_gradient;
      const bucket& group = plan_.buckets[plan_.chunks[number].bucket];
      for (std::size_t i = 0; i < group.tensors; ++i) {
        const std::size_t position = group.first_tensor + i;
        if (tensors_[position].readied.load() <= step) {
          answer.tensor = static_cast<std::uint32_t>(index(plan_.at(position)));
          break;
        }
      }
    }
  }

  // ---- waiting

  bool by_thread() const {
    if (set_.run.progress != progress::automatic) {
      return set_.run.progress == progress::by_thread;
    }
    return 2 * static_cast<unsigned>(world_->size()) <= std::thread::hardware_concurrency();
  }

  /// A moment as the loop's owner; false if somebody else is, or nothing happened.
  bool make_progress() {
    bool any = false;
    do {
      if (driven_.test_and_set(std::memory_order_acquire)) {
        return any;
      }
      any |= open_posts();
      if constexpr (!virtual_time) {
        any |= world_->poll();
        auto& coroutines = world_->ready_coroutines();
        if (!coroutines.draining()) {
          any |= coroutines.drain() > 0;
        }
        any |= open_posts();
      }
      driven_.clear(std::memory_order_release);
    } while (is_started_ && !posts_.empty());
    return any;
  }

  void run_progress_thread() {
    std::size_t idle = 0;
    while (!leaving_.load(std::memory_order_acquire)) {
      if (make_progress()) {
        idle = 0;
      } else {
        world_->idle(idle++);
      }
    }
  }

  template <class Done>
  void wait_until(Done done, std::uint32_t which) {
    if (done()) {
      rethrow_failure();
      return;
    }
    observe(event::wait_begins, which);
    const seconds begin = world_->now();
    block_until(done);
    exposed_ += world_->now() - begin;
    observe(event::wait_ends, which);
  }

  template <class Done>
  void block_until(Done done) {
    if (!drive_until(done, set_.run.deadline)) {
      diagnose(done);
    }
    rethrow_failure();
  }

  /// Drives until `done` or failure; false if nothing at all happened for `limit` seconds.
  template <class Done>
  bool drive_until(Done done, seconds limit) {
    TUTTI_ASSERT(progress_thread_.joinable() || !world_->ready_coroutines().draining(),
                 "a blocking wait inside a coroutine: await arrival(id) instead");
    std::size_t idle = 0;
    seconds since = world_->now();
    while (!done() && !failed_.load(std::memory_order_acquire)) {
      const bool moved = progress_thread_.joinable() ? false : make_progress();
      if (moved) {
        idle = 0;
        since = world_->now();
        continue;
      }
      world_->idle(idle++);
      if (idle % 256 == 0 && world_->now() - since > limit) {
        return false;
      }
    }
    return true;
  }

  /// Blocks until `asking` ends, also when it fails: it refers to what its caller owns.
  void run(task& asking) {
    asking.start(world_->ready_coroutines());
    if (!drive_until([&asking] { return asking.done(); }, set_.run.deadline)) {
      diagnose([&asking] { return asking.done(); });
    }
    if (!asking.done()) {
      settle([&asking] { return asking.done(); });
    }
    rethrow_failure();
    asking.result();
  }

  bool outstanding() const {
    return !std::ranges::all_of(tensors_,
                                [](const tensor_state& each) { return each.is_current(); });
  }

  // ---- failure

  /// At the deadline: ask everybody about the chunk that does not come, and say what they answer.
  template <class Done>
  void diagnose(Done done) {
    const auto stuck = std::ranges::find_if(chunks_, [](const chunk_record& each) {
      return each.state == chunk_state::started || each.state == chunk_state::ready;
    });
    const auto number =
        static_cast<std::uint32_t>(stuck == chunks_.end() ? 0 : stuck - chunks_.begin());
    const std::uint64_t step = stuck == chunks_.end() ? 0 : stuck->steps;
    answers_.assign(static_cast<std::size_t>(world_->size()), std::nullopt);
    control_message question;
    question.what = control_message::kind::question;
    question.chunk = number;
    question.step = step;
    std::vector<task> asked;
    for (int peer = 0; peer < world_->size(); ++peer) {
      if (peer != world_->rank()) {
        asked.push_back(say(peer, question));
        asked.back().start(world_->ready_coroutines());
      }
    }
    const auto answered = [&] {
      return done() || std::ranges::count_if(answers_, [](const auto& each) {
                         return each.has_value();
                       }) == world_->size() - 1;
    };
    drive_for(answered, std::min(set_.run.deadline, seconds{2}));
    if (!done() && !failed_.load()) {
      fail(std::make_exception_ptr(communication_error(sentence(number))), audience::everybody);
    }
    drive_for(
        [&] { return std::ranges::all_of(asked, [](const task& each) { return each.done(); }); },
        seconds{2});
    for (auto& each : asked) {
      unheard_.push_back(std::move(each));
    }
  }

  template <class Done>
  void drive_for(Done done, seconds limit) {
    const seconds end = world_->now() + limit;
    for (std::size_t idle = 0; !done() && world_->now() < end;) {
      const bool moved = progress_thread_.joinable() ? false : make_progress();
      if (!moved) {
        world_->idle(idle++);
      }
    }
  }

  std::string sentence(std::uint32_t number) const {
    for (int peer = 0; peer < world_->size(); ++peer) {
      if (peer != world_->rank() && !answers_[static_cast<std::size_t>(peer)]) {
        return "rank " + std::to_string(peer) + " does not answer";
      }
    }
    for (int peer = 0; peer < world_->size(); ++peer) {
      const auto& answer = answers_[static_cast<std::size_t>(peer)];
      if (answer && answer->tensor != no_tensor) {
        return "rank " + std::to_string(peer) + " never submitted " +
               model_.forward()[answer->tensor].name;
      }
    }
    return "every rank submitted chunk " + std::to_string(number) + " and nothing moves";
  }

  void fail(std::exception_ptr why, audience who) {
    if (failed_.load(std::memory_order_relaxed)) {
      return;
    }
    if (who == audience::everybody) {
      const std::string words = what(why);
      const std::string rank = "rank " + std::to_string(world_->rank());
      verdict_.what = control_message::kind::verdict;
      verdict_.say(words.find("rank ") != std::string::npos ? words : rank + " failed: " + words);
      for (int peer = 0; peer < world_->size(); ++peer) {
        if (peer != world_->rank()) {
          unheard_.push_back(say(peer, verdict_));
          unheard_.back().start(world_->ready_coroutines());
        }
      }
    }
    failure_ = why;
    failed_.store(true, std::memory_order_release);
    world_->fail(std::move(why));
    for (auto& each : tensors_) {
      while (arrival_operation* waiter = each.waiting.pop()) {
        waiter->arrive();
      }
    }
  }

  void rethrow_failure() const {
    if (failed_.load(std::memory_order_acquire)) {
      std::rethrow_exception(failure_);
    }
  }

  /// Waits until nothing of this rank is in flight: only then may its memory go.
  void quiesce() {
    if (!failure_) {
      fail(std::make_exception_ptr(communication_error("the engine has ended")), audience::nobody);
    }
    if (leader_) {
      leader_->close();
    }
    const auto at_rest = [this] {
      return (!server_ || server_->at_rest()) && (!leader_ || leader_->at_rest()) &&
             startup_.done() && listening_.done() && control_.done() && replying_.done() &&
             closing_.done() &&
             std::ranges::all_of(unheard_, [](const task& each) { return each.done(); }) &&
             std::ranges::all_of(chunks_, [](const auto& each) { return each.running.done(); });
    };
    if constexpr (virtual_time) {
      world_->ready_coroutines().drain();
    } else {
      settle([&] { return world_->in_flight() == 0 && at_rest(); });
    }
  }

  /// After a failure: drives until what is ours has come home.
  template <class Done>
  void settle(Done done) {
    const seconds end = world_->now() + seconds{5};
    for (std::size_t idle = 0; !done(); ++idle) {
      const bool moved = world_->poll();
      if (world_->ready_coroutines().drain() == 0 && !moved) {
        world_->idle(idle);
      }
      if (world_->now() > end) {
        abandon();
      }
    }
  }

  /// Memory of ours is still in a peer's hands and the peer does not answer.
  [[noreturn]] void abandon() const {
    const std::string sentence = what(failure_);
    if constexpr (requires { world_->abort_job(sentence); }) {
      world_->abort_job(sentence);
    }
    std::fprintf(stderr, "tutti: %s\n", sentence.c_str());
    std::abort();
  }

  void observe(event what, std::uint32_t which) {
    if constexpr (Monitor::observes) {
      const std::scoped_lock lock(observing_);  // waits are seen by the trainer's own threads
      monitor_.record(what, which, world_->now());
    }
  }

  Transport* world_;
  options set_;
  int servers_;
  int workers_;
  compression compression_;
  architecture architecture_{};
  Optimizer optimizer_;
  Monitor monitor_;
  std::mutex observing_{};
  plan plan_;
  model_memory model_;
  typename schedule::state schedule_;
  std::vector<tensor_state> tensors_;
  std::vector<std::size_t> filled_;
  std::vector<chunk_record> chunks_;
  post_box posts_;
  std::vector<std::uint32_t> told_;
  std::size_t told_head_ = 0;
  std::size_t told_tail_ = 0;
  state_memory worker_memory_;
  state_memory owner_memory_;
  state_memory momenta_;
  std::optional<server_type> server_{};
  std::optional<leader<Transport>> leader_{};
  running_hash agenda_{};
  bool deciding_ = false;
  bool is_started_ = false;
  bool closed_ = false;
  seconds exposed_ = 0;
  std::atomic_flag driven_{};
  std::atomic<bool> leaving_{false};
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_{};
  int heard_from_ = 0;
  control_message reply_{};
  control_message verdict_{};
  control_message stop_listening_{};
  std::vector<std::optional<control_message>> answers_{};
  task startup_{};
  task listening_{};
  task control_{};
  task replying_{};
  task closing_{};
  std::vector<task> unheard_{};
  std::thread progress_thread_{};
};

/// A coroutine's wait for one tensor.
template <class Strategy, transport_policy Transport, optimizer_policy Optimizer,
          monitor_policy Monitor>
class engine<Strategy, Transport, Optimizer, Monitor>::arrival_operation {
 public:
  arrival_operation(engine& of, std::size_t position) : engine_(&of), position_(position) {}
  arrival_operation(const arrival_operation&) = delete;
  arrival_operation& operator=(const arrival_operation&) = delete;

  bool await_ready() const {
    return engine_->tensors_[position_].is_current() || engine_->failed_.load();
  }
  void await_suspend(std::coroutine_handle<> waiter) {
    waiter_ = waiter;
    engine_->tensors_[position_].waiting.push(*this);
  }
  void await_resume() const { engine_->rethrow_failure(); }

  void arrive() { engine_->world_->ready_coroutines().push(waiter_); }

  arrival_operation* next{};

 private:
  engine* engine_;
  std::size_t position_;
  std::coroutine_handle<> waiter_;
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

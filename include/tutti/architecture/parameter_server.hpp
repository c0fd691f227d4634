#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/architecture/mean.hpp"
#include "tutti/architecture/parameter_server/consistency.hpp"
#include "tutti/architecture/parameter_server/engine_threads.hpp"
#include "tutti/architecture/parameter_server/placed_by.hpp"
#include "tutti/architecture/parameter_server/server.hpp"
#include "tutti/architecture/parameter_server/worker.hpp"
#include "tutti/base/bounds.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/push_counts.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// Which ranks run the optimizer.
namespace updated_by {
/// Workers run it. Synchronous servers add up gradients and send the mean back. Asynchronous
/// servers keep the parameters, add to them what each worker's update has changed, and send them
/// back (BytePS).
struct workers {};
/// Servers run it, keep the parameters and send them back (MXNet's kvstore).
struct servers {};
/// As `servers`, but each worker's gradient makes a step of its own, in rank order, instead of all
/// workers' mean making one (tf_cnn_benchmarks' distributed_replicated).
struct servers_by_push {};
}  // namespace updated_by

namespace architecture {

/// Workers push payloads to servers, each of which owns some chunks, and pull the result.
/// `Consistency` (parameter_server/consistency.hpp) says when a push takes effect and when its
/// worker may go on. `UpdatedBy` says who runs the optimizer.
///
/// The answer to a push is the mean, encoded again, or the parameters as floats. With compressors
/// of several rounds, and with those that select, synchronous servers add payloads in rank order
/// and answer with their sum. Servers that step by push hold all workers' pushes of a chunk until
/// they step. Servers that do not wait for all workers keep a copy of a chunk for each worker,
/// which they answer from.
///
/// On a virtual clock, the sums of a synchronous server can take the time of `engine_threads`
/// threads that work in `engine_order`; the sums themselves are the same. A real server adds in the
/// thread of its loop, as pushes come: a push's bytes are a loan, which between threads the sender
/// takes back once a rank has failed, so other threads could only add copies, and making a copy
/// moves two thirds of the bytes that adding moves.
///
/// Wire: one payload up and one answer down per worker; s servers share the load of W workers.
/// Cost: a server's link carries W/s times those bytes each way.
/// After: Li et al., "Parameter Server", OSDI 2014; MXNet's kvstore; BytePS, OSDI 2020.
template <class Consistency = consistency::synchronous, class UpdatedBy = updated_by::workers,
          mean Mean = mean::after>
struct parameter_server {
  using role = tutti::role::architecture;
  using consistency = Consistency;
  static constexpr mean mean_rule = Mean;
  static constexpr bool divides_first = Mean == mean::before;
  static constexpr bool leaves_sums = Mean == mean::none;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = true;
  static constexpr bool receives_from_any = true;
  static constexpr bool stale = !Consistency::waits_for_all;
  static constexpr bool waits_for_nobody = tutti::consistency::waits_for_nobody<Consistency>;
  static constexpr bool drops_gradients = tutti::consistency::drops<Consistency>;
  /// Whether every push is an optimizer step of its own.
  static constexpr bool steps_by_push = std::is_same_v<UpdatedBy, updated_by::servers_by_push>;
  static constexpr bool owns_parameters =
      std::is_same_v<UpdatedBy, updated_by::servers> || steps_by_push;
  static_assert(Mean == mean::after || !(stale || steps_by_push),
                "tutti: these servers apply every push by itself, so that there is no sum for "
                "mean::before or mean::none. Fix: use mean::after, or consistency::synchronous "
                "with updated_by::workers or servers.");
  static_assert(
      std::is_same_v<UpdatedBy, updated_by::servers> ||
          !(drops_gradients || tutti::consistency::compensates<Consistency>),
      "tutti: these servers drop or correct gradients before they update, and every worker goes on "
      "from their parameters. Fix: use updated_by::servers, or consistency::asynchronous.");
  static constexpr bool adds_in_rounds = !stale && !owns_parameters && Mean == mean::after;
  /// Whether workers update first, and push by how much their parameters have changed.
  static constexpr bool updates_first = stale && !owns_parameters;
  static constexpr tutti::carries carries =
      updates_first ? tutti::carries::difference : tutti::carries::gradient;

  static constexpr double busiest_nic(double payload, double dense, placement who) {
    const double back = keeps_parameters ? dense : payload;
    if constexpr (stale) {
      who.workers = 1;  // a worker that waits for no other can be as fast as if it were alone
    }
    // A host with a worker and a server sends pushes and answers, and receives both. The busier
    // direction carries at least half of their sum.
    switch (who.serving) {
      case server_hosts::workers:
        return bound::servers_among_workers((payload + back) / 2, who.workers, who.servers,
                                            who.per_host);
      case server_hosts::mixed:
        return bound::shared_servers((payload + back) / 2, who.workers, who.servers - who.workers);
      default:
        return bound::servers(std::max(payload, back), who.workers, who.servers, who.per_host,
                              who.server_speed);
    }
  }
  static constexpr exchange_cost alone(placement who) {
    return {2, 2.0 * who.workers / who.servers};
  }

  struct options {
    int servers{1};
    architecture::placed_by placed_by{architecture::placed_by::least_loaded};
    int mixed_classes{101};
    int engine_threads{};
    architecture::engine_order engine_order{};
    typename Consistency::options consistency{};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("servers", self.servers, "number of ranks, the last ones, that serve and do not train");
      visit("placed_by", self.placed_by,
            "how a chunk's server is chosen: least_loaded, round_robin, MXNet's kvstore, BytePS's "
            "djb2, naive, built_in, sdbm; with a server on each worker's host: BytePS's mixed, or "
            "optimal_split");
      visit(
          "mixed_classes", self.mixed_classes,
          "with placed_by mixed: number of hash classes of keys, BytePS's BYTEPS_MIXED_MODE_BOUND");
      visit("engine_threads", self.engine_threads,
            "simulated only: adding threads of a synchronous server, each as fast as its device, "
            "BytePS's BYTEPS_SERVER_ENGINE_THREAD; 0: the device's one queue");
      visit("engine_order", self.engine_order,
            "simulated only: what such a thread adds next: received, most_pushed, or byteps, as "
            "its BYTEPS_SERVER_ENABLE_SCHEDULE");
      Consistency::options::describe(self.consistency, visit);
    }
  };

  /// Returns the number of workers. Throws usage_error if `set` leaves no worker or no server, or
  /// if `engine_threads` or an option of the consistency is out of range.
  static int workers(const options& set, int size) {
    if (set.engine_threads < 0) {
      throw usage_error(sentence({"a server cannot have ", set.engine_threads,
                                  " threads. Fix: set architecture.engine_threads to 0 or more"}));
    }
    if (set.servers < 1 || set.servers >= size) {
      throw usage_error(sentence({set.servers, " servers among ", size,
                                  " ranks leave no worker or no server. Fix: at least 1 of each"}));
    }
    Consistency::expect(set.consistency, size - set.servers);
    return size - set.servers;
  }
  static bool listens(const options& set, int rank, int size) { return rank >= workers(set, size); }

  /// Throws usage_error if servers cannot go on under the consistency's options `wanted`.
  template <class Compression>
  static void expect_replan(const options& was, const options& wanted, std::uint64_t steps) {
    if constexpr (requires { &Consistency::expect_replan; }) {
      Consistency::expect_replan(was.consistency, wanted.consistency, steps);
    }
  }

  static void place(plan& made, const options& set, int size) {
    architecture::place(made, set.placed_by, workers(set, size), set.servers, set.mixed_classes);
  }

  /// Whether servers hold the parameters and answer with them.
  static constexpr bool keeps_parameters = stale || owns_parameters;

  /// Both halves of the protocol, the worker's and the server's; a rank uses the one of its role.
  template <class World>
  class state {
    using launch = typename World::launch;

   public:
    using conditional_verbs = state;

    state(World& world, const options& set) : worker_(world), server_(world, set) {}

    // ---- workers

    std::size_t workspace_bytes(const chunk& piece) const { return worker_.workspace_bytes(piece); }
    void depart(std::size_t position, std::uint64_t step) requires updates_first {
      worker_.depart(position, step);
    }
    void outgoing(const chunk& piece, std::span<float> buffer) requires updates_first {
      worker_.outgoing(piece, buffer);
    }
    task exchange(typename World::endpoint self, const launch& what) {
      return worker_.exchange(self, what);
    }
    void incoming(const chunk& piece, std::span<float> buffer) requires keeps_parameters {
      worker_.incoming(piece, buffer);
    }
    void arrive(std::size_t, std::uint64_t) requires keeps_parameters {}

    // ---- servers

    task serve(typename World::endpoint self, typename World::message push) {
      return server_.serve(self, std::move(push));
    }
    task worker_left(int worker) requires stale { return server_.worker_left(worker); }
    bool holds_back(std::uint32_t chunk) const requires stale { return server_.holds_back(chunk); }
    push_counts counted_pushes() const requires stale { return server_.counted_pushes(); }
    bool at_rest() const { return server_.at_rest(); }
    task finish() { return server_.finish(); }

    // ---- both

    void resume(std::uint64_t step) {
      worker_.resume();
      server_.resume(step);
    }
    std::vector<std::span<float>> memories() { return server_.memories(); }
    void rescale(float factor) { server_.rescale(factor); }
    void undo_step() { server_.undo_step(); }
    std::size_t optimizer_floats() const { return server_.optimizer_floats(); }

   private:
    parameter_server_worker<parameter_server, World> worker_;
    parameter_server_server<parameter_server, World> server_;
  };
};
static_assert(architecture_policy<parameter_server<>>);

}  // namespace architecture

}  // namespace tutti

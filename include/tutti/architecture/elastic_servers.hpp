#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tutti/architecture/answers_in_turn.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/push_counts.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/transport.hpp"

namespace tutti::architecture {

/// Every worker keeps a model x of its own, and an elastic force draws the models and a centre c,
/// which servers keep, towards each other. In each of a worker's own steps t that is a multiple of
/// `period`, with a = force / W on W workers,
///   x = x - a (x - c)
///   c = c + a (x - c),
/// both with the old values on the right. Then, as in any other step, the optimizer runs on the
/// worker's gradient, which was computed before. No worker waits for another's step: a server
/// carries out the exchanges of a chunk one after the other, in the order in which they come.
/// Wire: in one step of every `period`, the parameters to the chunk's server, and back the centre
/// as it was before; nothing in the others.
/// Cost: on servers, each chunk's centre, and a copy of it for each reply on its way.
/// Servers count how stale exchanges are. Worker 0's checkpoint holds the centre.
/// After: Zhang, Choromanska and LeCun, "Deep learning with elastic averaging SGD", NIPS 2015,
/// algorithm 1; `force` is its beta.
struct elastic_servers {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = true;
  static constexpr bool receives_from_any = true;
  static constexpr bool stale = true;
  static constexpr bool waits_for_nobody = true;
  static constexpr tutti::carries carries = tutti::carries::parameters;
  static constexpr bool ignores_compression = true;

  struct options {
    int servers{1};
    double force{0.9};
    int period{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("servers", self.servers,
            "number of ranks, the last ones, that keep the centre and do not train");
      visit(
          "force", self.force,
          "how far the centre moves towards the models in one exchange with every worker, 0 to 1");
      visit("period", self.period, "steps of a worker from one of its exchanges to the next");
    }
  };

  /// Returns the number of workers. Throws usage_error if `set` leaves no worker or no server.
  static int workers(const options& set, int size) { return of_servers::workers(those(set), size); }
  static bool listens(const options& set, int rank, int size) { return rank >= workers(set, size); }
  static void place(plan& made, const options& set, int size) {
    of_servers::place(made, those(set), size);
  }

  static constexpr double busiest_nic(const options& set, double payload, double dense,
                                      placement who) {
    return of_servers::busiest_nic(payload, dense, who) / set.period;
  }

  template <class World>
  class state : public answers_in_turn<World> {
    using endpoint = typename World::endpoint;

   public:
    /// Throws usage_error unless 0 <= force <= 1 and the period is at least 1.
    state(World& world, const options& set)
        : answers_in_turn<World>(world, share_of(world, set), is_here(world)),
          world_(&world),
          set_(set),
          exchanges_(world.trains() ? 0 : world.planned().chunks.size()),
          read_(exchanges_.size() * at(world.workers())) {
      if (!(set.force >= 0 && set.force <= 1)) {
        throw usage_error("architecture::elastic_servers: the force must be from 0 to 1. Fix: 0.9");
      }
      if (set.period < 1) {
        throw usage_error(
            "architecture::elastic_servers: the period must be at least 1 step. Fix: 1");
      }
    }

    std::size_t workspace_bytes(std::size_t) const { return 0; }

    bool sends(std::uint64_t step) const {
      return step % static_cast<std::uint64_t>(set_.period) == 0;
    }
    void outgoing(const chunk& piece, std::span<float> buffer) {
      world_->read_parameters(piece, buffer);
    }
    task exchange(endpoint self, const typename World::launch& what) {
      co_await self.on(channel::service).send(what.placed_on, std::as_bytes(what.data));
      what.released();
      co_await self.receive(what.placed_on, std::as_writable_bytes(what.data));
    }
    void incoming(const chunk& piece, std::span<float> centre) {
      world_->mix_parameters(piece, centre, share_of(*world_, set_));
    }
    void arrive(std::size_t position, std::uint64_t step) { world_->update_alone(position, step); }

    task serve(endpoint self, typename World::message theirs) {
      count(theirs.number(), theirs.peer());
      return answers_in_turn<World>::serve(self, std::move(theirs));
    }
    /// Returns the staleness of exchanges: how many others of the same chunk there were since the
    /// worker's last one.
    push_counts counted_pushes() const { return counts_.read(); }

   private:
    static std::size_t at(int number) { return static_cast<std::size_t>(number); }
    void count(std::uint32_t number, int worker) {
      std::uint64_t& read = read_[number * at(world_->workers()) + at(worker)];
      counts_.take(exchanges_[number] - read);
      read = ++exchanges_[number];
    }
    static float share_of(const World& world, const options& set) {
      return static_cast<float>(set.force / world.workers());
    }
    static auto is_here(const World& world) {
      return
          [&world](const chunk& each) { return !world.trains() && each.placed_on == world.rank(); };
    }

    World* world_;
    options set_;
    std::vector<std::uint64_t> exchanges_;  ///< how many each chunk has had
    std::vector<std::uint64_t> read_;       ///< how many it had at each worker's last one
    push_counter counts_{};
  };

 private:
  using of_servers = parameter_server<consistency::asynchronous>;
  static of_servers::options those(const options& set) {
    of_servers::options its;
    its.servers = set.servers;
    return its;
  }
};
static_assert(architecture_policy<elastic_servers>);

}  // namespace tutti::architecture

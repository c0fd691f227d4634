#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/architecture/peers.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/architecture.hpp"

namespace tutti::architecture {

/// The rank to which a rank sends half of its model in a step.
enum class receiver {
  exponential,  ///< in turn the rank 1, 2, 4, ... places ahead, below the number of ranks
  next,         ///< the next rank
  random,       ///< any other rank
};
constexpr std::array<std::string_view, 3> names(receiver) {
  return {"exponential", "next", "random"};
}

constexpr int receiver_of(receiver which, std::uint64_t seed, int rank, std::uint64_t step,
                          int size) {
  switch (which) {
    case receiver::exponential: {
      const auto turns =
          static_cast<std::uint64_t>(std::bit_width(static_cast<unsigned>(size - 1)));
      return size == 1 ? rank : (rank + (1 << (step % turns))) % size;
    }
    case receiver::next:
      return (rank + 1) % size;
    case receiver::random:
      break;
  }
  return pair_of(seed, rank, step, size);
}

/// The push-sum weights of all ranks, which begin at 1. In a step each rank keeps half of its
/// weight and passes the other half to its receiver, so that the weights always add up to the
/// number of ranks. Every rank knows every other's receiver and computes all weights itself, so
/// that no weight travels.
class push_sum_weights {
 public:
  push_sum_weights(receiver which, std::uint64_t seed, int size)
      : which_(which), seed_(seed), now_(static_cast<std::size_t>(size)), next_(now_.size()) {
    begin();
  }

  /// Returns the weights of all ranks before step `step`. Cost: one pass over the ranks for each
  /// step since the last one asked for; nothing for the step before that one; for an earlier step,
  /// one pass over the ranks for every step from the first.
  std::span<const double> before(std::uint64_t step) {
    if (step + 1 == step_) {
      return next_;  // `advance` has left the previous weights here
    }
    if (step < step_) {
      begin();
    }
    while (step_ < step) {
      advance();
    }
    return now_;
  }

 private:
  void begin() {
    step_ = 0;
    now_.assign(now_.size(), 1.0);
  }
  void advance() {
    const int size = static_cast<int>(now_.size());
    next_.assign(now_.size(), 0.0);
    for (int rank = 0; rank < size; ++rank) {
      const double half = now_[static_cast<std::size_t>(rank)] / 2;
      next_[static_cast<std::size_t>(rank)] += half;
      next_[static_cast<std::size_t>(receiver_of(which_, seed_, rank, step_, size))] += half;
    }
    std::swap(now_, next_);
    ++step_;
  }

  receiver which_;
  std::uint64_t seed_;
  std::uint64_t step_ = 0;
  std::vector<double> now_;
  std::vector<double> next_;
};

/// Every rank keeps a sum x and computes its gradient at z = x / w, where w is its push-sum weight.
/// In each step
///   x_i' = the optimizer on x_i with the gradient at z_i
///   x_i  = x_i' / 2 + sum over the ranks j that send to i of x_j' / 2
///   w_i  = w_i / 2 + sum over the same j of w_j / 2
///   z_i  = x_i / w_i
/// A rank sends to one other, but it may receive from several or from none. So the columns of the
/// mixing matrix add up to 1, but its rows need not; dividing by the weight corrects the model for
/// that. All weights are 1 where every rank sends to one and receives from one.
/// Wire: the parameters, to one rank.
/// Cost: a buffer as large as the model, a copy of each launch while it is on its way, and two
/// passes over the model where the weight is not 1.
/// After: Assran et al., "Stochastic gradient push for distributed deep learning", ICML 2019; with
/// random receivers Kempe, Dobra and Gehrke's push-sum, FOCS 2003.
struct push_sum {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = false;
  static constexpr bool stale = true;
  static constexpr tutti::carries carries = tutti::carries::parameters;
  static constexpr bool updates_first = true;
  static constexpr bool ignores_compression = true;
  static constexpr bool turns_on_steps = true;

  struct options {
    architecture::receiver receiver{architecture::receiver::exponential};
    std::uint64_t seed{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit(
          "receiver", self.receiver,
          "who gets half of a model: in turn the ranks 1, 2, 4, ... ahead, the next rank, or any");
      visit("seed", self.seed, "decides who gets it in which step, where that is random");
    }
  };

  /// Throws usage_error if other receivers would have led to other weights than the ranks have now.
  /// What each rank has would count more or less than it did, and the mean of all models would
  /// jump.
  template <class Compression>
  static void expect_replan(const options& was, const options& wanted, std::uint64_t steps) {
    const bool draws = was.receiver == receiver::random || wanted.receiver == receiver::random;
    if (draws && steps > 0 && (was.receiver != wanted.receiver || was.seed != wanted.seed)) {
      throw usage_error(
          sentence({"architecture::push_sum: after ", steps,
                    " steps ranks have weights that follow from who has sent to whom. Fix: keep "
                    "the receiver and the seed, or change them before the first step"}));
    }
  }

  /// Returns a model's bytes if each host has one rank. With several ranks on a host it returns 0,
  /// because they may send their models to each other.
  static constexpr double busiest_nic(const options&, double, double dense, placement who) {
    return who.workers < 2 || who.per_host > 1 ? 0 : dense;
  }

  template <class World>
  class state {
   public:
    state(World& world, const options& set)
        : world_(&world),
          set_(set),
          weights_(set.receiver, set.seed, world.size()),
          weight_(world.planned().backward.size(), 1.0f) {}

    std::size_t workspace_bytes(std::size_t elements) const { return sizeof(float) * elements; }
    float average() const { return world_->size() == 1 ? 1.0f : 0.5f; }

    void depart(std::size_t position, std::uint64_t step) {
      world_->scale_parameters(position, weight_[position]);
      world_->update_alone(position, step);
    }
    void outgoing(const chunk& piece, std::span<float> buffer) {
      world_->read_parameters(piece, buffer);
    }
    task exchange(typename World::endpoint self, const typename World::launch& what) {
      what.scale(self.queue(), 0, what.data.size());
      if (self.size() == 1) {
        co_return;
      }
      const int rank = self.rank();
      int last = -1;
      co_await add_neighbours(
          self, what, 1,
          [this, rank, step = what.step](std::size_t) { return receiver_at(rank, step); },
          senders_to(rank, what.step),
          [this, rank, step = what.step, &last](std::size_t) {
            return last = next_sender(rank, step, last);
          });
    }
    void incoming(const chunk& piece, std::span<float> buffer) {
      world_->write_parameters(piece, buffer);
    }
    void arrive(std::size_t position, std::uint64_t step) {
      const double weight = weights_.before(step + 1)[static_cast<std::size_t>(world_->rank())];
      weight_[position] = static_cast<float>(weight);
      world_->scale_parameters(position, static_cast<float>(1 / weight));
    }
    void resume(std::uint64_t step) {
      const double weight = weights_.before(step)[static_cast<std::size_t>(world_->rank())];
      weight_.assign(weight_.size(), static_cast<float>(weight));
    }

   private:
    int receiver_at(int rank, std::uint64_t step) const {
      return receiver_of(set_.receiver, set_.seed, rank, step, world_->size());
    }
    /// Returns the first rank above `last` that sends to `rank`; the number of ranks if none does.
    int next_sender(int rank, std::uint64_t step, int last) const {
      do {
        ++last;
      } while (last < world_->size() && (last == rank || receiver_at(last, step) != rank));
      return last;
    }
    std::size_t senders_to(int rank, std::uint64_t step) const {
      std::size_t count = 0;
      for (int each = -1; (each = next_sender(rank, step, each)) < world_->size();) {
        ++count;
      }
      return count;
    }

    World* world_;
    options set_;
    push_sum_weights weights_;
    std::vector<float> weight_;  ///< this rank's weight that each tensor was last divided by
  };
};
static_assert(architecture_policy<push_sum>);

}  // namespace tutti::architecture

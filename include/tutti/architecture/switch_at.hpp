#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/architecture/departures.hpp"
#include "tutti/architecture/local_sgd.hpp"
#include "tutti/architecture/replicated.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/task.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::architecture {

/// The options of a switch. Their type depends only on those of the two architectures' options, so
/// it stays when the composer replaces an architecture (see `resolved`).
template <class First, class Second>
struct switch_options {
  std::uint64_t step{};
  First first{};
  Second second{};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("step", self.step, "first step of the second architecture");
    First::describe(self.first, visit);
    Second::describe(self.second, visit);
  }
};

/// Exchanges as `First` in the steps before `step`, and as `Second` from it on. Post-local SGD is
/// `switch_at<all_reduce<>, local_sgd<>>`, and dense steps before compressed ones are
/// `switch_at<dense, all_gather>`. The optimizer keeps its momenta across the switch.
/// `engine.replan` with another `step` moves the switch, for trainers that decide while they train.
/// It refuses to switch back to an architecture that needs equal models from one under which they
/// drift apart, or, if the compressor remembers something, to one that has no use for that. A rule
/// refuses a compressor with residuals that `Second` has no use for, because they would never be
/// sent.
///
/// If models drift apart under `First` and have to be equal under `Second`, ranks average in the
/// step before the switch: each applies its own gradient, and then models and momenta become their
/// mean, on all ranks. AdaSGD is `switch_at<model_averaging<>, all_reduce<>>`.
/// Wire: as the architecture in use.
/// Cost: a buffer as large as the model if either architecture has one; the other then copies its
/// gradients into it.
/// After: Lin et al., "Don't use large mini-batches, use local SGD", ICLR 2020; KungFu's adaptive
/// policies, Mai et al., OSDI 2020.
template <architecture_policy First, architecture_policy Second>
struct switch_at {
  using role = tutti::role::architecture;

 private:
  template <class A>
  static constexpr bool in_lock_step =
      !facts::has_servers<A> && !facts::owns_parameters<A> && !facts::receives_from_any<A> &&
      facts::delay<A> == 0 && !facts::exchanges_momenta<A>;
  static_assert(
      in_lock_step<First> && in_lock_step<Second>,
      "tutti: an architecture that owns parameters elsewhere, answers whoever asks, keeps copies "
      "of the parameters, exchanges momenta, or applies means a step late cannot take turns with "
      "another. Fix: switch between all_reduce, local_sgd, model_averaging, independent and the "
      "like, or save, and start again with the other strategy.");
  /// Whether each rank has a model and momenta of its own.
  template <class A>
  static constexpr bool drifts = facts::stale<A> || A::completes_alone;
  static constexpr bool averages_models = drifts<First> && !drifts<Second>;
  template <class A>
  static constexpr bool compresses =
      !facts::ignores_compression<A> && !facts::has_sends<tutti::detail::state_of<A>>;
  /// Whether residuals of `From` are of no use to `To`: it does not compress, or carries something
  /// else than they were made of.
  template <class From, class To>
  static constexpr bool leaves_residuals = compresses<From> &&
                                           (!compresses<To> ||
                                            facts::carries_of<From> != facts::carries_of<To>);
  template <class From, class To>
  static constexpr bool leaves_means =
      compresses<From>&& facts::encodes_means<From> && !facts::encodes_means<To>;
  /// Whether `Compression` remembers something under `Second` that is of no use to `First`.
  template <class Compression>
  static constexpr bool waits_for_a_switch =
      (leaves_residuals<Second, First> && facts::memory_per_element<Compression> > 0) ||
      (leaves_means<Second, First> &&
       facts::memory_per_element<decltype(relay(std::declval<const Compression&>()))> > 0);

  template <class A>
  struct collective_of {
    using type = collective::ring;
  };
  template <class A>
  requires requires { typename A::collective; }
  struct collective_of<A> {
    using type = typename A::collective;
  };
  /// How ranks average in the step before the switch.
  using averaging = local_sgd<typename collective_of<Second>::type>;

 public:
  static constexpr bool adds_payloads =
      First::adds_payloads || Second::adds_payloads || averages_models;
  static constexpr bool adds_in_rounds =
      facts::adds_in_rounds<First> && facts::adds_in_rounds<Second>;
  static constexpr bool completes_alone = First::completes_alone && Second::completes_alone;
  static constexpr bool ordered_start = facts::ordered_start<First> || facts::ordered_start<Second>;
  static constexpr bool divides_first = facts::divides_first<First> || facts::divides_first<Second>;
  static constexpr bool leaves_sums = facts::leaves_sums<First> || facts::leaves_sums<Second>;
  static constexpr bool has_halves =
      facts::has_halves<First> && facts::has_halves<Second> && !averages_models;
  static constexpr bool encodes_means = facts::encodes_means<First> || facts::encodes_means<Second>;
  static constexpr bool owns_parts = facts::owns_parts<First> || facts::owns_parts<Second>;
  static constexpr bool ignores_compression =
      facts::ignores_compression<First> && facts::ignores_compression<Second>;
  static constexpr bool stops_compressing =
      leaves_residuals<First, Second> || facts::stops_compressing<Second>;
  static constexpr bool stops_encoding_means =
      leaves_means<First, Second> || facts::stops_encoding_means<Second>;
  static constexpr bool compresses_at_times = compresses<First> != compresses<Second> ||
                                              facts::compresses_at_times<First> ||
                                              facts::compresses_at_times<Second>;
  static constexpr bool weighs_tensors =
      facts::weighs_tensors<First> || facts::weighs_tensors<Second>;
  static constexpr bool counts_votes = facts::counts_votes<First> || facts::counts_votes<Second>;
  static constexpr bool merges_payloads =
      facts::merges_payloads<First> || facts::merges_payloads<Second>;
  static constexpr bool keeps_magnitudes =
      facts::keeps_magnitudes<First> || facts::keeps_magnitudes<Second>;
  static constexpr bool stale = facts::stale<First> || facts::stale<Second>;
  static constexpr bool updates_first =
      facts::updates_first<First> || facts::updates_first<Second> || averages_models;
  static constexpr tutti::carries carries =
      std::max(facts::carries_of<First>, facts::carries_of<Second>);
  static constexpr bool turns_on_steps = true;

  using options = switch_options<options_of<First>, options_of<Second>>;

  /// Throws usage_error if a switch that has been made would have to be undone and cannot be, or if
  /// the step has passed in which ranks would have averaged. Asks the architecture that comes next,
  /// too.
  template <class Compression>
  static void expect_replan(const options& was, const options& wanted, std::uint64_t steps) {
    const bool goes_back = steps > was.step && wanted.step > steps;
    if (goes_back && drifts<Second> && !drifts<First>) {
      throw usage_error(
          sentence({"architecture::switch_at: a switch at step ", wanted.step,
                    " would undo the one made, but after ", steps,
                    " steps every rank has a model of its own. Fix: use a step that has passed"}));
    }
    if (goes_back && waits_for_a_switch<Compression>) {
      throw usage_error(
          sentence({"architecture::switch_at: a switch at step ", wanted.step,
                    " would undo the one made, and what the compressor has left out in ", steps,
                    " steps would wait for it. Fix: use a step that has passed"}));
    }
    if (averages_models && steps > 0 && steps < was.step && wanted.step <= steps) {
      throw usage_error(
          sentence({"architecture::switch_at: models become equal in the step before the switch, "
                    "but none of the ",
                    steps, " steps before step ", wanted.step,
                    " did that. Fix: use a step that is still to come"}));
    }
    if (wanted.step > steps) {
      expect_replan_of<First, Compression>(was.first, wanted.first, steps);
    } else {
      expect_replan_of<Second, Compression>(was.second, wanted.second, steps);
    }
  }

  /// Returns the bytes of a step of the architecture that sends less.
  static constexpr double busiest_nic(const options& set, double payload, double dense,
                                      placement who) {
    return std::min(nic_of<First>(set.first, payload, dense, who),
                    nic_of<Second>(set.second, payload, dense, who));
  }

  template <class World>
  class state {
    using first_state = typename First::template state<World>;
    using second_state = typename Second::template state<World>;
    using launch = typename World::launch;

    template <class S>
    static constexpr bool keeps_nothing =
        !facts::has_serve<S> && !facts::has_resume<S> && !facts::has_finish<S>;
    static_assert(
        keeps_nothing<first_state> && keeps_nothing<second_state>,
        "tutti: an architecture that owns parameters elsewhere, answers whoever asks, keeps copies "
        "of the parameters, exchanges momenta, or applies means a step late cannot take turns with "
        "another. Fix: switch between all_reduce, local_sgd, model_averaging, independent and the "
        "like, or save, and start again with the other strategy.");

    template <class S>
    static constexpr bool gradients_travel =
        !facts::has_outgoing<S> && !facts::has_incoming<S> && !facts::has_arrive<S>;
    /// Whether only gradients travel. The engine then moves them itself, as a view where it can.
    static constexpr bool only_gradients =
        gradients_travel<first_state> && gradients_travel<second_state> && !averages_models;

    struct no_averaging {
      no_averaging(World&, const no_options&) {}
    };
    static auto averaging_state() {
      if constexpr (averages_models) {
        return std::type_identity<typename averaging::template state<World>>();
      } else {
        return std::type_identity<no_averaging>();
      }
    }
    static auto averaging_options() {
      if constexpr (averages_models) {
        typename averaging::options every_step;
        every_step.period = 1;
        every_step.momenta = momenta::averaged;
        return every_step;
      } else {
        return no_options();
      }
    }

   public:
    using conditional_verbs = state;

    state(World& world, const options& set)
        : world_(&world),
          step_(set.step),
          first_(world, set.first),
          second_(world, set.second),
          averaging_(world, averaging_options()),
          departed_(world.planned()) {}

    std::size_t workspace_bytes(const chunk& piece) const {
      const std::size_t most = std::max(workspace_of(first_, piece), workspace_of(second_, piece));
      if constexpr (averages_models) {
        return std::max(most, workspace_of(averaging_, piece));
      } else {
        return most;
      }
    }

    bool sends(std::uint64_t step) const
        requires(facts::has_sends<first_state> || facts::has_sends<second_state>) {
      return turn(*this, step, [step](const auto& its) {
        if constexpr (facts::has_sends<std::remove_cvref_t<decltype(its)>>) {
          return its.sends(step);
        } else {
          return true;
        }
      });
    }

    void depart(std::size_t position, std::uint64_t step) {
      departed_.note(position, step);
      turn(*this, step, [=](auto& its) {
        if constexpr (facts::has_depart<std::remove_cvref_t<decltype(its)>>) {
          its.depart(position, step);
        }
      });
    }

    void outgoing(const chunk& piece, std::span<float> buffer) requires(!only_gradients) {
      turn(*this, departed_.step_of(piece), [&](auto& its) {
        if constexpr (facts::has_outgoing<std::remove_cvref_t<decltype(its)>>) {
          its.outgoing(piece, buffer);
        } else {
          world_->read_gradients(piece, buffer);
        }
      });
    }

    task exchange(typename World::endpoint self, const launch& what) {
      return turn(*this, what.step, [&](auto& its) {
        if constexpr (facts::has_average<std::remove_cvref_t<decltype(its)>>) {
          return averaged(its, self, what, its.average());
        } else {
          return its.exchange(self, what);
        }
      });
    }

    void incoming(const chunk& piece, std::span<float> buffer) requires(!only_gradients) {
      turn(*this, departed_.step_of(piece), [&](auto& its) {
        if constexpr (facts::has_incoming<std::remove_cvref_t<decltype(its)>>) {
          its.incoming(piece, buffer);
        }
      });
    }

    void arrive(std::size_t position, std::uint64_t step) requires(!only_gradients) {
      turn(*this, step, [=, this](auto& its) {
        if constexpr (facts::has_arrive<std::remove_cvref_t<decltype(its)>>) {
          its.arrive(position, step);
        } else {
          world_->update_by_launches(position, step);
        }
      });
    }

    std::vector<std::span<float>> memories() requires(facts::has_memories<first_state> ||
                                                      facts::has_memories<second_state>) {
      std::vector<std::span<float>> all;
      const auto add = [&all](auto& its) {
        if constexpr (facts::has_memories<std::remove_cvref_t<decltype(its)>>) {
          const auto more = its.memories();
          all.insert(all.end(), more.begin(), more.end());
        }
      };
      add(first_);
      add(second_);
      return all;
    }

    void rescale(float factor) requires(facts::has_rescale<first_state> ||
                                        facts::has_rescale<second_state>) {
      const auto rescale_one = [factor](auto& its) {
        if constexpr (facts::has_rescale<std::remove_cvref_t<decltype(its)>>) {
          its.rescale(factor);
        }
      };
      rescale_one(first_);
      rescale_one(second_);
    }

    void undo_step() requires(facts::has_undo_step<first_state> ||
                              facts::has_undo_step<second_state>) {
      const auto undo = [](auto& its) {
        if constexpr (facts::has_undo_step<std::remove_cvref_t<decltype(its)>>) {
          its.undo_step();
        }
      };
      undo(first_);
      undo(second_);
    }

   private:
    /// Calls `act` with the state of the architecture in use in a step.
    template <class Self, class Act>
    static auto turn(Self& self, std::uint64_t step, Act act) {
      if constexpr (averages_models) {
        if (step + 1 == self.step_) {
          return act(self.averaging_);
        }
      }
      return step < self.step_ ? act(self.first_) : act(self.second_);
    }

    /// Exchanges a launch with another `average`; by value, because the changed copy must last.
    template <class S>
    static task averaged(S& its, typename World::endpoint self, launch what, float average) {
      what.average = average;
      co_await its.exchange(self, what);
    }

    World* world_;
    std::uint64_t step_;
    first_state first_;
    second_state second_;
    [[no_unique_address]] typename decltype(averaging_state())::type averaging_;
    departures departed_;
  };

 private:
  /// Calls an architecture's own expect_replan if it has one, as another switch has.
  template <class A, class Compression>
  static void expect_replan_of([[maybe_unused]] const options_of<A>& was,
                               [[maybe_unused]] const options_of<A>& wanted,
                               [[maybe_unused]] std::uint64_t steps) {
    if constexpr (requires { &A::template expect_replan<Compression>; }) {
      A::template expect_replan<Compression>(was, wanted, steps);
    }
  }

  template <class A>
  static constexpr double nic_of(const options_of<A>& set, double payload, double dense,
                                 placement who) {
    if constexpr (requires { A::busiest_nic(set, payload, dense, who); }) {
      return A::busiest_nic(set, payload, dense, who);
    } else {
      return A::busiest_nic(payload, dense, who);
    }
  }
};
static_assert(architecture_policy<switch_at<replicated<>, replicated<>>>);

template <class First, class Second, class Compression, class Transport>
struct resolved<switch_at<First, Second>, Compression, Transport> {
  using type = switch_at<typename resolved<First, Compression, Transport>::type,
                         typename resolved<Second, Compression, Transport>::type>;
};

}  // namespace tutti::architecture

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/role/monitor.hpp"

namespace tutti::monitor {

namespace detail {

template <class Monitor>
void tell_mean(Monitor& its, std::uint32_t which, std::span<const float> gradient) {
  if constexpr (facts::sees_means<Monitor>) {
    its.mean(which, gradient);
  }
}
template <class Monitor>
void tell_of_plan(Monitor& its) {
  if constexpr (facts::hears_of_plans<Monitor>) {
    its.replanned();
  }
}
template <class Monitor>
void tell_scale(Monitor& its, float scale) {
  if constexpr (facts::hears_of_scales<Monitor>) {
    its.scaled(scale);
  }
}
template <class Monitor>
std::span<double> sums_of(Monitor& its) {
  if constexpr (facts::has_sums<Monitor>) {
    return its.sums();
  } else {
    return {};
  }
}
template <class Monitor>
void tell_sums(Monitor& its, std::span<const double> totals) {
  if constexpr (facts::has_sums<Monitor>) {
    if (!totals.empty()) {
      its.summed(totals);
    }
  }
}

}  // namespace detail

/// Combines two monitors of one engine. Both see everything, and their sums are sent together.
/// Cost: that of both, and a copy of their sums.
template <monitor_policy First, monitor_policy Second>
class tee {
 public:
  using role = tutti::role::monitor;
  static constexpr bool observes = First::observes || Second::observes;
  static constexpr bool reads_memory = facts::reads_memory<First> || facts::reads_memory<Second>;
  using conditional_verbs = tee;

  tee() = default;
  tee(First its_first, Second its_second)
      : first(std::move(its_first)), second(std::move(its_second)) {}

  void record(event what, std::uint32_t which, seconds when) {
    first.record(what, which, when);
    second.record(what, which, when);
  }
  void mean(std::uint32_t which,
            std::span<const float> gradient) requires(facts::sees_means<First> ||
                                                      facts::sees_means<Second>) {
    detail::tell_mean(first, which, gradient);
    detail::tell_mean(second, which, gradient);
  }
  void replanned() requires(facts::hears_of_plans<First> || facts::hears_of_plans<Second>) {
    detail::tell_of_plan(first);
    detail::tell_of_plan(second);
  }
  void scaled(float scale) requires(facts::hears_of_scales<First> ||
                                    facts::hears_of_scales<Second>) {
    detail::tell_scale(first, scale);
    detail::tell_scale(second, scale);
  }
  std::span<double> sums() requires(facts::has_sums<First> || facts::has_sums<Second>) {
    both_.clear();
    take(detail::sums_of(first));
    of_first_.push_back(both_.size());
    take(detail::sums_of(second));
    if (both_.empty()) {
      of_first_.pop_back();
    }
    return both_;
  }
  void summed(std::span<const double> totals) requires(facts::has_sums<First> ||
                                                       facts::has_sums<Second>) {
    const std::size_t firsts = of_first_.front();
    of_first_.erase(of_first_.begin());
    detail::tell_sums(first, totals.first(firsts));
    detail::tell_sums(second, totals.subspan(firsts));
  }

  First first{};
  Second second{};

 private:
  void take(std::span<double> its) {
    both_.insert(both_.end(), its.begin(), its.end());
    std::fill(its.begin(), its.end(), 0.0);
  }

  std::vector<double> both_{};
  std::vector<std::size_t> of_first_{};  ///< how many sums are the first's, by step on its way
};

namespace detail {
template <class Wanted, class Monitor>
constexpr bool has_part = std::is_same_v<Wanted, Monitor>;
template <class Wanted, class First, class Second>
constexpr bool has_part<Wanted, tee<First, Second>> =
    has_part<Wanted, First> || has_part<Wanted, Second>;
}  // namespace detail

/// Returns the monitor of type `Wanted`, which is `among` itself or inside its tees.
template <class Wanted, class Monitor>
requires detail::has_part<Wanted, Monitor> Wanted& part_of(Monitor& among) {
  if constexpr (std::is_same_v<Wanted, Monitor>) {
    return among;
  } else if constexpr (detail::has_part<Wanted, decltype(among.first)>) {
    return part_of<Wanted>(among.first);
  } else {
    return part_of<Wanted>(among.second);
  }
}

}  // namespace tutti::monitor

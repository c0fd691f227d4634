#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "tutti/base/cost.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/ready_times.hpp"
#include "tutti/base/units.hpp"

namespace tutti::schedule {

/// An exchange, for a forecast of several at the same time: when it may begin, and how long its
/// start-up and its bytes take on a link that nothing else uses.
struct timed_exchange {
  seconds ready{};
  seconds startup{};
  seconds bytes{};
};

/// Returns when the last exchange ends, if they begin in order and at most `most` are under way.
/// Start-ups overlap with everything. While the bytes of n exchanges pass at the same time, each
/// takes n * `share` times as long as alone on the link, but not less. Cost: O(exchanges * most).
[[gnu::cold]] inline seconds end_of(std::span<const timed_exchange> all, std::size_t most,
                                    double share) {
  std::vector<timed_exchange> under_way;  // with the times that are left
  seconds now = 0;
  for (std::size_t next = 0; next < all.size() || !under_way.empty();) {
    for (; next < all.size() && under_way.size() < most && all[next].ready <= now; ++next) {
      under_way.push_back(all[next]);
    }
    const auto passing = std::count_if(under_way.begin(), under_way.end(),
                                       [](const auto& each) { return each.startup <= 0; });
    const double slowdown = std::max(1.0, static_cast<double>(passing) * share);
    const auto until_something_ends = [slowdown](const timed_exchange& each) {
      return each.startup > 0 ? each.startup : each.bytes * slowdown;
    };
    seconds step = std::numeric_limits<seconds>::infinity();
    for (const timed_exchange& each : under_way) {
      step = std::min(step, until_something_ends(each));
    }
    if (next < all.size() && under_way.size() < most) {
      step = std::min(step, all[next].ready - now);
    }
    now += step;
    for (timed_exchange& each : under_way) {
      const bool ends = until_something_ends(each) <= step;
      if (each.startup > 0) {
        each.startup = ends ? 0 : each.startup - step;
      } else {
        each.bytes = ends ? -1 : each.bytes - step / slowdown;
      }
    }
    std::erase_if(under_way, [](const timed_exchange& each) { return each.bytes < 0; });
  }
  return now;
}

/// Returns how many exchanges at the same time pay: one more as long as that ends the plan's last
/// exchange at least a hundredth sooner. Returns 1 if the profile does not say what a message
/// costs. If it has no backward times, all gradients count as ready at the beginning.
[[gnu::cold]] inline std::size_t as_many_as_pay(const plan& made, const profile& known) {
  if (!known.message.measured()) {
    return 1;
  }
  std::vector<tensor_facts> backward(made.backward.size());  // a plan may order tensors by class
  for (const tensor_facts& each : made.backward) {
    backward[backward.size() - 1 - index(each.id)] = each;
  }
  const std::vector<seconds> ready = ready_times(backward, known, 0);
  std::vector<timed_exchange> all;
  for (const chunk& each : made.chunks) {
    const bucket& whole = made.buckets[each.bucket];
    seconds full = 0;
    for (std::size_t i = whole.first_tensor; i < whole.first_tensor + whole.tensors; ++i) {
      full = std::max(full, ready[backward.size() - 1 - index(made.backward[i].id)]);
    }
    const seconds alone = known.message(known.payload(each.elements));
    const seconds startup = std::min(known.message.startup(), alone);
    all.push_back({full, startup, alone - startup});
  }
  std::size_t most = 1;
  for (seconds end = end_of(all, 1, known.share_of_one); most < all.size(); ++most) {
    const seconds sooner = end_of(all, most + 1, known.share_of_one);
    if (!(sooner <= 0.99 * end)) {
      break;
    }
    end = sooner;
  }
  return most;
}

}  // namespace tutti::schedule

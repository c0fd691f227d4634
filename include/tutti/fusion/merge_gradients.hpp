#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/ready_times.hpp"
#include "tutti/role/fusion.hpp"

namespace tutti::fusion {

/// How merge_gradients decides.
enum class rule {
  exact,        ///< the grouping whose last message ends first
  greedy,       ///< the published rule: hold a message while waiting costs less than one start-up
  greedy_8192,  ///< as greedy, but hold one of fewer than 8192 elements whatever waiting costs
};

/// Returns the enumerators' names, in their order.
constexpr std::array<std::string_view, 3> names(rule) { return {"exact", "greedy", "greedy_8192"}; }

/// Merges gradients with their neighbours where waiting for these is cheaper than another start-up.
/// Plan: groups of adjacent tensors. It assumes one serial link, which carries a group once its
/// last gradient is ready, with as many bytes as a compressor makes of it.
/// Cost: `exact` weighs all groupings in O(tensors^2), once. The others take O(tensors), but may
/// miss the fastest grouping (three equal tensors are enough).
/// After: Shi, Chu and Li, "MG-WFBP", INFOCOM 2019 (greedy) and its programs: HKBU-HPML's
/// ddl-benchmarks (greedy_8192) and B-Caffe (`ring`); the exact dynamic programme is this library's
/// own.
///
/// The job's profile says when gradients are ready and what a message costs; where it does not, the
/// options do.
class merge_gradients {
 public:
  using role = tutti::role::fusion;

  struct options {
    fusion::rule rule{fusion::rule::exact};
    double startup{1e-4};           // a collective over 10 Gbit/s Ethernet, a few ranks
    double seconds_per_byte{1e-9};  // as for `startup`
    std::size_t ring{0};
    double seconds_per_element{5e-9};  // ResNet-50, batch 64, V100: 0.12 s for 25.6 million

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("rule", self.rule,
            "exact; the published greedy; or greedy_8192, where fewer elements than that never go "
            "alone");
      visit("startup", self.startup, "seconds before the first byte, if not measured");
      visit("seconds_per_byte", self.seconds_per_byte, "seconds for each byte, if not measured");
      visit("ring", self.ring,
            "ranks of a ring: startup a and seconds_per_byte b are one message's, and an\n"
            "all-reduce of M bytes takes 2na + 2(n-1)Mb/n; 0: they are an all-reduce's");
      visit("seconds_per_element", self.seconds_per_element,
            "backward time for each element, if not measured");
    }
  };

  constexpr merge_gradients() = default;
  explicit constexpr merge_gradients(const options& values) : options_(values) {
    if (!(values.startup >= 0 && values.seconds_per_byte >= 0 && values.seconds_per_element >= 0)) {
      throw usage_error("fusion::merge_gradients: no time is negative. Fix: seconds, as 0.001");
    }
  }

  std::vector<std::size_t> group_ends(std::span<const tensor_facts> backward,
                                      const profile& known) const {
    const message_cost cost = known.message.measured() ? known.message : cost_by_options();
    const std::vector<seconds> ready = ready_times(backward, known, options_.seconds_per_element);
    switch (options_.rule) {
      case rule::greedy:
        return greedy(backward, ready, cost, known.payload, 0);
      case rule::greedy_8192:
        return greedy(backward, ready, cost, known.payload, 8192);
      case rule::exact:
        break;
    }
    return exact(backward, ready, cost, known.payload);
  }

 private:
  message_cost cost_by_options() const {
    if (options_.ring == 0) {
      return {options_.startup, options_.seconds_per_byte};
    }
    const auto ranks = static_cast<double>(options_.ring);
    return {2 * ranks * options_.startup, 2 * (ranks - 1) / ranks * options_.seconds_per_byte};
  }

  /// Only the time at which the link is free again matters to what follows, so the best grouping of
  /// the first j tensors extends a best grouping of fewer.
  static std::vector<std::size_t> exact(std::span<const tensor_facts> backward,
                                        const std::vector<seconds>& ready, const message_cost& cost,
                                        const payload_bytes& payload) {
    const std::size_t n = backward.size();
    std::vector<seconds> link_free(n + 1, std::numeric_limits<seconds>::infinity());
    std::vector<std::size_t> begin_of_last(n + 1);
    link_free[0] = 0;
    for (std::size_t end = 1; end <= n; ++end) {
      std::size_t elements = 0;
      for (std::size_t begin = end; begin-- > 0;) {
        elements += backward[begin].elements;
        const seconds start = std::max(link_free[begin], ready[end - 1]);
        const seconds done = start + cost(payload(elements));
        if (done <= link_free[end]) {  // among equals the longest group: fewer messages
          link_free[end] = done;
          begin_of_last[end] = begin;
        }
      }
    }
    std::vector<std::size_t> ends;
    for (std::size_t end = n; end != 0; end = begin_of_last[end]) {
      ends.push_back(end);
    }
    std::reverse(ends.begin(), ends.end());
    return ends;
  }

  /// The published rule. Groups of fewer elements than `least` are held in any case.
  static std::vector<std::size_t> greedy(std::span<const tensor_facts> backward,
                                         const std::vector<seconds>& ready,
                                         const message_cost& cost, const payload_bytes& payload,
                                         std::size_t least) {
    const std::size_t n = backward.size();
    std::vector<std::size_t> ends;
    seconds link_free = 0;
    std::size_t elements = 0;
    for (std::size_t i = 0; i < n; ++i) {
      elements += backward[i].elements;
      const seconds start = std::max(link_free, ready[i]);
      const bool holds = i + 1 < n && (ready[i + 1] < start + cost.startup() || elements < least);
      if (!holds) {
        ends.push_back(i + 1);
        link_free = start + cost(payload(elements));
        elements = 0;
      }
    }
    return ends;
  }

  options options_{};
};
static_assert(fusion_policy<merge_gradients>);

}  // namespace tutti::fusion

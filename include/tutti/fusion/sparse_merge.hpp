#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "tutti/base/cost.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/ready_times.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/fusion.hpp"

namespace tutti::fusion {

/// Merges gradients with their neighbours where that costs less than it saves, for compressors that
/// select a group's largest elements. It assumes a device that computes and selects in turn: the
/// backward pass goes on once a group's elements are selected. Merging costs the neighbour's
/// backward time and a longer selection, less what the group would have waited for the link anyway;
/// it saves a message.
/// Plan: groups of adjacent tensors. It assumes one serial link, which carries a group's payload
/// once it is selected.
/// Cost: O(tensors), once.
/// After: Shi et al., "OMGS-SGD", INFOCOM 2020, and its program, whose selection of x elements
/// takes s x log2(x) seconds. The program differs in two things: the two tensors nearest the output
/// travel together without being weighed, and payloads are counted in fractions of an element.
///
/// The job's profile says when gradients are ready and what a message costs; where it does not, the
/// options do. Their defaults are the program's, for four ranks on 1 Gbit/s Ethernet.
class sparse_merge {
 public:
  using role = tutti::role::fusion;

  struct options {
    double startup{2.7e-3};
    double seconds_per_byte{1.3e-8};
    std::size_t gather{4};
    double seconds_per_comparison{2.18896957e-10};  // on a P102-100
    double seconds_per_element{5e-9};               // ResNet-50, batch 64, V100

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("startup", self.startup, "seconds before the first byte, if not measured");
      visit("seconds_per_byte", self.seconds_per_byte, "seconds for each byte, if not measured");
      visit(
          "gather", self.gather,
          "ranks n of an all-gather: startup a and seconds_per_byte b are of what all ranks send,\n"
          "and indices and values travel apart, so that M bytes of payload take 2a + nMb;\n"
          "0: they are a message's");
      visit("seconds_per_comparison", self.seconds_per_comparison,
            "selecting takes so long for each of n log2(n)");
      visit("seconds_per_element", self.seconds_per_element,
            "backward time for each element, if not measured");
    }
  };

  constexpr sparse_merge() = default;
  explicit constexpr sparse_merge(const options& values) : options_(values) {
    if (!(values.startup >= 0 && values.seconds_per_byte >= 0 &&
          values.seconds_per_comparison >= 0 && values.seconds_per_element >= 0)) {
      throw usage_error("fusion::sparse_merge: no time is negative. Fix: seconds, as 0.001");
    }
  }

  [[gnu::cold]] std::vector<std::size_t> group_ends(std::span<const tensor_facts> backward,
                                                    const profile& known) const {
    const message_cost message = known.message.measured() ? known.message : cost_by_options();
    const std::vector<seconds> ready = ready_times(backward, known, options_.seconds_per_element);
    const auto sent = [&](std::size_t elements) {
      return elements == 0 ? 0 : message(known.payload(elements));
    };
    std::vector<std::size_t> ends;
    seconds begin = 0;  // when the group's backward pass begins
    seconds link_free = 0;
    seconds pass = 0;  // how long the group's backward pass takes
    std::size_t elements = 0;
    for (std::size_t i = 0; i < backward.size(); ++i) {
      pass += ready[i] - (i == 0 ? 0 : ready[i - 1]);
      elements += backward[i].elements;
      const seconds is_selected = begin + pass + selected(elements);
      const seconds start = std::max(link_free, is_selected);
      if (i + 1 < backward.size()) {
        const std::size_t next = backward[i + 1].elements;
        const seconds waits = ready[i + 1] - ready[i] + selected(elements + next) -
                              selected(elements) - selected(next) - (start - is_selected);
        const seconds saves = sent(elements) + sent(next) - sent(elements + next);
        const bool is_free = waits == 0 && saves == 0;  // an empty tensor stays with its neighbour
        if (waits < saves || is_free) {
          continue;
        }
      }
      ends.push_back(i + 1);
      link_free = start + sent(elements);
      begin = is_selected;
      pass = 0;
      elements = 0;
    }
    return ends;
  }

 private:
  message_cost cost_by_options() const {
    if (options_.gather == 0) {
      return {options_.startup, options_.seconds_per_byte};
    }
    return {2 * options_.startup, static_cast<double>(options_.gather) * options_.seconds_per_byte};
  }
  seconds selected(std::size_t elements) const {
    const auto n = static_cast<double>(elements);
    // A builtin, because <cmath> takes longer to compile than all of fusion.
    return elements == 0 ? 0 : options_.seconds_per_comparison * n * __builtin_log2(n);
  }

  options options_{};
};
static_assert(fusion_policy<sparse_merge>);

}  // namespace tutti::fusion

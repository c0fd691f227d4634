#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/base/loops.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/fusion.hpp"

namespace tutti::fusion {

/// After which step by_arrival rebuilds its groups.
enum class rebuild { after_first_step, after_second_step, never };
/// Returns the enumerators' names, in their order.
constexpr std::array<std::string_view, 3> names(rebuild) {
  return {"after_first_step", "after_second_step", "never"};
}

/// Fuses gradients as PyTorch's DistributedDataParallel does: groups are rebuilt once, in the order
/// in which gradients have arrived. Until then all gradients of a kind travel together. From then
/// on neighbours in that order travel together until they hold `bytes` bytes, including the
/// gradient that reaches this limit. Groups are launched strictly one after the other. With
/// rebuild::never, groups are made at the start, of neighbours in forward order, and are launched
/// from the last one on.
/// Plan: every tensor by itself; what travels together is decided in the first steps. Under
/// coordination::learned rank 0's order is every rank's, and checkpoints hold it.
/// Cost: one copy in and one copy out per byte that is gathered; a group waits for those before it.
/// A group's buffer is allocated when the group first comes, the whole model's in the first step.
/// After: Li et al., "PyTorch Distributed", VLDB 2020, and its program: rebuild::after_first_step
/// by default, after_second_step under `static_graph`, never under `find_unused_parameters`.
class by_arrival {
 public:
  using role = tutti::role::fusion;
  static constexpr bool at_run_time = true;
  static constexpr bool holds_groups = true;

  struct options {
    std::size_t bytes{25_MiB};
    std::size_t first_bytes{1_MiB};
    fusion::rebuild rebuild{fusion::rebuild::after_first_step};
    fusion_types types{fusion_types::together};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("bytes", self.bytes, "close a group at this many bytes; 0: every tensor alone");
      visit("first_bytes", self.first_bytes,
            "limit of each element type's first group; 0: the same as for others");
      visit(
          "rebuild", self.rebuild,
          "when groups are made anew in the order of arrival; never: they keep the forward order");
      visit("types", self.types,
            "whether gradients of different element types travel together or apart");
    }
  };

  constexpr by_arrival() = default;
  explicit constexpr by_arrival(const options& values) : options_(values) {}

  [[gnu::cold]] std::vector<std::size_t> group_ends(std::span<const tensor_facts> backward,
                                                    const profile&) const {
    std::vector<std::size_t> ends(backward.size());
    std::iota(ends.begin(), ends.end(), std::size_t{1});
    return ends;
  }

  /// Returns 0, so that no buffer is made beforehand: launches repeat, so each finds the buffer
  /// that it used in the step before.
  std::size_t most_bytes(const plan&) const { return 0; }

  class state {
   public:
    [[gnu::cold]] state(const plan& made, const options& set)
        : plan_(&made),
          set_(set),
          learned_(set.rebuild == rebuild::never              ? 0
                   : set.rebuild == rebuild::after_first_step ? 1
                                                              : 2),
          staged_(made.chunks.size()),
          launches_(made.chunks.size()),
          group_of_(made.chunks.size()),
          place_of_(made.chunks.size()) {
      arrived_.reserve(made.chunks.size());
      ends_.reserve(made.chunks.size());
      open_.reserve(made.chunks.size());
      std::iota(launches_.rbegin(), launches_.rend(), 0U);
      const std::size_t unlimited = std::numeric_limits<std::size_t>::max();
      group(learned_ == 0 ? limits{set.first_bytes, set.bytes} : limits{unlimited, unlimited});
      for (std::uint32_t& place : place_of_) {
        place = 0;
      }
      // A group's place is that of its chunk nearest the input.
      for (const std::uint32_t chunk : launches_) {
        place_of_[group_of_[chunk]] = std::max(place_of_[group_of_[chunk]], chunk);
      }
      sort();
    }

    /// Returns how many steps there are before launches repeat.
    std::size_t unsettled_steps() const { return learned_; }

    void stage(std::uint32_t chunk) {
      if (++staged_[chunk] == learned_) {
        arrived_.push_back(chunk);
      }
    }

    std::span<const std::uint32_t> next() {
      if (group_ == ends_.size()) {
        begin_step();
      }
      if (ends_.empty()) {
        return {};
      }
      while (found_ != ends_[group_] && staged_[launches_[found_]] > steps_) {
        ++found_;
      }
      if (found_ != ends_[group_]) {
        return {};
      }
      const std::size_t begin = group_ == 0 ? 0 : ends_[group_ - 1];
      ++group_;
      return std::span(launches_).subspan(begin, found_ - begin);
    }

   private:
    struct limits {
      std::size_t first;
      std::size_t others;
    };
    struct open_group {
      std::uint32_t kind;
      std::size_t bytes;
      std::size_t limit;
      std::uint32_t number;
    };
    static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

    void begin_step() {
      group_ = 0;
      found_ = 0;
      if (!launches_.empty() && ++steps_ == learned_) {
        rebuild_groups();
      }
    }

    /// Rebuilds the groups in the order of arrival. They are launched in the order in which they
    /// were closed, and then those that were not.
    [[gnu::cold]] void rebuild_groups() {
      launches_ = arrived_;
      group({set_.first_bytes, set_.bytes});
      sort();
    }

    /// Makes groups of neighbours in the order of `launches_`, and notes when each was full.
    [[gnu::cold]] void group(limits its) {
      const std::size_t first = its.first == 0 ? its.others : its.first;
      std::uint32_t groups = 0;
      open_.clear();
      for (std::size_t place = 0; place < launches_.size(); ++place) {
        const chunk& piece = plan_->chunks[launches_[place]];
        auto mine = loops::find_if(
            open_, [&piece](const open_group& each) { return each.kind == piece.kind; });
        if (mine == open_.end()) {
          open_.push_back({piece.kind, 0, first, none});
          mine = open_.end() - 1;
        }
        if (mine->number == none) {
          mine->number = groups++;
          mine->bytes = 0;
        }
        group_of_[launches_[place]] = mine->number;
        mine->bytes += piece.elements * sizeof(float);
        // A group that stays open goes after all that have been closed.
        const auto last = static_cast<std::uint32_t>(place);
        place_of_[mine->number] = last + static_cast<std::uint32_t>(launches_.size());
        if (mine->bytes >= mine->limit) {
          place_of_[mine->number] = last;
          mine->limit = its.others;
          mine->number = none;
        }
      }
    }

    /// Puts groups in the order of their places, and a group's chunks in ascending order.
    [[gnu::cold]] void sort() {
      // For each group's place, where its next chunk goes. The second half is for groups that
      // stayed open.
      std::vector<std::uint32_t> next(2 * group_of_.size());
      for (const std::uint32_t group : group_of_) {
        ++next[place_of_[group]];
      }
      ends_.clear();
      std::uint32_t end = 0;
      for (std::uint32_t& each : next) {
        const std::uint32_t begin = end;
        end += std::exchange(each, begin);
        if (end != begin) {
          ends_.push_back(end);
        }
      }
      for (std::uint32_t chunk = 0; chunk < group_of_.size(); ++chunk) {
        launches_[next[place_of_[group_of_[chunk]]]++] = chunk;
      }
    }

    const plan* plan_;
    options set_;
    std::size_t learned_;              ///< the step whose order counts, from 1 on
    std::vector<std::size_t> staged_;  ///< how often each chunk was staged
    std::vector<std::uint32_t> arrived_{};
    std::vector<std::uint32_t> launches_;  ///< a step's chunks, group after group
    std::vector<std::size_t> ends_{};      ///< of the groups in `launches_`
    std::vector<std::uint32_t> group_of_;  ///< of each chunk
    std::vector<std::uint32_t> place_of_;  ///< of each group, in the order of launches
    std::vector<open_group> open_{};       ///< the open group of each kind
    std::size_t group_ = 0;                ///< the number of the group that goes next
    std::size_t found_ = 0;                ///< chunks of this step that were seen staged
    std::size_t steps_ = 0;
  };

 private:
  options options_{};
};
static_assert(run_time_fusion<by_arrival>);

}  // namespace tutti::fusion

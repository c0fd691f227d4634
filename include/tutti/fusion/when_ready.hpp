#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/fusion.hpp"

namespace tutti::fusion {

/// Chunks that have become ready since the last tick of a timer travel together, up to a limit. The
/// oldest one takes along whatever is of its kind and still fits. The search passes over chunks of
/// other kinds as long as these and the launch together do not exceed the limit, and ends at a
/// chunk of its own kind that does not fit. Then the oldest chunk that is left begins the next
/// launch.
/// Plan: every tensor by itself; what travels together is decided in each step.
/// Cost: one copy in and one copy out per byte that is gathered; no chunk waits longer than a
/// cycle. If a rank makes progress only when its caller does, a tick happens in the caller's next
/// call.
/// After: Sergeev and Del Balso, "Horovod", 2018: its cycle, threshold and look-ahead.
class when_ready {
 public:
  using role = tutti::role::fusion;
  static constexpr bool at_run_time = true;

  struct options {
    std::size_t bytes{128_MiB};
    double cycle{1e-3};
    std::size_t multiple{1};
    std::size_t alignment{1};
    fusion_types types{fusion_types::together};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("bytes", self.bytes, "a launch is not larger; 0: every tensor alone");
      visit("cycle", self.cycle, "seconds between two ticks; 0: what is ready goes at once");
      visit("multiple", self.multiple, "bytes are rounded up to a multiple of so many");
      visit("alignment", self.alignment, "a tensor counts for a multiple of so many bytes");
      visit("types", self.types, "gradients of several element types travel together or apart");
    }
  };

  constexpr when_ready() = default;
  explicit constexpr when_ready(const options& values) : options_(values) {
    if (!(values.cycle >= 0)) {
      throw usage_error("fusion::when_ready: a cycle is not negative. Fix: seconds, as 0.001");
    }
    if (values.multiple == 0 || values.alignment == 0) {
      throw usage_error(
          "fusion::when_ready: nothing is a multiple of 0 bytes. Fix: 1, which rounds nothing");
    }
  }

  [[gnu::cold]] std::vector<std::size_t> group_ends(std::span<const tensor_facts> backward,
                                                    const profile&) const {
    std::vector<std::size_t> ends(backward.size());
    std::iota(ends.begin(), ends.end(), std::size_t{1});
    return ends;
  }

  /// Returns the bytes of the largest launch, which may be one chunk above the limit.
  std::size_t most_bytes(const plan& made) const {
    std::size_t most = limit_of(options_);
    for (const chunk& each : made.chunks) {
      most = std::max(most, each.elements * sizeof(float));
    }
    return std::min(most, made.elements() * sizeof(float));
  }

  class state {
   public:
    [[gnu::cold]] state(const plan& made, const options& set)
        : plan_(&made), set_(set), limit_(limit_of(set)) {
      staged_.reserve(made.chunks.size());
      launch_.reserve(made.chunks.size());
    }

    void stage(std::uint32_t chunk) { staged_.push_back(chunk); }
    seconds cycle() const { return set_.cycle; }

    std::span<const std::uint32_t> next() {
      launch_.clear();
      if (oldest_ == staged_.size()) {
        staged_.clear();
        oldest_ = 0;
        return launch_;
      }
      std::size_t place = oldest_;
      std::size_t bytes = take(staged_[place++]);
      std::size_t passed = 0;
      std::size_t kept = oldest_;  // chunks passed over move to the front
      const std::uint32_t kind = plan_->chunks[launch_.front()].kind;
      for (; limit_ != 0 && place < staged_.size(); ++place) {
        const std::uint32_t chunk = staged_[place];
        const std::size_t more = bytes_of(chunk);
        if (plan_->chunks[chunk].kind == kind && bytes + more <= limit_) {
          bytes += take(chunk);
          continue;
        }
        passed += more;
        if (bytes + passed > limit_) {
          break;
        }
        staged_[kept++] = chunk;
      }
      // Chunks passed over stay in order, right before those that were not looked at.
      const auto begin = staged_.begin();
      const auto moved = std::move_backward(begin + static_cast<std::ptrdiff_t>(oldest_),
                                            begin + static_cast<std::ptrdiff_t>(kept),
                                            begin + static_cast<std::ptrdiff_t>(place));
      oldest_ = static_cast<std::size_t>(moved - begin);
      std::sort(launch_.begin(), launch_.end());
      return launch_;
    }

   private:
    std::size_t take(std::uint32_t chunk) {
      launch_.push_back(chunk);
      return bytes_of(chunk);
    }
    std::size_t bytes_of(std::uint32_t chunk) const {
      return round_up(plan_->chunks[chunk].elements * sizeof(float), set_.alignment);
    }

    const plan* plan_;
    options set_;
    std::size_t limit_;
    std::vector<std::uint32_t> staged_{};
    std::size_t oldest_ = 0;
    std::vector<std::uint32_t> launch_{};
  };

 private:
  static std::size_t limit_of(const options& set) {
    const std::size_t most = std::numeric_limits<std::size_t>::max() / set.multiple * set.multiple;
    return set.bytes > most ? most : round_up(set.bytes, set.multiple);
  }

  options options_{};
};
static_assert(run_time_fusion<when_ready>);

}  // namespace tutti::fusion

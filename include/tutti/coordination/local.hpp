#pragma once

#include <optional>
#include <span>
#include <utility>

#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/coordination.hpp"

namespace tutti::coordination {

/// Each rank decides for itself, from what is ready on it.
/// Plan: none.
/// Wire: nothing.
/// Cost: none, because the machine is just the schedule. Where credit is held until peers launch
/// the same chunk, ranks may wait for each other for ever.
/// After: wait-free back-propagation, Zhang et al., "Poseidon", ATC 2017; parameter servers.
struct local {
  using role = tutti::role::coordination;
  static constexpr bool one_order = false;
  static constexpr bool keeps_time = false;

  template <class Choice>
  class state {
    static_assert(!Choice::gathers);  // each rank would gather launches of its own

   public:
    state(const plan&, std::span<const tensor>, ranks, const no_options&, Choice choice)
        : choice_(std::move(choice)) {}

    void ready(std::uint32_t bucket, seconds) { choice_.ready(bucket); }
    void hear(int, std::span<const std::uint32_t>, seconds) {}
    void released(std::uint32_t chunk, seconds) { choice_.released(chunk); }
    std::optional<seconds> due() const { return std::nullopt; }
    void tick(seconds) {}
    template <class Say>
    void speak(Say) {}
    template <class IsReady>
    std::optional<std::uint32_t> next(IsReady, std::size_t) {
      return choice_.next();
    }
    template <class IsReady>
    std::optional<std::uint32_t> stuck(IsReady) const {
      return std::nullopt;
    }
    bool expects_words() const { return false; }

   private:
    Choice choice_;
  };
};
static_assert(coordination_policy<local>);

}  // namespace tutti::coordination

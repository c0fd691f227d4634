#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/coordination.hpp"
#include "tutti/role/schedule.hpp"

/// Policies that each combine several, of which an option picks one at run time. An engine sees
/// only the facts of a policy, so policies whose facts agree share one engine type, which is
/// compiled once for all of them.
namespace tutti::test {

struct which_one {
  std::size_t which{};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("which", self.which, "its place in the list");
  }
};

/// The place of `Policy` in `All`.
template <class Policy, class... All>
constexpr std::size_t place_among = [] {
  std::size_t place = 0;
  static_cast<void>(((std::is_same_v<Policy, All> || (++place, false)) || ...));
  return place;
}();

/// Makes the variant's alternative number `which` by `make(std::in_place_index<which>)`.
template <class Made, std::size_t Each = 0, class Make>
Made made_as(std::size_t which, Make make) {
  if constexpr (Each + 1 < std::variant_size_v<Made>) {
    if (which != Each) {
      return made_as<Made, Each + 1>(which, make);
    }
  }
  return make(std::in_place_index<Each>);
}

/// Schedules that split no exchange into phases. Either none of them limits the chunks in flight,
/// or all do so in an order that does not follow from the plan.
template <class... Schedules>
struct one_of_schedules {
  using role = tutti::role::schedule;
  using options = which_one;
  static constexpr bool limits_in_flight = (Schedules::limits_in_flight && ...);
  static constexpr bool static_order = false;
  static_assert(((limits_in_flight ? !Schedules::static_order : !Schedules::limits_in_flight) &&
                 ...));
  static_assert((!facts::splits_phases<Schedules> && ...));

  template <class Policy>
  static constexpr std::size_t place = place_among<Policy, Schedules...>;
  template <class Policy>
  static constexpr bool has = place<Policy> < sizeof...(Schedules);

  class state {
    using any = std::variant<typename Schedules::state...>;

   public:
    state(const plan& made, const options& set)
        : its_(made_as<any>(set.which, [&]<std::size_t Which>(std::in_place_index_t<Which> here) {
            return any(here, made, no_options());
          })) {}

    void ready(std::uint32_t bucket) {
      std::visit([&](auto& each) { each.ready(bucket); }, its_);
    }
    void released(std::uint32_t chunk) {
      std::visit([&](auto& each) { each.released(chunk); }, its_);
    }
    std::optional<std::uint32_t> next() {
      return std::visit([](auto& each) { return each.next(); }, its_);
    }
    bool admits(std::uint32_t chunk) const requires limits_in_flight {
      return std::visit([&](const auto& each) { return each.admits(chunk); }, its_);
    }
    void take(std::uint32_t chunk) requires limits_in_flight {
      std::visit([&](auto& each) { each.take(chunk); }, its_);
    }

   private:
    any its_;
  };
};

/// Coordinations that give every rank the same launches in the same order.
template <class... Coordinations>
struct one_of_coordinations {
  using role = tutti::role::coordination;
  using options = which_one;
  static constexpr bool one_order = true;
  static constexpr std::size_t size = sizeof...(Coordinations);
  static_assert((Coordinations::one_order && ...));

  template <class Policy>
  static constexpr std::size_t place = place_among<Policy, Coordinations...>;

  template <class Choice>
  class state {
    using any = std::variant<typename Coordinations::template state<Choice>...>;

   public:
    state(const plan& made, std::span<const tensor> forward, coordination::ranks all,
          const options& set, Choice choice)
        : its_(made_as<any>(set.which, [&]<std::size_t Which>(std::in_place_index_t<Which> here) {
            using policy = std::tuple_element_t<Which, std::tuple<Coordinations...>>;
            return any(here, made, forward, all, options_of<policy>(), std::move(choice));
          })) {}

    void ready(std::uint32_t bucket, seconds now) {
      std::visit([&](auto& each) { each.ready(bucket, now); }, its_);
    }
    void hear(int peer, std::span<const std::uint32_t> said, seconds now) {
      std::visit([&](auto& each) { each.hear(peer, said, now); }, its_);
    }
    void released(std::uint32_t launch, seconds now) {
      std::visit([&](auto& each) { each.released(launch, now); }, its_);
    }
    std::optional<seconds> due() const {
      return std::visit([](auto& each) { return each.due(); }, its_);
    }
    void tick(seconds now) {
      std::visit([&](auto& each) { each.tick(now); }, its_);
    }
    template <class Say>
    void speak(Say say) {
      std::visit([&](auto& each) { each.speak(say); }, its_);
    }
    template <class IsReady>
    std::optional<std::uint32_t> next(IsReady is_ready, std::size_t left) {
      return std::visit([&](auto& each) { return each.next(is_ready, left); }, its_);
    }
    template <class IsReady>
    std::optional<std::uint32_t> stuck(IsReady is_ready) const {
      return std::visit([&](auto& each) { return each.stuck(is_ready); }, its_);
    }
    std::uint32_t after(std::uint32_t chunk) const requires Choice::gathers {
      return std::visit([&](const auto& each) { return each.after(chunk); }, its_);
    }
    bool expects_words() const {
      return std::visit([](auto& each) { return each.expects_words(); }, its_);
    }
    void leave() {
      std::visit(
          [](auto& each) {
            if constexpr (requires { each.leave(); }) {
              each.leave();
            }
          },
          its_);
    }

   private:
    any its_;
  };
};

}  // namespace tutti::test

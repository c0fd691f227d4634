#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "tutti/base/cost.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/collective.hpp"

namespace tutti::collective {

/// All-reduces each chunk by one of several collectives. Ranges of sizes, in elements, determine
/// which. `Algorithm` is an enumeration whose `names` are those of `Choices`, in their order.
/// Wire, cost: those of the chosen collective; scratch is the most that any chunk up to that size
/// needs.
/// After: tf_cnn_benchmarks' `--all_reduce_spec`; the tables of MPI libraries, Pjesivac-Grbovic et
/// al., "Performance analysis of MPI collective operations", 2007.
template <class Algorithm, collective_policy... Choices>
class by_size {
  static_assert(names(Algorithm()).size() == sizeof...(Choices));

 public:
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = (Choices::rank_ordered && ...);
  static constexpr bool ordered_start = (Choices::ordered_start || ...);
  static constexpr bool requires_addressable_peers =
      (facts::requires_addressable_peers<Choices> || ...);
  static constexpr bool requires_native = (facts::requires_native<Choices> || ...);

  struct range {
    Algorithm algorithm{};
    std::uint64_t shards{1};  ///< if the algorithm has shards
    std::size_t up_to{};      ///< elements of its largest chunk; 0: no limit

    friend bool operator==(const range&, const range&) = default;
  };
  static constexpr std::size_t most_ranges = 16;

  struct options {
    std::array<range, most_ranges> ranges{};

    /// Visits the ranges in use: `algorithm`, `shards` and `up_to`, then `algorithm2` and so on.
    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      for (std::size_t i = 0; i < most_ranges; ++i) {
        auto& [algorithm, shards, up_to] = self.ranges[i];
        const std::string number = i == 0 ? "" : std::to_string(i + 1);
        visit("algorithm" + number, algorithm, "how chunks of this range of sizes are added up");
        visit("shards" + number, shards,
              "number of that algorithm's parts or rings, if it has any");
        visit("up_to" + number, up_to,
              "elements of this range's largest chunk; larger ones go by algorithm2 and so on; 0: "
              "no limit");
        if (up_to == 0) {
          return;
        }
      }
    }
  };

  constexpr by_size() = default;
  /// Throws usage_error for a range that no chunk would take. A choice may throw for its shards.
  explicit constexpr by_size(const options& values) : options_(values) {
    for (std::size_t i = 0; i < used(); ++i) {
      const auto& [algorithm, shards, up_to] = options_.ranges[i];
      if (i > 0 && up_to != 0 && up_to <= options_.ranges[i - 1].up_to) {
        throw usage_error(
            sentence({"collective::by_size: ", name_of(algorithm), " up to ", up_to,
                      " elements comes after a limit of ", options_.ranges[i - 1].up_to,
                      " and would get no chunk. Fix: use ascending limits"}));
      }
      with(options_.ranges[i], [](const auto&) { return 0; });
    }
    for (std::size_t i = used(); i < most_ranges; ++i) {
      if (options_.ranges[i] != range()) {
        throw usage_error(sentence(
            {"collective::by_size: range ", i + 1, " comes after range ", used(),
             ", which has no limit, and would get no chunk. Fix: set a limit for that range"}));
      }
    }
  }

  /// The ranges that some chunk may take: the first range without a limit is the last.
  std::span<const range> ranges() const { return std::span(options_.ranges).first(used()); }
  /// The number of the range that a chunk of `elements` elements is in.
  constexpr std::size_t range_of(std::size_t elements) const {
    std::size_t i = 0;
    while (i + 1 < used() && elements > options_.ranges[i].up_to) {
      ++i;
    }
    return i;
  }
  constexpr const range& chosen(std::size_t elements) const {
    return options_.ranges[range_of(elements)];
  }
  std::string way_of(std::size_t elements) const { return written(chosen(elements)); }
  /// Writes a range as `xring`, or, with more shards than one, as `xring#2`.
  static std::string written(const range& its) {
    const std::string_view name = name_of(its.algorithm);
    return its.shards == 1 ? std::string(name) : sentence({name, "#", its.shards});
  }
  static constexpr std::string_view name_of(Algorithm which) {
    return names(which)[static_cast<std::size_t>(which)];
  }

  /// The time that one all-reduce took.
  struct measured {
    std::size_t elements{};
    Algorithm algorithm{};
    std::uint64_t shards{1};
    seconds time{};
  };
  /// Makes the ranges from a measured table: a chunk goes by what was fastest at the next measured
  /// size that is not smaller, or at the largest. Rows of no elements are ignored. Throws
  /// usage_error if the table has no other row, or if its winner changes too often for
  /// `most_ranges`.
  static options fastest(std::vector<measured> table) {
    std::erase_if(table, [](const measured& each) { return each.elements == 0; });
    std::sort(table.begin(), table.end(), [](const measured& a, const measured& b) {
      return a.elements != b.elements ? a.elements < b.elements : a.time < b.time;
    });
    std::vector<range> won;
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (i > 0 && table[i].elements == table[i - 1].elements) {
        continue;
      }
      const range next{table[i].algorithm, table[i].shards, table[i].elements};
      if (!won.empty() && won.back().algorithm == next.algorithm &&
          won.back().shards == next.shards) {
        won.pop_back();
      }
      won.push_back(next);
    }
    if (won.empty() || won.size() > most_ranges) {
      throw usage_error(sentence({"collective::by_size: the measured table has ", won.size(),
                                  " ranges. Fix: measure for 1 to ", most_ranges,
                                  ", with fewer sizes or algorithms"}));
    }
    won.back().up_to = 0;
    options made;
    std::copy(won.begin(), won.end(), made.ranges.begin());
    return made;
  }

  /// Known only if every range's collective has a closed form.
  constexpr std::optional<exchange_cost> alone(int ranks, int per_host,
                                               std::size_t elements) const {
    const auto cost = [&](const range& its) {
      return with(its, [&](const auto& collective) {
        return cost_alone(collective, ranks, per_host, elements);
      });
    };
    for (std::size_t i = 0; i < used(); ++i) {
      if (!cost(options_.ranges[i])) {
        return std::nullopt;
      }
    }
    return cost(chosen(elements));
  }
  std::size_t scratch_bytes(std::size_t elements, std::size_t element_bytes, int ranks) const {
    std::size_t most = 0;
    for (std::size_t i = 0; i < used(); ++i) {
      const range& each = options_.ranges[i];
      if (i > 0 && elements <= options_.ranges[i - 1].up_to) {
        break;
      }
      const std::size_t largest = i + 1 == used() ? elements : std::min(elements, each.up_to);
      most = std::max(most, with(each, [&](const auto& its) {
                        return its.scratch_bytes(largest, element_bytes, ranks);
                      }));
    }
    return most;
  }

  std::uint64_t route_of(const named_piece& piece) const {
    return with(chosen(piece.end - piece.begin), [&]<class Choice>(const Choice& its) {
      if constexpr (facts::has_routes<Choice>) {
        return its.route_of(piece);
      } else {
        return std::uint64_t{0};
      }
    });
  }

  template <class Endpoint, class Fold>
  task all_reduce(Endpoint self, reduction<Fold> data) const {
    return with(chosen(data.elements), [&](const auto& its) { return by(its, self, data); });
  }

 private:
  /// Takes the choice by value, so that it lives as long as the task.
  template <class Choice, class Endpoint, class Fold>
  static task by(Choice its, Endpoint self, reduction<Fold> data) {
    co_await its.all_reduce(self, data);
  }

  constexpr std::size_t used() const {
    std::size_t count = 1;
    while (count < most_ranges && options_.ranges[count - 1].up_to != 0) {
      ++count;
    }
    return count;
  }

  template <std::size_t First = 0, class Use>
  static constexpr auto with(const range& its, Use use) {
    if constexpr (First + 1 < sizeof...(Choices)) {
      if (static_cast<std::size_t>(its.algorithm) != First) {
        return with<First + 1>(its, use);
      }
    }
    using choice = std::tuple_element_t<First, std::tuple<Choices...>>;
    if constexpr (requires { choice({.shards = its.shards}); }) {
      return use(choice({.shards = its.shards}));
    } else {
      return use(choice{});
    }
  }

  options options_{};
};

}  // namespace tutti::collective

#pragma once

#include <cstddef>
#include <gtest/gtest.h>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/strategy_laws.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/collective/addressable.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/star.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/merge_gradients.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/partition/none.hpp"
#include "tutti/schedule/as_ready.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/in_order.hpp"

// Every two choices of different roles meet in one of sixteen strategies: an orthogonal array of
// five columns with four levels, from lines over the field of four elements.
namespace tutti::test::covering {

/// The product by 2 and by 3 in the field of four elements; its sum is an exclusive or.
inline constexpr unsigned twice[] = {0, 2, 3, 1};
inline constexpr unsigned thrice[] = {0, 3, 1, 2};

template <unsigned Row>
struct row {
  static constexpr unsigned fusion = Row / 4;
  static constexpr unsigned schedule = Row % 4;
  static constexpr unsigned architecture = fusion ^ schedule;
  static constexpr unsigned cut = twice[fusion] ^ schedule;
  static constexpr unsigned place = thrice[fusion] ^ schedule;
  static constexpr bool partitioned = cut % 2 == 1;
  static constexpr bool one_chunk_at_a_time = cut / 2 == 1;
  static constexpr bool simulated = place % 2 == 1;

  using collective =
      std::conditional_t<simulated, tutti::collective::star, tutti::collective::addressable>;
  using fusions = std::tuple<tutti::fusion::none, tutti::fusion::up_to, tutti::fusion::all,
                             tutti::fusion::merge_gradients>;
  using schedules = std::tuple<tutti::schedule::as_ready, tutti::schedule::at_end,
                               tutti::schedule::by_priority, tutti::schedule::in_order>;
  using architectures = std::tuple<
      tutti::architecture::all_reduce<tutti::collective::canonical>,
      tutti::architecture::all_reduce<collective>, tutti::architecture::parameter_server<>,
      tutti::architecture::parameter_server<consistency::synchronous, updated_by::servers>>;
  using strategy =
      compose<std::tuple_element_t<fusion, fusions>, std::tuple_element_t<schedule, schedules>,
              std::tuple_element_t<architecture, architectures>,
              std::conditional_t<partitioned, partition::into, partition::none>>;

  using options = engine_options<strategy>;
  static std::vector<options> variants() {
    options set;
    set.run.deadline = 30;
    if constexpr (fusion == 1) {
      set.fusion = {.bytes = 3000};
    }
    if constexpr (partitioned) {
      set.partition.bytes = 20'000;
    }
    if constexpr (schedule == 2) {
      set.schedule.credit = one_chunk_at_a_time ? 1 : 0;
    }
    if constexpr (architecture >= 2) {
      std::vector<options> all(3, set);
      for (int i = 0; i < 3; ++i) {
        all[static_cast<std::size_t>(i)].architecture.servers = i + 1;
      }
      return all;
    } else {
      return {set};
    }
  }
};

namespace detail {

template <class World, class Rows>
struct rows_on;
template <class World, unsigned... Rows>
struct rows_on<World, std::integer_sequence<unsigned, Rows...>>
    : test::detail::joined<
          testing::Types<>,
          std::conditional_t<row<Rows>::simulated == has_virtual_time<typename World::transport>,
                             testing::Types<strategy_on<row<Rows>, World>>, testing::Types<>>...> {
};

}  // namespace detail

/// The rows that a world is for.
template <class World>
using rows_on = typename detail::rows_on<World, std::make_integer_sequence<unsigned, 16>>::type;

}  // namespace tutti::test::covering

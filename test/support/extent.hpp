#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace tutti::test {

// What a sanitizer looks for shows in fewer steps of fewer elements, and under one each step takes
// up to fifty times as long.
#ifdef TUTTI_SANITIZED
inline constexpr std::size_t long_tensor = 13'003;
inline constexpr int many_steps = 500;
inline constexpr int compared_steps = 5;
#else
inline constexpr std::size_t long_tensor = 30'011;  ///< elements: more than any buffer or piece
inline constexpr int many_steps = 10'000;           ///< steps of a law that must hold over many
inline constexpr int compared_steps = 12;           ///< steps after which results are compared
#endif

/// Whether a law of a product of lists is checked for all of it. If not, for a part that has each
/// factor: under a sanitizer, and in `test/run` without arguments, which builds three suites.
#if defined(TUTTI_SANITIZED) || defined(TUTTI_PARTS_OF_PRODUCTS)
inline constexpr bool all_of_a_product = false;
#else
inline constexpr bool all_of_a_product = true;
#endif

/// Returns the numbers of workers with which a law of a list's policies is checked for the one at
/// this place: 1 to 5, or every third of these, so that neighbours in the list take others.
inline std::vector<int> numbers_of_workers(std::size_t place) {
  std::vector<int> taken;
  for (int workers = 1; workers <= 5; ++workers) {
    if (all_of_a_product || (place + static_cast<std::size_t>(workers)) % 3 == 0) {
      taken.push_back(workers);
    }
  }
  return taken;
}

// Under ThreadSanitizer training is compared for two numbers of workers, and placements on several
// hosts have at most five threads.
#ifdef TUTTI_SANITIZED_THREADS
inline constexpr std::array compared_workers{2, 5};
inline constexpr std::size_t most_placed = 5;
#else
inline constexpr std::array compared_workers{1, 2, 3, 4, 5};
inline constexpr std::size_t most_placed = 9;
#endif

/// Whether a law of all named strategies is checked here for the one at this place of their list.
/// AddressSanitizer checks every third, and ThreadSanitizer the others. Of a law in a file that
/// ThreadSanitizer's suite leaves out, only `test/run dev` checks the others.
constexpr bool checks_named([[maybe_unused]] std::size_t place) {
#if defined(TUTTI_SANITIZED_THREADS)
  return place % 3 != 0;
#elif defined(TUTTI_SANITIZED)
  return place % 3 == 0;
#else
  return true;
#endif
}

}  // namespace tutti::test

#pragma once

#include <array>
#include <cstddef>

namespace tutti::test {

// What a sanitizer looks for shows in fewer steps of fewer elements, and under one each step takes
// up to fifty times as long.
#ifdef TUTTI_SANITIZED
inline constexpr std::size_t long_tensor = 13'003;
inline constexpr int many_steps = 500;
inline constexpr int compared_steps = 5;
inline constexpr bool all_of_a_product = false;
#else
inline constexpr std::size_t long_tensor = 30'011;  ///< elements: more than any buffer or piece
inline constexpr int many_steps = 10'000;           ///< steps of a law that must hold over many
inline constexpr int compared_steps = 12;           ///< steps after which results are compared
inline constexpr bool all_of_a_product = true;      ///< false: a part with each factor
#endif

// Under ThreadSanitizer training is compared for every named strategy but for two numbers of
// workers; under AddressSanitizer for every number of workers but for every third named strategy.
// Placements on several hosts have at most five threads under ThreadSanitizer.
#ifdef TUTTI_SANITIZED_THREADS
inline constexpr std::array compared_workers{2, 5};
inline constexpr std::size_t most_placed = 5;
#else
inline constexpr std::array compared_workers{1, 2, 3, 4, 5};
inline constexpr std::size_t most_placed = 9;
#endif
#if defined(TUTTI_SANITIZED) && !defined(TUTTI_SANITIZED_THREADS)
inline constexpr std::size_t named_stride = 3;
#else
inline constexpr std::size_t named_stride = 1;
#endif

}  // namespace tutti::test

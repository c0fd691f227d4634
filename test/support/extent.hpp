#pragma once

#include <array>
#include <cstddef>

namespace tutti::test {

// What a sanitizer looks for shows in fewer steps of fewer elements, and each takes it up to fifty
// times as long.
#ifdef TUTTI_SANITIZED
inline constexpr std::size_t long_tensor = 13'003;
inline constexpr int many_steps = 500;
inline constexpr int compared_steps = 5;
inline constexpr bool all_of_a_product = false;
#else
inline constexpr std::size_t long_tensor = 30'011;  ///< elements: more than any buffer or piece
inline constexpr int many_steps = 10'000;           ///< of a law that must hold over many
inline constexpr int compared_steps = 12;           ///< after which training is compared
inline constexpr bool all_of_a_product = true;      ///< or a part that has each factor
#endif

// Training is compared under ThreadSanitizer for every named strategy, and under AddressSanitizer
// for every number of workers. Who runs on threads of many hosts meets at most five under the
// former.
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

#pragma once

namespace tutti::test {

/// Steps of a law that must hold over many. What a sanitizer looks for shows in fewer, and takes it
/// fifty times as long.
#ifdef TUTTI_SANITIZED
inline constexpr int many_steps = 1000;
inline constexpr bool all_of_a_product = false;
#else
inline constexpr int many_steps = 10'000;
inline constexpr bool all_of_a_product = true;  ///< or pairs of its factors
#endif

/// Steps after which training is compared. A race shows in fewer, and each takes ten times as long.
#ifdef __SANITIZE_THREAD__
inline constexpr int compared_steps = 5;
#else
inline constexpr int compared_steps = 12;
#endif

}  // namespace tutti::test

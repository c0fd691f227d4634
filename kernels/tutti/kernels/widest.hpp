#pragma once

#include <cstddef>
#include <type_traits>

namespace tutti::kernels {

/// How many doubles a vector of the processor holds.
template <std::size_t N>
using vector_lanes = std::integral_constant<std::size_t, N>;

/// Runs `loop`, compiled for the widest vectors that this processor has.
///
/// It is meant for loops that read and write whole arrays. They are compiled three times from one
/// source; each element's arithmetic is the same in all versions, so every processor gives the same
/// bits.
#if defined(__x86_64__) && defined(__GNUC__) && defined(__OPTIMIZE__) && !defined(__CUDACC__)
namespace detail {

template <class Loop>
[[gnu::target("avx2"), gnu::flatten, gnu::noinline]] void with_avx2(const Loop& loop) {
  loop();
}

template <class Loop>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::flatten, gnu::noinline]] void with_avx512(
    const Loop& loop) {
  loop();
}

#if !defined(__clang__)
/// With these, g++ computes a * b + c in one instruction.
template <class Loop>
[[gnu::target("avx2,fma"), gnu::optimize("fp-contract=fast"), gnu::flatten, gnu::noinline]] void
with_avx2_and_fma(const Loop& loop) {
  loop(vector_lanes<4>());
}

template <class Loop>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::optimize("fp-contract=fast"),
  gnu::flatten, gnu::noinline]] void
with_avx512_and_fma(const Loop& loop) {
  loop(vector_lanes<8>());
}
#endif

}  // namespace detail

template <class Loop>
void widest(const Loop& loop) {
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    detail::with_avx512(loop);
  } else if (__builtin_cpu_supports("avx2")) {
    detail::with_avx2(loop);
  } else {
    loop();
  }
}
#else
template <class Loop>
void widest(const Loop& loop) {
  loop();
}
#endif

/// Runs `loop(vector_lanes<N>())`, compiled for this processor's vectors, which hold N doubles. The
/// loop may only add products of doubles that are exact, as those of two floats are, so that one
/// instruction for a product and a sum gives the same value as two.
template <class Loop>
void widest_of_exact_products(const Loop& loop) {
#if defined(__x86_64__) && defined(__GNUC__) && defined(__OPTIMIZE__) && !defined(__CUDACC__)
#if defined(__clang__)
  if (__builtin_cpu_supports("avx2")) {
    return detail::with_avx2([&] { loop(vector_lanes<4>()); });
  }
#else
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return detail::with_avx512_and_fma(loop);
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return detail::with_avx2_and_fma(loop);
  }
#endif
#endif
  loop(vector_lanes<2>());
}

}  // namespace tutti::kernels

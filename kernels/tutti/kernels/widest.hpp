#pragma once

namespace tutti::kernels {

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

/// Computes a * b + c in one instruction.
struct fused {
  double operator()(double a, double b, double c) const { return __builtin_fma(a, b, c); }
};

template <class Loop>
[[gnu::target("avx2,fma"), gnu::flatten, gnu::noinline]] void with_avx2_and_fma(const Loop& loop) {
  loop(fused());
}

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

/// Runs `loop(multiply_add)`, compiled for the widest vectors that this processor has.
/// `multiply_add(a, b, c)` is a * b + c for doubles whose product is exact, as that of two floats
/// is, so that one instruction gives the same value as two. With clang it is two, because clang
/// would compile `__builtin_fma` to a call of `fma` here.
template <class Loop>
void widest_of_exact_products(const Loop& loop) {
  const auto apart = [](double a, double b, double c) { return a * b + c; };
#if defined(__x86_64__) && defined(__GNUC__) && defined(__OPTIMIZE__) && !defined(__CUDACC__) && \
    !defined(__clang__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    detail::with_avx512([&] { loop(detail::fused()); });
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    detail::with_avx2_and_fma(loop);
  } else {
    loop(apart);
  }
#else
  widest([&] { loop(apart); });
#endif
}

}  // namespace tutti::kernels

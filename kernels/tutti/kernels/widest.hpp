#pragma once

namespace tutti::kernels {

/// Runs `loop` as compiled for the widest vectors that this processor has.
///
/// A loop that reads and writes whole arrays is compiled three times from one text; each element's
/// arithmetic is the same in all of them, so every processor gives the same bits.
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

}  // namespace tutti::kernels

#pragma once

#include <algorithm>
#include <cstddef>
#include <cub/device/device_transform.cuh>
#include <cuda/std/tuple>
#include <thrust/iterator/counting_iterator.h>

#include "tutti/base/cuda/loops.cuh"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/host_device.hpp"
#include "tutti/kernels/blocks.hpp"
#include "tutti/kernels/elements.hpp"
#if defined(__CUDACC__)  // code that compiles this for a host includes a launcher of its own
#include "tutti/kernels/cuda/launcher.cuh"
#endif

/// Loops over a device's arrays, all carried out by CUB.
namespace tutti::kernels::device {

/// Calls `f(i)` for every i in [0, n).
template <class F>
void for_each(cuda::stream& queue, std::size_t n, const F& f) {
  const cuda::on_device here(queue.device());
  cuda::detail::launch_for_each(queue.native_handle(), n, f);
}

/// Calls `f`, and returns what it leaves of its first argument.
template <class F>
struct changed {
  F f;
  template <class T, class... Others>
  TUTTI_HD T operator()(T into, Others... from) const {
    f(into, from...);
    return into;
  }
};

/// Calls `f`, and returns what it writes to its last argument.
template <class F, class T>
struct made {
  F f;
  template <class... Others>
  TUTTI_HD T operator()(Others... from) const {
    T to{};
    f(from..., to);
    return to;
  }
};

template <class T, class F, class... Arrays>
void transform(cuda::stream& queue, std::size_t n, const F& f, T* out, Arrays... in) {
  const cuda::on_device here(queue.device());
  cuda::check(cub::DeviceTransform::Transform(::cuda::std::make_tuple(in...), out, n, f,
                                              queue.native_handle()));
}

/// Calls `f(into[i], from[i]...)` for every i in [0, n). `f` may change into[i].
template <class T, class F, class... Arrays>
void change_each(cuda::stream& queue, std::size_t n, const F& f, T* into, Arrays... from) {
  transform(queue, n, changed<F>{f}, into, into, from...);
}

/// Calls `f(from[i], to[i])` for every i in [0, n). `f` writes to[i], which is not read before.
template <class T, class F, class U>
void make_each(cuda::stream& queue, std::size_t n, const F& f, const U* from, T* to) {
  transform(queue, n, made<F, T>{f}, to, from);
}

/// Does a thread's share of a loop in which neighbours are loaded together.
template <int Width, class F, class... Arrays>
struct sharing {
  F f;
  std::size_t n;
  std::size_t threads;
  ::cuda::std::tuple<Arrays...> arrays;
  TUTTI_HD void operator()(std::size_t thread) const {
    ::cuda::std::apply([&](auto... each) { share_of<Width>(thread, threads, n, f, each...); },
                       arrays);
  }
};

template <int Width, class F, class... Arrays>
void share(cuda::stream& queue, std::size_t n, const F& f, Arrays... arrays) {
  const std::size_t threads = block_count(n, Width);
  for_each(queue, threads, sharing<Width, F, Arrays...>{f, n, threads, {arrays...}});
}

/// Calls `f(arrays[i]...)` for every i in [0, n). `f` may change elements of several arrays. If all
/// arrays are aligned for it, as many neighbours as sixteen bytes hold of the largest element type
/// are loaded together, and stored together unless they are const.
template <class F, class... Elements>
void each(cuda::stream& queue, std::size_t n, const F& f, Elements*... arrays) {
  constexpr int width = 16 / std::max({sizeof(Elements)...});
  if (aligned_for<width>(arrays...)) {
    share<width>(queue, n, f, arrays...);
  } else {
    share<1>(queue, n, f, arrays...);
  }
}

/// Calls `f.pack<Width>(i)` for every pack of `Width` neighbours in [0, n). `Width` is 4 if n is a
/// multiple of 4 and `arrays`, from which `f` loads packs, are aligned for it, otherwise 1.
template <class F, class... Arrays>
void each_pack(cuda::stream& queue, std::size_t n, const F& f, Arrays... arrays) {
  if (n % 4 == 0 && aligned_for<4>(arrays...)) {
    for_each(queue, n / 4, in_packs<4, F>{f});
  } else {
    for_each(queue, n, in_packs<1, F>{f});
  }
}

/// Returns the stream's workspace, of `bytes` bytes or more.
inline std::byte* workspace(cuda::stream& queue, std::size_t bytes) {
  const cuda::on_device here(queue.device());
  return queue.workspace().at_least(bytes);
}

/// Enqueues one of CUB's algorithms, which works in the stream's workspace behind the first `kept`
/// bytes.
template <class Algorithm>
void run(cuda::stream& queue, std::size_t kept, const Algorithm& algorithm) {
  const cuda::on_device here(queue.device());
  cuda::detail::run_in(queue.workspace(), kept, algorithm);
}

/// Returns the numbers 0, 1, 2 and so on, as an input.
inline auto indices() { return thrust::make_counting_iterator(std::size_t{0}); }

/// Calls `finish(total)` with the sum of `term(input[i])` for i in [0, n), added in double.
template <class Input, class Term, class Finish>
void add_up(cuda::stream& queue, Input input, std::size_t n, const Term& term,
            const Finish& finish) {
  const cuda::on_device here(queue.device());
  cuda::detail::launch_sum(queue.native_handle(), queue.workspace(), input, n, term, finish);
}

}  // namespace tutti::kernels::device

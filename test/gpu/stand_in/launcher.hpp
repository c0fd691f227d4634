#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "gpu/stand_in/runtime.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/fixed_sum.hpp"
#include "tutti/kernels/blocks.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/selection_steps.hpp"

/// A launcher without nvcc: loops where the device has threads, on the stand-in's streams.
namespace tutti::kernels::device {

template <int Width, class F, class... Arrays>
void share_out(cuda::stream& queue, std::size_t n, const F& f, Arrays... arrays) {
  constexpr std::size_t threads = 96;
  test::stood_in_by(queue.native_handle()).run([=] {
    for (std::size_t thread = 0; thread < threads; ++thread) {
      share_of<Width>(thread, threads, n, f, arrays...);
    }
  });
}

template <class F>
void for_each(cuda::stream& queue, std::size_t n, const F& f) {
  test::stood_in_by(queue.native_handle()).for_each(n, f);
}

/// One block's part of a sum.
template <class Term>
double folded(const fixed_sum& order, const Term& term, std::size_t segment) {
  std::array<double, fixed_sum::threads> sums;
  for (std::size_t thread = 0; thread < sums.size(); ++thread) {
    sums[thread] = order.of_thread(term, segment, thread);
  }
  for (std::size_t half = sums.size() / 2; half > 0; half /= 2) {
    for (std::size_t thread = 0; thread < sums.size(); ++thread) {
      fixed_sum::fold(sums.data(), thread, half);
    }
  }
  return sums[0];
}

template <class Term, class Finish>
void add_up(cuda::stream& queue, std::size_t n, const Term& term, const Finish& finish) {
  auto* partial = reinterpret_cast<double*>(queue.room().memory());
  test::stood_in_by(queue.native_handle()).run([=] {
    const fixed_sum order(n);
    for (std::size_t segment = 0; segment < order.segments(); ++segment) {
      partial[segment] = folded(order, term, segment);
    }
    const auto of_segments = [partial](std::size_t i) { return partial[i]; };
    finish(folded(fixed_sum(order.segments()), of_segments, 0));
  });
}

template <class F>
void for_each_block(cuda::stream& queue, std::size_t blocks, const F& f) {
  test::stood_in_by(queue.native_handle()).for_each(blocks, [f](std::size_t number) {
    f(host_lanes{}, number);
  });
}

/// The last block first, on memory that nobody has cleared.
template <class Step>
void on_blocks(cuda::stream& queue, std::size_t blocks, const Step& step) {
  test::stood_in_by(queue.native_handle()).run([=] {
    for (std::size_t number = blocks; number-- > 0;) {
      const auto shared = std::make_unique_for_overwrite<typename Step::memory>();
      std::memset(static_cast<void*>(shared.get()), 0xFF, sizeof *shared);
      step(
          steps::host_block{static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(blocks)},
          *shared);
    }
  });
}

template <class F>
void for_each_piece(cuda::stream& queue, std::size_t pieces, const F& f) {
  constexpr std::size_t threads = 64;
  test::stood_in_by(queue.native_handle()).run([=] {
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      for (std::size_t thread = 0; thread < threads; ++thread) {
        f(piece, thread, threads);
      }
    }
  });
}

}  // namespace tutti::kernels::device

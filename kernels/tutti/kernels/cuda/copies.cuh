#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "tutti/kernels/copies.hpp"
#include "tutti/kernels/cuda/each.cuh"

// The definition of what copies.hpp declares for a cuda::stream.
namespace tutti::kernels {

[[gnu::used]] inline void copy_runs(cuda::stream& queue, std::span<const copy_run> runs) {
  for (; !runs.empty(); runs = runs.subspan(std::min(runs.size(), element::copy_pieces::most))) {
    const element::copy_pieces all(runs.first(std::min(runs.size(), element::copy_pieces::most)));
    if (all.pieces() != 0) {
      device::for_each_piece(queue, all.pieces(), all);
    }
  }
}

}  // namespace tutti::kernels

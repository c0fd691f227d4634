#pragma once

#include <string>

#include "tutti/kernels/low_rank.hpp"

namespace tutti {

/// Wide, narrow, smaller than a block of threads, and so few sums that they are cut; more and fewer
/// rows, columns and thin columns than a thread takes together, and as many.
inline constexpr kernels::low_rank low_rank_shapes[] = {
    {1, 1, 1},    {2, 5, 2},    {33, 9, 4},    {16, 31, 5},  {64, 577, 2}, {7, 301, 9},
    {3, 5000, 3}, {5001, 3, 3}, {2065, 40, 1}, {6, 400, 4},  {9, 192, 3},  {4, 379, 1},
    {18, 193, 2}, {47, 33, 4},  {48, 32, 5},   {1025, 65, 3}};

inline std::string named(const kernels::low_rank& size) {
  return std::to_string(size.rows) + " x " + std::to_string(size.columns) + ", rank " +
         std::to_string(size.rank);
}

}  // namespace tutti

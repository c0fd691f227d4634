#pragma once

#include <string_view>

#include "tutti/compression/fp16.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/when_ready.hpp"

namespace tutti::strategies {

/// The baseline that every lossy row is compared with: dense gradients cast to 16 bits, which
/// halves the bytes for the cost of a cast.
struct Dense16 {
  static constexpr std::string_view name = "Dense16";
  using strategy = compose<fusion::when_ready, compression::fp16>;
};

}  // namespace tutti::strategies

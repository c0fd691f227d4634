#pragma once

#include <string_view>

#include "tutti/compression/fp16.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/when_ready.hpp"

namespace tutti::strategies {

/// What a compressor has to beat: half the bytes for a cast.
struct Dense16 {
  static constexpr std::string_view name = "Dense16";
  using strategy = compose<fusion::when_ready, compression::fp16>;
};

}  // namespace tutti::strategies

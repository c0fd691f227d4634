#pragma once

#include "tutti/compression/qsgd.hpp"

namespace tutti::test {

/// QSGD with blocks so short that error feedback may decorate it.
struct qsgd_in_short_blocks : compression::qsgd {
  struct options : compression::qsgd::options {
    constexpr options() { block = 128; }
  };
  explicit qsgd_in_short_blocks(const options& values = {}) : qsgd(values) {}
};

}  // namespace tutti::test

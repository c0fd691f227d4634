#pragma once

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <span>
#include <vector>

#include "compression/placed.hpp"
#include "tutti/compression/error_feedback.hpp"

namespace tutti {

/// Expects an `encode` in one pass to give the bits of payload and residual that encoding in
/// separate steps gives, for four gradients in turn. `gradient_at(step)` has n elements.
template <class C, class Gradient>
void expect_fused_as_in_steps(std::size_t n, const options_of<C>& values, Gradient gradient_at) {
  using policy = compression::error_feedback<C>;
  placed<policy> fused(n, values);
  placed<policy> plain(n, values);
  inline_queue queue;
  for (int step = 0; step < 4; ++step) {
    const std::vector<float> gradient = gradient_at(step);
    const auto payload = fused.encode(gradient);
    ASSERT_FALSE(fused.overran);
    std::vector<std::byte> expected(payload.size());
    plain.policy.encode_in_steps(queue, gradient, wire{expected.data(), expected.size()},
                                 plain.where());
    ASSERT_EQ(payload, expected) << "step " << step << ", n=" << n;
    ASSERT_TRUE(std::ranges::equal(std::as_bytes(fused.row(0)), std::as_bytes(plain.row(0))))
        << "step " << step << ", n=" << n;
  }
}

}  // namespace tutti

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <span>
#include <vector>

#include "compression/in_hex.hpp"
#include "compression/placed.hpp"
#include "gpu/device.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/kernels/workspace.hpp"
#include "tutti/role/compression.hpp"

/// The laws of a compressor on a device.
namespace tutti::test {

/// A compressor with the memory and scratch of one chunk. Writes outside the payload are detected.
template <class C>
class on_device {
 public:
  explicit on_device(std::size_t elements)
      : elements_(elements),
        memory_(queue_, std::vector<float>(facts::memory_per_element<C> * elements)),
        scratch_(queue_, scratch_bytes(policy, elements) / sizeof(float) + 1),
        payload_(queue_, capacity(policy, elements) + 2 * guard) {
    kernels::reserve(queue_, elements);
  }

  /// Returns the payload of one step.
  std::vector<std::byte> encode(const std::vector<float>& gradient) {
    const on_gpu there(queue_, gradient);
    const std::size_t bytes = capacity(policy, elements_);
    std::vector<std::byte> room(bytes + 2 * guard, untouched);
    queue_.copy(payload_.data(), room.data(), room.size());
    tutti::encode(policy, queue_, there.input(), wire{payload_.data() + guard, bytes}, where());
    ++step_;
    room = payload_.read();
    const auto begin = room.begin() + guard;
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
    const auto written = [](std::byte each) { return each != untouched; };
    EXPECT_TRUE(std::none_of(room.begin(), begin, written) &&
                std::none_of(end, room.end(), written))
        << "beside the payload of " << elements_;
    EXPECT_EQ(there.read(), gradient);
    return {begin, end};
  }
  /// Returns the sum of `onto` and what the last payload decodes to.
  std::vector<float> decode(float onto = 0) {
    const on_gpu sum(queue_, std::vector<float>(elements_, onto));
    const std::size_t bytes = capacity(policy, elements_);
    tutti::accumulate(policy, queue_, const_wire{payload_.data() + guard, bytes}, sum.span(),
                      where());
    return sum.read();
  }
  std::vector<float> remembered() const { return memory_.read(); }

  C policy = make_policy<C>({});

 private:
  static constexpr std::ptrdiff_t guard = 64;
  static constexpr std::byte untouched{0x5a};

  chunk_context where() {
    chunk_context made;
    made.memory = memory_.data();
    made.stride = elements_;
    made.scratch = std::as_writable_bytes(scratch_.span());
    made.step = step_;
    made.first_element = 5000;
    made.ranks = 1;
    return made;
  }

  cuda::stream queue_{};
  std::size_t elements_;
  std::uint64_t step_ = 0;
  on_gpu<float> memory_;
  on_gpu<float> scratch_;
  on_gpu<std::byte> payload_;
};

template <class C>
class DeviceCompression : public needs_a_device {};
TYPED_TEST_SUITE_P(DeviceCompression);

/// Sums of these gradients are exact in any order, so means equal the host's.
TYPED_TEST_P(DeviceCompression, WritesTheHostsPayloadAndReadsItAlike) {
  for (const std::size_t n : awkward_sizes) {
    placed<TypeParam> here(n);
    on_device<TypeParam> there(n);
    for (std::size_t step = 0; step < 3; ++step) {
      const auto gradient = gradient_in_512ths(n, step);
      const auto payload = here.encode(gradient);
      ASSERT_EQ(there.encode(gradient), payload) << "step " << step << " of " << n;
      ASSERT_EQ(there.decode(), here.decode(payload)) << "step " << step << " of " << n;
      ASSERT_EQ(there.decode(0.625f), here.decode(payload, 0.625f)) << "onto, " << n;
    }
  }
}

template <class C>
void loses_nothing() {
  for (const std::size_t n : awkward_sizes) {
    on_device<compression::error_feedback<C>> codec(n);
    for (unsigned step = 0; step < 8; ++step) {
      const auto gradient = gradient_of(n, 20 + step);
      auto input = codec.remembered();
      for (std::size_t i = 0; i < n; ++i) {
        input[i] += gradient[i];
      }
      codec.encode(gradient);
      const auto sent = codec.decode();
      const auto residual = codec.remembered();
      for (std::size_t i = 0; i < n; ++i) {
        const double kept = double{sent[i]} + double{residual[i]};
        const double larger = std::max(std::fabs(input[i]), std::fabs(sent[i]));
        ASSERT_LE(std::fabs(kept - double{input[i]}), std::ldexp(larger, -24))
            << "element " << i << " of " << n << ", step " << step;
      }
    }
  }
}

TYPED_TEST_P(DeviceCompression, LosesNothingUnderErrorFeedback) {
  if constexpr (facts::memory_per_element<TypeParam> == 0) {
    loses_nothing<TypeParam>();
  } else {
    GTEST_SKIP() << "it remembers by itself";
  }
}

REGISTER_TYPED_TEST_SUITE_P(DeviceCompression, WritesTheHostsPayloadAndReadsItAlike,
                            LosesNothingUnderErrorFeedback);

}  // namespace tutti::test

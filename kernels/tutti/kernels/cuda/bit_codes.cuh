#pragma once

#include <cstddef>
#include <span>

#include "tutti/kernels/bit_codes.hpp"
#include "tutti/kernels/cuda/each.cuh"
#include "tutti/kernels/elements.hpp"

// The definitions of what bit_codes.hpp declares for a cuda::stream. They write the host's bytes.
namespace tutti::kernels {

namespace device {

template <class F>
void for_each_byte(cuda::stream& queue, std::size_t bytes, const F& f) {
  for_each(queue, bytes, in_packs<1, F>{f});
}

}  // namespace device

template <class Code>
void pack_codes(cuda::stream& queue, Code code, std::span<const float> input, std::byte* out) {
  const std::size_t n = input.size();
  device::for_each_byte(queue, code_bytes<Code>(n),
                        element::pack_codes<Code>{code, input.data(), n, out});
}

template <class Code>
void pack_codes_and_subtract(cuda::stream& queue, Code code, std::span<float> input,
                             std::byte* out) {
  const std::size_t n = input.size();
  device::for_each_byte(
      queue, code_bytes<Code>(n),
      element::pack_codes_and_subtract<Code>{code, input.data(), nullptr, n, out});
}

template <class Code>
void add_and_pack_codes(cuda::stream& queue, Code code, std::span<float> into,
                        std::span<const float> from, std::byte* out) {
  const std::size_t n = into.size();
  device::for_each_byte(
      queue, code_bytes<Code>(n),
      element::pack_codes_and_subtract<Code>{code, into.data(), from.data(), n, out});
}

template <class Code>
void add_codes(cuda::stream& queue, Code code, const std::byte* in, std::span<float> sum) {
  const std::size_t n = sum.size();
  device::for_each_byte(queue, code_bytes<Code>(n),
                        element::add_codes<Code>{code, in, sum.data(), n});
}

}  // namespace tutti::kernels

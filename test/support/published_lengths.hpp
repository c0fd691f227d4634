#pragma once

#include <algorithm>
#include <cstddef>
#include <tuple>

#include "consumer/readme_policies.hpp"
#include "support/one_of_compressors.hpp"
#include "tutti/compression/bf16.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/block_sign.hpp"
#include "tutti/compression/byteps_onebit.hpp"
#include "tutti/compression/byteps_randomk.hpp"
#include "tutti/compression/byteps_topk.hpp"
#include "tutti/compression/chain.hpp"
#include "tutti/compression/e3m0.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/fp8.hpp"
#include "tutti/compression/natural.hpp"
#include "tutti/compression/random_k.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/compression/threshold.hpp"
#include "tutti/compression/top_k.hpp"

/// Compressors whose payload's length follows from the number of elements, and that length as their
/// formats are published.
namespace tutti::test {

using fixed_lengths = one_of_compressors<
    compression::fp16, compression::bf16, compression::sign, compression::scaled_sign,
    compression::norm_scaled_sign, compression::block_sign, compression::block_int8,
    compression::fp8_e4m3, compression::fp8_e5m2, compression::e3m0, compression::natural,
    compression::top_k, compression::random_k, compression::one_bit, compression::two_bit,
    compression::byteps_onebit, compression::byteps_topk, compression::byteps_randomk,
    compression::chain<compression::top_k, compression::fp16>,
    compression::chain<compression::top_k, compression::block_int8>,
    compression::chain<compression::random_k, compression::scaled_sign>, byte_codes>;

namespace detail {

/// Returns the bytes of a payload of n elements, of which k are selected.
struct published_length {
  std::size_t (*bytes)(std::size_t n, std::size_t k);
};
constexpr std::size_t words(std::size_t elements) { return 4 * ((elements + 31) / 32); }

/// In the order of `fixed_lengths`, with the options of `small`: blocks of 32 elements, a density
/// of 6 %.
inline constexpr published_length published_lengths[] = {
    {[](std::size_t n, std::size_t) { return 2 * n; }},
    {[](std::size_t n, std::size_t) { return 2 * n; }},
    {[](std::size_t n, std::size_t) { return words(n); }},
    {[](std::size_t n, std::size_t) { return 4 + words(n); }},
    {[](std::size_t n, std::size_t) { return 4 + words(n); }},
    {[](std::size_t n, std::size_t) { return words(n) + words(n); }},
    {[](std::size_t n, std::size_t) { return words(n) + n; }},
    {[](std::size_t n, std::size_t) { return words(n) + n; }},
    {[](std::size_t n, std::size_t) { return words(n) + n; }},
    {[](std::size_t n, std::size_t) { return 4 + words(4 * n); }},
    {[](std::size_t n, std::size_t) { return words(n) + n; }},
    {[](std::size_t, std::size_t k) { return 8 * k; }},
    {[](std::size_t, std::size_t k) { return k == 0 ? 0 : 8 + 4 * k; }},
    {[](std::size_t n, std::size_t) { return words(n); }},
    {[](std::size_t n, std::size_t) { return words(2 * n); }},
    {[](std::size_t n, std::size_t) { return words(n) + 4; }},
    {[](std::size_t n, std::size_t) {
      return n == 0 ? 0 : 8 * std::clamp<std::size_t>((n + 31) / 32 * 32 * 6 / 100, 1, n);
    }},
    {[](std::size_t n, std::size_t) {
      return n == 0 ? 0 : 8 * std::clamp<std::size_t>((n + 31) / 32 * 32 * 6 / 100, 1, n);
    }},
    {[](std::size_t, std::size_t k) { return 4 * k + 2 * k; }},
    {[](std::size_t, std::size_t k) { return 4 * k + words(k) + k; }},
    {[](std::size_t, std::size_t k) { return (k == 0 ? 0 : 8) + 4 + words(k); }},
    {[](std::size_t n, std::size_t) { return 4 + n; }},
};

}  // namespace detail

inline constexpr std::size_t fixed_lengths_count = std::size(detail::published_lengths);
static_assert(fixed_lengths_count == std::tuple_size_v<fixed_lengths::all>);

/// Returns the bytes of a payload of `n` elements by the compressor at place `which` of the list.
constexpr std::size_t published_bytes(std::size_t which, std::size_t n) {
  return detail::published_lengths[which].bytes(n,
                                                n == 0 ? 0 : std::max<std::size_t>(n * 6 / 100, 1));
}

}  // namespace tutti::test

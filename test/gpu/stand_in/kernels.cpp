// The kernels of tutti::cuda without nvcc: the same source over a launcher of host threads.
#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/stand_in/launcher.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/cuda/adam.cuh"
#include "tutti/kernels/cuda/adaptive_sum.cuh"
#include "tutti/kernels/cuda/arithmetic.cuh"
#include "tutti/kernels/cuda/bit_codes.cuh"
#include "tutti/kernels/cuda/block_codes.cuh"
#include "tutti/kernels/cuda/block_signs.cuh"
#include "tutti/kernels/cuda/cast.cuh"
#include "tutti/kernels/cuda/clipping.cuh"
#include "tutti/kernels/cuda/compensation.cuh"
#include "tutti/kernels/cuda/copies.cuh"
#include "tutti/kernels/cuda/descent.cuh"
#include "tutti/kernels/cuda/index_pairs.cuh"
#include "tutti/kernels/cuda/low_rank.cuh"
#include "tutti/kernels/cuda/momentum.cuh"
#include "tutti/kernels/cuda/norms.cuh"
#include "tutti/kernels/cuda/powers.cuh"
#include "tutti/kernels/cuda/selection.cuh"
#include "tutti/kernels/cuda/signs.cuh"
#include "tutti/kernels/cuda/sparse_pairs.cuh"
#include "tutti/kernels/cuda/stratified.cuh"
#include "tutti/kernels/cuda/workspace.cuh"

namespace tutti::kernels {

template void narrow<half>(cuda::stream&, std::span<const float>, std::uint16_t*);
template void narrow<bfloat>(cuda::stream&, std::span<const float>, std::uint16_t*);
template void widen<half>(cuda::stream&, const std::uint16_t*, std::span<float>);
template void widen<bfloat>(cuda::stream&, const std::uint16_t*, std::span<float>);
template void add_widened<half>(cuda::stream&, const std::uint16_t*, std::span<float>);
template void add_widened<bfloat>(cuda::stream&, const std::uint16_t*, std::span<float>);
template void add_narrow<half>(cuda::stream&, std::span<std::uint16_t>, const std::uint16_t*);
template void add_narrow<bfloat>(cuda::stream&, std::span<std::uint16_t>, const std::uint16_t*);
template void pack_codes<one_bit_code>(cuda::stream&, one_bit_code, std::span<const float>,
                                       std::byte*);
template void add_and_pack_codes<one_bit_code>(cuda::stream&, one_bit_code, std::span<float>,
                                               std::span<const float>, std::byte*);
template void add_codes<one_bit_code>(cuda::stream&, one_bit_code, const std::byte*,
                                      std::span<float>);
template void pack_codes<two_bit_code>(cuda::stream&, two_bit_code, std::span<const float>,
                                       std::byte*);
template void add_and_pack_codes<two_bit_code>(cuda::stream&, two_bit_code, std::span<float>,
                                               std::span<const float>, std::byte*);
template void add_codes<two_bit_code>(cuda::stream&, two_bit_code, const std::byte*,
                                      std::span<float>);
template void pack_codes<sign_code>(cuda::stream&, sign_code, std::span<const float>, std::byte*);
template void pack_codes_and_subtract<sign_code>(cuda::stream&, sign_code, std::span<float>,
                                                 std::byte*);
template void add_and_pack_codes<sign_code>(cuda::stream&, sign_code, std::span<float>,
                                            std::span<const float>, std::byte*);
template void add_codes<sign_code>(cuda::stream&, sign_code, const std::byte*, std::span<float>);
template void pack_codes<e3m0_code>(cuda::stream&, e3m0_code, std::span<const float>, std::byte*);
template void add_codes<e3m0_code>(cuda::stream&, e3m0_code, const std::byte*, std::span<float>);
template void quantise_blocks<int8_code>(cuda::stream&, std::span<const float>, std::size_t, float*,
                                         std::int8_t*);
template void add_and_quantise_blocks<int8_code>(cuda::stream&, std::span<float>,
                                                 std::span<const float>, std::size_t, float*,
                                                 std::int8_t*);
template void add_dequantised<int8_code>(cuda::stream&, const float*, const std::int8_t*,
                                         std::size_t, std::span<float>);
template void quantise_blocks<scaled_code<e4m3>>(cuda::stream&, std::span<const float>, std::size_t,
                                                 float*, std::uint8_t*);
template void add_and_quantise_blocks<scaled_code<e4m3>>(cuda::stream&, std::span<float>,
                                                         std::span<const float>, std::size_t,
                                                         float*, std::uint8_t*);
template void add_dequantised<scaled_code<e4m3>>(cuda::stream&, const float*, const std::uint8_t*,
                                                 std::size_t, std::span<float>);
template void quantise_blocks<scaled_code<e5m2>>(cuda::stream&, std::span<const float>, std::size_t,
                                                 float*, std::uint8_t*);
template void add_and_quantise_blocks<scaled_code<e5m2>>(cuda::stream&, std::span<float>,
                                                         std::span<const float>, std::size_t,
                                                         float*, std::uint8_t*);
template void add_dequantised<scaled_code<e5m2>>(cuda::stream&, const float*, const std::uint8_t*,
                                                 std::size_t, std::span<float>);
template void narrow<e4m3>(cuda::stream&, std::span<const float>, std::uint8_t*);
template void widen<e4m3>(cuda::stream&, const std::uint8_t*, std::span<float>);
template void add_widened<e4m3>(cuda::stream&, const std::uint8_t*, std::span<float>);
template void add_narrow<e4m3>(cuda::stream&, std::span<std::uint8_t>, const std::uint8_t*);
template void narrow<e5m2>(cuda::stream&, std::span<const float>, std::uint8_t*);
template void widen<e5m2>(cuda::stream&, const std::uint8_t*, std::span<float>);
template void add_widened<e5m2>(cuda::stream&, const std::uint8_t*, std::span<float>);
template void add_narrow<e5m2>(cuda::stream&, std::span<std::uint8_t>, const std::uint8_t*);

}  // namespace tutti::kernels

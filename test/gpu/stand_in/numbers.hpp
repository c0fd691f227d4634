#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/kernels/cast.hpp"

/// Elements of arrays whose type is chosen at run time.
namespace tutti::test {

enum class number { fp32, bf16 };

inline double loaded(number type, const void* array, std::size_t i) {
  return type == number::fp32
             ? static_cast<const float*>(array)[i]
             : kernels::bfloat::to_float(static_cast<const std::uint16_t*>(array)[i]);
}

inline void store(number type, void* array, std::size_t i, double value) {
  const auto rounded = static_cast<float>(value);
  if (type == number::fp32) {
    static_cast<float*>(array)[i] = rounded;
  } else {
    static_cast<std::uint16_t*>(array)[i] = kernels::bfloat::to_bits(rounded);
  }
}

}  // namespace tutti::test

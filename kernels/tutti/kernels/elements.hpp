#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "tutti/base/host_device.hpp"

/// What kernels do to one element, the same on hosts and devices, and how a device's threads divide
/// the elements among themselves. Hosts can run this code, too, so that it is tested without a
/// device.
namespace tutti::kernels {

/// Returns the bits of the value's magnitude. They are ordered like the magnitudes, with NaN above
/// all.
TUTTI_HD inline std::uint32_t key_of(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fff'ffffu;
}

/// The key of infinity, below those of NaN.
inline constexpr std::uint32_t infinity_key = 0x7f80'0000u;

/// Sets *least to `value` if that is less.
TUTTI_HD inline void lower_atomically(unsigned long long* least, unsigned long long value) {
#if defined(__CUDA_ARCH__)
  atomicMin(least, value);
#else
  *least = std::min(*least, value);
#endif
}

namespace detail {

/// Neighbouring elements that are loaded and stored together.
template <class T, int Width>
struct alignas(sizeof(T) * Width < 16 ? sizeof(T) * Width : 16) pack_of {
  T value[std::size_t{Width}];
};

}  // namespace detail

namespace element {

/// Returns a * b, rounded. A compiler for devices would otherwise round a product and a sum only
/// once, unless every user's build told it not to.
TUTTI_HD inline float product(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
TUTTI_HD inline double product(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

struct add {
  TUTTI_HD void operator()(float& into, float from) const { into += from; }
};

struct scale {
  float factor;
  TUTTI_HD void operator()(float& data) const { data *= factor; }
};

struct add_scaled {
  float factor;
  TUTTI_HD void operator()(float& into, float from) const { into += product(factor, from); }
};

struct blend {
  float keep;
  float take;
  TUTTI_HD void operator()(float& into, float from) const {
    into = product(keep, into) + product(take, from);
  }
};

struct swap {
  TUTTI_HD void operator()(float& one, float& other) const {
    const float before = one;
    one = other;
    other = before;
  }
};

struct negate {
  TUTTI_HD void operator()(float& data) const { data = 0 - data; }
};

template <class Format>
struct narrow {
  TUTTI_HD void operator()(float from, typename Format::bits& to) const {
    to = Format::to_bits(from);
  }
};

template <class Format>
struct widen {
  TUTTI_HD void operator()(typename Format::bits from, float& to) const {
    to = Format::to_float(from);
  }
};

template <class Format>
struct add_widened {
  TUTTI_HD void operator()(float& sum, typename Format::bits from) const {
    sum += Format::to_float(from);
  }
};

template <class Format>
struct add_narrow {
  TUTTI_HD void operator()(typename Format::bits& into, typename Format::bits from) const {
    into = Format::to_bits(Format::to_float(into) + Format::to_float(from));
  }
};

// ---- by index

/// out[i] = inputs[0][i] + inputs[1][i] + …, for at most 256 inputs. If `added_before` is not 0,
/// `out` holds the sum of earlier inputs, to which these are added. The list of inputs is part of
/// the kernel's parameters.
class sum_of_some {
 public:
  static constexpr std::size_t most = 256;

  sum_of_some(float* out, std::span<const float* const> inputs, std::size_t added_before)
      : out_(out), count_(inputs.size()), goes_on_(added_before != 0) {
    std::copy(inputs.begin(), inputs.end(), inputs_);
  }
  template <int Width>
  TUTTI_HD void pack(std::size_t i) const {
    using values = detail::pack_of<float, Width>;
    values sum{};
    if (goes_on_) {
      sum = reinterpret_cast<const values*>(out_)[i];
    }
    for (std::size_t each = 0; each < count_; ++each) {
      const values more = reinterpret_cast<const values*>(inputs_[each])[i];
      for (int lane = 0; lane < Width; ++lane) {
        sum.value[lane] =
            each == 0 && !goes_on_ ? more.value[lane] : sum.value[lane] + more.value[lane];
      }
    }
    reinterpret_cast<values*>(out_)[i] = sum;
  }

 private:
  float* out_;
  const float* inputs_[most];
  std::size_t count_;
  bool goes_on_;
};

TUTTI_HD inline float without_sign(float value) { return std::bit_cast<float>(key_of(value)); }

struct absolute {
  TUTTI_HD float operator()(float value) const { return without_sign(value); }
};

struct magnitude {
  const float* input;
  TUTTI_HD float operator()(std::size_t i) const { return without_sign(input[i]); }
};

struct magnitude_of_sum {
  float* into;
  const float* from;
  TUTTI_HD float operator()(std::size_t i) const {
    into[i] += from[i];
    return without_sign(into[i]);
  }
};

struct keep_mean {
  float* result;
  std::size_t n;
  TUTTI_HD void operator()(double total) const {
    *result = n == 0 ? 0 : static_cast<float>(total / static_cast<double>(n));
  }
};

}  // namespace element

// ---- sixteen bytes at a time

/// An array that is written without having been read.
template <class T>
struct only_written {
  T* at;
};

namespace detail {

/// Some neighbouring elements of an array in registers, and how to load and store them.
template <class Array, int Width>
struct held;

template <class T, int Width>
struct held<T*, Width> {
  using pack = pack_of<std::remove_const_t<T>, Width>;
  static constexpr std::size_t alignment = alignof(pack);

  T* array;
  pack elements;

  TUTTI_HD held(T* its_array, std::size_t i)
      : array(its_array), elements(reinterpret_cast<const pack*>(its_array)[i]) {}
  TUTTI_HD void store(std::size_t i) const {
    if constexpr (!std::is_const_v<T>) {
      reinterpret_cast<pack*>(array)[i] = elements;
    }
  }
};

template <class T, int Width>
struct held<only_written<T>, Width> {
  using pack = pack_of<T, Width>;
  static constexpr std::size_t alignment = alignof(pack);

  T* array;
  pack elements;

  TUTTI_HD held(only_written<T> its_array, std::size_t) : array(its_array.at), elements{} {}
  TUTTI_HD void store(std::size_t i) const { reinterpret_cast<pack*>(array)[i] = elements; }
};

template <int Width, class F, class... Held>
TUTTI_HD void apply(std::size_t i, const F& f, Held... each) {
  for (int lane = 0; lane < Width; ++lane) {
    f(each.elements.value[lane]...);
  }
  (each.store(i), ...);
}

template <class T>
TUTTI_HD const void* address(T* array) {
  return array;
}
template <class T>
TUTTI_HD const void* address(only_written<T> array) {
  return array.at;
}

}  // namespace detail

/// Does the share of `thread` where `threads` threads together call `f(arrays[i]...)` for every i
/// in [0, n): first whole packs of `Width` neighbours, then the rest one by one.
template <int Width, class F, class... Arrays>
TUTTI_HD void share_of(std::size_t thread, std::size_t threads, std::size_t n, const F& f,
                       Arrays... arrays) {
  const std::size_t packs = n / Width;
  for (std::size_t i = thread; i < packs; i += threads) {
    detail::apply<Width>(i, f, detail::held<Arrays, Width>(arrays, i)...);
  }
  const std::size_t rest = packs * Width;
  for (std::size_t i = rest + thread; i < n; i += threads) {
    detail::apply<1>(i, f, detail::held<Arrays, 1>(arrays, i)...);
  }
}

/// Whether every array begins at an address that is aligned for a pack.
template <int Width, class... Arrays>
TUTTI_HD bool aligned_for(Arrays... arrays) {
  return ((reinterpret_cast<std::uintptr_t>(detail::address(arrays)) %
               detail::held<Arrays, Width>::alignment ==
           0) &&
          ...);
}

/// Does the share of a thread, as share_of, with four neighbours at a time (sixteen bytes of
/// floats) if all arrays are aligned for it.
template <class F, class... Arrays>
TUTTI_HD void share_in_fours(std::size_t thread, std::size_t threads, std::size_t n, const F& f,
                             Arrays... arrays) {
  if (aligned_for<4>(arrays...)) {
    share_of<4>(thread, threads, n, f, arrays...);
  } else {
    share_of<1>(thread, threads, n, f, arrays...);
  }
}

/// A function of i that calls `f.pack<Width>(i)`, for loops that know nothing of packs.
template <int Width, class F>
struct in_packs {
  F f;
  TUTTI_HD void operator()(std::size_t i) const { f.template pack<Width>(i); }
};

}  // namespace tutti::kernels

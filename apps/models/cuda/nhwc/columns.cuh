#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "models/cuda/nhwc/elements.cuh"
#include "tutti/base/host_device.hpp"
#include "tutti/kernels/cuda/each.cuh"

// Sums of each channel over all pixels, and the bias of a channel. Neighbouring channels go
// together where sixteen bytes of them are whole.
namespace models {
namespace device = tutti::kernels::device;
}  // namespace models

namespace models::nhwc {

template <class T, int Width>
struct alignas(sizeof(T) * Width < 16 ? sizeof(T) * Width : 16) pack {
  T at[Width];
};

template <int Width, class T>
TUTTI_HD pack<T, Width> neighbours(const T* from) {
  return *reinterpret_cast<const pack<T, Width>*>(from);
}

/// Which channels a thread has, and which of the threads that have them it is. 32 bits, which
/// devices divide fast: a network refuses batches with more elements.
struct share_of_columns {
  std::uint32_t lane;
  std::uint32_t pack;

  TUTTI_HD share_of_columns(std::size_t thread, std::size_t packs)
      : lane(static_cast<std::uint32_t>(thread) / static_cast<std::uint32_t>(packs)),
        pack(static_cast<std::uint32_t>(thread) % static_cast<std::uint32_t>(packs)) {}
};

template <class T, class F>
void in_packs(std::size_t channels, const F& f) {
  constexpr int whole = 16 / sizeof(T);
  if (channels % whole == 0) {
    f(std::integral_constant<int, whole>{});
  } else {
    f(std::integral_constant<int, 1>{});
  }
}

constexpr std::size_t most_threads = std::size_t{1} << 16;
constexpr std::size_t most_sums = 2;

/// Loads that a thread has on their way at once, for memory is far away.
constexpr std::size_t ahead = 4;

/// A thread adds `term` over every `lanes`-th row of some neighbouring columns.
template <int Width, class Term>
struct sum_lanes {
  std::size_t rows;
  std::size_t packs;
  std::size_t lanes;
  Term term;
  double* partial;  // of each sum, lane and channel

  TUTTI_HD void operator()(std::size_t thread) const {
    const share_of_columns mine(thread, packs);
    double sums[Term::sums][Width] = {};
    for (std::size_t row = mine.lane; row < rows; row += ahead * lanes) {
      typename Term::values held[ahead];
      for (std::size_t a = 0; a < ahead; ++a) {
        if (row + a * lanes < rows) {
          held[a] = term.at(((row + a * lanes) * packs + mine.pack) * Width);
        }
      }
      for (std::size_t a = 0; a < ahead; ++a) {
        if (row + a * lanes < rows) {
          term.add(held[a], mine.pack * Width, sums);
        }
      }
    }
    for (std::size_t which = 0; which < Term::sums; ++which) {
      for (std::size_t i = 0; i < Width; ++i) {
        partial[((which * lanes + mine.lane) * packs + mine.pack) * Width + i] = sums[which][i];
      }
    }
  }
};

/// Adds lanes onto the first `to` of them.
struct fold_lanes {
  static constexpr std::size_t together = 16;
  double* partial;
  std::size_t lanes;  // between a sum's and the next one's
  std::size_t channels;
  std::size_t from;
  std::size_t to;

  TUTTI_HD void operator()(std::size_t thread) const {
    const std::size_t which = thread / (to * channels);
    double* const first = partial + which * lanes * channels + thread % (to * channels);
    const double* place = first;
    double sum = 0;
    for (std::size_t lane = thread % (to * channels) / channels; lane < from;
         lane += together * to, place += together * to * channels) {
      double held[together];
      for (std::size_t a = 0; a < together; ++a) {
        held[a] = lane + a * to < from ? place[a * to * channels] : 0.0;
      }
      for (std::size_t a = 0; a < together; ++a) {
        sum += held[a];
      }
    }
    *first = sum;
  }
};

template <class Finish>
struct finish_columns {
  const double* partial;
  std::size_t apart;
  Finish finish;

  TUTTI_HD void operator()(std::size_t channel) const {
    finish(channel, partial[channel], partial[channel + apart]);
  }
};

/// Calls `finish(channel, sum, other sum)` with the sums of `term` over each column.
template <int Width, class Term, class Finish>
void add_columns(stream& queue, extent of, const Term& term, double* scratch,
                 const Finish& finish) {
  constexpr std::size_t folded_at_once = 32;
  const std::size_t packs = of.channels / Width;
  const std::size_t lanes = std::clamp<std::size_t>(most_threads / packs, 1, of.rows);
  device::for_each(queue, lanes * packs,
                   sum_lanes<Width, Term>{of.rows, packs, lanes, term, scratch});
  for (std::size_t from = lanes; from > 1;) {
    const std::size_t to = (from + folded_at_once - 1) / folded_at_once;
    device::for_each(queue, Term::sums * to * of.channels,
                     fold_lanes{scratch, lanes, of.channels, from, to});
    from = to;
  }
  const std::size_t apart = Term::sums == 1 ? 0 : lanes * of.channels;
  device::for_each(queue, of.channels, finish_columns<Finish>{scratch, apart, finish});
}

// ---- bias

template <class T, int Width>
struct add_bias_to {
  T* x;
  const float* bias;
  std::size_t packs;

  TUTTI_HD void operator()(std::size_t i) const {
    auto& values = reinterpret_cast<pack<T, Width>*>(x)[i];
    const auto added = neighbours<Width>(bias + share_of_columns(i, packs).pack * Width);
    auto sums = values;
    for (std::size_t each = 0; each < Width; ++each) {
      put<gradients::accumulate>(sums.at[each], added.at[each]);
    }
    values = sums;
  }
};

template <class T, int Width>
struct sum_term {
  static constexpr std::size_t sums = 1;
  using values = pack<T, Width>;
  const T* dy;

  TUTTI_HD values at(std::size_t place) const { return neighbours<Width>(dy + place); }
  TUTTI_HD void add(const values& slopes, std::size_t, double (&sum)[sums][Width]) const {
    for (std::size_t i = 0; i < Width; ++i) {
      sum[0][i] += static_cast<double>(widened(slopes.at[i]));
    }
  }
};

struct keep_sum {
  float* gradient;
  TUTTI_HD void operator()(std::size_t channel, double sum, double) const {
    gradient[channel] = static_cast<float>(sum);
  }
};

}  // namespace models::nhwc

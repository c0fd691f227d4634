#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "models/cuda/nhwc/elements.cuh"
#include "tutti/base/host_device.hpp"
#include "tutti/kernels/cuda/each.cuh"

// Sums of each channel over all pixels, and the bias of a channel. A thread handles four
// neighbouring channels at once, a pack. With eight, a thread needs so many registers that too few
// threads fit on an H100 to keep its memory busy.
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

/// Which pack of channels a thread handles, and its number among the threads that handle the same
/// pack. The numbers have 32 bits, which devices divide fast; a network refuses batches with more
/// elements.
struct share_of_columns {
  std::uint32_t lane;
  std::uint32_t pack;

  TUTTI_HD share_of_columns(std::size_t thread, std::size_t packs)
      : lane(static_cast<std::uint32_t>(thread) / static_cast<std::uint32_t>(packs)),
        pack(static_cast<std::uint32_t>(thread) % static_cast<std::uint32_t>(packs)) {}
};

constexpr int most_together = 4;

template <class F>
void in_packs(std::size_t channels, const F& f) {
  if (channels % most_together == 0) {
    f(std::integral_constant<int, most_together>{});
  } else {
    f(std::integral_constant<int, 1>{});
  }
}

constexpr std::size_t most_threads = std::size_t{1} << 17;
constexpr std::size_t most_sums = 2;

/// The loads that a thread has under way at the same time, to hide the latency of memory.
constexpr std::size_t ahead = 8;

/// Sums `term` over every `lanes`-th row of some neighbouring columns. One thread does so for each
/// lane and pack, and fetches `term.of(channel)` only once.
template <int Width, class Term>
struct sum_lanes {
  std::size_t rows;
  std::size_t packs;
  std::size_t lanes;
  Term term;
  double* partial;  // result, by sum, lane and channel

  TUTTI_HD void operator()(std::size_t thread) const {
    const share_of_columns mine(thread, packs);
    const auto add = term.of(mine.pack * Width);
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
          add(held[a], sums);
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

/// Returns the sum of every `apart`-th value, from `first` on and before `end`.
TUTTI_HD inline double sum_of_every(const double* values, std::size_t first, std::size_t end,
                                    std::size_t apart) {
  constexpr std::size_t together = 16;
  double sum = 0;
  for (std::size_t i = first; i < end; i += together * apart) {
    double held[together];
    for (std::size_t a = 0; a < together; ++a) {
      held[a] = i + a * apart < end ? values[i + a * apart] : 0.0;
    }
    for (std::size_t a = 0; a < together; ++a) {
      sum += held[a];
    }
  }
  return sum;
}

/// Adds up the partial sums of `from` lanes so that they are in the first `to` lanes.
struct fold_lanes {
  double* partial;
  std::size_t apart;  // from one sum's partial results to the next sum's
  std::size_t channels;
  std::size_t from;
  std::size_t to;

  TUTTI_HD void operator()(std::size_t thread) const {
    const std::size_t kept = to * channels;
    double* const its = partial + thread / kept * apart;
    its[thread % kept] = sum_of_every(its, thread % kept, from * channels, kept);
  }
};

template <class Finish>
struct finish_columns {
  const double* partial;
  std::size_t apart;
  std::size_t channels;
  std::size_t lanes;
  Finish finish;

  TUTTI_HD void operator()(std::size_t channel) const {
    const auto sum = [&](const double* its) {
      return sum_of_every(its, channel, lanes * channels, channels);
    };
    finish(channel, sum(partial), apart == 0 ? 0.0 : sum(partial + apart));
  }
};

/// Sums `term` over each column and calls `finish(channel, sum, other sum)`. The other sum is 0 if
/// `term` has only one.
template <int Width, class Term, class Finish>
void add_columns(stream& queue, extent of, const Term& term, double* scratch,
                 const Finish& finish) {
  constexpr std::size_t folded_at_once = 32;
  const std::size_t packs = of.channels / Width;
  const std::size_t lanes = std::clamp<std::size_t>(most_threads / packs, 1, of.rows);
  device::for_each(queue, lanes * packs,
                   sum_lanes<Width, Term>{of.rows, packs, lanes, term, scratch});
  const std::size_t apart = Term::sums == 1 ? 0 : lanes * of.channels;
  std::size_t left = lanes;
  while (left > folded_at_once) {
    const std::size_t to = (left + folded_at_once - 1) / folded_at_once;
    device::for_each(queue, Term::sums * to * of.channels,
                     fold_lanes{scratch, apart, of.channels, left, to});
    left = to;
  }
  device::for_each(queue, of.channels,
                   finish_columns<Finish>{scratch, apart, of.channels, left, finish});
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
  struct adder {
    TUTTI_HD void operator()(const values& slopes, double (&sum)[sums][Width]) const {
      for (std::size_t i = 0; i < Width; ++i) {
        sum[0][i] += static_cast<double>(widened(slopes.at[i]));
      }
    }
  };
  const T* dy;

  TUTTI_HD values at(std::size_t place) const { return neighbours<Width>(dy + place); }
  TUTTI_HD adder of(std::size_t) const { return {}; }
};

struct keep_sum {
  float* gradient;
  TUTTI_HD void operator()(std::size_t channel, double sum, double) const {
    gradient[channel] = static_cast<float>(sum);
  }
};

}  // namespace models::nhwc

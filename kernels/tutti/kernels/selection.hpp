#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/error.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/kernels/blocks.hpp"
#include "tutti/kernels/collect.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/norms.hpp"
#include "tutti/kernels/widest.hpp"

namespace tutti::kernels {

// Selections of exactly the k elements of largest magnitude out of n; of equal magnitudes those
// with the lowest index.
//
// On a host a sample of the input suggests a floor, a magnitude that a little more than k elements
// should reach. One read of the input collects the elements that do, the candidates, and histograms
// of these few find the exact threshold. If the sample misjudged, all elements are searched
// instead, which costs five more reads, and never exactness. A device does the same with a large
// input (selection_steps.hpp).

/// Where selected elements are written. The number of indices says how many to select.
struct selection {
  std::span<std::uint32_t> indices{};
  float* values{};
};

/// Values, and the index of the element that each belongs to.
struct pairs {
  std::span<const std::uint32_t> indices{};
  const float* values{};

  std::size_t size() const { return indices.size(); }
};

namespace detail {

/// The elements that suggest a floor. They are spread evenly, with an offset that changes from one
/// to the next, so that they are not in step with any pattern of the input.
struct sample {
  static constexpr std::size_t most = 8192;

  std::size_t size{};  ///< 0 if a sample would not pay
  std::size_t stride{1};
  std::uint32_t rank{};  ///< the floor is the sample's element of this rank, the largest being 1

  TUTTI_HD std::size_t place(std::size_t i) const { return i * stride + i % stride; }
};

/// Returns a sample whose floor somewhat more than k of n elements should reach.
inline sample sample_for(std::size_t n, std::size_t k) {
  if (n < 4096 || k > n / 4) {
    return {};
  }
  const std::size_t size = std::min(n / 64, sample::most);
  const double expected =
      static_cast<double>(size) * static_cast<double>(k) / static_cast<double>(n);
  const double generous = expected + 3 * std::sqrt(expected) + 3;  // three standard deviations
  return {size, n / size, static_cast<std::uint32_t>(generous)};
}

/// The limit of a selection: elements whose key is above `key` are selected, and the first `ties`
/// of those `equal` whose key is equal to it.
struct threshold {
  std::uint32_t key{};
  std::size_t ties{};
  std::size_t equal{};
};

/// Returns the k-th largest of n keys, 0 < k <= n, and how many of its equals are among the k
/// largest. All keys lie in [low, high]. `for_each_key(low, high, f)` calls f with each key, of
/// which it may leave out those that do not lie in [low, high]. The first pass counts the keys in
/// 2048 bins, in 256 if there are few keys and in 8192 if there are many; each further pass counts
/// the bin that holds the k-th largest in as many bins again.
template <class ForEachKey>
threshold kth_largest(std::size_t n, std::size_t k, std::uint32_t low, std::uint32_t high,
                      const ForEachKey& for_each_key) {
  constexpr int most_digits = 13;
  const int digits = n < 128 ? 8 : n < (std::size_t{1} << 16) ? 11 : most_digits;
  for (;;) {
    const std::uint32_t range = high - low;
    const int shift = std::max(static_cast<int>(std::bit_width(range)) - digits, 0);
    std::array<std::uint32_t, 1 << most_digits> count;
    std::fill_n(count.begin(), 1 << digits, 0u);
    std::uint32_t* const counts = count.data();
    for_each_key(low, high, [=](std::uint32_t key) {
      const std::uint32_t above = key - low;
      if (above <= range) {
        ++counts[above >> shift];
      }
    });
    std::uint32_t bin = range >> shift;
    for (; count[bin] < k; --bin) {
      k -= count[bin];
    }
    low += bin << shift;
    if (shift == 0) {
      return {low, k, count[bin]};
    }
    high = std::min(high, low + (1u << shift) - 1);
  }
}

/// Returns the k-th largest key of the values, which all lie in [low, high].
inline threshold kth_largest_of(std::span<const float> values, std::size_t k, std::uint32_t low,
                                std::uint32_t high) {
  // Few keys lie in the one bin that the second pass counts, so that most pieces are left out.
  const auto for_each_key = [values](std::uint32_t least, std::uint32_t most, const auto& count) {
    widest([&] {
      for_each_block(values.size(), 64, [=](std::size_t, std::size_t begin, std::size_t n) {
        const auto piece = values.subspan(begin, n);
        std::uint32_t within = 0;
        for (const float each : piece) {
          within |= key_of(each) - least <= most - least ? 1U : 0U;
        }
        if (within != 0) {
          for (const float each : piece) {
            count(key_of(each));
          }
        }
      });
    });
  };
  return kth_largest(values.size(), k, low, high, for_each_key);
}

/// Returns a key that somewhat more than k elements should reach, or 0, which all reach, if a
/// sample would not pay.
inline std::uint32_t likely_floor(std::span<const float> input, std::size_t k) {
  const sample which = sample_for(input.size(), k);
  if (which.size == 0) {
    return 0;
  }
  std::array<float, sample::most> room;  // a copy: the elements lie far apart
  const std::span<float> taken(room.data(), which.size);
  for (std::size_t i = 0; i < taken.size(); ++i) {
    taken[i] = input[which.place(i)];
  }
  const threshold floor = kth_largest_of(taken, which.rank, 0, largest_key(taken));
  return std::max(floor.key, 1u);  // zeros of a sparse input are no candidates
}

/// Writes the largest of the values, in ascending order of their indices, and returns the largest
/// key. The keys of all values are at least `floor`. NaN is above every magnitude, so if any value
/// is NaN, one is selected.
template <class Index>
std::uint32_t select_among(std::span<const float> values, std::uint32_t floor,
                           const Index& index_of, const selection& out) {
  const auto key = [=](std::size_t i) { return key_of(values[i]); };
  const std::uint32_t largest = largest_key(values);
  threshold limit = kth_largest_of(values, out.indices.size(), floor, largest);
  // Every value is written, and kept if it counts. A branch would be mispredicted at every other
  // candidate.
  std::size_t written = 0;
  std::size_t i = 0;
  const auto write = [&](std::size_t kept) {
    out.indices[written] = index_of(i);
    out.values[written] = values[i];
    written += kept;
    ++i;
  };
  if (limit.ties == limit.equal) {
    while (written < out.indices.size()) {
      write(key(i) >= limit.key ? 1 : 0);
    }
  }
  while (written < out.indices.size()) {
    const std::size_t tie = key(i) == limit.key && limit.ties != 0 ? 1 : 0;
    limit.ties -= tie;
    write(tie + (key(i) > limit.key ? 1 : 0));
  }
  return largest;
}

/// Throws usage_error if NaN was selected. This comes after everything is written, because a queue
/// that runs on threads goes on with work that reads the indices.
inline void refuse_nan_in(const selection& written, std::uint64_t first_element) {
  const std::span<const float> values(written.values, written.indices.size());
  const auto nan = loops::find_if(values, [](float each) { return std::isnan(each); });
  if (nan != values.end()) {
    refuse_nan(first_element + written.indices[static_cast<std::size_t>(nan - values.begin())]);
  }
}

/// Throws communication_error unless every index is below n. The indices may come from another
/// rank, so they may be anything.
inline void expect_elements(std::span<const std::uint32_t> indices, std::size_t n) {
  std::uint32_t last = 0;
  widest([&] {
    for (const std::uint32_t each : indices) {
      last = std::max(last, each);
    }
  });
  if (!indices.empty() && last >= n) {
    refuse_element(last, n);
  }
}

}  // namespace detail

/// Returns how many candidates to provide room for when k of n are selected.
constexpr std::size_t selection_candidates(std::size_t n, std::size_t k) {
  return std::min(n, 4 * k + 32768) + detail::collect_block;
}

/// Writes the out.indices.size() elements of largest magnitude, which may be at most input.size(),
/// in the order of their indices. Throws usage_error if one of them is NaN, and names it by
/// `first_element` + its index. `room` is for selection_candidates(input.size(),
/// out.indices.size()) candidates.
template <host_queue Queue>
void select_largest(Queue& queue, std::span<const float> input, std::uint64_t first_element,
                    selection out, candidates room) {
  queue.run([=] {
    const std::size_t k = out.indices.size();
    if (k == 0) {
      return;
    }
    const std::uint32_t floor = detail::likely_floor(input, k);
    const std::size_t found = collect(input, floor, room);
    std::uint32_t largest = 0;
    if (found >= k) {
      const auto index_of = [=](std::size_t i) { return room.indices[i]; };
      largest = detail::select_among(room.values.first(found), floor, index_of, out);
    } else {
      const auto index_of = [](std::size_t i) { return static_cast<std::uint32_t>(i); };
      largest = detail::select_among(input, 0, index_of, out);
    }
    if (largest > infinity_key) {
      detail::refuse_nan_in(out, first_element);
    }
  });
}
/// Selects the elements that the host selects, in its order. A kernel cannot throw, so NaN is
/// refused, in the same words, by the stream's next `synchronize` (engine.wait() and wait(id),
/// save, load) and by every later one. Until then the NaN travels on, and makes the parameters that
/// it reaches NaN, too.
/// Cost: a read of the input, and five of the candidates. If the input is small or the selection
/// dense, there are no candidates, and the whole input is read five times. If the sample misjudged,
/// the whole input is read five times in place of the candidates.
void select_largest(cuda::stream& queue, std::span<const float> input, std::uint64_t first_element,
                    selection out, candidates room);

/// Writes the out.indices.size() pairs of largest magnitude, in their order; of equal magnitudes
/// the first. On a host NaN is not refused: infinities of both signs may have been added to it, and
/// loss scaling skips a step whose mean has one. Cost: five reads of the pairs.
template <host_queue Queue>
void select_largest(Queue& queue, const pairs& from, std::uint64_t, selection out, candidates) {
  queue.run([=] {
    if (!out.indices.empty()) {
      const auto index_of = [=](std::size_t i) { return from.indices[i]; };
      detail::select_among({from.values, from.size()}, 0, index_of, out);
    }
  });
}
/// Selects the same pairs on a device. It refuses NaN as above, because there is no loss scaling on
/// a device, so that nothing else would keep NaN from the parameters.
void select_largest(cuda::stream& queue, const pairs& from, std::uint64_t first_element,
                    selection out, candidates room);

namespace element {

struct clear_at {
  float* data;
  const std::uint32_t* indices;
  TUTTI_HD void operator()(std::size_t i) const { data[indices[i]] = 0; }
};

struct scatter_add {
  const std::uint32_t* indices;
  const float* values;
  float* sum;
  std::size_t n;
  TUTTI_HD void operator()(std::size_t i) const {
    if (values[i] != 0 && indices[i] < n) {
      sum[indices[i]] += values[i];
    }
  }
};

}  // namespace element

/// data[indices[i]] = 0.
template <host_queue Queue>
void clear_at(Queue& queue, std::span<float> data, std::span<const std::uint32_t> indices) {
  queue.run([=] {
    const element::clear_at clear{data.data(), indices.data()};
    for (std::size_t i = 0; i < indices.size(); ++i) {
      clear(i);
    }
  });
}
void clear_at(cuda::stream& queue, std::span<float> data, std::span<const std::uint32_t> indices);

/// sum[indices[i]] += values[i]. Throws communication_error, and adds nothing, if an index is not
/// below sum.size(). A device, which cannot throw, leaves that value out. On a device no index may
/// occur twice with a value other than 0.
template <host_queue Queue>
void scatter_add(Queue& queue, std::span<const std::uint32_t> indices, const float* values,
                 std::span<float> sum) {
  queue.run([=] {
    detail::expect_elements(indices, sum.size());
    const element::scatter_add add{indices.data(), values, sum.data(), sum.size()};
    for (std::size_t i = 0; i < indices.size(); ++i) {
      add(i);
    }
  });
}
void scatter_add(cuda::stream& queue, std::span<const std::uint32_t> indices, const float* values,
                 std::span<float> sum);

}  // namespace tutti::kernels

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/base/host_device.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/kernels/counted_random.hpp"

namespace tutti::kernels {

/// A random draw of k of n elements, 0 < k <= n: one from each of k runs of equal length, give or
/// take an element. Every rank that knows the key draws the same elements.
struct stratified_draw {
  std::uint64_t n;
  std::uint64_t k;

  TUTTI_HD std::uint64_t begin(std::uint64_t j) const {
    return j * (n / k) + j * (n % k) / k;  // j * n / k, which itself might overflow
  }
  TUTTI_HD std::uint64_t length(std::uint64_t j) const { return begin(j + 1) - begin(j); }
  TUTTI_HD std::uint64_t element(std::uint64_t key, std::uint64_t j) const {
    return begin(j) + ((counted_random(key).bits(j) >> 32) * length(j) >> 32);
  }
};

/// What is sent of a draw: the key, as two words, and a value for each run.
struct drawn_values {
  std::uint32_t* key;
  float* values;
  std::size_t count;
};
struct const_drawn_values {
  const std::uint32_t* key;
  const float* values;
  std::size_t count;
};

namespace element {

TUTTI_HD inline std::uint64_t key_from(const std::uint32_t* words) {
  return std::uint64_t{words[1]} << 32 | words[0];
}

struct draw {
  const float* input;
  stratified_draw from;
  std::uint64_t key;
  bool scaled;
  std::uint32_t* key_out;
  float* values;

  TUTTI_HD void operator()(std::size_t j) const {
    const float value = input[from.element(key, j)];
    values[j] = scaled ? value * static_cast<float>(from.length(j)) : value;
    if (j == 0) {
      key_out[0] = static_cast<std::uint32_t>(key);
      key_out[1] = static_cast<std::uint32_t>(key >> 32);
    }
  }
};

struct add_drawn {
  const std::uint32_t* key;
  const float* values;
  stratified_draw from;
  float* sum;
  TUTTI_HD void operator()(std::size_t j) const {
    sum[from.element(key_from(key), j)] += values[j];
  }
};

struct clear_drawn {
  const std::uint32_t* key;
  stratified_draw from;
  float* data;
  TUTTI_HD void operator()(std::size_t j) const { data[from.element(key_from(key), j)] = 0; }
};

}  // namespace element

/// What a drawn value stands for: its own element, or all elements of its run.
enum class drawn_as { itself, its_run };

/// Writes the key, and a drawn element of each of out.count runs of the input. If it stands for its
/// run, it is multiplied by the run's length.
template <host_queue Queue>
void draw(Queue& queue, std::span<const float> input, std::uint64_t key, drawn_as what,
          drawn_values out) {
  queue.for_each(out.count, element::draw{input.data(),
                                          {input.size(), out.count},
                                          key,
                                          what == drawn_as::its_run,
                                          out.key,
                                          out.values});
}
void draw(cuda::stream& queue, std::span<const float> input, std::uint64_t key, drawn_as what,
          drawn_values out);

/// Adds each value to the element that it was drawn from.
template <host_queue Queue>
void add_drawn(Queue& queue, const const_drawn_values& in, std::span<float> sum) {
  queue.for_each(in.count,
                 element::add_drawn{in.key, in.values, {sum.size(), in.count}, sum.data()});
}
void add_drawn(cuda::stream& queue, const const_drawn_values& in, std::span<float> sum);

/// Sets each element that was drawn to 0.
template <host_queue Queue>
void clear_drawn(Queue& queue, const const_drawn_values& in, std::span<float> data) {
  queue.for_each(in.count, element::clear_drawn{in.key, {data.size(), in.count}, data.data()});
}
void clear_drawn(cuda::stream& queue, const const_drawn_values& in, std::span<float> data);

}  // namespace tutti::kernels

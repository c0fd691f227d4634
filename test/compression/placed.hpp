#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "tutti/role/compression.hpp"

namespace tutti {

/// A queue that runs nothing until it is told to, so that a test finds work which refers to the
/// frame of the encoder that enqueued it.
class deferred_queue : public host_loops<deferred_queue> {
 public:
  template <class F>
  void run(F f) {
    work_.push_back(std::move(f));
  }
  void drain() {
    for (const auto& each : work_) {
      each();
    }
    work_.clear();
  }

 private:
  std::vector<std::function<void()>> work_;
};

/// A compressor with the memory and scratch of one chunk. Rows of memory have gaps between them, in
/// which writes are detected.
template <class C>
class placed {
 public:
  explicit placed(std::size_t elements, const options_of<C>& values = {})
      : policy(make_policy<C>(values)),
        elements_(elements),
        memory_(facts::memory_per_element<C> * stride(), 0.0f),
        scratch_(scratch_bytes(policy, elements) / sizeof(float), unread) {
    for (std::size_t row = 0; row != facts::memory_per_element<C>; ++row) {
      std::fill_n(memory_.begin() + static_cast<std::ptrdiff_t>(row * stride() + elements), gap,
                  unread);
    }
  }

  chunk_context where() {
    chunk_context made;
    made.memory = memory_.data();
    made.stride = stride();
    made.scratch = std::as_writable_bytes(std::span(scratch_));
    made.step = step_;
    made.first_element = 5000;
    made.ranks = ranks;
    made.scale = scale;
    return made;
  }

  std::span<float> row(std::size_t i) { return where().row(i, elements_); }

  /// Goes on with another loss scale, as an engine does: what is remembered is multiplied alike.
  void change_scale(float to) {
    for (std::size_t row = 0; row != facts::memory_per_element<C>; ++row) {
      for (float& each : this->row(row)) {
        each *= to / scale;
      }
    }
    scale = to;
  }

  /// Encodes one step on `queue`. The room for the payload is filled with `fill` first and has
  /// guards on both sides. Returns the payload.
  template <class Queue>
  std::vector<std::byte> encode_on(Queue& queue, std::span<const float> gradient,
                                   std::byte fill = std::byte{0x5a}) {
    constexpr std::size_t guard = 64;
    const std::size_t bytes = capacity(policy, elements_);
    std::vector<std::byte> room(bytes + 2 * guard, fill);
    std::size_t length = 0;
    tutti::encode(policy, queue, gradient, wire{room.data() + guard, bytes}, where(), &length);
    if constexpr (requires { queue.drain(); }) {
      queue.drain();
    }
    ++step_;
    const auto intact = [&](std::size_t begin) {
      const auto from = room.begin() + static_cast<std::ptrdiff_t>(begin);
      return std::all_of(from, from + guard, [&](std::byte each) { return each == fill; });
    };
    if (!intact(0) || !intact(guard + bytes) || !gaps_intact() || length > bytes) {
      overran = true;
    }
    const auto begin = room.begin() + guard;
    return {begin, begin + static_cast<std::ptrdiff_t>(length)};
  }

  std::vector<std::byte> encode(std::span<const float> gradient, std::byte fill = std::byte{0x5a}) {
    inline_queue queue;
    return encode_on(queue, gradient, fill);
  }

  std::vector<float> decode(const std::vector<std::byte>& payload, float onto = 0) {
    std::vector<float> sum(elements_, onto);
    inline_queue queue;
    accumulate_on(queue, payload, sum);
    return sum;
  }
  template <class Queue>
  void accumulate_on(Queue& queue, const std::vector<std::byte>& payload, std::span<float> sum) {
    tutti::accumulate(policy, queue, const_wire{payload.data(), payload.size()}, sum, where());
  }

  C policy;
  std::uint64_t ranks = 1;
  float scale = 1;       ///< of the loss
  bool overran = false;  ///< whether something outside the payload or the rows was written

 private:
  static constexpr std::ptrdiff_t gap = 3;
  static constexpr float unread = 12345.0f;
  std::size_t stride() const { return elements_ + gap; }
  bool gaps_intact() const {
    for (std::size_t row = 0; row != facts::memory_per_element<C>; ++row) {
      const auto end = memory_.begin() + static_cast<std::ptrdiff_t>(row * stride() + elements_);
      if (std::count(end, end + gap, unread) != gap) {
        return false;
      }
    }
    return true;
  }

  std::size_t elements_;
  std::vector<float> memory_;
  std::vector<float> scratch_;
  std::uint64_t step_ = 0;
};

/// Sizes around every word and vector boundary.
inline constexpr std::size_t awkward_sizes[] = {0, 1, 7, 31, 32, 33, 1000, 4099};

/// Returns values like a gradient's, with zeros of both signs and repeated magnitudes among them.
inline std::vector<float> gradient_of(std::size_t elements, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.1f);
  std::vector<float> made(elements);
  for (float& each : made) {
    switch (random() % 16) {
      case 0:
        each = 0.0f;
        break;
      case 1:
        each = -0.0f;
        break;
      case 2:
        each = random() % 2 ? 0.25f : -0.25f;
        break;
      default:
        each = normal(random);
    }
  }
  return made;
}

}  // namespace tutti

#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "compare/gradient.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/launch.hpp"
#include "tutti/transport/simulated.hpp"

namespace compare {

/// Bytes that a simulated device is charged for a compressor's kernels.
struct kernel_charge {
  std::size_t encode{};
  std::size_t add{};  ///< for adding one payload
};

/// Runs a compressor's kernels on a gradient of its own, so that they can be timed. `encode` makes
/// a payload; a compressor that works in several rounds does all of them, and decodes. `add` adds a
/// payload to a sum, or one array to another if the compressor encodes nothing.
template <class Compression>
class kernel_trial {
 public:
  /// Unless the compressor works tensor by tensor, the gradient has at least 8 Mi elements, so that
  /// it is streamed from memory and not read from a cache.
  kernel_trial(const Compression& its, const tutti::tensor_facts& tensor)
      : its_(its),
        tensor_(tensor),
        gradient_(tutti::facts::in_rounds<Compression>
                      ? tensor.elements
                      : std::max<std::size_t>(tensor.elements, 8 << 20)),
        sum_(tutti::facts::in_rounds<Compression> ? 0 : gradient_.size()) {
    fill(gradient_);
    if constexpr (!tutti::facts::identity<Compression>) {
      memory_.resize(gradient_.size() * tutti::facts::memory_per_element<Compression>);
      encoder_.worker.memory = memory_.data();
      encoder_.worker.stride = gradient_.size();
      make_room();
      encoder_.worker.scratch = scratch_;
    }
  }
  kernel_trial(const kernel_trial&) = delete;  // its launches point at its memory
  kernel_trial& operator=(const kernel_trial&) = delete;

  std::size_t elements() const { return gradient_.size(); }

  template <class Queue>
  void encode(Queue& queue) {
    if constexpr (tutti::facts::in_rounds<Compression>) {
      std::span<std::byte> payload;
      for (int round = 0; round < tutti::facts::rounds<Compression>; ++round) {
        if (round > 0) {
          encoder_.between(queue, round, payload);
        }
        payload = std::span(room_).first(its_.wire_bytes(tensor_, round));
        encoder_.encode_round(queue, round, payload);
      }
      encoder_.decode(queue, payload, 1);
    } else if constexpr (!tutti::facts::identity<Compression>) {
      payload_ = encoder_.encode(queue, 0, elements(), room_);
    }
  }

  /// Adds the payload that `encode` has made.
  template <class Queue>
  void add(Queue& queue) {
    if constexpr (tutti::facts::identity<Compression>) {
      charge(queue, 3 * sizeof(float) * elements());
      tutti::kernels::add(queue, std::span<float>(sum_), std::span<const float>(gradient_));
    } else if constexpr (!tutti::facts::in_rounds<Compression>) {
      adder_.accumulate(queue, payload_, 0, elements());
    }
  }

  kernel_charge charged() {
    // On a device of one byte a second, seconds equal bytes.
    const tutti::transport::virtual_clock at_rest;
    tutti::transport::virtual_queue queue(at_rest, {.bytes_per_second = 1});
    encode(queue);
    const tutti::seconds encoding = queue.record();
    add(queue);
    return {static_cast<std::size_t>(encoding),
            static_cast<std::size_t>(queue.record() - encoding)};
  }

 private:
  void make_room() {
    if constexpr (tutti::facts::in_rounds<Compression>) {
      remembered_.resize(its_.remembers(tensor_));
      scratch_.resize(its_.scratch_bytes(tensor_));
      encoder_.worker.tensor = &tensor_;
      encoder_.worker.remembered = remembered_.data();
      room_.resize(its_.wire_bytes(tensor_, 0) + its_.wire_bytes(tensor_, 1));
    } else {
      scratch_.resize(tutti::scratch_bytes(its_, elements()));
      room_.resize(tutti::capacity(its_, elements()));
    }
  }

  Compression its_;
  tutti::tensor_facts tensor_;
  std::vector<float> gradient_;
  std::vector<float> sum_;
  std::vector<float> memory_{};
  std::vector<float> remembered_{};
  std::vector<std::byte> scratch_{};
  std::vector<std::byte> room_{};
  std::span<const std::byte> payload_{};
  tutti::launch<Compression> encoder_{.data = gradient_, .compression = &its_};
  tutti::launch<Compression> adder_{.data = sum_, .compression = &its_};
};

/// Calls `time` with the kernels of a compressor and returns what it returns. For a compressor that
/// selects among others by a rule, these are the kernels of the one that it gives to the tensors
/// that the rule chooses.
template <class Compression, class Time>
auto on_trial(const Compression& its, const tutti::tensor_facts& tensor, Time time) {
  if constexpr (tutti::selects<Compression>) {
    return tutti::with_compressor(
        its, true, [&](const auto& chosen) { return on_trial(chosen, tensor, time); });
  } else {
    kernel_trial<Compression> kernels(its, tensor);
    return time(kernels);
  }
}

}  // namespace compare

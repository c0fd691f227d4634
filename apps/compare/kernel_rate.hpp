#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "compare/measure.hpp"
#include "compare/processes.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/compression.hpp"

namespace compare {

/// Runs what it is given and adds up what that is charged.
struct weighing_queue : tutti::inline_queue {
  std::size_t charged = 0;
  void charge(std::size_t bytes) { charged += bytes; }
};

/// Bytes that kernels on this CPU are charged a second while all workers run the same: of one
/// that encodes the gradient of a tensor and decodes those of `workers`, or adds two where
/// nothing is encoded. Collective.
template <class Compression>
double kernel_rate(const Compression& its, const tutti::tensor_facts& tensor, int workers) {
  // What is not worked on tensor by tensor is streamed, from memory that no cache holds any more.
  const std::size_t elements = tutti::facts::in_rounds<Compression>
                                   ? tensor.elements
                                   : std::max<std::size_t>(tensor.elements, 8 << 20);
  weighing_queue queue;
  std::vector<float> gradient(elements);
  fill(gradient);
  const auto rate = [&](auto run) {
    const double taken = median_seconds(workers, [&] {
      queue = {};
      run();
    });
    return static_cast<double>(queue.charged) / taken;
  };
  if constexpr (tutti::facts::identity<Compression>) {
    std::vector<float> sum(elements);
    return rate([&] {
      charge(queue, 3 * sizeof(float) * elements);
      tutti::kernels::add(queue, std::span<float>(sum), std::span<const float>(gradient));
    });
  } else if constexpr (tutti::selects<Compression>) {
    return tutti::with_compressor(
        its, true, [&](const auto& chosen) { return kernel_rate(chosen, tensor, workers); });
  } else {
    std::vector<float> memory(elements * tutti::facts::memory_per_element<Compression>);
    tutti::launch<Compression> one{.data = gradient, .compression = &its};
    one.worker.memory = memory.data();
    one.worker.stride = elements;
    if constexpr (tutti::facts::in_rounds<Compression>) {
      std::vector<float> remembered(its.remembers(tensor));
      std::vector<std::byte> scratch(its.scratch_bytes(tensor));
      one.worker.scratch = scratch;
      one.worker.tensor = &tensor;
      one.worker.remembered = remembered.data();
      std::vector<std::byte> sum(its.wire_bytes(tensor, 0) + its.wire_bytes(tensor, 1));
      return rate([&] {
        std::span<std::byte> payload;
        for (int round = 0; round < tutti::facts::rounds<Compression>; ++round) {
          if (round > 0) {
            one.between(queue, round, payload);
          }
          payload = std::span(sum).first(its.wire_bytes(tensor, round));
          one.encode_round(queue, round, payload);
        }
        one.decode(queue, payload, workers);
      });
    } else {
      std::vector<std::byte> scratch(tutti::scratch_bytes(its, elements));
      one.worker.scratch = scratch;
      std::vector<std::byte> room(tutti::capacity(its, elements));
      std::vector<float> sum(elements);  // the gradient is the same in every step
      const tutti::launch<Compression> added{.data = sum, .compression = &its};
      return rate([&] {
        const std::span<const std::byte> payload = one.encode(queue, 0, elements, room);
        added.clear(queue, 0, elements);
        for (int i = 0; i < workers; ++i) {
          added.accumulate(queue, payload, 0, elements);
        }
      });
    }
  }
}

}  // namespace compare

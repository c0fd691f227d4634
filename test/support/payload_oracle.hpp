#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "support/dealt.hpp"
#include "support/oracle.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/role/compression.hpp"

// Reference for compressed training in plain loops over all workers. Of tutti's code it calls only
// the codec.
namespace tutti::test {

/// How payloads reach those that need them. `gathered`: every rank gets all of them. `scattered`:
/// parts go to their owners, and sums come back. `served`: they go to a server, and sums come back.
/// `sharded`: parts go to their owners, and updated parameters come back.
enum class way { gathered, scattered, served, sharded };

struct expected_payloads {
  std::vector<float> parameters{};
  std::vector<std::uint64_t> bytes{};           ///< of each worker, then of the server, if any
  std::vector<std::vector<float>> of_worker{};  ///< each worker's parameters, where they differ

  const std::vector<float>& parameters_of(std::size_t worker) const {
    return of_worker.empty() ? parameters : of_worker[worker];
  }
};

/// One codec with its memory for every element of the model.
template <class C>
class codec {
 public:
  codec(const C& its, std::uint64_t rank)
      : its_(its), rank_(rank), memory_(facts::memory_per_element<C> * total_elements(), 0.0f) {}

  /// Encodes `values`, the elements from `first` on, adds what the payload is decoded to, and
  /// returns the payload's length.
  std::size_t add(std::span<const float> values, std::size_t first, int step,
                  std::span<float> sum) {
    inline_queue queue;
    chunk_context where;
    where.memory = memory_.empty() ? nullptr : memory_.data() + first;
    where.stride = total_elements();
    where.step = static_cast<std::uint64_t>(step);
    where.first_element = first;
    where.rank = rank_;
    std::vector<std::byte> scratch(scratch_bytes(its_, values.size()));
    where.scratch = scratch;
    std::vector<float> payload(capacity(its_, values.size()) / sizeof(float) + 1);
    const wire room{reinterpret_cast<std::byte*>(payload.data()), capacity(its_, values.size())};
    std::size_t length = 0;
    encode(its_, queue, values, room, where, &length);
    accumulate(its_, queue, const_wire(room.data, length), sum, where);
    return length;
  }

 private:
  C its_;
  std::uint64_t rank_;
  std::vector<float> memory_;
};

/// Returns parameters and bytes after `steps` steps over `chunks`, which are the tensors in
/// backward order unless others are given. The server of `served` is the rank after the last
/// worker's. The first `dense_steps` steps use the exact means, and their bytes are not counted.
template <class C>
expected_payloads payloads(way how, int workers, int steps, const C& its = {},
                           const std::vector<std::size_t>& chunks = {tensor_sizes().rbegin(),
                                                                     tensor_sizes().rend()},
                           int dense_steps = 0,
                           float (*given)(int worker, int step, std::size_t element) = gradient) {
  const sgd_values set;
  using relayed = decltype(relay(its));
  const auto size = static_cast<std::size_t>(workers);
  const std::size_t n = total_elements();
  expected_payloads made{std::vector<float>(n),
                         std::vector<std::uint64_t>(how == way::served ? size + 1 : size)};
  std::vector<float> momenta(n);
  for (std::size_t i = 0; i < n; ++i) {
    made.parameters[i] = initial(i);
  }
  std::vector<codec<C>> senders;
  std::vector<codec<relayed>> owners;
  for (std::size_t rank = 0; rank <= size; ++rank) {
    senders.emplace_back(its, rank);
    owners.emplace_back(relay(its), rank);
  }
  const float average = 1.0f / static_cast<float>(workers);
  const auto mean_of = [&](std::size_t first, std::size_t count, int step, std::size_t owner) {
    std::vector<float> sum(count);
    for (std::size_t rank = 0; rank < size; ++rank) {
      std::vector<float> mine(count);
      for (std::size_t i = 0; i < count; ++i) {
        mine[i] = given(static_cast<int>(rank), step, first + i);
      }
      if (step < dense_steps) {
        std::ranges::transform(sum, mine, sum.begin(), std::plus());
        continue;
      }
      const std::size_t length = senders[rank].add(mine, first, step, sum);
      if (how == way::gathered) {
        made.bytes[rank] += (size - 1) * length;
      } else if (rank != owner) {
        made.bytes[rank] += length;
      }
    }
    for (float& each : sum) {
      each = workers == 1 ? each : each * average;
    }
    if (step >= dense_steps && (how == way::scattered || how == way::served)) {
      const std::vector<float> exact = std::exchange(sum, std::vector<float>(count));
      const std::size_t length = owners[owner].add(exact, first, step, sum);
      made.bytes[owner] += (how == way::served ? size : size - 1) * length;
    }
    return sum;
  };
  for (int step = 0; step < steps; ++step) {
    std::size_t begin = 0;
    for (const std::size_t whole : chunks) {
      if (whole == 0) {
        continue;  // because an empty chunk is never sent, even if its payload would have a header
      }
      const std::size_t parts = how == way::scattered || how == way::sharded ? size : 1;
      std::size_t first = begin;
      for (std::size_t part = 0; part < parts; ++part) {
        const std::size_t count = dealt(begin, whole, part, parts);
        const auto mean = mean_of(first, count, step, how == way::served ? size : part);
        for (std::size_t i = 0; i < count; ++i) {
          float& x = made.parameters[first + i];
          float& m = momenta[first + i];
          m = set.momentum * m + (mean[i] + set.weight_decay * x);
          x -= set.learning_rate * m;
        }
        if (how == way::sharded) {
          const std::span<float> whole_part = std::span(made.parameters).subspan(first, count);
          const std::vector<float> updated(whole_part.begin(), whole_part.end());
          std::fill(whole_part.begin(), whole_part.end(), 0.0f);
          made.bytes[part] += (size - 1) * owners[part].add(updated, first, step, whole_part);
        }
        first += count;
      }
      begin += whole;
    }
  }
  return made;
}

/// Returns the parameters of training by the majority of signs of each element. Zero counts as
/// positive, a tie is positive, and weight decay is added afterwards.
inline std::vector<float> voted(int workers, int steps) {
  return descended(steps, {}, [workers](int step, std::size_t i) {
    int votes = 0;
    for (int worker = 0; worker < workers; ++worker) {
      votes += gradient(worker, step, i) < 0.0f ? -1 : 1;
    }
    return votes < 0 ? -1.0f : 1.0f;
  });
}

}  // namespace tutti::test

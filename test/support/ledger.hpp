#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/deadlines.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/optimizer/sgd.hpp"

/// Pushes that can be told apart once they have taken effect. They are whole numbers; each step of
/// a worker makes one push in each tensor, and the sums stay below 2^24, where floats are exact.
namespace tutti::test {

inline constexpr std::size_t most_pushing = 4;

/// The elements of each tensor: for each worker, how many pushes it has made; then for each worker
/// the sum of its pushes' numbers; then the number of pushes of all workers.
inline constexpr std::size_t of_a_ledger = 2 * most_pushing + 1;

inline std::vector<arena::declaration> ledger_declarations(std::size_t tensors) {
  std::vector<arena::declaration> all;
  for (std::size_t i = 0; i < tensors; ++i) {
    all.push_back({"ledger" + std::to_string(i), of_a_ledger});
  }
  return all;
}

/// Writes the gradients of a worker's push `number`, counted from 1, for descent with a learning
/// rate of 1.
inline void write_push(arena& memory, int worker, int number) {
  std::size_t i = 0;
  for (float& each : memory.gradients()) {
    const std::size_t place = i++ % of_a_ledger;
    const auto who = static_cast<std::size_t>(worker);
    each = place == who                  ? -1.0f
           : place == most_pushing + who ? -static_cast<float>(number)
           : place == 2 * most_pushing   ? -1.0f
                                         : 0.0f;
  }
}

/// Expects every worker's pushes 1 to `pushes` to have taken effect exactly once.
inline void expect_each_once(std::span<const float> parameters, int workers, int pushes) {
  ASSERT_LT(pushes * (pushes + 1) / 2, 1 << 24);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::size_t place = i % of_a_ledger;
    const std::size_t who = place % most_pushing;
    const bool pushed = who < static_cast<std::size_t>(workers);
    const int expected = place == 2 * most_pushing ? workers * pushes
                         : !pushed                 ? 0
                         : place < most_pushing    ? pushes
                                                   : pushes * (pushes + 1) / 2;
    ASSERT_EQ(parameters[i], static_cast<float>(expected)) << i;
  }
}

/// What the optimizers of this process have applied: for each chunk and worker, the numbers of its
/// pushes.
struct ledger {
  using entries = std::map<std::pair<std::size_t, int>, std::vector<int>>;

  static ledger& shared() {
    static ledger one;
    return one;
  }
  entries take() {
    const std::scoped_lock lock(mutex);
    return std::exchange(seen, {});
  }

  std::mutex mutex;
  entries seen;
};

/// An optimizer that records every gradient before it applies it.
struct writes_down : optimizer::sgd {
  template <class Queue>
  void apply(Queue& queue, std::span<float> parameters, std::span<const float> gradient,
             const chunk_context& where) const {
    for (std::size_t who = 0; who < most_pushing; ++who) {
      if (gradient.size() == of_a_ledger && gradient[who] != 0) {
        const std::scoped_lock lock(ledger::shared().mutex);
        ledger::shared().seen[{where.first_element, static_cast<int>(who)}].push_back(
            static_cast<int>(-gradient[most_pushing + who]));
      }
    }
    optimizer::sgd::apply(queue, parameters, gradient, where);
  }
};
static_assert(optimizer_policy<writes_down>);

/// Expects each of these chunks to have got every worker's pushes once, in the order in which the
/// worker made them.
inline void expect_no_gap(const ledger::entries& seen, std::size_t chunks, int workers,
                          int pushes) {
  ASSERT_EQ(seen.size(), chunks * static_cast<std::size_t>(workers));
  for (const auto& [whose, numbers] : seen) {
    ASSERT_EQ(numbers.size(), static_cast<std::size_t>(pushes)) << whose.first;
    for (int i = 0; i < pushes; ++i) {
      ASSERT_EQ(numbers[static_cast<std::size_t>(i)], i + 1)
          << "element " << whose.first << ", worker " << whose.second;
    }
  }
}

/// Makes a worker's pushes [first, last), each after a random delay. A hundredth of the delays are
/// long.
template <class Engine>
void push_at_random(Engine& engine, arena& memory, int first, int last) {
  std::mt19937 random(static_cast<unsigned>(1000 * engine.worker() + first));
  std::uniform_real_distribution<double> delay(0, 40e-6);
  for (int number = first; number < last; ++number) {
    engine.wait();
    write_push(memory, engine.worker(), number);
    if (random() % 100 == 0) {
      sleep_for(10 * delay(random));
    } else if (random() % 8 == 0) {
      sleep_for(delay(random));
    }
    for (std::size_t id = memory.tensors().size(); id-- > 0;) {
      engine.ready(tensor_id(id));
    }
  }
  engine.wait();
}

/// Reads the servers' parameters after all workers have pushed. Worker 0 gets them as the answer to
/// a push of zeros.
template <class Engine>
void read_servers(Engine& engine, arena& memory) {
  engine.average(0);
  if (engine.worker() == 0) {
    std::ranges::fill(memory.gradients(), 0.0f);
    for (std::size_t id = 0; id < memory.tensors().size(); ++id) {
      engine.ready(tensor_id(id));
    }
    engine.wait();
  }
}

}  // namespace tutti::test

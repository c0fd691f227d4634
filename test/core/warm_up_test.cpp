// Dense steps first, then a compressor whose payloads do not add: values and bytes against plain
// loops around the codec alone.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <vector>

#include "support/payload_oracle.hpp"
#include "support/training.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/dense.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/compression/top_k.hpp"

namespace tutti::test {
namespace {

constexpr int steps = 7;
constexpr std::size_t dense_steps = 3;

/// As a rank's, of few digits, so that a ring's sums are exact.
float given(int worker, int step, std::size_t i) { return gradient_of_few_digits(worker, step, i); }

struct trained_ranks {
  std::vector<std::vector<float>> parameters{};
  std::vector<std::uint64_t> bytes{};  ///< from a step on
};

template <class Strategy>
trained_ranks train(int workers, const engine_options<Strategy>& set, int counted_from) {
  trained_ranks all;
  all.parameters.resize(static_cast<std::size_t>(workers));
  all.bytes.resize(all.parameters.size());
  transport::run_ranks(workers, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), set);
    std::uint64_t before = 0;
    for (int step = 0; step < steps; ++step) {
      if (step == counted_from) {
        before = engine.counted().bytes_sent;
      }
      for (std::size_t i = 0; i < memory.gradients().size(); ++i) {
        memory.gradients()[i] = given(world.rank(), step, i);
      }
      for (const tensor_id id : shuffled(memory.tensors().size(), world.rank(), step)) {
        engine.ready(id);
      }
      engine.wait();
    }
    const auto rank = static_cast<std::size_t>(world.rank());
    all.parameters[rank].assign(memory.parameters().begin(), memory.parameters().end());
    all.bytes[rank] = engine.counted().bytes_sent - before;
  });
  return all;
}

/// A step of every tensor, backwards, from the mean that `mean_of(first, count)` gives.
template <class Mean>
void descend(std::vector<float>& parameters, std::vector<float>& momenta, Mean mean_of) {
  const sgd_values set;
  std::size_t first = 0;
  for (std::size_t tensor = tensor_sizes().size(); tensor-- > 0;) {
    const std::size_t count = tensor_sizes()[tensor];
    const std::vector<float> mean = mean_of(first, count);
    for (std::size_t i = 0; i < count; ++i) {
      float& x = parameters[first + i];
      float& m = momenta[first + i];
      m = set.momentum * m + (mean[i] + set.weight_decay * x);
      x -= set.learning_rate * m;
    }
    first += count;
  }
}

/// What comes of dense steps, and then of payloads that are gathered.
std::vector<float> warmed_up(int workers,
                             const compression::error_feedback<compression::top_k>& its) {
  std::vector<codec<compression::error_feedback<compression::top_k>>> senders;
  for (int rank = 0; rank < workers; ++rank) {
    senders.emplace_back(its, static_cast<std::uint64_t>(rank));
  }
  std::vector<float> parameters(total_elements());
  std::vector<float> momenta(total_elements());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i] = initial(i);
  }
  for (int step = 0; step < steps; ++step) {
    descend(parameters, momenta, [&](std::size_t first, std::size_t count) {
      std::vector<float> sum(count);
      for (int rank = 0; rank < workers; ++rank) {
        std::vector<float> mine(count);
        for (std::size_t i = 0; i < count; ++i) {
          mine[i] = given(rank, step, first + i);
        }
        if (step >= static_cast<int>(dense_steps)) {
          senders[static_cast<std::size_t>(rank)].add(mine, first, step, sum);
        } else {
          for (std::size_t i = 0; i < count; ++i) {
            sum[i] += mine[i];
          }
        }
      }
      for (float& each : sum) {
        each *= 1.0f / static_cast<float>(workers);
      }
      return sum;
    });
  }
  return parameters;
}

/// Bytes of a step that rank `rank` sends: around a ring all parts but the own, then all but the
/// next one's.
std::uint64_t dense_bytes(std::size_t rank, std::size_t workers) {
  std::uint64_t sent = 0;
  for (const std::size_t n : tensor_sizes()) {
    const auto part = [&](std::size_t of) {
      return n / workers + (of % workers < n % workers ? 1 : 0);
    };
    sent += 4 * (2 * n - part(rank) - part(rank + 1));
  }
  return sent;
}

TEST(WarmUp, IsDenseAndThenGathersSelections) {
  using strategy = compose<compression::error_feedback<compression::top_k>,
                           architecture::switch_at<architecture::dense, architecture::all_gather>>;
  const engine_options<strategy> set{.compression = {.density = 0.1},
                                     .architecture = {.step = dense_steps}};
  std::uint64_t payload = 0;
  for (const std::size_t n : tensor_sizes()) {
    payload += n == 0 ? 0 : 8 * std::max<std::size_t>(n / 10, 1);
  }
  for (int workers = 1; workers <= 5; ++workers) {
    const auto ranks = static_cast<std::size_t>(workers);
    const auto expected =
        warmed_up(workers, compression::error_feedback<compression::top_k>({.density = 0.1}));
    const auto all = train<strategy>(workers, set, 1);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(all.parameters[rank], expected) << "rank " << rank << " of " << workers;
      EXPECT_EQ(all.bytes[rank], (dense_steps - 1) * dense_bytes(rank, ranks) +
                                     (steps - dense_steps) * (ranks - 1) * payload)
          << "rank " << rank << " of " << workers;
    }
  }
}

/// Before the switch it is training without a compressor, whatever comes later.
TEST(WarmUp, IsDenseBeforeWhatIsCompressedAtBothEnds) {
  using lossy = compression::error_feedback<compression::scaled_sign>;
  using strategy = compose<
      lossy, architecture::switch_at<architecture::dense, architecture::reduce_scatter_all_gather>>;
  for (int workers = 1; workers <= 5; ++workers) {
    const auto never = train<strategy>(workers, {.architecture = {.step = steps}}, 0);
    const auto later = train<strategy>(workers, {.architecture = {.step = steps - 1}}, 0);
    const auto expected = trained(workers, steps, {}, gradient_of_few_digits);
    for (std::size_t rank = 0; rank < never.parameters.size(); ++rank) {
      EXPECT_EQ(never.parameters[rank], expected) << "rank " << rank << " of " << workers;
      EXPECT_EQ(later.parameters[rank], later.parameters[0]);
      EXPECT_NE(later.parameters[rank], expected);
    }
  }
}

}  // namespace
}  // namespace tutti::test

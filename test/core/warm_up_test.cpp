// Dense steps first, and then a compressor whose payloads cannot be added. Values and bytes are
// compared with plain loops around the codec alone.
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
constexpr int dense_steps = 3;

/// Returns gradients of few digits, so that a ring's sums are exact.
float given(int worker, int step, std::size_t i) { return gradient_of_few_digits(worker, step, i); }

struct trained_ranks {
  std::vector<std::vector<float>> parameters{};
  std::vector<std::uint64_t> bytes{};  ///< from the step `counted_from` on
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

/// Returns the bytes that rank `rank` sends in a dense step around a ring: all parts but its own,
/// then all parts but its successor's.
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

/// Expects dense steps followed by `Later` to train as plain loops around the codec do.
template <class Later, class Compression>
void is_dense_and_then(way how, const Compression& its, typename Compression::options given_to_it) {
  using strategy = compose<Compression, architecture::switch_at<architecture::dense, Later>>;
  engine_options<strategy> set;
  set.compression = given_to_it;
  set.architecture.step = dense_steps;
  for (int workers = 1; workers <= 5; ++workers) {
    const std::vector<std::size_t> chunks(tensor_sizes().rbegin(), tensor_sizes().rend());
    const auto expected = payloads(how, workers, steps, its, chunks, dense_steps, given);
    const auto all = train<strategy>(workers, set, 1);
    for (std::size_t rank = 0; rank < all.parameters.size(); ++rank) {
      EXPECT_EQ(all.parameters[rank], expected.parameters) << "rank " << rank << " of " << workers;
      EXPECT_EQ(all.bytes[rank],
                static_cast<std::uint64_t>(dense_steps - 1) * dense_bytes(rank, all.bytes.size()) +
                    expected.bytes[rank])
          << "rank " << rank << " of " << workers;
    }
  }
}

TEST(WarmUp, IsDenseAndThenGathersSelections) {
  using selecting = compression::error_feedback<compression::top_k>;
  is_dense_and_then<architecture::all_gather>(way::gathered, selecting({.density = 0.1}),
                                              {.density = 0.1});
}
TEST(WarmUp, IsDenseAndThenCompressedAtBothEnds) {
  using lossy = compression::error_feedback<compression::scaled_sign>;
  is_dense_and_then<architecture::reduce_scatter_all_gather>(way::scattered, lossy(), {});
}

/// Before the switch it is training without a compressor, whatever follows.
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

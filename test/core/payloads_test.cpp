// Payloads whose lengths only their encoder knows, and answers that are encoded otherwise than what
// is answered: each architecture against plain loops around the codec alone, values and bytes.
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "support/strategy_laws.hpp"
#include "support/training.hpp"
#include "support/training_worlds.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/power_sgd.hpp"
#include "tutti/compression/qsgd.hpp"
#include "tutti/compression/select.hpp"

namespace tutti::test {

static_assert(strategies_in<coded_strategies_on<on_threads>> == 8);
INSTANTIATE_TYPED_TEST_SUITE_P(CodedOnThreads, StrategyLaw, coded_strategies_on<on_threads>);
static_assert(strategies_in<coded_strategies_on<on_the_virtual_clock>> == 8);
INSTANTIATE_TYPED_TEST_SUITE_P(CodedOnTheVirtualClock, StrategyLaw,
                               coded_strategies_on<on_the_virtual_clock>);

namespace {

constexpr int steps = 4;
constexpr std::size_t phantom_sizes[] = {30011, 513, 0, 40};

template <class Strategy>
task phantom_rank(transport::simulated& world, std::vector<std::uint64_t>& sent) {
  std::vector<tensor> tensors;
  for (const std::size_t each : phantom_sizes) {
    const tensor_shape shape = each == 513 ? tensor_shape{27, 19} : tensor_shape{each};
    tensors.push_back(tensor::phantom(std::to_string(each), each, shape));
  }
  auto engine = make_engine<Strategy>(world, tensors, optimizer_of());
  co_await engine.started();
  const std::uint64_t before = engine.counted().bytes_sent;
  for (int step = 0; step < steps && !engine.serves(); ++step) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      engine.ready(tensor_id(i));
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      co_await engine.arrival(tensor_id(i));
    }
  }
  sent[static_cast<std::size_t>(world.rank())] = engine.counted().bytes_sent - before;
  co_await engine.close();
}

/// Bytes that the first so many ranks send together in a step, which is what phantoms send.
template <class Strategy>
std::uint64_t sent_by_phantoms(int ranks, int counted) {
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(ranks));
  transport::run_simulated(ranks, transport::link{1.25e9, 50e-6}, [&](transport::simulated& world) {
    return phantom_rank<Strategy>(world, sent);
  });
  std::uint64_t sum = 0;
  for (int rank = 0; rank < counted; ++rank) {
    sum += sent[static_cast<std::size_t>(rank)];
  }
  return sum / steps;
}

TEST(Payloads, OfPhantomsAreAsLongAsExpected) {
  using compression::qsgd;
  const qsgd policy;
  std::uint64_t whole = 0;
  std::uint64_t parts = 0;
  std::uint64_t dense = 0;
  for (const std::size_t each : phantom_sizes) {
    whole += policy.expected(each);
    for (std::size_t part = 0; part < 3; ++part) {
      parts += policy.expected(each / 3 + (part < each % 3 ? 1 : 0));
    }
    dense += each == 513 ? 4 * (27 + 19) : 4 * each;
  }
  EXPECT_EQ((sent_by_phantoms<compose<qsgd, architecture::all_gather>>(3, 3)), 3 * 2 * whole);
  EXPECT_EQ((sent_by_phantoms<compose<qsgd, architecture::reduce_scatter_all_gather>>(3, 3)),
            2 * 2 * parts);
  EXPECT_EQ((sent_by_phantoms<compose<qsgd, architecture::parameter_server<>>>(4, 3)), 3 * whole);
  using low_rank = compression::select<matrices, compression::power_sgd, compression::none>;
  EXPECT_EQ((sent_by_phantoms<compose<low_rank>>(3, 3)), 2 * 2 * dense) << "a ring's";
}

}  // namespace
}  // namespace tutti::test

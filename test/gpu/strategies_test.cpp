// Whole strategies on one GPU. Ranks are threads, and the results are those of a CPU. A host's
// compiler compiles this; the kernels come from tutti::cuda.
#include <gtest/gtest.h>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "support/device_training.hpp"
#include "support/errors.hpp"
#include "support/low_rank_training.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/compression/bf16.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/block_sign.hpp"
#include "tutti/compression/byteps_topk.hpp"
#include "tutti/compression/chain.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/power_sgd.hpp"
#include "tutti/compression/select.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/strategies/adasum.hpp"
#include "tutti/strategies/byteps.hpp"
#include "tutti/strategies/ef_sign_sgd.hpp"
#include "tutti/strategies/horovod.hpp"
#include "tutti/strategies/mxnet.hpp"
#include "tutti/strategies/sign_sgd.hpp"
#include "tutti/strategies/top_k.hpp"
#include "tutti/transport/in_process_cuda.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test {
namespace {

using transport::in_process;
using transport::in_process_cuda;

class Strategies : public needs_a_device {};

/// Gradients have few digits, so that every sum is exact in any order.
template <class Strategy>
void agrees(engine_options<Strategy> options = {}) {
  constexpr bool serves = facts::has_servers<typename strategy_of<Strategy>::architecture>;
  for (int ranks = serves ? 2 : 1; ranks <= 4; ++ranks) {
    EXPECT_EQ((train_scattered<Strategy, in_process_cuda>(ranks, options)),
              (train_scattered<Strategy, in_process>(ranks, options)))
        << ranks << " ranks";
  }
}

template <class Strategy>
void stays_near() {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    const auto here = train_scattered<Strategy, in_process>(ranks);
    const auto there = train_scattered<Strategy, in_process_cuda>(ranks);
    ASSERT_EQ(here.size(), there.size());
    for (std::size_t i = 0; i < here.size(); ++i) {
      EXPECT_NEAR(here[i], there[i], 1e-5) << i << " of " << ranks << " ranks";
    }
  }
}

}  // namespace

TEST_F(Strategies, Horovod) { agrees<strategies::Horovod>(); }
TEST_F(Strategies, CanonicalInBFloat16) {
  agrees<compose<architecture::all_reduce<collective::canonical>, compression::bf16>>();
}
TEST_F(Strategies, TopK) { agrees<strategies::TopK>({.compression = {.density = 0.1}}); }
TEST_F(Strategies, SignSGD) { agrees<strategies::SignSGD>(); }
TEST_F(Strategies, BlockSigns) {
  agrees<compose<compression::error_feedback<compression::block_sign>>>(
      {.compression = {.block = 64}});
}
TEST_F(Strategies, BlockCodes) {
  agrees<compose<compression::error_feedback<compression::block_int8>>>(
      {.compression = {.block = 64}});
}
TEST_F(Strategies, BytePSTopK) {
  agrees<compose<compression::error_feedback<compression::byteps_topk>>>(
      {.compression = {.density = 0.1}});
}
TEST_F(Strategies, MXNet2Bit) {
  agrees<strategies::MXNet2Bit>({.compression = {.threshold = 0.25f}});
}
/// The values of a selection are codes, which are decoded by way of scratch.
TEST_F(Strategies, ChainOfCodes) {
  using codes = compression::chain<compression::top_k, compression::block_int8>;
  using strategy =
      compose<compression::error_feedback<codes>, architecture::reduce_scatter_all_gather>;
  engine_options<strategy> options;
  options.compression = {.selection = {.density = 0.1}, .code = {.block = 64}};
  agrees<strategy>(options);
}
TEST_F(Strategies, Signum) { agrees<strategies::Signum>(); }
TEST_F(Strategies, BytePS) { agrees<strategies::BytePS>(); }
TEST_F(Strategies, ServersThatUpdate) {
  agrees<compose<architecture::parameter_server<consistency::synchronous, updated_by::servers>>>();
}

TEST_F(Strategies, PowerSGD) {
  using low_rank = compression::select<matrices, compression::power_sgd, compression::none>;
  agrees<compose<architecture::all_reduce<collective::canonical>, low_rank>>(
      {.compression = {.chosen = {.rank = 3}}});
  for (int ranks = 1; ranks <= 4; ++ranks) {
    transport::run_ranks<in_process_cuda>(
        ranks, [](in_process_cuda& world) { expect_trained_in_low_rank(world); });
  }
}

/// Means of magnitudes may be floats next to the host's, and residuals carry such differences on.
TEST_F(Strategies, EFSignSGD) { stays_near<strategies::EFSignSGD>(); }
/// Adasum's weights may differ, too, because inner products are added in another order.
TEST_F(Strategies, Adasum) { stays_near<strategies::Adasum>(); }

TEST_F(Strategies, EveryRankHoldsTheSame) {
  const auto first = train_scattered<strategies::EFSignSGD, in_process_cuda>(4, {}, 0);
  for (int rank = 1; rank < 4; ++rank) {
    EXPECT_EQ((train_scattered<strategies::EFSignSGD, in_process_cuda>(4, {}, rank)), first);
  }
}

TEST_F(Strategies, ACheckpointGoesThroughTheHost) {
  std::vector<std::stringstream> files(2);
  std::vector<float> resumed;
  for (const bool later : {false, true}) {
    transport::run_ranks<in_process_cuda>(2, [&](in_process_cuda& world) {
      cuda::stream compute;
      scattered_model<cuda::stream> model(compute);
      auto engine = make_engine<strategies::TopK>(world, model.tensors(), device_optimizer());
      auto& file = files[static_cast<std::size_t>(world.rank())];
      if (later) {
        load(engine, file);
      }
      take_steps(engine, model, compute, later ? 3 : 0, later ? device_steps : 3);
      if (!later) {
        save(engine, file);
      } else if (world.rank() == 0) {
        resumed = model.parameters();
      }
    });
  }
  EXPECT_EQ(resumed, (train_scattered<strategies::TopK, in_process>(2)));
}

TEST_F(Strategies, NaNEndsEveryRankInOneSentence) {
  const auto said = errors<threads<in_process_cuda>>(3, [](in_process_cuda& world) {
    cuda::stream compute;
    scattered_model<cuda::stream> model(compute);
    engine_options<strategies::TopK> options;
    options.run.deadline = 20;
    auto engine =
        make_engine<strategies::TopK>(world, model.tensors(), device_optimizer(), options);
    take_steps(engine, model, compute, 0, 1);
    for (std::size_t id = std::size(device_sizes); id-- > 0;) {
      if (world.rank() == 1) {
        model.spoil(id, std::numeric_limits<float>::quiet_NaN());
      } else {
        model.backward(id, engine.worker(), 1);
      }
      engine.ready(tensor_id(id), compute);
    }
    engine.wait();
    take_steps(engine, model, compute, 2, device_steps);
  });
  EXPECT_NE(said[1].find("is not a number"), std::string::npos) << said[1];
  EXPECT_EQ(said[0], "rank 1 failed: " + said[1]);
  EXPECT_EQ(said[2], said[0]);
}

TEST_F(Strategies, HostMemoryIsRefusedWithAFix) {
  const auto said = errors<threads<in_process_cuda>>(1, [](in_process_cuda& world) {
    std::vector<float> parameter(8);
    std::vector<float> gradient(8);
    auto engine = make_engine<strategies::Horovod>(world, {tensor("weight", parameter, gradient)},
                                                   device_optimizer());
  });
  EXPECT_NE(said[0].find("weight"), std::string::npos) << said[0];
  EXPECT_NE(said[0].find("Fix:"), std::string::npos) << said[0];
}

}  // namespace tutti::test

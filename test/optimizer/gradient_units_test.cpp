// Whatever is remembered or set in units of the gradient follows what multiplies gradients: the
// loss scale, and the number of passes whose gradients are summed.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "support/training.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/majority_vote.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/architecture/sparse_regions.hpp"
#include "tutti/architecture/sparse_tree.hpp"
#include "tutti/compression/block_sign.hpp"
#include "tutti/compression/by_kth_magnitude.hpp"
#include "tutti/compression/by_magnitude.hpp"
#include "tutti/compression/byteps_onebit.hpp"
#include "tutti/compression/dense_below.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/fading_error_feedback.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/momentum_correction.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/push_only.hpp"
#include "tutti/compression/select.hpp"
#include "tutti/compression/signum.hpp"
#include "tutti/compression/threshold.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/optimizer/loss_scaled.hpp"
#include "tutti/optimizer/scaled_elsewhere.hpp"
#include "tutti/partition/into.hpp"

namespace tutti::test {
namespace {

/// What a step's gradients are multiplied by.
struct multiplied {
  float scale{1};
  unsigned passes{1};
};

std::vector<arena::declaration> small_model() {
  return {{"vector", 60}, {"scalar", 1}, {"nothing", 0}, {"matrix", 450, {15, 30}}};
}

/// Returns the parameters on all workers after a step for each element of `told`. The mean over a
/// step's passes is the same whatever their number.
template <class Strategy>
std::vector<std::vector<float>> trained(int workers, const std::vector<multiplied>& told,
                                        engine_options<Strategy> set) {
  std::vector<std::vector<float>> all(static_cast<std::size_t>(workers));
  set.run.deadline = 60;
  transport::run_ranks(workers + servers_in<Strategy>(set), [&](transport::in_process& world) {
    arena memory = model_of(world.rank(), small_model());
    auto options = set;
    options.run.accumulation = told.front().passes;
    optimizer::loss_scaled<optimizer::sgd> values{{0.125f, 0.0f}, told.front().scale};
    auto engine = make_engine<Strategy>(world, memory.tensors(), values, options);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    for (std::size_t step = 0; step < told.size(); ++step) {
      if (told[step].passes != options.run.accumulation) {
        options.run.accumulation = told[step].passes;
        engine.replan(options);
      }
      if (told[step].scale != engine.values().scale) {
        values = engine.values();
        values.scale = told[step].scale;
        engine.change(values);
      }
      for (unsigned pass = 1; pass <= told[step].passes; ++pass) {
        std::size_t element = 0;
        for (float& each : memory.gradients()) {
          each = told[step].scale * static_cast<float>(pass) *
                 gradient(world.rank(), static_cast<int>(step), element++);
        }
        for (const tensor_id id : shuffled(memory.tensors().size(), world.rank(), 1)) {
          engine.ready(id);
        }
      }
      engine.wait();
    }
    all[static_cast<std::size_t>(world.rank())].assign(memory.parameters().begin(),
                                                       memory.parameters().end());
  });
  return all;
}

/// A composition and options with which it has an effect on a few hundred elements.
template <class... Policies>
struct listed {
  using strategy = compose<Policies...>;

  static engine_options<strategy> options() {
    engine_options<strategy> set;
    if constexpr (has_servers<strategy>) {
      set.architecture.servers = 2;
    }
    set_up(set.compression);
    return set;
  }

 private:
  template <class Options>
  static void set_up(Options& set) {
    if constexpr (requires { set.density; }) {
      set.density = 0.05;
    }
    if constexpr (requires { set.magnitude; }) {
      set.magnitude = 1.5f;
    }
    if constexpr (requires { set.keep; }) {
      set.most = 0.25f;
    }
    if constexpr (requires { set.clip; }) {
      set.clip = 1;
    }
    if constexpr (requires { set.worth; }) {
      set.worth = compression::sign_is_worth::one;
    }
    if constexpr (requires { set.decorated; }) {
      set_up(set.decorated);
    }
  }
};

/// Sends each element whose square reaches the mean square of its values so far, and adds the
/// others to a residual: what it remembers are residuals, sums of squares and counts.
struct above_its_mean_square {
  using role = tutti::role::compression;
  static constexpr bool summable = false;
  static constexpr std::size_t memory_per_element = 3;
  static constexpr std::array<unsigned, 3> memory_degrees{1, 2, 0};

  static constexpr std::size_t wire_bytes(std::size_t elements) { return sizeof(float) * elements; }
  template <class Queue>
  void encode(Queue&, std::span<const float> gradient, wire out, const chunk_context& where) const {
    const std::size_t n = gradient.size();
    for (std::size_t i = 0; i != n; ++i) {
      float& residual = where.row(0, n)[i];
      float& squares = where.row(1, n)[i];
      float& count = where.row(2, n)[i];
      const float value = residual + gradient[i];
      squares += value * value;
      count += 1;
      const bool sends = value * value * count >= squares;
      out.as<float>()[i] = sends ? value : 0.0f;
      residual = sends ? 0.0f : value;
    }
  }
  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum) const {
    compression::none{}.accumulate(queue, in, sum);
  }
};

static_assert(facts::memory_degrees<compression::momentum_correction<above_its_mean_square>> ==
              std::array{1u, 1u, 2u, 0u});
static_assert(facts::memory_degrees<
                  compression::select<matrices, compression::fp16, above_its_mean_square>> ==
              above_its_mean_square::memory_degrees);
static_assert(facts::memory_degrees<compression::dense_below<above_its_mean_square>> ==
              above_its_mean_square::memory_degrees);

template <class Listed>
class GradientUnits : public testing::Test {};

namespace listing {
using namespace compression;
using namespace architecture;
using all = testing::Types<
    listed<sign, all_gather>, listed<sign, reduce_scatter_all_gather, fusion::when_ready>,
    listed<push_only<sign>,
           parameter_server<consistency::synchronous, updated_by::workers, mean::before>>,
    listed<error_feedback<sign>, parameter_server<>>, listed<signum, majority_vote>,
    listed<error_feedback<two_bit>, all_gather, partition::into>,
    listed<push_only<error_feedback<two_bit>>, parameter_server<>>,
    listed<error_feedback<one_bit>, reduce_scatter_all_gather>,
    listed<error_feedback<byteps_onebit>, parameter_server<>>,
    listed<error_feedback<by_magnitude>, all_gather>,
    listed<fading_error_feedback<block_sign>, parameter_server<>>,
    listed<momentum_correction<error_feedback<top_k>>, sparse_tree>,
    listed<above_its_mean_square, all_gather>,
    listed<momentum_correction<above_its_mean_square>, all_gather>,
    listed<above_its_mean_square, reduce_scatter_all_gather>,
    listed<above_its_mean_square, parameter_server<>, partition::into>>;
}  // namespace listing
TYPED_TEST_SUITE(GradientUnits, listing::all);

TYPED_TEST(GradientUnits, FollowTheLossScaleAndTheNumberOfPasses) {
  using strategy = typename TypeParam::strategy;
  const std::vector<multiplied> plain(6);
  const std::vector<multiplied> scaled{{1}, {64}, {64}, {0.5f}, {8}, {8}};
  const std::vector<multiplied> in_passes{{1, 1}, {1, 4}, {1, 4}, {1, 2}, {1, 1}, {1, 2}};
  const std::vector<multiplied> both{{2, 4}, {64, 4}, {64, 2}, {0.5f, 1}, {8, 2}, {8, 2}};
  for (const int workers : {1, 2, 4}) {
    SCOPED_TRACE(std::to_string(workers) + " workers");
    const auto wanted = trained<strategy>(workers, plain, TypeParam::options());
    EXPECT_TRUE(trained<strategy>(workers, scaled, TypeParam::options()) == wanted)
        << "under other loss scales";
    EXPECT_TRUE(trained<strategy>(workers, in_passes, TypeParam::options()) == wanted)
        << "in other numbers of passes";
    EXPECT_TRUE(trained<strategy>(workers, both, TypeParam::options()) == wanted) << "both";
  }
}

/// The mean of votes on divided gradients is that of votes on whole ones.
TEST(GradientUnits, AreThoseOfDividedGradientsWhereTheseAreEncoded) {
  using namespace architecture;
  using votes = compression::push_only<compression::sign>;
  using divided =
      parameter_server<tutti::consistency::synchronous, updated_by::workers, mean::before>;
  const std::vector<multiplied> told{{}, {2, 2}};
  EXPECT_TRUE((trained<compose<votes, divided>>(4, told, {})) ==
              (trained<compose<votes, parameter_server<>>>(4, told, {})));
}

/// Returns how many bytes a rank has sent in some steps, of which the first was not finite on that
/// rank if `overflows`.
std::uint64_t sent_after_a_first_step(bool overflows) {
  using strategy = compose<compression::error_feedback<compression::by_kth_magnitude>,
                           architecture::sparse_regions>;
  std::uint64_t bytes = 0;
  transport::run_ranks(2, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    engine_options<strategy> set;
    set.compression.density = 0.05;
    optimizer::scaled_elsewhere values;
    values.skipped_step = optimizer::after_skipping::residuals_stay;
    auto engine = make_engine<strategy>(world, memory.tensors(), values, set);
    std::uint64_t before = 0;
    for (int step = 0; step < 6; ++step) {
      backward(memory, world.rank(), step);
      if (overflows && step == 0 && world.rank() == 0) {
        std::ranges::fill(memory.gradients(), std::numeric_limits<float>::infinity());
      }
      for (const tensor_id id : shuffled(memory.tensors().size(), world.rank(), step)) {
        engine.ready(id);
      }
      engine.wait();
      before = step == 0 ? engine.counted().bytes_sent : before;
    }
    if (world.rank() == 0) {
      bytes = engine.counted().bytes_sent - before;
    }
  });
  return bytes;
}
/// Zeros travel in place of infinities, and a magnitude that is found among them would let
/// everything through from then on, even where residuals stay as the step has left them.
TEST(GradientUnits, OfMagnitudesAreNotThoseOfASkippedStep) {
  EXPECT_LT(sent_after_a_first_step(true), 2 * sent_after_a_first_step(false));
}

}  // namespace
}  // namespace tutti::test

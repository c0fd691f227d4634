// Networks on a GPU: the results of their layers, in which order parameters may be read and
// changed, and that ranks on a GPU learn what ranks on a CPU do. A host's compiler compiles this.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpu/device.hpp"
#include "models/cudnn.hpp"
#include "models/eigen.hpp"
#include "models/model.hpp"
#include "models/samples.hpp"
#include "support/extent.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/strategies/horovod.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/in_process_cuda.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test {
namespace {

using gpu_network = models::network<models::cudnn>;
using samples::batch_of;
using transport::in_process;
using transport::in_process_cuda;

class Networks : public needs_a_device {};

constexpr std::size_t classes_of_odd = 4;

void agrees_with_double_precision(const models::declaration& of, std::size_t classes,
                                  std::initializer_list<std::size_t> batches) {
  for (const std::size_t count : batches) {
    gpu_network model(of, count, 3);
    samples::give_biases(model);
    samples::expect_the_oracles(model, of, batch_of(of, count, 5, classes));
  }
}

/// Returns a network whose channels fill whole packs of sixteen bytes.
models::declaration wide() {
  constexpr auto none = models::bias::none;
  return {
      .name = "wide",
      .input = {8, 7, 7},
      .layers = {models::convolution{"conv1", 16, 3, 1, none}, models::batch_norm{"bn1"},
                 models::relu{},  // 2
                 models::convolution{"conv2", 16, 3, 1, none}, models::batch_norm{"bn2"},
                 models::sum{2}, models::relu{}, models::average_pool{}, models::linear{"fc", 4}}};
}

/// Returns the Euclidean norm of the error of `got`, relative to that of the expected values.
double distance(std::span<const float> got, const reference::values& expected) {
  double apart = 0;
  double whole = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    apart += (got[i] - expected[i]) * (got[i] - expected[i]);
    whole += expected[i] * expected[i];
  }
  return std::sqrt(apart / whole);
}

}  // namespace

TEST_F(Networks, OddShapesAreTheOracles) {
  agrees_with_double_precision(samples::odd(), classes_of_odd, {1, 3, 8});
}
TEST_F(Networks, ResidualBlocksAreTheOracles) {
  agrees_with_double_precision(wide(), 4, {1, 4});
  agrees_with_double_precision(samples::residual(), 4, {2, 5});
}
TEST_F(Networks, BranchesSideBySideAreTheOracles) {
  agrees_with_double_precision(samples::branched(), 4, {2, 5});
}
TEST_F(Networks, InferenceIsTheOraclesByRunningStatistics) {
  gpu_network model(samples::residual(), 4, 3);
  samples::give_biases(model);
  samples::expect_the_oracles_inference(model, samples::residual(), 4);
}
TEST_F(Networks, MlpIsTheOracles) { agrees_with_double_precision(models::mlp(), 10, {1, 5, 32}); }
TEST_F(Networks, CnnIsTheOracles) {
  agrees_with_double_precision(models::cnn(), 10, {1, all_of_a_product ? 8 : 3});
}

/// With eight significant bits, values are near the oracle's, but not as near as with fp32. They
/// cannot be nearer, because some values next to zero pass a rectifier that the oracle's do not.
TEST_F(Networks, Bfloat16IsNearTheOracles) {
  for (auto of : {samples::odd(), wide()}) {
    of.precision = models::precision::bf16;
    gpu_network model(of, 8, 3);
    samples::give_biases(model);
    const batch_of some(of, 8, 5, 4);
    reference::network oracle(of, samples::all_parameters(model));
    model.forward(some.batch());
    model.backward([](tensor_id) {});
    const double loss = oracle.loss(some.batch());
    EXPECT_NEAR(model.loss(), loss, 0.02 * loss) << of.name;
    const auto expected = oracle.gradients(some.batch());
    for (std::size_t t = 0; t < expected.size(); ++t) {
      const auto off = distance(host_view(model.queue(), model.tensors()[t].gradient), expected[t]);
      EXPECT_LT(off, 0.1) << of.name << " " << model.tensors()[t].name;
      EXPECT_GT(off, 1e-5) << of.name << " " << model.tensors()[t].name;
    }
  }
}

TEST_F(Networks, AShortBatchIsAMeanOverItsOwnImages) {
  const auto of = samples::odd();
  gpu_network model(of, 8, 3);
  model.forward(batch_of(of, 8, 1, classes_of_odd).batch());
  model.backward([](tensor_id) {});
  samples::expect_the_oracles(model, of, batch_of(of, 3, 2, classes_of_odd));
  EXPECT_LE(model.correct(), 3U);
}

TEST_F(Networks, BackwardAccumulates) {
  const auto of = samples::residual();
  gpu_network model(of, 4, 3);
  const auto gradient_of = [&](std::uint64_t seed, models::gradients mode) {
    model.forward(batch_of(of, 4, seed, classes_of_odd).batch());
    model.backward([](tensor_id) {}, mode);
    return samples::all_gradients(model);
  };
  const auto a = gradient_of(1, models::gradients::overwrite);
  const auto b = gradient_of(2, models::gradients::overwrite);
  gradient_of(1, models::gradients::overwrite);
  const auto both = gradient_of(2, models::gradients::accumulate);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(both[i], b[i] + a[i]) << i;
  }
}

TEST_F(Networks, StartAsTheCpusDo) {
  for (const auto& of : {models::mlp(), models::cnn()}) {
    gpu_network there(of, 2, 3);
    models::model here(of, 2, 3);
    EXPECT_EQ(samples::all_parameters(there), samples::all_parameters(here)) << of.name;
  }
}

/// Parameters are poisoned as soon as their gradients are announced, and restored only just before
/// their layer. All of this is enqueued.
TEST_F(Networks, ParametersAreReadBetweenTheirCallbacks) {
  const auto of = samples::odd();
  gpu_network model(of, 4, 3);
  const batch_of some(of, 4, 1, classes_of_odd);
  model.forward(some.batch());
  model.backward([](tensor_id) {});
  const float expected = model.loss();
  const auto gradients = samples::all_gradients(model);
  std::vector<cuda::buffer<float>> kept;
  for (const auto& each : model.tensors()) {
    kept.push_back(model.queue().allocate<float>(each.elements));
    model.queue().copy(kept.back().data(), each.parameter.data(), each.parameter.size_bytes());
  }
  const auto poison = [&](tensor_id id) {
    const auto parameter = model.tensors()[index(id)].parameter;
    cuda::check(cudaMemsetAsync(parameter.data(), 0xFF, parameter.size_bytes(),
                                model.queue().native_handle()));
  };
  for (std::size_t id = 0; id < model.tensors().size(); ++id) {
    poison(tensor_id(id));
  }
  for (int step = 0; step < 2; ++step) {
    model.forward(some.batch(), [&](tensor_id id) {
      const auto parameter = model.tensors()[index(id)].parameter;
      model.queue().copy(parameter.data(), kept[index(id)].data(), parameter.size_bytes());
    });
    model.backward(poison);
    EXPECT_EQ(model.loss(), expected);
    EXPECT_EQ(samples::all_gradients(model), gradients);
  }
}

TEST_F(Networks, TheSameBitsEachTime) {
  const auto gradients = [] {
    const auto of = models::cnn();
    gpu_network model(of, 2, 3);
    model.forward(batch_of(of, 2, 1, 10).batch());
    model.backward([](tensor_id) {});
    return samples::all_gradients(model);
  };
  EXPECT_EQ(gradients(), gradients());
}

namespace {

/// Returns the losses of all steps and the final parameters, on rank 0 of 2 that train over
/// `World`.
template <class World, class Backend>
std::pair<std::vector<float>, std::vector<reference::values>> trained(
    const models::declaration& of) {
  std::pair<std::vector<float>, std::vector<reference::values>> result;
  transport::run_ranks<World>(2, [&](World& world) {
    models::network<Backend> model(of, 2, 3);
    auto engine = make_engine<strategies::Horovod>(
        world, model.tensors(), optimizer::sgd{.learning_rate = 0.05F, .momentum = 0.9F});
    std::vector<float> losses;
    for (std::uint64_t step = 0; step < 3; ++step) {
      const auto seed = 2 * step + static_cast<std::uint64_t>(engine.worker());
      model.forward(batch_of(of, 2, seed, 10).batch(),
                    [&](tensor_id id) { engine.wait(id, model.queue()); });
      model.backward([&](tensor_id id) { engine.ready(id, model.queue()); });
      losses.push_back(model.loss());
    }
    engine.wait();
    if (world.rank() == 0) {
      result = {losses, samples::all_parameters(model)};
    }
  });
  return result;
}

}  // namespace

TEST_F(Networks, RanksLearnWhatRanksOnACpuLearn) {
  auto resnet = models::resnet20();
  resnet.input = {2, 8, 8};
  for (const auto& of : {models::mlp(), models::cnn(), resnet}) {
    const auto [losses_here, here] = trained<in_process, models::eigen>(of);
    const auto [losses_there, there] = trained<in_process_cuda, models::cudnn>(of);
    for (std::size_t step = 0; step < losses_here.size(); ++step) {
      EXPECT_NEAR(losses_there[step], losses_here[step], 1e-4) << of.name << " step " << step;
    }
    for (std::size_t t = 0; t < here.size(); ++t) {
      const std::vector<float> got(there[t].begin(), there[t].end());
      samples::expect_near(got, here[t], of.name + " tensor " + std::to_string(t));
    }
  }
}

TEST_F(Networks, ABatchThatDoesNotFitIsRefused) {
  gpu_network model(samples::odd(), 4, 3);
  EXPECT_THROW(model.forward(batch_of(samples::odd(), 5, 1, classes_of_odd).batch()), usage_error);
}

}  // namespace tutti::test

// Models that have drifted apart, evaluated as their mean.
#include "train/evaluation.hpp"

#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

#include "models/model.hpp"
#include "tutti/architecture/independent.hpp"
#include "tutti/architecture/local_sgd.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/transport/in_process.hpp"

namespace {

using namespace tutti;

std::vector<float> all_parameters(models::model& model) {
  std::vector<float> all;
  for (const auto& each : model.tensors()) {
    all.insert(all.end(), each.parameter.begin(), each.parameter.end());
  }
  const auto running = model.statistics();
  all.insert(all.end(), running.begin(), running.end());
  return all;
}

TEST(at_the_mean, a_model_is_the_workers_mean_and_then_its_own_again) {
  for (const int workers : {1, 2, 5}) {
    transport::run_ranks(workers, [&](transport::in_process& world) {
      models::model model(models::resnet20(), 2, 3);
      auto engine =
          make_engine<compose<architecture::independent>>(world, model.tensors(), optimizer::sgd{});
      const auto before = all_parameters(model);
      const auto rank = static_cast<float>(world.rank());
      for (const auto& each : model.tensors()) {
        for (float& x : each.parameter) {
          x += rank;
        }
      }
      for (float& x : model.statistics()) {
        x += rank;
      }
      const auto own = all_parameters(model);
      {
        const train::at_the_mean mean(engine, model);
        const auto seen = all_parameters(model);
        for (std::size_t i = 0; i < seen.size(); ++i) {
          ASSERT_NEAR(seen[i], before[i] + static_cast<float>(workers - 1) / 2, 1e-5) << i;
        }
      }
      EXPECT_EQ(all_parameters(model), own);
    });
  }
}

/// Every image is of class 3, so a model is right if its last bias favours that class and wrong
/// otherwise.
TEST(accuracy, of_models_that_differ_is_that_of_their_mean_and_the_worst_ones_own) {
  data::dataset images{.image = {1, 28, 28}, .classes = 10, .mean = 0, .deviation = 1};
  images.pixels.resize(std::size_t{40} * 784);
  images.labels.resize(40, 3);
  transport::run_ranks(3, [&](transport::in_process& world) {
    models::model model(models::mlp(), 8, 3);
    auto engine =
        make_engine<compose<architecture::independent>>(world, model.tensors(), optimizer::sgd{});
    const auto bias = model.tensors().back().parameter;
    bias[3] = world.rank() == 2 ? -10.0f : 10.0f;  // whose mean is 10 / 3
    const auto worker = static_cast<std::size_t>(world.rank());
    const auto own = train::share(images, worker, 3);
    EXPECT_EQ(own.size(), worker == 0 ? 14U : 13U);
    const data::augmentation plain;
    EXPECT_DOUBLE_EQ(
        train::accuracy<compose<architecture::independent>>(engine, model, own, 40, plain), 1);
    EXPECT_DOUBLE_EQ(train::accuracy<compose<>>(engine, model, own, 40, plain), 27.0 / 40)
        << "each worker's own model on its share";
    EXPECT_DOUBLE_EQ(train::worst_accuracy(engine, model, images, plain), 0);
  });
  static_assert(!train::replicas_differ<compose<>>);
  static_assert(train::replicas_differ<compose<architecture::local_sgd<>>>);
  static_assert(!train::replicas_differ<compose<architecture::parameter_server<>>>);
}

}  // namespace

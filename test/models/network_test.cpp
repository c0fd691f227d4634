#include "models/network.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <gtest/gtest.h>
#include <iterator>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "data/loader.hpp"
#include "data/synthetic.hpp"
#include "models/model.hpp"
#include "reference.hpp"

namespace {

using tutti::tensor_id;

/// Every kind of layer, odd sides, a convolution that needs its input's gradient, channel counts
/// that fill no vector register.
models::declaration odd() {
  return {.name = "odd",
          .input = {2, 9, 7},
          .layers = {models::convolution{"conv1", 5, 5}, models::relu{}, models::max_pool{},
                     models::convolution{"conv2", 6, 3}, models::max_pool{}, models::relu{},
                     models::linear{"fc1", 11}, models::relu{}, models::linear{"fc2", 4}}};
}

struct samples {
  std::vector<float> images{};
  std::vector<std::uint8_t> labels{};

  samples(const models::declaration& of, std::size_t count, std::uint64_t seed, std::size_t classes)
      : images(count * of.input.size()), labels(count) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (float& each : images) {
      each = normal(random);
    }
    for (auto& each : labels) {
      each = static_cast<std::uint8_t>(random() % classes);
    }
  }
  data::batch batch() const { return {images, labels}; }
};

template <class Model>
std::vector<float> all_gradients(const Model& model) {
  std::vector<float> all;
  for (const auto& each : model.tensors()) {
    all.insert(all.end(), each.gradient.begin(), each.gradient.end());
  }
  return all;
}

template <class Model>
void give_biases(Model& model) {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal(0.0F, 0.1F);
  for (const auto& each : model.tensors()) {
    for (float& element : each.parameter) {
      element += normal(random);
    }
  }
}

void expect_near(std::span<const float> got, const reference::values& expected,
                 const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  double scale = 0;
  for (const double each : expected) {
    scale = std::max(scale, std::abs(each));
  }
  ASSERT_GT(scale, 0) << what << " is not tested by zeros";
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], 2e-5 * scale) << what << " element " << i;
  }
}

template <class Backend>
class network : public testing::Test {};
TYPED_TEST_SUITE(network, models::backends<testing::Types>);

TYPED_TEST(network, gradients_and_loss_are_the_oracles_in_double_precision) {
  for (const auto& [of, count, classes] : {std::tuple{odd(), std::size_t{3}, std::size_t{4}},
                                           {models::cnn(), 2, 10},
                                           {models::mlp(), 5, 10}}) {
    models::network<TypeParam> model(of, count, 3);
    give_biases(model);
    const samples some(of, count, 5, classes);
    reference::network oracle(of, reference::network::parameters(model.tensors()));
    model.forward(some.batch());
    model.backward([](tensor_id) {});
    const double loss = oracle.loss(some.batch());
    EXPECT_NEAR(model.loss(), loss, 1e-5 * (1 + loss));
    const auto expected = oracle.gradients(some.batch());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expect_near(model.tensors()[i].gradient, expected[i],
                  of.name + " " + model.tensors()[i].name);
    }
  }
}

TYPED_TEST(network, a_short_batch_is_a_mean_over_its_own_images) {
  const auto of = odd();
  models::network<TypeParam> model(of, 8, 3);
  const samples full(of, 8, 1, 4);
  const samples few(of, 3, 2, 4);
  model.forward(full.batch());
  model.backward([](tensor_id) {});
  model.forward(few.batch());
  model.backward([](tensor_id) {});
  reference::network oracle(of, reference::network::parameters(model.tensors()));
  const auto expected = oracle.gradients(few.batch());
  EXPECT_NEAR(model.loss(), oracle.loss(few.batch()), 1e-5);
  EXPECT_LE(model.correct(), 3U);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expect_near(model.tensors()[i].gradient, expected[i], model.tensors()[i].name);
  }
}

TYPED_TEST(network, backward_overwrites_or_accumulates) {
  const auto of = odd();
  models::network<TypeParam> model(of, 4, 3);
  const samples first(of, 4, 1, 4);
  const samples second(of, 4, 2, 4);
  const auto gradient_of = [&](const samples& some, models::gradients mode) {
    model.forward(some.batch());
    model.backward([](tensor_id) {}, mode);
    return all_gradients(model);
  };
  const auto a = gradient_of(first, models::gradients::overwrite);
  const auto b = gradient_of(second, models::gradients::overwrite);
  gradient_of(first, models::gradients::overwrite);
  const auto both = gradient_of(second, models::gradients::accumulate);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(both[i], b[i] + a[i]) << i;
  }
}

TYPED_TEST(network, callbacks_come_in_order_around_their_layer) {
  const auto of = models::cnn();
  models::network<TypeParam> model(of, 4, 3);
  const samples some(of, 4, 1, 10);
  std::vector<std::size_t> used;
  model.forward(some.batch(), [&](tensor_id id) { used.push_back(tutti::index(id)); });
  for (const auto& each : model.tensors()) {
    std::ranges::fill(each.gradient, NAN);
  }
  std::vector<std::size_t> finished;
  model.backward([&](tensor_id id) {
    finished.push_back(tutti::index(id));
    for (std::size_t i = 0; i < model.tensors().size(); ++i) {
      const auto gradient = model.tensors()[i].gradient;
      const bool is_final = std::none_of(gradient.begin(), gradient.end(),
                                         [](float each) { return std::isnan(each); });
      const bool same_layer = i / 2 == tutti::index(id) / 2;
      EXPECT_EQ(is_final, i >= tutti::index(id) || same_layer) << i << " at " << tutti::index(id);
    }
    // The engine may let the optimizer loose on a tensor as soon as it is ready.
    std::ranges::fill(model.tensors()[tutti::index(id)].parameter, NAN);
  });
  for (const float each : all_gradients(model)) {
    ASSERT_FALSE(std::isnan(each)) << "a parameter was read after its gradient was announced";
  }
  std::vector<std::size_t> ascending(model.tensors().size());
  std::iota(ascending.begin(), ascending.end(), std::size_t{0});
  EXPECT_EQ(used, ascending);
  std::reverse(ascending.begin(), ascending.end());
  EXPECT_EQ(finished, ascending);
}

TYPED_TEST(network, forward_reads_a_parameter_only_after_its_callback) {
  const auto of = odd();
  models::network<TypeParam> model(of, 4, 3);
  const samples some(of, 4, 1, 4);
  model.forward(some.batch());
  const float expected = model.loss();
  const auto kept = reference::network::parameters(model.tensors());
  for (const auto& each : model.tensors()) {
    std::ranges::fill(each.parameter, NAN);
  }
  model.forward(some.batch(), [&](tensor_id id) {
    std::ranges::transform(kept[tutti::index(id)],
                           model.tensors()[tutti::index(id)].parameter.begin(),
                           [](double each) { return static_cast<float>(each); });
  });
  EXPECT_EQ(model.loss(), expected);
}

TYPED_TEST(network, layer_by_layer_is_the_same_step) {
  const auto of = models::cnn();
  models::network<TypeParam> whole(of, 4, 3);
  models::network<TypeParam> stepwise(of, 4, 3);
  const samples some(of, 4, 1, 10);
  whole.forward(some.batch());
  whole.backward([](tensor_id) {});
  stepwise.set_batch(some.batch());
  std::vector<std::size_t> ids;
  for (std::size_t layer = 0; layer < stepwise.layers(); ++layer) {
    for (const auto id : stepwise.parameters_of(layer)) {
      ids.push_back(tutti::index(id));
    }
    stepwise.forward_layer(layer);
  }
  for (std::size_t layer = stepwise.layers(); layer-- > 0;) {
    stepwise.backward_layer(layer);
  }
  EXPECT_EQ(ids.size(), stepwise.tensors().size());
  EXPECT_EQ(whole.loss(), stepwise.loss());
  EXPECT_EQ(whole.correct(), stepwise.correct());
  EXPECT_EQ(all_gradients(whole), all_gradients(stepwise));
}

TYPED_TEST(network, the_same_bits_on_every_thread) {
  const auto of = models::cnn();
  const samples some(of, 16, 1, 10);
  const auto train = [&](std::vector<float>& parameters) {
    models::network<TypeParam> model(of, 16, 3);
    for (int step = 0; step < 5; ++step) {
      model.forward(some.batch());
      model.backward([&](tensor_id id) {
        const auto& each = model.tensors()[tutti::index(id)];
        for (std::size_t i = 0; i < each.elements; ++i) {
          each.parameter[i] -= 0.05F * each.gradient[i];
        }
      });
    }
    for (const auto& each : model.tensors()) {
      parameters.insert(parameters.end(), each.parameter.begin(), each.parameter.end());
    }
  };
  std::vector<float> alone;
  train(alone);
  std::vector<std::vector<float>> together(4);
  {
    std::vector<std::jthread> ranks;
    for (auto& each : together) {
      ranks.emplace_back([&] { train(each); });
    }
  }
  for (const auto& each : together) {
    ASSERT_EQ(each.size(), alone.size());
    for (std::size_t i = 0; i < each.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(each[i]), std::bit_cast<std::uint32_t>(alone[i])) << i;
    }
  }
}

TYPED_TEST(network, a_rank_is_one_thread) {
  const auto threads = [] {
    const std::filesystem::directory_iterator all("/proc/self/task");
    return std::distance(begin(all), end(all));
  };
  const auto of = models::cnn();
  const auto before = threads();
  models::network<TypeParam> model(of, 16, 3);
  model.forward(samples(of, 16, 1, 10).batch());
  model.backward([](tensor_id) {});
  EXPECT_EQ(threads(), before);
}

TYPED_TEST(network, a_seed_fixes_the_parameters_and_their_spread) {
  const models::network<TypeParam> one(models::mlp(), 1, 3);
  const models::network<TypeParam> same(models::mlp(), 1, 3);
  const models::network<TypeParam> other(models::mlp(), 1, 4);
  const auto weights = one.tensors()[0].parameter;
  EXPECT_TRUE(std::ranges::equal(weights, same.tensors()[0].parameter));
  EXPECT_FALSE(std::ranges::equal(weights, other.tensors()[0].parameter));
  double sum = 0;
  double squares = 0;
  for (const float each : weights) {
    sum += each;
    squares += static_cast<double>(each) * each;
  }
  const auto n = static_cast<double>(weights.size());
  EXPECT_NEAR(sum / n, 0, 1e-3);
  EXPECT_NEAR(squares / n, 2.0 / 784, 2e-5);
  EXPECT_TRUE(std::ranges::all_of(one.tensors()[1].parameter, [](float b) { return b == 0; }));
}

TYPED_TEST(network, evaluation_counts_every_image_and_learning_helps) {
  const auto sets = data::synthetic({.train = 640, .test = 101});
  models::network<TypeParam> model(models::mlp(), 32, 3);
  const auto before = models::evaluate(model, sets.test);
  EXPECT_EQ(before.images, 101U);
  data::loader images(sets.train, {.batch_size = 32});
  for (std::size_t epoch = 0; epoch < 4; ++epoch) {
    for (const auto& batch : images.epoch(epoch)) {
      model.forward(batch);
      model.backward([&](tensor_id id) {
        const auto& each = model.tensors()[tutti::index(id)];
        for (std::size_t i = 0; i < each.elements; ++i) {
          each.parameter[i] -= 0.02F * each.gradient[i];
        }
      });
    }
  }
  const auto after = models::evaluate(model, sets.test);
  EXPECT_LT(after.mean_loss(), before.mean_loss());
  EXPECT_GT(after.accuracy(), 0.9);
}

TYPED_TEST(network, a_batch_that_does_not_fit_is_refused) {
  models::network<TypeParam> model(odd(), 4, 3);
  EXPECT_THROW(model.forward(samples(odd(), 5, 1, 4).batch()), tutti::usage_error);
  EXPECT_THROW(model.forward(samples(odd(), 0, 1, 4).batch()), tutti::usage_error);
  EXPECT_THROW(model.forward(samples(models::mlp(), 4, 1, 4).batch()), tutti::usage_error);
  samples wrong(odd(), 4, 1, 4);
  wrong.labels[2] = 4;
  EXPECT_THROW(model.forward(wrong.batch()), tutti::usage_error);
}

TEST(reference, agrees_with_finite_differences) {
  const auto of = odd();
  models::model model(of, 2, 3);
  give_biases(model);
  const samples some(of, 2, 5, 4);
  reference::network oracle(of, reference::network::parameters(model.tensors()));
  const auto gradients = oracle.gradients(some.batch());
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    for (std::size_t i = 0; i < gradients[t].size(); ++i) {
      constexpr double step = 1e-6;
      double& parameter = oracle.parameters()[t][i];
      const double kept = parameter;
      parameter = kept + step;
      const double above = oracle.loss(some.batch());
      parameter = kept - step;
      const double below = oracle.loss(some.batch());
      parameter = kept;
      ASSERT_NEAR((above - below) / (2 * step), gradients[t][i], 1e-7)
          << model.tensors()[t].name << " element " << i;
    }
  }
}

// Backends may order sums differently, no more.
template <class Backend>
std::vector<float> gradients_of_one_batch() {
  const auto of = models::cnn();
  models::network<Backend> model(of, 8, 3);
  model.forward(samples(of, 8, 1, 10).batch());
  model.backward([](tensor_id) {});
  return all_gradients(model);
}

template <class... Backends>
struct each_backend {
  static std::vector<std::vector<float>> gradients() {
    return {gradients_of_one_batch<Backends>()...};
  }
};

TEST(backends, agree_with_each_other) {
  const auto all = models::backends<each_backend>::gradients();
  for (const auto& each : all) {
    ASSERT_EQ(each.size(), all.front().size());
    for (std::size_t i = 0; i < each.size(); ++i) {
      ASSERT_NEAR(each[i], all.front()[i], 1e-4 * (1 + std::abs(all.front()[i]))) << i;
    }
  }
}

TEST(registry, finds_models_by_name_and_names_those_it_has) {
  for (const auto& name : models::names()) {
    EXPECT_EQ(models::find(name).name, name);
  }
  try {
    models::find("resnet");
    FAIL();
  } catch (const tutti::usage_error& problem) {
    EXPECT_EQ(std::string(problem.what()), "no model is named 'resnet'. Fix: one of mlp, cnn.");
  }
}

}  // namespace

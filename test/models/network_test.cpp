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
#include <utility>
#include <vector>

#include "data/loader.hpp"
#include "data/synthetic.hpp"
#include "models/model.hpp"
#include "models/reference.hpp"
#include "models/replayed/replayed.hpp"
#include "models/resnet.hpp"
#include "models/samples.hpp"

namespace {

using samples::all_gradients;
using samples::batch_of;
using samples::branched;
using samples::expect_the_oracles;
using samples::give_biases;
using samples::odd;
using samples::residual;
using tutti::tensor_id;

template <class Backend>
class network : public testing::Test {};
TYPED_TEST_SUITE(network, models::backends<testing::Types>);

TYPED_TEST(network, gradients_and_loss_are_the_oracles_in_double_precision) {
  for (const auto& [of, count, classes] : {std::tuple{odd(), std::size_t{3}, std::size_t{4}},
                                           {residual(), 4, 4},
                                           {branched(), 4, 4},
                                           {models::cnn(), 2, 10},
                                           {models::mlp(), 5, 10}}) {
    models::network<TypeParam> model(of, count, 3);
    give_biases(model);
    expect_the_oracles(model, of, batch_of(of, count, 5, classes));
  }
}

TYPED_TEST(network, a_short_batch_is_a_mean_over_its_own_images) {
  const auto of = odd();
  models::network<TypeParam> model(of, 8, 3);
  const batch_of full(of, 8, 1, 4);
  const batch_of few(of, 3, 2, 4);
  model.forward(full.batch());
  model.backward([](tensor_id) {});
  expect_the_oracles(model, of, few);
  EXPECT_LE(model.correct(), 3U);
}

TYPED_TEST(network, inference_is_the_oracles_by_running_statistics) {
  const auto of = residual();
  models::network<TypeParam> model(of, 4, 3);
  give_biases(model);
  samples::expect_the_oracles_inference(model, of, 4);
  expect_the_oracles(model, of, batch_of(of, 4, 5, 4));
}

TYPED_TEST(network, what_normalises_over_a_batch_trains_on_full_ones_alone) {
  models::network<TypeParam> model(residual(), 4, 3);
  try {
    model.forward(batch_of(residual(), 3, 1, 4).batch());
    FAIL();
  } catch (const tutti::usage_error& problem) {
    EXPECT_EQ(std::string(problem.what()),
              "model: a batch of 3 images is too small to normalise. Fix: train on batches of 4");
  }
}

TYPED_TEST(network, computes_in_fp32_alone) {
  auto of = odd();
  of.precision = models::precision::bf16;
  EXPECT_THROW(models::network<TypeParam>(of, 4, 3), tutti::usage_error);
}

TYPED_TEST(network, backward_overwrites_or_accumulates) {
  const auto of = residual();
  models::network<TypeParam> model(of, 4, 3);
  const batch_of first(of, 4, 1, 4);
  const batch_of second(of, 4, 2, 4);
  const auto gradient_of = [&](const batch_of& some, models::gradients mode) {
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

/// Returns the layer of each parameter.
template <class Model>
std::vector<std::size_t> layers_of_parameters(const Model& model) {
  std::vector<std::size_t> all;
  for (std::size_t layer = 0; layer < model.layers(); ++layer) {
    all.resize(all.size() + model.parameters_of(layer).size(), layer);
  }
  return all;
}

TYPED_TEST(network, callbacks_come_in_order_around_their_layer) {
  for (const auto& [of, classes] : {std::pair{models::cnn(), std::size_t{10}}, {residual(), 4}}) {
    models::network<TypeParam> model(of, 4, 3);
    const batch_of some(of, 4, 1, classes);
    std::vector<std::size_t> used;
    model.forward(some.batch(), [&](tensor_id id) { used.push_back(tutti::index(id)); });
    for (const auto& each : model.tensors()) {
      std::ranges::fill(each.gradient, NAN);
    }
    const auto layer = layers_of_parameters(model);
    std::vector<std::size_t> finished;
    model.backward([&](tensor_id id) {
      const std::size_t now = tutti::index(id);
      finished.push_back(now);
      for (std::size_t i = 0; i < model.tensors().size(); ++i) {
        const auto gradient = model.tensors()[i].gradient;
        const bool is_final = std::none_of(gradient.begin(), gradient.end(),
                                           [](float each) { return std::isnan(each); });
        EXPECT_EQ(is_final, i >= now || layer[i] == layer[now]) << i << " at " << now;
      }
      // The engine may update a tensor as soon as it is ready.
      std::ranges::fill(model.tensors()[now].parameter, NAN);
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
}

TYPED_TEST(network, forward_reads_a_parameter_only_after_its_callback) {
  for (const auto& of : {odd(), residual()}) {
    models::network<TypeParam> model(of, 4, 3);
    const batch_of some(of, 4, 1, 4);
    model.forward(some.batch());
    const float expected = model.loss();
    const auto kept = samples::all_parameters(model);
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
}

TYPED_TEST(network, layer_by_layer_is_the_same_step) {
  const auto of = models::cnn();
  models::network<TypeParam> whole(of, 4, 3);
  models::network<TypeParam> stepwise(of, 4, 3);
  const batch_of some(of, 4, 1, 10);
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
  const batch_of some(of, 16, 1, 10);
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
  model.forward(batch_of(of, 16, 1, 10).batch());
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

/// MXNet's own list has 78 tensors of 1,652,826 elements, among them these.
TYPED_TEST(network, inception_bn_28_small_has_mxnets_tensors) {
  const models::network<TypeParam> model(models::inception_bn_28_small(), 1, 3);
  const auto& tensors = model.tensors();
  ASSERT_EQ(tensors.size(), 78U);
  std::size_t elements = 0;
  for (const auto& each : tensors) {
    elements += each.elements;
  }
  EXPECT_EQ(elements, 1'652'826U);
  const std::vector<std::pair<std::size_t, std::size_t>> some{
      {0, 2592},    {3, 96},     {4, 3072},    {8, 27648},   {20, 57600}, {28, 69120}, {52, 138240},
      {56, 124416}, {60, 42240}, {64, 345600}, {72, 483840}, {76, 3360},  {77, 10}};
  for (const auto& [which, count] : some) {
    EXPECT_EQ(tensors[which].elements, count) << which << " " << tensors[which].name;
  }
}

TYPED_TEST(network, weights_are_matrices_of_a_row_an_output) {
  const models::network<TypeParam> dense(models::mlp(), 1, 3);
  const auto& tensors = dense.tensors();
  EXPECT_EQ(tensors[0].shape, (tutti::tensor_shape{tensors[1].elements, 784}));
  EXPECT_EQ(tensors[1].shape, tutti::tensor_shape());
  const models::network<TypeParam> convolving(models::cnn(), 1, 3);
  const auto& filters = convolving.tensors();
  EXPECT_EQ(filters[0].shape[0], filters[1].elements);
  EXPECT_EQ(filters[0].shape.elements(), filters[0].elements);
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
  EXPECT_THROW(model.forward(batch_of(odd(), 5, 1, 4).batch()), tutti::usage_error);
  EXPECT_THROW(model.forward(batch_of(odd(), 0, 1, 4).batch()), tutti::usage_error);
  EXPECT_THROW(model.forward(batch_of(models::mlp(), 4, 1, 4).batch()), tutti::usage_error);
  batch_of wrong(odd(), 4, 1, 4);
  wrong.labels[2] = 4;
  EXPECT_THROW(model.forward(wrong.batch()), tutti::usage_error);
}

TEST(reference, agrees_with_finite_differences) {
  for (const auto& [of, every] :
       {std::pair{odd(), std::size_t{1}}, {residual(), 23}, {branched(), 11}}) {
    models::model model(of, 2, 3);
    give_biases(model);
    const batch_of some(of, 2, 5, 4);
    reference::network oracle(of, samples::all_parameters(model));
    const auto gradients = oracle.gradients(some.batch());
    for (std::size_t t = 0; t < gradients.size(); ++t) {
      for (std::size_t i = t % every; i < gradients[t].size(); i += every) {
        constexpr double step = 1e-6;
        double& parameter = oracle.parameters()[t][i];
        const double kept = parameter;
        parameter = kept + step;
        const double above = oracle.loss(some.batch());
        parameter = kept - step;
        const double below = oracle.loss(some.batch());
        parameter = kept;
        ASSERT_NEAR((above - below) / (2 * step), gradients[t][i], 1e-7)
            << of.name << " " << model.tensors()[t].name << " element " << i;
      }
    }
  }
}

// Backends may differ only in the order of sums.
template <class Backend>
std::vector<float> gradients_of_one_batch() {
  const auto of = models::cnn();
  models::network<Backend> model(of, 8, 3);
  model.forward(batch_of(of, 8, 1, 10).batch());
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
    EXPECT_EQ(std::string(problem.what()),
              "no model is named 'resnet'. Fix: one of mlp, cnn, resnet20, inception-bn-28-small, "
              "resnet50");
  }
}

std::string refusal(std::vector<models::any_layer> layers) {
  try {
    models::facts({.name = "mine", .input = {3, 8, 8}, .layers = std::move(layers)});
  } catch (const tutti::usage_error& problem) {
    return problem.what();
  }
  return "";
}

TEST(declaration, refers_to_layers_before_and_adds_the_same_shape) {
  const models::linear four{"four", 4};
  const models::linear five{"five", 5};
  EXPECT_EQ(refusal({four, models::branch{0}, five}), "");
  EXPECT_EQ(refusal({four, models::branch{1}}),
            "model mine: layer 1 refers to layer 1, which is not before it. Fix: refer to an "
            "earlier layer");
  EXPECT_EQ(refusal({four, four, models::sum{7}}),
            "model mine: layer 2 refers to layer 7, which is not before it. Fix: refer to an "
            "earlier layer");
  EXPECT_EQ(refusal({four, five, models::sum{0}}),
            "model mine: layer 2 adds layer 0, which has another shape. Fix: refer to one of the "
            "same shape");
}

TEST(declaration, loses_nothing_to_layers_in_place) {
  const models::linear same{"same", 4};
  const models::relu relu;
  const auto lost = [](std::size_t layer, std::size_t needs) {
    return tutti::sentence({"model mine: layer ", layer, " changes in place what layer ", needs,
                            " needs in its backward pass. Fix: continue from another layer"});
  };
  EXPECT_EQ(refusal({same, relu, same, models::sum{1}}), "");
  EXPECT_EQ(refusal({same, same, models::branch{0}, relu}), lost(3, 1));
  EXPECT_EQ(refusal({same, relu, same, models::branch{1}, models::sum{2}}), lost(4, 2));
  EXPECT_EQ(refusal({same, same, relu, models::sum{0}}), lost(3, 2));
  EXPECT_EQ(refusal({same, relu, models::branch{0}, same}),
            "model mine: layer 2 refers to layer 0, whose output layer 1 has changed in place. "
            "Fix: refer to layer 1");
  EXPECT_EQ(refusal({same, relu, models::branch{1}, same, models::sum{2}}), "");
  EXPECT_EQ(refusal({same, models::branch{0}, relu, same, models::sum{1}}),
            "model mine: layer 4 refers to layer 1, whose output layer 2 has changed in place. "
            "Fix: refer to layer 2");
}

std::vector<std::pair<std::string, std::size_t>> declared_tensors(const models::declaration& of) {
  std::vector<std::pair<std::string, std::size_t>> all;
  for (const auto& each : models::facts(of)) {
    if (each.weights > 0) {
      all.emplace_back(each.name + ".weight", each.weights);
    }
    if (each.biases > 0) {
      all.emplace_back(each.name + ".bias", each.biases);
    }
  }
  return all;
}

std::size_t elements(const std::vector<std::pair<std::string, std::size_t>>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), std::size_t{0},
                         [](std::size_t sum, const auto& each) { return sum + each.second; });
}

TEST(resnet, is_the_published_one) {
  const auto tensors = declared_tensors(models::resnet50());
  std::vector<std::pair<std::string, std::size_t>> published;
  for (const auto& each : models::replay("resnet50").tensors) {
    published.emplace_back(each.name, each.elements);
  }
  EXPECT_EQ(tensors, published);
  EXPECT_EQ(elements(tensors), 25'557'032U);
  EXPECT_EQ(elements(declared_tensors(models::resnet20())), 269'722U);
}

TEST(resnet, learns) {
  auto of = models::resnet20();
  of.input = {3, 8, 8};
  const auto sets = data::synthetic({.image = of.input, .train = 160, .test = 51});
  models::model model(of, 16, 3);
  data::loader images(sets.train, {.batch_size = 16});
  for (std::size_t epoch = 0; epoch < 8; ++epoch) {
    for (const auto& batch : images.epoch(epoch)) {
      model.forward(batch);
      model.backward([&](tensor_id id) {
        const auto& each = model.tensors()[tutti::index(id)];
        for (std::size_t i = 0; i < each.elements; ++i) {
          each.parameter[i] -= 0.05F * each.gradient[i];
        }
      });
    }
  }
  EXPECT_GT(models::evaluate(model, sets.test).accuracy(), 0.9);
}

}  // namespace

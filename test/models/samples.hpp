#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.hpp"
#include "models/declaration.hpp"
#include "models/reference.hpp"
#include "tutti/base/memory.hpp"

/// Networks for tests, wherever their memory is.
namespace samples {

/// Every kind of layer that reads the one before it, with odd sides, a convolution that needs its
/// input's gradient, and channel counts that fill no vector register.
inline models::declaration odd() {
  return {.name = "odd",
          .input = {2, 9, 7},
          .layers = {models::convolution{"conv1", 5, 5}, models::relu{}, models::max_pool{},
                     models::convolution{"conv2", 6, 3}, models::max_pool{}, models::relu{},
                     models::linear{"fc1", 11}, models::relu{}, models::linear{"fc2", 4}}};
}

/// Residual blocks around an identity, a subsampling and a projection, all normalised, also with
/// odd sizes.
inline models::declaration residual() {
  using models::batch_norm;
  using models::branch;
  using models::convolution;
  using models::relu;
  using models::sum;
  constexpr auto none = models::bias::none;
  return {.name = "residual",
          .input = {3, 19, 15},
          .layers = {convolution{"conv1", 5, 5, 2, none},
                     batch_norm{"bn1"},
                     relu{},
                     models::max_pool{3, 2, 1},  // 3
                     convolution{"a.conv1", 6, 3, 1, none},
                     batch_norm{"a.bn1"},
                     relu{},
                     convolution{"a.conv2", 5, 3, 1, none},
                     batch_norm{"a.bn2"},
                     sum{3},
                     relu{},  // 10
                     convolution{"b.conv", 7, 3, 2, none},
                     batch_norm{"b.bn"},  // 12
                     branch{10},
                     models::subsample{7, 2},
                     sum{12},
                     relu{},  // 16
                     convolution{"c.conv1", 6, 1, 1, none},
                     batch_norm{"c.bn1"},
                     relu{},
                     convolution{"c.conv2", 9, 3, 2, none},
                     batch_norm{"c.bn2"},  // 21
                     branch{16},
                     convolution{"c.down", 9, 1, 2, none},
                     batch_norm{"c.bn3"},
                     sum{21},
                     relu{},
                     models::average_pool{},
                     models::linear{"fc", 4}}};
}

/// Parallel branches with odd channel counts, one of which is read twice.
inline models::declaration branched() {
  using models::branch;
  using models::concatenate;
  using models::convolution;
  using models::relu;
  return {.name = "branched",
          .input = {2, 9, 7},
          .layers = {convolution{"conv1", 5, 3}, relu{},  // 1
                     convolution{"a.1x1", 3, 1, 1, models::bias::none}, models::batch_norm{"a.bn"},
                     relu{},                                                         // 4
                     branch{1}, convolution{"a.3x3", 4, 3}, relu{}, concatenate{4},  // 8
                     convolution{"b.3x3", 6, 3, 2}, relu{},                          // 10
                     branch{8}, models::max_pool{3, 2, 1}, concatenate{10},          // 13
                     convolution{"c.1x1", 5, 1}, relu{}, concatenate{13}, models::average_pool{},
                     models::linear{"fc", 4}}};
}

struct batch_of {
  std::vector<float> images{};
  std::vector<std::uint8_t> labels{};

  batch_of(const models::declaration& of, std::size_t count, std::uint64_t seed,
           std::size_t classes)
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
std::vector<float> all_gradients(Model& model) {
  std::vector<float> all;
  for (const auto& each : model.tensors()) {
    const auto gradient = tutti::host_view(model.queue(), each.gradient);
    all.insert(all.end(), gradient.begin(), gradient.end());
  }
  return all;
}

template <class Model>
std::vector<reference::values> all_parameters(Model& model) {
  std::vector<reference::values> all;
  for (const auto& each : model.tensors()) {
    const auto parameter = tutti::host_view(model.queue(), each.parameter);
    all.emplace_back(parameter.begin(), parameter.end());
  }
  return all;
}

template <class Model>
void give_biases(Model& model) {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal(0.0F, 0.1F);
  for (const auto& each : model.tensors()) {
    const auto before = tutti::host_view(model.queue(), each.parameter);
    tutti::fill_from_host(model.queue(), each.parameter, [&](std::span<float> parameter) {
      std::ranges::transform(before, parameter.begin(),
                             [&](float element) { return element + normal(random); });
    });
  }
}

inline void expect_near(std::span<const float> got, const reference::values& expected,
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

/// Expects the loss and gradients of one batch to be those of double precision.
template <class Model>
void expect_the_oracles(Model& model, const models::declaration& of, const batch_of& some) {
  reference::network oracle(of, all_parameters(model));
  model.forward(some.batch());
  model.backward([](tutti::tensor_id) {});
  const double loss = oracle.loss(some.batch());
  EXPECT_NEAR(model.loss(), loss, 1e-5 * (1 + loss));
  const auto expected = oracle.gradients(some.batch());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expect_near(tutti::host_view(model.queue(), model.tensors()[i].gradient), expected[i],
                of.name + " " + model.tensors()[i].name);
  }
}

/// Expects the running statistics after some training passes to be those of double precision.
/// Inference, also of a short batch, uses them and leaves them unchanged.
template <class Model>
void expect_the_oracles_inference(Model& model, const models::declaration& of,
                                  std::size_t classes) {
  reference::network oracle(of, all_parameters(model));
  for (const std::uint64_t seed : {1U, 2U}) {
    const batch_of some(of, model.batch_size(), seed, classes);
    model.forward(some.batch());
    oracle.move_statistics(some.batch());
  }
  const auto statistics = [&] {
    const auto running = tutti::host_view(model.queue(), model.statistics());
    return std::vector<float>(running.begin(), running.end());
  };
  const auto moved = statistics();
  const auto expected = std::span(oracle.statistics());
  const auto half = moved.size() / 2;
  const auto expect_part = [&](std::size_t first, const std::string& what) {
    const auto part = expected.subspan(first, half);
    expect_near(std::span(moved).subspan(first, half), {part.begin(), part.end()}, of.name + what);
  };
  expect_part(0, " running mean");
  expect_part(half, " running variance");
  for (const std::size_t count : {model.batch_size(), model.batch_size() - 1}) {
    const batch_of other(of, count, 3, classes);
    model.forward(other.batch(), models::pass::inference);
    const double loss = oracle.loss(other.batch(), models::pass::inference);
    EXPECT_NEAR(model.loss(), loss, 1e-5 * (1 + loss)) << count;
  }
  EXPECT_EQ(statistics(), moved);
}

}  // namespace samples

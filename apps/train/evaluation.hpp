#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "common/replicas_differ.hpp"
#include "data/augmentation.hpp"
#include "data/dataset.hpp"
#include "models/model.hpp"
#include "tutti/base/memory.hpp"

namespace train {

using common::replicas_differ;

/// While it exists, a model has the mean of all workers' parameters and running statistics.
/// Afterwards it has the worker's own again. Every worker must make one at the same time.
template <class Engine, class Model>
class at_the_mean {
 public:
  at_the_mean(Engine& engine, Model& model) : model_(&model) {
    for_each_span([this](std::span<float> values) {
      const auto seen = tutti::host_view(model_->queue(), values);
      own_.insert(own_.end(), seen.begin(), seen.end());
    });
    std::vector<double> mean(own_.begin(), own_.end());
    engine.average(std::span(mean));
    put(mean);
  }
  at_the_mean(const at_the_mean&) = delete;
  at_the_mean& operator=(const at_the_mean&) = delete;
  ~at_the_mean() { put(own_); }

 private:
  template <class Visit>
  void for_each_span(Visit visit) {
    for (const auto& each : model_->tensors()) {
      visit(each.parameter);
    }
    visit(model_->statistics());
  }
  template <class Number>
  void put(const std::vector<Number>& all) {
    auto next = all.begin();
    for_each_span([&](std::span<float> values) {
      tutti::fill_from_host(model_->queue(), values, [&](std::span<float> into) {
        for (float& each : into) {
          each = static_cast<float>(*next++);
        }
      });
    });
  }

  Model* model_;
  std::vector<float> own_{};
};

/// Returns a worker's share of the test images. All shares together contain each image once.
inline data::dataset share(const data::dataset& all, std::size_t worker, std::size_t workers) {
  data::dataset own{
      .image = all.image, .classes = all.classes, .mean = all.mean, .deviation = all.deviation};
  const std::size_t size = all.image.size();
  for (std::size_t i = worker; i < all.size(); i += workers) {
    const auto first = all.pixels.begin() + static_cast<std::ptrdiff_t>(i * size);
    own.pixels.insert(own.pixels.end(), first, first + static_cast<std::ptrdiff_t>(size));
    own.labels.push_back(all.labels[i]);
  }
  return own;
}

/// Returns the fraction of all test images that the model classifies correctly. Each worker
/// evaluates its own share. If the workers' models differ, their mean is evaluated. The result is
/// equal on every worker, and every worker must call it.
template <class Strategy, class Engine, class Model>
double accuracy(Engine& engine, Model& model, const data::dataset& own_share, std::size_t images,
                const data::augmentation& shown) {
  const auto right = [&] {
    return static_cast<double>(models::evaluate(model, own_share, shown).correct);
  };
  double mine = 0;
  if constexpr (replicas_differ<Strategy>) {
    const at_the_mean<Engine, Model> mean(engine, model);
    mine = right();
  } else {
    mine = right();
  }
  return engine.average(mine) * engine.workers() / static_cast<double>(images);
}

/// Returns the lowest fraction of test images that any worker's own model classifies correctly.
/// Every worker must call it. Cost: every worker evaluates all images.
template <class Engine, class Model>
double worst_accuracy(Engine& engine, Model& model, const data::dataset& all,
                      const data::augmentation& shown) {
  std::vector<double> each(static_cast<std::size_t>(engine.workers()));
  each[static_cast<std::size_t>(engine.worker())] = models::evaluate(model, all, shown).accuracy();
  engine.average(std::span(each));
  return *std::ranges::min_element(each) * engine.workers();
}

}  // namespace train

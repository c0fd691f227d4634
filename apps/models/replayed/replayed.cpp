#include "models/replayed/replayed.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/nearest.hpp"
#include "models/replayed/csv.hpp"
#include "models/replayed/networks.hpp"
#include "tutti/base/error.hpp"

namespace models {
namespace {

using pass = double replayed_tensor::*;

double total(const std::vector<replayed_tensor>& tensors, pass of) {
  return std::accumulate(tensors.begin(), tensors.end(), 0.0,
                         [&](double sum, const auto& each) { return sum + each.*of; });
}

/// `milliseconds` is the time of one forward and backward pass over `batch` samples. Without it,
/// the time follows from the network's operations at the rate of the first entry.
struct entry {
  const char* name;
  std::vector<counted_tensor> (*tensors)();
  std::size_t batch;
  std::optional<double> milliseconds;
  const char* device;
};

/// Times stated as a throughput of one GPU are from the survey: Shi et al., "A quantitative survey
/// of communication optimizations in distributed deep learning", 2020, and its code ddl-benchmarks;
/// sequences have 64 tokens. The V100's times are the compute times of MG-WFBP's simulations: Shi
/// et al., "MG-WFBP: merging gradients wisely", IEEE TPDS 2021. The P100's time is from
/// TensorFlow's benchmarks of 2017.
constexpr auto survey = "one GPU of arXiv 2005.13247's cluster, fp32";
constexpr auto v100 = "V100, fp32, as MG-WFBP's authors simulate it (TPDS 2021)";
constexpr auto p100 = "P100, as in TensorFlow's benchmarks of 2017";
constexpr auto derived = "by floating-point operations, at the rate of resnet50's device";

constexpr std::array<entry, 12> catalogue{
    {{"resnet50", counted::resnet50, 64, 252.9, survey},      // 253.1 images/s
     {"resnet152", counted::resnet152, 128, 883.1, v100},     //
     {"vgg16", counted::vgg16, 64, 416, p100},                // 154 images/s
     {"densenet201", counted::densenet201, 64, 360.9, v100},  //
     {"inception_v4", counted::inception_v4, 128, 610.8, v100},
     {"inception_bn", counted::inception_bn, 64, {}, derived},
     {"mobilenet_v2", counted::mobilenet_v2, 64, {}, derived},
     {"bert_base", counted::bert_base, 64, 300.8, survey},   // 212.8 sequences/s
     {"bert_large", counted::bert_large, 8, 163.3, survey},  // 49 sequences/s
     {"kungfu_resnet50", counted::kungfu_resnet50, 64, {}, derived},
     {"kungfu_vgg16", counted::kungfu_vgg16, 64, {}, derived},
     {"kungfu_bert", counted::kungfu_bert, 64, {}, derived}}};

double operations(const entry& of) {
  const auto tensors = of.tensors();
  return static_cast<double>(of.batch) *
         std::accumulate(tensors.begin(), tensors.end(), 0.0,
                         [](double sum, const auto& each) { return sum + each.operations; });
}

double seconds(const entry& of) {
  const entry& known = of.milliseconds ? of : catalogue.front();
  return 1e-3 * *known.milliseconds * (operations(of) / operations(known));
}

replayed timed(const entry& of) {
  replayed made{.name = of.name, .batch = of.batch, .device = of.device};
  for (auto& each : of.tensors()) {  // shares for now; with_totals turns them into seconds
    made.tensors.push_back(
        {std::move(each.name), each.elements, each.operations, each.operations, each.shape});
  }
  const double all = seconds(of);
  return with_totals(std::move(made), all / 3, all * 2 / 3);
}

void scale(replayed& network, pass of, double to, const std::string& what) {
  const double from = total(network.tensors, of);
  if (!std::isfinite(to) || to < 0) {
    throw tutti::usage_error(network.name + ": " + what + " cannot take " + std::to_string(to) +
                             " s. Fix: a finite time of 0 or more");
  }
  if (from == 0 && to > 0) {
    throw tutti::usage_error(network.name + ": " + what +
                             " takes no time, so its tensors cannot share " + std::to_string(to) +
                             " s. Fix: give its tensors times");
  }
  for (auto& each : network.tensors) {
    each.*of *= from == 0 ? 1 : to / from;
  }
}

}  // namespace

double replayed::forward() const { return total(tensors, &replayed_tensor::forward_seconds); }
double replayed::backward() const { return total(tensors, &replayed_tensor::backward_seconds); }

std::size_t replayed::elements() const {
  return std::accumulate(tensors.begin(), tensors.end(), std::size_t{0},
                         [](std::size_t sum, const auto& each) { return sum + each.elements; });
}

std::vector<std::string> replayed_names() {
  std::vector<std::string> names;
  for (const auto& each : catalogue) {
    names.emplace_back(each.name);
  }
  return names;
}

replayed replay(const std::string& name) {
  if (name.ends_with(".csv")) {
    return read_csv(name);
  }
  const auto found = std::ranges::find(catalogue, name, &entry::name);
  if (found == catalogue.end()) {
    throw tutti::usage_error("no model to replay is named '" + name + "'. Did you mean " +
                             common::nearest(name, replayed_names()) +
                             "? A file of your own must end in .csv");
  }
  return timed(*found);
}

replayed with_totals(replayed network, double forward_seconds, double backward_seconds) {
  scale(network, &replayed_tensor::forward_seconds, forward_seconds, "the forward pass");
  scale(network, &replayed_tensor::backward_seconds, backward_seconds, "the backward pass");
  return network;
}

}  // namespace models

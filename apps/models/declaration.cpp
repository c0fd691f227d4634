#include "models/declaration.hpp"

#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"

namespace models {
namespace {

/// Returns the facts of layer `which`, to which the layer after those in `all` refers. Throws
/// tutti::usage_error if it does not come before it.
const placed_facts& before(const declaration& of, const std::vector<placed_facts>& all,
                           std::size_t which) {
  if (which >= all.size()) {
    throw tutti::usage_error(
        tutti::sentence({"model ", of.name, ": layer ", all.size(), " refers to layer ", which,
                         ". Fix: refer to one before it"}));
  }
  return all[which];
}

/// Lets the layer that comes first in the backward pass overwrite a gradient, and later ones add to
/// it.
void order_gradients(std::vector<placed_facts>& all) {
  std::vector<gradients> next(all.size() + 1, gradients::overwrite);
  for (auto layer = all.rbegin(); layer != all.rend(); ++layer) {
    if (layer->adds != layer->writes) {
      layer->of_added = std::exchange(next[layer->adds], gradients::accumulate);
    }
    if (layer->reads != layer->writes) {
      layer->of_read = std::exchange(next[layer->reads], gradients::accumulate);
    }
  }
}

template <class Layer>
constexpr bool needs_its_input =
    std::is_same_v<Layer, linear> || std::is_same_v<Layer, convolution> ||
    std::is_same_v<Layer, batch_norm>;

/// Throws tutti::usage_error if a layer that works in place changes an activation that another
/// layer refers to or needs in its backward pass.
void expect_nothing_lost(const declaration& of, const std::vector<placed_facts>& all) {
  struct activation {
    std::size_t yielded_by{};
    std::optional<std::size_t> needed_by{};
  };
  std::vector<activation> activations(all.size() + 1);
  // For each layer, which one yielded the output that a reference to it means.
  std::vector<std::size_t> yielded;
  const auto refer = [&](std::size_t which) {
    const std::size_t last = activations[all[which].writes].yielded_by;
    if (last != yielded[which]) {
      throw tutti::usage_error(tutti::sentence(
          {"model ", of.name, ": layer ", yielded.size(), " refers to layer ", which,
           ", whose output layer ", last, " has changed in place. Fix: refer to layer ", last}));
    }
  };
  const auto place = [&]<class Layer>(const Layer& layer) {
    const std::size_t number = yielded.size();
    auto& reads = activations[all[number].reads];
    auto& writes = activations[all[number].writes];
    if constexpr (std::is_same_v<Layer, branch>) {
      refer(layer.of);
      yielded.push_back(yielded[layer.of]);
      return;
    } else if constexpr (std::is_same_v<Layer, sum> || std::is_same_v<Layer, concatenate>) {
      refer(layer.with);
    }
    if (in_place<Layer> && writes.needed_by) {
      throw tutti::usage_error(tutti::sentence(
          {"model ", of.name, ": layer ", number, " changes in place what layer ",
           *writes.needed_by, " needs in its backward pass. Fix: go on from another layer"}));
    }
    if constexpr (needs_its_input<Layer>) {
      reads.needed_by = number;
    } else if constexpr (std::is_same_v<Layer, relu>) {
      writes.needed_by = number;
    }
    writes.yielded_by = number;
    yielded.push_back(number);
  };
  for (const auto& each : of.layers) {
    std::visit(place, each);
  }
}

}  // namespace

std::vector<placed_facts> facts(const declaration& of) {
  std::vector<placed_facts> all;
  shape now = of.input;
  std::size_t reads = 0;
  std::size_t activations = 1;
  for (const auto& each : of.layers) {
    if (const auto* elsewhere = std::get_if<branch>(&each)) {
      const auto& origin = before(of, all, elsewhere->of);
      reads = origin.writes;
      now = origin.out;
    }
    placed_facts made{std::visit([&](const auto& layer) { return facts(layer, now); }, each)};
    made.reads = reads;
    made.writes = std::visit(
        [&]<class Layer>(const Layer&) { return in_place<Layer> ? reads : activations++; }, each);
    made.adds = made.writes;
    if (const auto* added = std::get_if<sum>(&each)) {
      const auto& other = before(of, all, added->with);
      made.adds = other.writes;
      if (other.out != now) {
        throw tutti::usage_error(tutti::sentence({"model ", of.name, ": layer ", all.size(),
                                                  " adds a layer of another shape, ", added->with,
                                                  ". Fix: refer to one of the same"}));
      }
    }
    if (const auto* first = std::get_if<concatenate>(&each)) {
      const auto& other = before(of, all, first->with);
      made.adds = other.writes;
      if (other.out.height != now.height || other.out.width != now.width) {
        throw tutti::usage_error(tutti::sentence(
            {"model ", of.name, ": layer ", all.size(), " puts its channels behind those of layer ",
             first->with, ", which has another height or width. Fix: refer to one of the same"}));
      }
      made.out.channels += other.out.channels;
    }
    all.push_back(made);
    reads = made.writes;
    now = made.out;
  }
  expect_nothing_lost(of, all);
  order_gradients(all);
  return all;
}

void expect_fp32(const declaration& of, std::string_view backend) {
  if (of.precision != precision::fp32) {
    throw tutti::usage_error(
        tutti::sentence({"model ", of.name, " is declared in bf16, but ", backend,
                         " computes in fp32. Fix: declare it in fp32"}));
  }
}

}  // namespace models

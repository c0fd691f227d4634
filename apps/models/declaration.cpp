#include "models/declaration.hpp"

#include <string_view>
#include <utility>

#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"

namespace models {
namespace {

/// What layer `which` yielded, for layer `reader`.
const placed_facts& before(const declaration& of, const std::vector<placed_facts>& all,
                           std::size_t which) {
  if (which >= all.size()) {
    throw tutti::usage_error(
        tutti::sentence({"model ", of.name, ": layer ", all.size(), " refers to layer ", which,
                         ". Fix: refer to one before it"}));
  }
  return all[which];
}

/// Whoever comes first in a backward pass overwrites.
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
    all.push_back(made);
    reads = made.writes;
    now = made.out;
  }
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

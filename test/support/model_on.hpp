#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "support/oracle.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/tensor.hpp"

namespace tutti::test {

/// Whether tensors are neighbours in memory; those that are not must be packed.
enum class layout { together, apart };

/// The oracle's model in the memory of `Queue`. Rank 0 starts with the oracle's parameters and
/// every other rank with rubbish, which the engine's initial broadcast must replace.
template <class Queue>
class model_on {
 public:
  model_on(Queue& compute, int rank, layout how, gradient_function gradients)
      : compute_(&compute), gradients_(gradients), memory_(made_on(compute, how)) {
    std::size_t element = 0;
    backwards([&](tensor& each) {
      fill_from_host(compute, each.parameter, [&](std::span<float> values) {
        std::ranges::generate(values, [&] { return rank == 0 ? initial(element++) : 99.0f; });
      });
    });
  }
  model_on(const model_on&) = delete;
  model_on& operator=(const model_on&) = delete;
  ~model_on() { compute_->synchronize(); }

  const std::vector<tensor>& tensors() const { return memory_.tensors(); }

  /// Enqueues what a backward pass would write for a tensor.
  void backward(tensor_id id, int worker, int step) {
    backward(id, [&](std::size_t element) { return gradients_(worker, step, element); });
  }
  template <class Gradient>
  void backward(tensor_id id, Gradient of) {
    const auto& all = memory_.tensors();
    std::size_t element = 0;
    for (std::size_t later = all.size(); --later > index(id);) {
      element += all[later].elements;
    }
    std::vector<float> values(all[index(id)].elements);
    std::ranges::generate(values, [&] { return of(element++); });
    compute_->run([values, to = all[index(id)].gradient.data()] { std::ranges::copy(values, to); });
  }

  /// Returns the parameters in backward order, as the oracle does.
  std::vector<float> parameters() {
    std::vector<float> all;
    backwards([&](tensor& each) {
      const auto values = host_view(*compute_, each.parameter);
      all.insert(all.end(), values.begin(), values.end());
    });
    return all;
  }

 private:
  using arena_type = arena_of<memory_of<float, Queue>>;

  static arena_type made_on(Queue& compute, layout how) {
    std::vector<typename arena_type::declaration> all;
    for (const auto& each : declarations()) {
      all.push_back({each.name, each.elements});
    }
    return arena_type(all, how == layout::together ? 1 : 32, [&compute](std::size_t elements) {
      return allocate<float>(compute, elements);
    });
  }

  template <class Do>
  void backwards(Do what) {
    auto tensors = memory_.tensors();
    std::for_each(tensors.rbegin(), tensors.rend(), what);
  }

  Queue* compute_;
  gradient_function gradients_;
  arena_type memory_;
};

}  // namespace tutti::test

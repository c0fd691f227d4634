#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/oracle.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/transport/in_process.hpp"

/// A few steps of training in the memory of any queue: the host's, that of a host stream in place
/// of a device, or a device's.
namespace tutti::test {

inline constexpr std::size_t device_sizes[] = {37, 1, 1000, 0, 5};
inline constexpr int device_steps = 6;

inline optimizer::sgd device_optimizer() { return {.learning_rate = 0.125f, .momentum = 0.5f}; }
/// Returns the optimizer's values, without momentum where the compressor keeps one on each rank.
template <class Strategy>
optimizer::sgd device_optimizer_for() {
  optimizer::sgd values = device_optimizer();
  if constexpr (facts::keeps_momentum<typename strategy_of<Strategy>::compression>) {
    values.momentum = 0;
  }
  return values;
}

/// Tensors that are not neighbours in memory, so that fusion must pack them. Parameters start as 0.
template <class Queue>
class scattered_model {
 public:
  explicit scattered_model(Queue& compute) : compute_(&compute) {
    for (const std::size_t each : device_sizes) {
      parameters_.push_back(allocate_zeros<float>(compute, each));
      gradients_.push_back(allocate<float>(compute, each));
      values_.emplace_back();
    }
    for (std::size_t i = 0; i < std::size(device_sizes); ++i) {
      const tensor_shape shape =
          device_sizes[i] == 1000 ? tensor_shape{20, 5, 10} : tensor_shape{device_sizes[i]};
      tensors_.emplace_back(std::to_string(i).insert(0, 1, 't'), span_of(parameters_[i]),
                            span_of(gradients_[i]), shape);
    }
    compute.synchronize();
  }

  scattered_model(const scattered_model&) = delete;
  scattered_model& operator=(const scattered_model&) = delete;
  /// Also waits when an exception leaves: work that is still enqueued reads the host's values.
  ~scattered_model() {
    try {
      compute_->synchronize();
    } catch (const error&) {
    }
  }

  const std::vector<tensor>& tensors() const { return tensors_; }
  /// Returns these tensors without memory for gradients.
  std::vector<tensor> without_gradients() const {
    std::vector<tensor> all;
    for (const tensor& each : tensors_) {
      all.push_back(tensor::without_gradient(each.name, each.parameter, each.shape));
    }
    return all;
  }

  /// Enqueues what a backward pass would write. The host's values live until the tensor's next
  /// step.
  void backward(std::size_t id, int worker, int step) {
    backward(id, worker, step, gradients_[id].data());
  }
  void backward(std::size_t id, int worker, int step, float* into) {
    compute_->synchronize();
    values_[id].resize(device_sizes[id]);
    for (std::size_t i = 0; i < values_[id].size(); ++i) {
      values_[id][i] = gradient_of_few_digits(worker, step, i);
    }
    compute_->copy(into, values_[id].data(), values_[id].size() * sizeof(float));
  }
  void spoil(std::size_t id, float value) {
    compute_->synchronize();
    values_[id].assign(device_sizes[id], value);
    compute_->copy(gradients_[id].data(), values_[id].data(), values_[id].size() * sizeof(float));
  }

  /// Returns the parameters in backward order, the last tensor's first.
  std::vector<float> parameters() {
    std::vector<float> all;
    for (std::size_t id = std::size(device_sizes); id-- > 0;) {
      const auto values = host_view(*compute_, span_of(parameters_[id]));
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

 private:
  Queue* compute_;
  std::vector<memory_of<float, Queue>> parameters_;
  std::vector<memory_of<float, Queue>> gradients_;
  std::vector<std::vector<float>> values_;
  std::vector<tensor> tensors_;
};

/// Takes the steps [first, last) of one worker, whose model computes on `compute`.
template <class Engine, class Queue>
void take_steps(Engine& engine, scattered_model<Queue>& model, Queue& compute, int first,
                int last) {
  for (int step = first; step < last; ++step) {
    for (std::size_t id = std::size(device_sizes); id-- > 0;) {
      engine.wait(tensor_id(id), compute);
      model.backward(id, engine.worker(), step);
      engine.ready(tensor_id(id), compute);
    }
  }
  engine.wait();
  compute.synchronize();
}

/// Takes steps without a barrier: the host runs ahead of the device as far as its peers let it.
template <class Engine, class Queue>
void step_ahead(Engine& engine, Queue& compute, int steps) {
  for (int step = 0; step < steps; ++step) {
    for (std::size_t id = std::size(device_sizes); id-- > 0;) {
      engine.wait(tensor_id(id), compute);
      engine.ready(tensor_id(id), compute);
    }
  }
  for (std::size_t id = std::size(device_sizes); id-- > 0;) {
    engine.wait(tensor_id(id), compute);
  }
}

/// Returns this rank's parameters after all steps, or nothing if it is a server.
template <class Strategy, class Transport>
std::vector<float> train_one_scattered(Transport& world, engine_options<Strategy> options = {}) {
  typename Transport::queue_type compute;
  scattered_model<typename Transport::queue_type> model(compute);
  auto engine =
      make_engine<Strategy>(world, model.tensors(), device_optimizer_for<Strategy>(), options);
  if (engine.serves()) {
    engine.serve();
    return {};
  }
  take_steps(engine, model, compute, 0, device_steps);
  return model.parameters();
}

/// Returns the parameters of worker `reported` after all steps over `Transport`.
template <class Strategy, class Transport>
std::vector<float> train_scattered(int ranks, engine_options<Strategy> options = {},
                                   int reported = 0) {
  std::vector<float> result;
  transport::run_ranks<Transport>(ranks, [&](Transport& world) {
    auto parameters = train_one_scattered<Strategy>(world, options);
    if (world.rank() == reported) {
      result = std::move(parameters);
    }
  });
  return result;
}

}  // namespace tutti::test

#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "tutti/base/tensor.hpp"

namespace tutti::adapter {

/// What a framework's adapter must know of a strategy before it lays out a model for it.
struct strategy_properties {
  bool updates;                ///< tutti updates the parameters, across the iteration's end
  bool restores_residuals;     ///< residuals can be restored when a step is skipped
  bool keeps_residuals;        ///< from one step to the next
  bool means_show_infinities;  ///< a mean shows that some gradient is not finite; payloads that do
                               ///< not add may hide it, or cannot encode it
  bool means_a_step_late;      ///< the means that arrive are those of the step before
  bool sends_parameters;       ///< and not gradients
};

/// What trains a model behind a framework's adapter: an engine of some strategy, and a channel for
/// small messages beside its gradients. The adapter is compiled once and works with every strategy;
/// a strategy is compiled without the framework's headers, which take longer than the strategy
/// itself (adapter/trainer_of.hpp). `Queue` orders the engine's work on the model's memory, and
/// `Stream` the framework's.
/// Errors: usage_error and communication_error, thrown by any function.
/// Cost: a virtual call in each function.
template <class Queue, class Stream = Queue>
class trainer {
 public:
  using stream_type = Stream;

  trainer() = default;
  trainer(const trainer&) = delete;
  trainer& operator=(const trainer&) = delete;
  virtual ~trainer() = default;

  virtual strategy_properties properties() const = 0;
  /// The queue on which the engine works.
  virtual Queue& queue() = 0;
  /// Begins to train these tensors, in forward order. To be called once, before all that follows.
  /// Collective.
  virtual void start(std::vector<tensor> forward) = 0;

  // ---- who and what

  virtual int rank() const = 0;
  virtual int workers() const = 0;
  /// Returns whether this rank is a server and does not train. Such a rank only calls `serve`.
  virtual bool serves() const = 0;
  virtual void serve() = 0;
  /// Reports that this rank cannot go on, or, before `start` has returned, cannot begin. Every wait
  /// on every rank then ends with the message of `why`.
  virtual void fail(std::exception_ptr why) = 0;

  // ---- a step

  /// Reports that a gradient is final once the work that `stream` has so far is done.
  virtual void ready(tensor_id id, Stream& stream) = 0;
  /// Reports that a tensor has no gradient in this pass. `stream` writes zeros in its place.
  virtual void absent(tensor_id id, Stream& stream) = 0;
  /// Returns when every tensor has arrived.
  virtual void wait() = 0;
  /// Makes whatever is enqueued on `stream` from now on see the tensor current.
  virtual void wait(tensor_id id, Stream& stream) = 0;
  /// Waits until no gradient is on its way, also where means arrive a step late.
  virtual void drain() = 0;

  // ---- what policies remember

  /// Whether any policy remembers something from one step to the next.
  virtual bool remembers() = 0;
  /// The part of a compressor's memory that it sends with the tensor's next gradient; empty if it
  /// has none. Nothing may be on its way.
  virtual std::span<float> left_out(tensor_id id) = 0;

  // ---- the optimizer

  /// Makes the optimizer's values those that were last asked for.
  virtual void take_values() = 0;
  /// The factor by which losses are multiplied; 1 unless residuals can be restored.
  virtual float scale() const = 0;
  /// Sets it, and has residuals restored from now on when a step is skipped. Only where they can
  /// be.
  virtual void scaled_by(float scale) = 0;
  /// The number of steps so far that have to be skipped. Counted only where residuals can be
  /// restored.
  virtual std::uint32_t skipped() const = 0;
  /// Whether residuals are restored now when a step is skipped.
  virtual bool is_restoring() const = 0;

  // ---- messages beside the gradients; every worker must take part in each

  virtual double average(double value) = 0;
  /// Copies the bytes of rank `root` to every rank.
  virtual void broadcast(int root, std::span<std::byte> bytes) = 0;
  /// Sets each byte to the largest of any worker's.
  virtual void largest(std::span<std::byte> bytes) = 0;
};

}  // namespace tutti::adapter

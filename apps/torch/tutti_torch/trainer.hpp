#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tutti/adapter/trainer.hpp"

/// The C++ part of `tutti_torch.DataParallel`. It is compiled in two parts, which meet in the
/// classes of this header: binding.hpp with torch's headers, once for all strategies, and each
/// strategy without them (trainer_of.hpp).
namespace tutti_torch {

/// Engine options by name, such as "fusion.bytes", with their values in digits or by name.
using named_options = std::map<std::string, std::string>;
/// An optimizer's values by name. All are Python floats, because rank 0 sends its values to all
/// ranks as one tensor.
using named_values = std::map<std::string, double>;

/// A compiled strategy, as Python asks for it by names.
template <class Queue>
class trainer : public tutti::adapter::trainer<Queue> {
 public:
  /// Changes the options from the next pass on.
  virtual void replan(const named_options& given) = 0;
  /// Changes the optimizer's values from the next backward pass on.
  virtual void change(const named_values& given) = 0;
  virtual std::uint64_t steps() = 0;
  /// What the policies remember, in host memory. Throws tutti::usage_error if the strategy has
  /// servers.
  virtual std::vector<std::vector<float>> saved() = 0;
  /// The learning rate in whose steps residuals are measured.
  virtual double rate_of_residuals() = 0;
  /// Restores what `saved` returned after so many steps, for residuals in steps of the learning
  /// rate `rate`, losses multiplied by `scale` and a strategy that ran under the options `was`.
  /// Throws tutti::usage_error if it does not fit this strategy, model and optimizer.
  virtual void resume(std::uint64_t steps, const std::vector<std::vector<float>>& memories,
                      double rate, float scale, const named_options& was) = 0;
};

/// What a model asks of a compiled strategy.
struct request {
  named_options options;
  named_values values;  ///< of the optimizer
  int device = 0;       ///< where the model lies, if on a GPU
};

/// A compiled strategy's only function, whose name in its library is `tutti_torch_trainer`. The
/// caller owns the trainer.
template <class Queue>
using make_trainer = trainer<Queue>*(const request&);

}  // namespace tutti_torch

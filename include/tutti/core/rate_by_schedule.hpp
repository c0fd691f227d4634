#pragma once

#include <cstdint>

#include "tutti/base/error.hpp"
#include "tutti/optimizer/rate_schedule.hpp"

namespace tutti {

/// Gives the optimizer the learning rate that a schedule has for each step, times what others, as
/// batch_by_noise, have made of the one before; for core/acting.hpp.
/// Cost: where the rate changes, `engine.change`, which waits for every tensor: with a schedule
/// that changes in every step nothing crosses the iteration's end. `every` steps share a rate.
class rate_by_schedule {
 public:
  /// Throws usage_error for a schedule that divides by nothing.
  explicit rate_by_schedule(const optimizer::rate_schedule& set, std::uint64_t every = 1)
      : set_(set), every_(every) {
    if (set.every == 0 || every == 0) {
      throw usage_error(
          "a learning rate that changes every 0 steps. Fix: 1 step or more from one rate to the "
          "next");
    }
  }

  template <class Engine>
  void before_step(Engine& engine, std::uint64_t step) {
    const float rate = set_.at(step - step % every_);
    if (rate != last_) {
      auto values = engine.values();
      values.learning_rate = last_ > 0 ? rate * (values.learning_rate / last_) : rate;
      engine.change(values);
      last_ = rate;
    }
  }

 private:
  optimizer::rate_schedule set_;
  std::uint64_t every_;
  float last_ = -1;  // none yet
};

}  // namespace tutti

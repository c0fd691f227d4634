#pragma once

#include <cstdint>

#include "tutti/base/error.hpp"
#include "tutti/optimizer/rate_schedule.hpp"

namespace tutti {

/// Gives the optimizer the learning rate that a schedule has for each step. If another policy, such
/// as batch_by_noise, has multiplied the last rate, the next one is multiplied by the same factor.
/// For core/acting.hpp.
/// Cost: `engine.change` wherever the rate changes, which waits for every tensor, so that under a
/// schedule that changes in every step no communication crosses the iteration's end. `every` steps
/// share a rate.
class rate_by_schedule {
 public:
  /// Throws usage_error if `every` or the schedule's own `every` is 0, or if the rate is to fall
  /// linearly or as a cosine and the schedule has 0 steps, so that it would be the lowest at once.
  explicit rate_by_schedule(const optimizer::rate_schedule& set, std::uint64_t every = 1)
      : set_(set), every_(every) {
    if (set.every == 0 || every == 0) {
      throw usage_error(
          "a learning rate cannot change every 0 steps. Fix: 1 step or more from one rate to the "
          "next");
    }
    using optimizer::falling;
    if (set.steps == 0 && (set.falling == falling::linear || set.falling == falling::cosine)) {
      throw usage_error(
          "a learning rate cannot fall to its lowest within 0 steps. Fix: the schedule's steps, or "
          "falling::constant");
    }
  }

  template <class Engine>
  void before_step(Engine& engine, std::uint64_t step) {
    const float rate = set_.at(step - step % every_);
    if (rate != last_) {
      engine.wait();  // steps on their way may still change a loss scale, which is among the values
      auto values = engine.values();
      values.learning_rate = last_ > 0 ? rate * (values.learning_rate / last_) : rate;
      engine.change(values);
      last_ = rate;
    }
  }

 private:
  optimizer::rate_schedule set_;
  std::uint64_t every_;
  float last_ = -1;  // no rate has been set yet
};

}  // namespace tutti

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/adapter/trainer_of.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti_torch/named.hpp"
#include "tutti_torch/trainer.hpp"

namespace tutti_torch {

/// The adapter's trainer behind this package's interface.
template <class Transports, class Strategy, class Optimizer>
using trainer_over =
    tutti::adapter::trainer_of<Strategy, typename Transports::transport, Optimizer,
                               tutti::adapter::side_transport<typename Transports::transport>,
                               trainer<typename Transports::queue>>;

/// Trains with `Strategy` over transports of its own, and with an optimizer of tutti's or none.
template <class Transports, class Strategy,
          class Optimizer =
              tutti::adapter::left_to_the_user<Strategy, typename Transports::transport>>
class trainer_of final : private Transports, public trainer_over<Transports, Strategy, Optimizer> {
  using base = trainer_over<Transports, Strategy, Optimizer>;

 public:
  explicit trainer_of(const request& asked)
      : trainer_of(asked.device, options_from<Strategy>(asked.options),
                   optimizer_from<Optimizer>(asked.values, base::until_scaled())) {}

  void replan(const named_options& given) override {
    base::engine().replan(options_from<Strategy>(given));
  }
  void change(const named_values& given) override {
    base::ask_for(optimizer_from<Optimizer>(given));
  }

  std::uint64_t steps() override { return base::engine().steps(); }

  std::vector<std::vector<float>> saved() override {
    auto& engine = base::engine();
    if (engine.servers() > 0) {
      throw tutti::usage_error(
          "this strategy's servers hold state that no worker can save. Fix: save only "
          "model.module");
    }
    engine.drain();
    std::vector<std::vector<float>> all;
    for (const std::span<float> each : engine.memories()) {
      const auto values = tutti::host_view(engine.world().queue(), each);
      all.emplace_back(values.data(), values.data() + values.size());
    }
    return all;
  }

  double rate_of_residuals() override { return base::engine().rate_of_residuals(); }

  void resume(std::uint64_t steps, const std::vector<std::vector<float>>& memories, double rate,
              float scale, const named_options& was) override {
    auto& engine = base::engine();
    engine.drain();
    const auto its = base::memories_under(options_from<Strategy>(was), steps, memories);
    if (scale != base::scale()) {
      base::scaled_by(scale);
    }
    engine.resume(steps, engine.values(), rate, {}, its);
  }

 private:
  trainer_of(int device, const typename base::options& set, const Optimizer& values)
      : Transports(device), base(Transports::world(), Transports::beside(), set, values) {}
};

}  // namespace tutti_torch

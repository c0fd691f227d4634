#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "common/input.hpp"
#include "common/job.hpp"
#include "common/policy_flags.hpp"
#include "common/sgd_values.hpp"
#include "data/dataset.hpp"
#include "models/model.hpp"
#include "tutti/core/engine_options.hpp"

namespace common {

inline constexpr const char* row_header =
    "fusion / priority / compression / architecture         loss first > last   images/s   ms/step"
    "  exposed ms  MB sent/step";

/// One row of the grid's table. Create it before the first step, call `step` after each, and
/// `print` at the end.
template <class Engine>
class row {
 public:
  row(Engine& engine, const job& asked)
      : engine_(&engine), asked_(&asked), sent_before_(engine.counted().bytes_sent) {}

  /// Records a step's loss and returns the number of steps so far. The first step warms up and is
  /// not timed.
  std::size_t step(float loss) {
    if (steps_ == 0) {
      first_ = loss;
      begin_ = clock::now();
    }
    last_ = loss;
    return ++steps_;
  }

  /// Waits for the last step. Worker 0 then prints the row, with losses averaged over the workers.
  void print(std::string_view name) {
    engine_->wait();
    const std::chrono::duration<double> taken = clock::now() - begin_;
    const double first = engine_->average(first_);
    const double last = engine_->average(last_);
    if (engine_->worker() != 0) {
      return;
    }
    const auto steps = static_cast<double>(steps_);
    const auto sent = static_cast<double>(engine_->counted().bytes_sent - sent_before_);
    const double seconds = taken.count() / (steps_ > 1 ? steps - 1 : 1);
    const auto images = static_cast<double>(asked_->batch_size) * engine_->workers();
    std::printf("%-52.*s %7.4f > %7.4f   %8.0f  %8.2f  %10.2f  %12s\n",
                static_cast<int>(name.size()), name.data(), first, last, images / seconds,
                1e3 * seconds, 1e3 * engine_->exposed() / steps, megabytes(sent / steps).c_str());
  }

 private:
  using clock = std::chrono::steady_clock;

  Engine* engine_;
  const job* asked_;
  std::uint64_t sent_before_;
  std::size_t steps_ = 0;
  float first_ = 0;
  float last_ = 0;
  clock::time_point begin_{};
};

/// The `main` of a cell: reads flags and data, and calls `train(world, job, images)` on every rank
/// of `Device`, which is on_cpu or on_cuda.
template <class Strategy, class Device, class Train>
int run_cell(int argc, char** argv, Train train) {
  return guarded("combination", [&] {
    job asked = parse(argc, argv, app::cell);
    if (asked.help) {
      std::fputs(help(app::cell).c_str(), stdout);
      print_policy_flags(policy_flags<Strategy>(asked));
    } else if (asked.header) {
      std::puts(row_header);
    } else {
      expect_one_of("model", asked.model, models::names());
      asked.steps = asked.steps == 0 ? 20 : asked.steps;
      const int serving = servers<Strategy>(asked);
      Device::expect(asked);
      const auto images = input(asked);
      Device::run(asked, serving, [&](auto& world) { train(world, asked, images.train); });
    }
  });
}

}  // namespace common

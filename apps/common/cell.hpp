#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "common/input.hpp"
#include "common/job.hpp"
#include "common/pace.hpp"
#include "common/policy_flags.hpp"
#include "common/ranks.hpp"
#include "data/dataset.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/role/architecture.hpp"

namespace common {

/// How an engine is to run for a job.
template <class Strategy>
tutti::engine_options<Strategy> options(const job& asked) {
  tutti::engine_options<Strategy> set;
  set.run.deadline = asked.deadline;
  if constexpr (tutti::facts::has_servers<typename tutti::strategy_of<Strategy>::architecture>) {
    set.architecture.servers = asked.servers;
  }
  apply_policy_flags(asked, set);
  return set;
}

/// A row of the grid's table, filled step by step.
class row {
 public:
  explicit row(const job& asked) : asked_(&asked) {}

  static const char* header() {
    return "fusion / partition + priority / compression / architecture           "
           "loss first > last   images/s   ms/step   exposed   MB sent/step";
  }

  /// Notes a step's loss; answers how many there were. The first step, which warms up, is not
  /// timed.
  std::size_t step(float loss) {
    if (steps_ == 0) {
      first_ = loss;
      begin_ = clock::now();
    }
    last_ = loss;
    return ++steps_;
  }

  /// Waits for the last step and prints, on worker 0, the mean losses over the workers.
  template <class Engine>
  void print(Engine& engine, std::string_view name) {
    engine.wait();
    const std::chrono::duration<double> taken = clock::now() - begin_;
    const double first = engine.average(first_);
    const double last = engine.average(last_);
    if (engine.worker() != 0) {
      return;
    }
    const auto steps = static_cast<double>(steps_);
    const double seconds = taken.count() / (steps > 1 ? steps - 1 : 1);
    const auto images = static_cast<double>(asked_->batch_size) * engine.workers();
    std::printf("%-68.*s %7.4f > %7.4f   %8.0f  %8.2f  %8.2f   %12.4f\n",
                static_cast<int>(name.size()), name.data(), first, last, images / seconds,
                1e3 * seconds, 1e3 * engine.exposed() / steps,
                static_cast<double>(engine.counted().bytes_sent) / steps / 1e6);
  }

 private:
  using clock = std::chrono::steady_clock;

  const job* asked_;
  std::size_t steps_ = 0;
  float first_ = 0;
  float last_ = 0;
  clock::time_point begin_{};
};

/// `main` of a cell: reads flags and data, and calls `train(world, job, images)` on every rank.
template <class Strategy, class Train>
int run_cell(int argc, char** argv, Train train) {
  static constexpr auto body = [](int count, char** words) {
    job asked = parse(count, words);
    if (asked.help) {
      std::fputs(help().c_str(), stdout);
      return 0;
    }
    if (asked.header) {
      std::puts(row::header());
      return 0;
    }
    if (asked.steps == 0) {
      asked.steps = 20;
    }
    constexpr bool has_servers =
        tutti::facts::has_servers<typename tutti::strategy_of<Strategy>::architecture>;
    const auto images = input(asked.data);
    on_ranks(asked, has_servers ? asked.servers : 0,
             [&](auto& world) { Train{}(world, asked, images.train); });
    return 0;
  };
  static_cast<void>(train);
  return guarded("combination", body, argc, argv);
}

}  // namespace common

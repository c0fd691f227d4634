#include "kernels/rates.hpp"

#include <benchmark/benchmark.h>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "compare/baseline.hpp"
#include "compare/kernel_rates.hpp"
#include "compare/kernel_trial.hpp"
#include "kernels/on_a_core.hpp"
#include "tutti/base/median.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/benchmark.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/strategies.hpp"

namespace bench {

namespace {

template <class Run>
double seconds_of(Run run) {
  const double began = seconds_of_this_thread();
  run();
  return seconds_of_this_thread() - began;
}

/// Measures encoding and adding in turn, on one core.
template <class Compression>
void measure(benchmark::State& state, const Compression& its) {
  // The largest matrix of ResNet-50. Compressors that do not work tensor by tensor get 8 Mi
  // elements.
  const tutti::tensor_facts tensor{{}, 512 * 4608, {512, 4608}, "layer4.0.conv2.weight"};
  compare::on_trial(its, tensor, [&state](auto& kernels) {
    tutti::benchmark::stay_on_core(0);
    tutti::inline_queue queue;
    const compare::kernel_charge charged = kernels.charged();
    std::vector<double> encoding;
    std::vector<double> adding;
    while (state.KeepRunning()) {
      encoding.push_back(seconds_of([&] { kernels.encode(queue); }));
      adding.push_back(seconds_of([&] { kernels.add(queue); }));
      state.SetIterationTime(encoding.back() + adding.back());
    }
    const auto elements = static_cast<double>(kernels.elements());
    state.counters["encode_bytes"] = static_cast<double>(charged.encode) / elements;
    state.counters["add_bytes"] = static_cast<double>(charged.add) / elements;
    state.counters["encode_ns"] =
        charged.encode == 0 ? 0 : 1e9 * tutti::median(encoding) / elements;
    state.counters["add_ns"] = charged.add == 0 ? 0 : 1e9 * tutti::median(adding) / elements;
  });
}

template <class Strategy>
void add_rates_of(std::set<std::string>& known) {
  using compression = typename tutti::strategy_of<Strategy>::compression;
  const std::string name = "rates/" + compare::filed_as<compression>();
  if (!known.insert(name).second) {
    return;
  }
  const auto set = tutti::default_options<Strategy>();
  benchmark::RegisterBenchmark(name.c_str(),
                               [its = tutti::make_policy<compression>(set.compression)](
                                   benchmark::State& state) { measure(state, its); })
      ->UseManualTime()
      ->MinTime(0.25)
      ->Unit(benchmark::kMillisecond);
}

template <class... Strategies>
void add_all(const std::tuple<Strategies...>*) {
  std::set<std::string> known;
  (add_rates_of<Strategies>(known), ...);
  add_rates_of<tutti::strategies::Dense16>(known);
}

}  // namespace

void add_rates() { add_all(static_cast<const std::tuple<TUTTI_NAMED_STRATEGIES>*>(nullptr)); }

}  // namespace bench

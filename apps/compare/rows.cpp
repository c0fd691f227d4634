#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "common/job.hpp"
#include "common/on_processes.hpp"
#include "compare/contender.hpp"
#include "compare/processes.hpp"
#include "tutti/core/replay.hpp"
#include "tutti/transport/simulated.hpp"

namespace compare {

namespace {

/// Adds the results of a further repetition to a row's.
void join(tutti::replayed& all, tutti::replayed more) {
  if (all.iterations.empty()) {
    all = std::move(more);
  } else {
    const auto before = static_cast<double>(all.iterations.size());
    std::ranges::copy(more.iterations, std::back_inserter(all.iterations));
    all.iterations_per_second += (more.iterations_per_second - all.iterations_per_second) *
                                 (1 - before / static_cast<double>(all.iterations.size()));
    all.pushes += more.pushes;
    all.bytes_sent += more.bytes_sent;
  }
}

void join(tutti::transport::emulated_run& all, const tutti::transport::emulated_run& more) {
  const double share = more.time / (all.time + more.time);
  all.mean_lateness += share * (more.mean_lateness - all.mean_lateness);
  all.worst_lateness = std::max(all.worst_lateness, more.worst_lateness);
  all.time += more.time;
  all.wall += more.wall;
}

/// Returns the median of the measured iterations, because a host is late now and then, or their
/// mean if simulated iterations differ as well, as where only some steps send. Returns 0 on a
/// server, which has measured none.
tutti::seconds typical_of(const tutti::replayed& measured, const tutti::replayed& simulated) {
  if (measured.iterations.empty()) {
    return 0;
  }
  const bool alike = simulated.quantile(1) <= 1.01 * simulated.quantile(0);
  return alike ? measured.quantile(0.5) : measured.mean();
}

std::unique_ptr<replays> prepared(const contender& who, const scenario& of,
                                  const common::job& asked) {
  auto its = who.prepared(of, asked);
  its->length = {asked.iterations, asked.warmup, its->many, asked.jitter,
                 asked.slowdown,   asked.seed,   of.slow};
  if (of.world != "simulated" && common::under_launcher()) {
    its->length.measured_in = tutti::window::own;
  }
  return its;
}

}  // namespace

double iteration(const contender& who, const scenario& of, const common::job& asked) {
  common::job few = asked;
  few.iterations = 1;
  few.warmup = 1;
  return prepared(who, of, few)->simulated(of).mean();
}

row row_of(const contender& who, scenario of, const common::job& asked) {
  if (of.world == "real" && who.must_encode) {
    of.kernels = "cpu";
  }
  of.device = who.device(of, asked);
  const auto its = prepared(who, of, asked);
  row result{{}, std::string(who.name), who.what, of, its->many.servers};
  result.stand_ins = its->who.few.workers;
  result.period = its->period;
  result.payload_stretch = its->who.sent;
  const auto payloads =
      asked.payloads == "carried" ? tutti::payloads::carried : tutti::payloads::counted;
  for (int i = 0; i < asked.repetitions; ++i, ++its->length.seed) {
    join(result.simulated, its->simulated(of));
    if (of.world == "simulated") {
      continue;
    }
    result.measured = result.measured.value_or(tutti::replayed());
    if (of.world == "emulated") {
      tutti::transport::emulated_run clock;
      join(*result.measured, its->emulated(of, payloads, clock));
      join(result.clock, clock);
      result.transport = emulated_by();
    } else {
      join(*result.measured, its->measured(of));
      result.transport = "mpi";
    }
  }
  if (result.stand_ins < of.workers) {  // the staleness of a few is not that of many
    for (tutti::replayed* each :
         {&result.simulated, result.measured ? &*result.measured : nullptr}) {
      if (each != nullptr) {
        each->pushes = {};
      }
    }
  }
  result.ways = its->ways(result.simulated.planned);
  result.consensus = of.world == "real" ? result.measured->consensus : its->consensus(of);
  result.predicted = result.simulated.mean();
  result.iteration =
      result.measured ? typical_of(*result.measured, result.simulated) : result.predicted;
  return result;
}

}  // namespace compare

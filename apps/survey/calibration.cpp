#include "survey/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "tutti/base/error.hpp"

namespace survey {

namespace {

using tutti::seconds;

double bytes_of(dnn which) { return sizeof(float) * static_cast<double>(model(which).elements()); }

double share_past_a_nic(int workers) { return 2.0 * (workers - 1) / workers; }

seconds measured_iteration(const std::vector<cell>& cells, dnn of, network over, method how) {
  const auto found = std::ranges::find_if(cells, [&](const cell& each) {
    return each.of == of && each.over == over && each.how == how &&
           each.workers == calibration_workers && each.samples_per_second;
  });
  if (found == cells.end()) {
    throw tutti::usage_error("the grid does not say what " + std::string(name_of(of)) + " by " +
                             std::string(name_of(how)) + " takes on " + std::string(name_of(over)) +
                             ". Fix: give it that cell, to calibrate on");
  }
  return *found->iteration();
}

/// Sets the rates from BSP's iterations. All of BSP's all-reduce is exposed, so that its time is
/// linear in the seconds a byte.
void set_rates(calibrated& made, const std::vector<cell>& cells) {
  for (const dnn of : dnns) {
    for (const network over : networks) {
      const seconds transfer =
          measured_iteration(cells, of, over, method::BSP) - compute_of(of) - made.startup;
      if (!(transfer > 0)) {
        throw tutti::usage_error(
            "BSP is no slower than its compute and a start-up: no link has "
            "such a rate");
      }
      made.bytes_per_second[static_cast<std::size_t>(of)][static_cast<std::size_t>(over)] =
          share_past_a_nic(calibration_workers) * bytes_of(of) / transfer;
    }
  }
}

/// Returns the argument between 0 and `high` at which `iteration`, which grows with it, equals
/// `wanted`. Throws tutti::usage_error, naming `what`, if there is none.
template <class Iteration>
double argument_for(seconds wanted, double high, Iteration iteration, const std::string& what) {
  if (!(iteration(0) <= wanted && wanted <= iteration(high))) {
    throw tutti::usage_error("no " + what + " explains what was measured");
  }
  double low = 0;
  constexpr int halvings = 24;
  for (int i = 0; i < halvings; ++i) {
    const double middle = (low + high) / 2;
    (iteration(middle) < wanted ? low : high) = middle;
  }
  return high;
}

}  // namespace

double growth_of_startup(int workers) {
  const auto& [few, many] = MGWFBPs_10GbE;
  const double power = std::log(many.cost.startup / few.cost.startup) /
                       std::log(static_cast<double>(many.workers) / few.workers);
  return std::pow(static_cast<double>(workers) / calibration_workers, power);
}

all_reduce_cost calibrated::cost(dnn of, network over, int workers) const {
  return {startup * growth_of_startup(workers), share_past_a_nic(workers) / rate(of, over)};
}

job calibrated::job_of(const cell& which) const {
  return {&model(which.of), which.workers, cost(which.of, which.over, which.workers), slowdown};
}

bool calibrates(const cell& which) {
  return which.workers == calibration_workers &&
         (which.how == method::BSP ||
          (which.of == dnn::resnet50 && which.over == network::ethernet10));
}

calibrated calibrate(const std::vector<cell>& cells) {
  calibrated made;
  const auto iteration = [&](method how) {
    return simulate(how,
                    made.job_of({dnn::resnet50, network::ethernet10, how, calibration_workers}));
  };
  const auto measured = [&](method how) {
    return measured_iteration(cells, dnn::resnet50, network::ethernet10, how);
  };
  // Two rounds, because the start-up and the slow-down depend on each other. The second changes
  // next to nothing, because WFBP's start-ups leave no idle time in which a slow-down could hide.
  for (int round = 0; round < 2; ++round) {
    made.startup = argument_for(
        measured(method::WFBP), 0.02,
        [&](seconds startup) {
          made.startup = startup;
          set_rates(made, cells);
          return iteration(method::WFBP);
        },
        "start-up");
    set_rates(made, cells);
    made.slowdown = argument_for(
        measured(method::MGWFBP), 1,
        [&](double slowdown) {
          made.slowdown = slowdown;
          return iteration(method::MGWFBP);
        },
        "slow-down");
  }
  return made;
}

}  // namespace survey

#include "survey/calibration.hpp"

#include <algorithm>

#include "tutti/base/error.hpp"

namespace survey {

namespace {

using tutti::seconds;
using tutti::transport::link;

/// Time that BSP spends on its one all-reduce, all of which is exposed.
seconds all_reduce_of(const calibration_cells& measured) {
  return measured.BSP - model().forward() - model().backward();
}

/// The NIC of this latency with which BSP takes as long as measured: its time is linear in what a
/// byte costs.
link nic_of(seconds latency, const calibration_cells& measured) {
  const double bytes = sizeof(float) * static_cast<double>(model().elements());
  const seconds startup = ring_cost(calibration_workers, {1, latency}).startup();
  const seconds of_a_byte_a_second = ring_cost(calibration_workers, {1 / bytes, 0})(1);
  return {of_a_byte_a_second / (all_reduce_of(measured) - startup), latency};
}

seconds WFBP_of(link nic, traffic on_link) {
  return simulate(method::WFBP, on_link, calibration_workers, nic);
}

}  // namespace

calibration_cells calibration_cells_of(const std::vector<cell>& grid, network over) {
  const auto find = [&](method how) {
    const auto found = std::ranges::find_if(grid, [&](const cell& each) {
      return each.over == over && each.how == how && each.workers == calibration_workers;
    });
    if (found == grid.end()) {
      throw tutti::usage_error("the grid holds no cell to calibrate a network on");
    }
    return found->iteration();
  };
  return {find(method::BSP), find(method::WFBP)};
}

calibrated calibrate(const calibration_cells& measured, traffic on_link) {
  if (!(all_reduce_of(measured) > 0)) {
    throw tutti::usage_error("BSP is no slower than its compute: no link has such a rate");
  }
  const link without = nic_of(0, measured);
  if (WFBP_of(without, on_link) >= measured.WFBP) {
    return {without, latency_from::nothing};
  }
  seconds low = 0;
  // Nothing but start-ups, all but a thousandth of BSP's time.
  seconds high = 0.999 * all_reduce_of(measured) / ring_cost(calibration_workers, {1, 1}).startup();
  if (WFBP_of(nic_of(high, measured), on_link) < measured.WFBP) {
    throw tutti::usage_error("WFBP is slower than BSP explains: no link has such a latency");
  }
  constexpr int halvings = 50;
  for (int i = 0; i < halvings; ++i) {
    const seconds middle = (low + high) / 2;
    (WFBP_of(nic_of(middle, measured), on_link) < measured.WFBP ? low : high) = middle;
  }
  return {nic_of(high, measured), latency_from::WFBP};
}

}  // namespace survey

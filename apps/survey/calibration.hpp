#pragma once

#include <vector>

#include "survey/measured.hpp"
#include "survey/simulation.hpp"
#include "tutti/base/units.hpp"
#include "tutti/transport/network.hpp"

namespace survey {

/// All that a calibration sees: two iterations of `calibration_workers` GPUs.
struct calibration_cells {
  tutti::seconds BSP{};
  tutti::seconds WFBP{};
};

/// Those of one network in a grid.
calibration_cells calibration_cells_of(const std::vector<cell>& grid, network over);

/// Where a latency comes from.
enum class latency_from {
  WFBP,     ///< with it the simulated iteration takes as long as the measured one
  nothing,  ///< WFBP was faster than even a latency of 0 allows
};

/// A NIC that does what was measured.
struct calibrated {
  tutti::transport::link nic{};
  latency_from source{};
};

/// The rate with which the simulated BSP takes as long as the measured one and the latency with
/// which WFBP does, both at once. Throws tutti::usage_error where no NIC can.
calibrated calibrate(const calibration_cells& measured, traffic on_link);

}  // namespace survey

#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "survey/measured.hpp"
#include "survey/simulation.hpp"
#include "tutti/base/units.hpp"

namespace survey {

/// A point of the tables of all-reduces, start-up plus seconds a byte, in MG-WFBP's program.
struct measured_all_reduce {
  int workers{};
  all_reduce_cost cost{};
};

/// On 10GbE, four GPUs a host: the only two of the table that leave a host and were measured there.
/// After: HKBU-HPML/MG-WFBP, distributed_optimizer.py; Shi, Chu and Li, INFOCOM 2019.
inline constexpr std::array<measured_all_reduce, 2> MGWFBPs_10GbE{
    {{8, {5.2302728e-4, 8.5707470e-10}}, {16, {9.0809810e-4, 7.3956512e-10}}}};
/// On 56 Gbit/s InfiniBand, after the same.
inline constexpr measured_all_reduce MGWFBPs_56GbIB{16, {2.3583678e-4, 4.0594790e-10}};

/// By what a start-up with so many workers is longer than with `calibration_workers`: the power of
/// their number that passes through both points of `MGWFBPs_10GbE`.
double growth_of_startup(int workers);

/// What the law of extrapolation takes from iterations with `calibration_workers` GPUs.
struct calibrated {
  /// Of one all-reduce between `calibration_workers`. It is the software's, so one for all
  /// networks.
  tutti::seconds startup{};
  /// By what share computing takes longer beside communication.
  double slowdown{};
  /// With which 2(p-1)/p of a gradient passes a NIC.
  std::array<std::array<double, networks.size()>, dnns.size()> bytes_per_second{};

  double rate(dnn of, network over) const {
    return bytes_per_second[static_cast<std::size_t>(of)][static_cast<std::size_t>(over)];
  }
  /// The law of extrapolation.
  all_reduce_cost cost(dnn of, network over, int workers) const;
  job job_of(const cell& which) const;
};

/// Whether `calibrate` looks at this cell: `calibration_workers` GPUs, by BSP, or by WFBP or
/// MG-WFBP on ResNet-50 over 10GbE, where the link is never idle and so each start-up shows.
bool calibrates(const cell& which);

/// The rates, start-up and slow-down with which those cells take as long as they were measured.
/// Throws tutti::usage_error where one of them is not there, or none fit.
calibrated calibrate(const std::vector<cell>& cells);

}  // namespace survey

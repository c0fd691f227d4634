#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "survey/measured.hpp"
#include "survey/simulation.hpp"
#include "tutti/base/units.hpp"

namespace survey {

/// An entry of the tables in MG-WFBP's program that state the cost of an all-reduce, as start-up
/// plus seconds a byte.
struct measured_all_reduce {
  int workers{};
  all_reduce_cost cost{};
};

/// The entries for 10GbE with four GPUs a host: the only two of the table that were measured there
/// with more than one host. After: HKBU-HPML/MG-WFBP, distributed_optimizer.py; Shi, Chu and Li,
/// INFOCOM 2019.
inline constexpr std::array<measured_all_reduce, 2> MGWFBPs_10GbE{
    {{8, {5.2302728e-4, 8.5707470e-10}}, {16, {9.0809810e-4, 7.3956512e-10}}}};
/// The entry for 56 Gbit/s InfiniBand, from the same program.
inline constexpr measured_all_reduce MGWFBPs_56GbIB{16, {2.3583678e-4, 4.0594790e-10}};

/// Returns how many times longer a start-up is with so many workers than with
/// `calibration_workers`: a power of the number of workers, fitted through both entries of
/// `MGWFBPs_10GbE`.
double growth_of_startup(int workers);

/// The parameters of the law by which iterations with `calibration_workers` GPUs are extrapolated
/// to more.
struct calibrated {
  /// Start-up of one all-reduce between `calibration_workers`. The software causes it, so that it
  /// is the same on all networks.
  tutti::seconds startup{};
  /// The share by which computing takes longer while the worker communicates.
  double slowdown{};
  /// The rate at which 2(p-1)/p of a gradient passes a NIC, in bytes a second.
  std::array<std::array<double, networks.size()>, dnns.size()> bytes_per_second{};

  double rate(dnn of, network over) const {
    return bytes_per_second[static_cast<std::size_t>(of)][static_cast<std::size_t>(over)];
  }
  /// Returns the cost of an all-reduce between any number of workers, by the law of extrapolation.
  all_reduce_cost cost(dnn of, network over, int workers) const;
  job job_of(const cell& which) const;
};

/// Whether `calibrate` uses this cell. It uses those with `calibration_workers` GPUs by BSP, and by
/// WFBP or MG-WFBP with ResNet-50 on 10GbE, where the link is never idle, so that every start-up
/// shows.
bool calibrates(const cell& which);

/// Returns the rates, the start-up and the slow-down with which the simulated iterations of those
/// cells take as long as the measured ones. Throws tutti::usage_error if one of the cells is
/// missing, or if no values fit.
calibrated calibrate(const std::vector<cell>& cells);

}  // namespace survey

#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "survey/calibration.hpp"
#include "survey/measured.hpp"
#include "tutti/base/units.hpp"

namespace survey {

/// The role of a cell in the prediction.
enum class standing {
  calibration,      ///< used to calibrate, so equal by construction
  predicted,        ///< nothing was fitted to it
  inside_one_host,  ///< never passes a NIC, so not predicted
};

std::string_view name_of(standing which);

/// Returns by how many per cent a prediction is too long, or a number below 0 if it is too short.
double error_percent(tutti::seconds predicted, tutti::seconds measured);

/// A cell with its prediction by the simulator.
struct row {
  cell of{};
  standing what{};
  std::optional<tutti::seconds> predicted{};

  std::optional<double> predicted_samples_per_second() const {
    return predicted ? std::optional(batch_of(of.of) * of.workers / *predicted) : std::nullopt;
  }
  std::optional<double> error() const {
    return predicted && of.iteration() ? std::optional(error_percent(*predicted, *of.iteration()))
                                       : std::nullopt;
  }
};

/// All cells of a grid, predicted from its calibration cells alone.
struct prediction {
  calibrated law{};
  std::vector<row> rows{};
};

prediction predict(const std::vector<cell>& cells);

/// The |error|, in per cent, of the rows that were both measured and predicted.
struct summary {
  std::size_t rows{};
  double median{};
  double worst{};
};

/// Returns the rows for whose cells `wanted(cell)` holds.
template <class Wanted>
std::vector<row> chosen(const std::vector<row>& rows, Wanted wanted) {
  std::vector<row> some;
  for (const row& each : rows) {
    if (wanted(each.of)) {
      some.push_back(each);
    }
  }
  return some;
}
summary summarize(const std::vector<row>& rows);

/// Limits in per cent that the prediction must keep.
inline constexpr struct {
  double bsp = 3;                  ///< worst error of BSP on 10GbE and 100GbIB
  double bsp_on_falling_rate = 9;  ///< worst error on 100GbE-TCP, whose rate falls with P
  double median = 8;               ///< of the errors of WFBP and MG-WFBP
  double worst = 20;               ///< likewise
  double right_orders = 90;        ///< share of the grid's places with the right order
} limits;

/// Iteration times by method, in the order of `methods`.
using by_method = std::array<tutti::seconds, methods.size()>;

/// Returns the methods, the fastest first.
std::array<method, methods.size()> fastest_first(const by_method& iterations);

/// Whether every method that was measured to be faster than another is also predicted to be, by a
/// microsecond or more. A tie predicts no order.
bool same_order(const by_method& measured, const by_method& predicted);

/// The iterations of all methods for one DNN, network and number of workers.
struct ranking {
  dnn of{};
  network over{};
  int workers{};
  by_method measured{};
  by_method predicted{};

  bool right() const { return same_order(measured, predicted); }
};

/// Returns a ranking for each place of the grid where all methods were measured and predicted.
std::vector<ranking> rankings(const std::vector<row>& rows);

}  // namespace survey

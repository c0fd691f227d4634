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

/// What a cell is to the prediction.
enum class standing {
  calibration,      ///< equal by construction
  predicted,        ///< nothing was fitted to it
  inside_one_host,  ///< never passes a NIC, so nothing is said of it
};

std::string_view name_of(standing which);

/// By how many per cent a prediction is too long; less than 0 where it is too short.
double error_percent(tutti::seconds predicted, tutti::seconds measured);

/// A cell and what the simulator says of it.
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

/// A grid, predicted from its calibration cells alone.
struct prediction {
  calibrated law{};
  std::vector<row> rows{};
};

prediction predict(const std::vector<cell>& cells);

/// Of rows that were measured and predicted: their |error| in per cent.
struct summary {
  std::size_t rows{};
  double median{};
  double worst{};
};

/// Of those rows for which `wanted(cell)` holds.
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

/// What the prediction is held to, in per cent.
inline constexpr struct {
  double bsp = 3;                  ///< the worst error of BSP on 10GbE and 100GbIB
  double bsp_on_falling_rate = 9;  ///< on 100GbE-TCP, whose rate falls with P
  double median = 8;               ///< of WFBP's and MG-WFBP's errors
  double worst = 20;               ///< likewise
  double right_orders = 90;        ///< of the places of the grid
} limits;

/// Iterations by each method, in the order of `methods`.
using by_method = std::array<tutti::seconds, methods.size()>;

/// The methods, the fastest first.
std::array<method, methods.size()> fastest_first(const by_method& iterations);

/// Every method that was measured to be faster than another is predicted to be, by a microsecond
/// or more: a tie predicts no order.
bool same_order(const by_method& measured, const by_method& predicted);

/// The methods of one DNN, network and number of workers.
struct ranking {
  dnn of{};
  network over{};
  int workers{};
  by_method measured{};
  by_method predicted{};

  bool right() const { return same_order(measured, predicted); }
};

/// One for each place of the grid where all methods were measured and predicted.
std::vector<ranking> rankings(const std::vector<row>& rows);

}  // namespace survey

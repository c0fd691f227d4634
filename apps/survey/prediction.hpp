#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "survey/calibration.hpp"
#include "survey/measured.hpp"
#include "survey/simulation.hpp"
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

  std::optional<double> error() const {
    return predicted ? std::optional(error_percent(*predicted, of.iteration())) : std::nullopt;
  }
};

/// A grid, predicted from its calibration cells alone.
struct prediction {
  traffic on_link{};
  std::array<calibrated, networks.size()> nics{};  ///< in the order of `networks`
  std::vector<row> rows{};

  const calibrated& nic(network over) const { return nics[static_cast<std::size_t>(over)]; }
};

prediction predict(const std::vector<cell>& grid, traffic on_link);

/// Of what rows were predicted: their |error| in per cent.
struct summary {
  std::size_t rows{};
  double median{};
  double worst{};
};

summary summarize(const std::vector<row>& rows);

}  // namespace survey

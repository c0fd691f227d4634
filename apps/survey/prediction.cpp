#include "survey/prediction.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace survey {

namespace {

standing standing_of(const cell& which) {
  if (which.workers <= per_host) {
    return standing::inside_one_host;
  }
  const bool fitted = which.workers == calibration_workers && which.how != method::MGWFBP;
  return fitted ? standing::calibration : standing::predicted;
}

}  // namespace

std::string_view name_of(standing which) {
  constexpr std::array<std::string_view, 3> names{"calibration", "predicted", "inside one host"};
  return names[static_cast<std::size_t>(which)];
}

double error_percent(tutti::seconds predicted, tutti::seconds measured) {
  return 100 * (predicted / measured - 1);
}

prediction predict(const std::vector<cell>& grid, traffic on_link) {
  prediction made{.on_link = on_link};
  for (const network each : networks) {
    made.nics[static_cast<std::size_t>(each)] =
        calibrate(calibration_cells_of(grid, each), on_link);
  }
  for (const cell& each : grid) {
    row next{each, standing_of(each)};
    if (next.what != standing::inside_one_host) {
      next.predicted = simulate(each.how, on_link, each.workers, made.nic(each.over).nic);
    }
    made.rows.push_back(next);
  }
  return made;
}

summary summarize(const std::vector<row>& rows) {
  std::vector<double> sizes;
  for (const row& each : rows) {
    if (each.what == standing::predicted) {
      sizes.push_back(std::abs(*each.error()));
    }
  }
  if (sizes.empty()) {
    return {};
  }
  std::ranges::sort(sizes);
  const std::size_t half = sizes.size() / 2;
  const double median = sizes.size() % 2 == 1 ? sizes[half] : (sizes[half - 1] + sizes[half]) / 2;
  return {sizes.size(), median, sizes.back()};
}

}  // namespace survey

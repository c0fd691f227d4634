#include "survey/prediction.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace survey {

namespace {

standing standing_of(const cell& which) {
  if (which.workers <= per_host) {
    return standing::inside_one_host;
  }
  return calibrates(which) ? standing::calibration : standing::predicted;
}

template <class Time>
by_method times_of(const std::vector<row>& rows, Time time_of) {
  by_method all{};
  for (const row& each : rows) {
    all[static_cast<std::size_t>(each.of.how)] = time_of(each);
  }
  return all;
}

}  // namespace

std::string_view name_of(standing which) {
  constexpr std::array<std::string_view, 3> names{"calibration", "predicted", "inside one host"};
  return names[static_cast<std::size_t>(which)];
}

double error_percent(tutti::seconds predicted, tutti::seconds measured) {
  return 100 * (predicted / measured - 1);
}

prediction predict(const std::vector<cell>& cells) {
  prediction made{.law = calibrate(cells)};
  for (const cell& each : cells) {
    row next{each, standing_of(each)};
    if (next.what != standing::inside_one_host) {
      next.predicted = simulate(each.how, made.law.job_of(each));
    }
    made.rows.push_back(next);
  }
  return made;
}

summary summarize(const std::vector<row>& rows) {
  std::vector<double> sizes;
  for (const row& each : rows) {
    if (each.what == standing::predicted && each.error()) {
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

std::array<method, methods.size()> fastest_first(const by_method& iterations) {
  auto order = methods;
  std::ranges::sort(order, {},
                    [&](method each) { return iterations[static_cast<std::size_t>(each)]; });
  return order;
}

bool same_order(const by_method& measured, const by_method& predicted) {
  constexpr tutti::seconds tie = 1e-6;
  for (std::size_t a = 0; a < measured.size(); ++a) {
    for (std::size_t b = 0; b < measured.size(); ++b) {
      if (measured[a] < measured[b] && predicted[b] - predicted[a] < tie) {
        return false;
      }
    }
  }
  return true;
}

std::vector<ranking> rankings(const std::vector<row>& rows) {
  std::vector<ranking> all;
  for (const dnn of : dnns) {
    for (const network over : networks) {
      for (const int workers : workers_of_cells) {
        const auto there = chosen(rows, [&](const cell& each) {
          return each.of == of && each.over == over && each.workers == workers;
        });
        const bool known =
            std::ranges::all_of(there, [](const row& each) { return each.error().has_value(); });
        if (known && there.size() == methods.size()) {
          all.push_back({of, over, workers,
                         times_of(there, [](const row& each) { return *each.of.iteration(); }),
                         times_of(there, [](const row& each) { return *each.predicted; })});
        }
      }
    }
  }
  return all;
}

}  // namespace survey

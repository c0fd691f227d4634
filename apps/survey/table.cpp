#include "survey/table.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "common/output.hpp"
#include "survey/three_methods.hpp"
#include "tutti/base/version.hpp"

namespace survey {

namespace {

int width(std::string_view text) { return static_cast<int>(text.size()); }

void print_text(std::string_view text, int wide) {
  std::printf("%-*.*s ", wide, width(text), text.data());
}

/// Prints a dash if there is no value.
void print_number(const std::optional<double>& value, const char* format, int wide) {
  if (value) {
    std::printf(format, wide, *value);
  } else {
    std::printf(" %*s", wide, "-");
  }
}

void print(const row& each) {
  print_text(name_of(each.of.of), 10);
  print_text(name_of(each.of.over), 10);
  print_text(name_of(each.of.how), 7);
  std::printf("%3d", each.of.workers);
  print_number(each.of.samples_per_second, " %*.2f", 12);
  print_number(each.predicted_samples_per_second(), " %*.2f", 13);
  print_number(each.error(), " %+*.1f", 12);
  const auto what = name_of(each.what);
  std::printf("  %.*s\n", width(what), what.data());
}

void print_law(const calibrated& law) {
  std::printf(
      "calibrated: an all-reduce of 8 ranks starts in %.3f ms, computing beside it takes %.1f %% "
      "longer\n",
      1e3 * law.startup, 100 * law.slowdown);
  for (const network over : networks) {
    const auto name = name_of(over);
    std::printf("calibrated %.*s:", width(name), name.data());
    for (const dnn of : dnns) {
      const auto model = name_of(of);
      std::printf(" %.*s %.3f GB/s", width(model), model.data(), law.rate(of, over) / 1e9);
    }
    std::printf("\n");
  }
}

template <class Wanted>
summary print_errors(const std::vector<row>& rows, const char* of, Wanted wanted) {
  const summary errors = summarize(chosen(rows, wanted));
  std::printf("|error| of %2zu predicted cells, %s: median %.1f %%, worst %.1f %%", errors.rows, of,
              errors.median, errors.worst);
  return errors;
}

const char* held(bool holds) { return holds ? "held" : "NOT HELD"; }

void print_limits(const std::vector<row>& rows) {
  const auto bsp = print_errors(rows, "BSP on 10GbE and 100GbIB", [](const cell& each) {
    return each.how == method::BSP && each.over != network::ethernet100;
  });
  std::printf("; limit %.0f %%: %s\n", limits.bsp, held(bsp.worst <= limits.bsp));
  const auto tcp = print_errors(rows, "BSP on 100GbE-TCP", [](const cell& each) {
    return each.how == method::BSP && each.over == network::ethernet100;
  });
  std::printf("; limit %.0f %%: %s\n", limits.bsp_on_falling_rate,
              held(tcp.worst <= limits.bsp_on_falling_rate));
  const auto others = print_errors(rows, "WFBP and MG-WFBP",
                                   [](const cell& each) { return each.how != method::BSP; });
  std::printf("; limits %.0f and %.0f %%: %s\n", limits.median, limits.worst,
              held(others.median <= limits.median && others.worst <= limits.worst));
}

void print_order(const by_method& iterations) {
  for (const method each : fastest_first(iterations)) {
    const auto name = name_of(each);
    std::printf(" %.*s", width(name), name.data());
  }
}

void print_rankings(const std::vector<row>& rows) {
  const auto all = rankings(rows);
  const auto count = [&](int more_than, bool right_alone) {
    return std::ranges::count_if(all, [&](const ranking& each) {
      return each.workers > more_than && (each.right() || !right_alone);
    });
  };
  const auto beyond = count(calibration_workers, true);
  const auto of = count(calibration_workers, false);
  std::printf(
      "order of the methods, beyond P = %d: right in %td of %td places; limit %.0f %%: %s\n",
      calibration_workers, beyond, of, limits.right_orders,
      held(100.0 * static_cast<double>(beyond) >= limits.right_orders * static_cast<double>(of)));
  std::printf("order of the methods, with P = %d: right in %td of %td\n", calibration_workers,
              count(0, true), count(0, false));
  for (const ranking& each : all) {
    if (!each.right()) {
      const auto over = name_of(each.over);
      std::printf("not reproduced: %.*s with %d GPUs: measured, fastest first,", width(over),
                  over.data(), each.workers);
      print_order(each.measured);
      std::printf(", predicted");
      print_order(each.predicted);
      std::printf("\n");
    }
  }
}

nlohmann::ordered_json number(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json figures(const row& each, const calibrated& law) {
  const auto milliseconds = [](const std::optional<tutti::seconds>& time) {
    return number(time ? std::optional(1e3 * *time) : std::nullopt);
  };
  const all_reduce_cost cost = law.cost(each.of.of, each.of.over, each.of.workers);
  return {{"strategy", name_of(each.of.how)},
          {"model", name_of(each.of.of)},
          {"world", "simulated"},
          {"transport", "simulated"},
          {"link", name_of(each.of.over)},
          {"device", model(each.of.of).device},
          {"precision", "fp32"},
          {"ranks", each.of.workers},
          {"servers", 0},
          {"batch_size", batch_of(each.of.of)},
          {"measured_samples_per_second", number(each.of.samples_per_second)},
          {"predicted_samples_per_second", number(each.predicted_samples_per_second())},
          {"measured_ms", milliseconds(each.of.iteration())},
          {"predicted_ms", milliseconds(each.predicted)},
          {"error_percent", number(each.error())},
          {"cell", name_of(each.what)},
          {"startup_us", 1e6 * cost.startup},
          {"seconds_per_byte", cost.seconds_per_byte},
          {"slowdown", law.slowdown},
          {"version", TUTTI_VERSION}};
}

}  // namespace

void print_law() {
  std::printf(
      "\"A Quantitative Survey of Communication Optimizations in Distributed Deep Learning\" (Shi\n"
      "et al., IEEE Network 2020, arXiv 2005.13247), with %d GPUs on a host, one all-reduce at\n"
      "a time, and MG-WFBP by the published rule.\n"
      "Law of extrapolation, calibrated with P = %d only: an all-reduce of M bytes takes a(P) +\n"
      "2(P-1)/P M/B.\n"
      "  B, the rate of a network for a DNN, is calibrated on BSP with P = %d and does not\n"
      "  depend on P.\n"
      "  a(P), the start-up time, is spent in software and so is the same on all networks. It\n"
      "  is calibrated on WFBP, ResNet-50, 10GbE, P = %d, where the link is never idle, and\n"
      "  grows as a power of P through what MG-WFBP's authors measured of all-reduces on 10GbE:\n"
      "  %.0f us with 8 and %.0f us with 16, a factor of %.2f per doubling. No figure of the\n"
      "  survey shows how it grows.\n"
      "  The share by which computing takes longer beside communication is calibrated on\n"
      "  MG-WFBP, ResNet-50, 10GbE, P = %d.\n"
      "Nothing is fitted to any other cell. P = %d stays inside one host, and P = %d tells\n"
      "nothing about the link there, so there is no prediction. Cells without a measured figure\n"
      "are predictions, to be tested by later measurements.\n",
      per_host, calibration_workers, calibration_workers, calibration_workers,
      1e6 * MGWFBPs_10GbE.front().cost.startup, 1e6 * MGWFBPs_10GbE.back().cost.startup,
      growth_of_startup(2 * calibration_workers), calibration_workers, per_host,
      calibration_workers);
}

void print(const prediction& made) {
  std::printf("\n%-10s %-10s %-7s %3s %12s %13s %12s  cell\n", "DNN", "network", "method", "P",
              "samples/s", "predicted", "iteration %");
  for (const row& each : made.rows) {
    print(each);
  }
  print_law(made.law);
  print_limits(made.rows);
  print_rankings(made.rows);
  std::fflush(stdout);
}

void print_three_methods(const calibrated& law) {
  std::printf(
      "\nMeasured by MG-WFBP's authors on 16 V100s (IEEE TPDS 2021). Predicted from their own\n"
      "table of all-reduces, or from the start-up above with 16 where that is longer, with %.1f\n"
      "us per tensor for copying into the buffers of BSP and MG-WFBP, which is what merging\n"
      "costs inside one host of the survey. Seconds per iteration:\n",
      1e6 * copy_of_a_tensor());
  std::size_t right = 0;
  for (const three_methods& each : authors_figures) {
    const by_method predicted = predict(each, law);
    const bool same = same_order(each.measured, predicted);
    right += same ? 1 : 0;
    print_text(each.model, 12);
    print_text(each.network, 6);
    std::printf("fp%d ", each.bytes_an_element == 4 ? 32 : 16);
    for (const method how : methods) {
      const auto place = static_cast<std::size_t>(how);
      const auto name = name_of(how);
      std::printf(" %.*s %.4f, predicted %.4f;", width(name), name.data(), each.measured[place],
                  predicted[place]);
    }
    std::printf(" order %s\n", same ? "right" : "NOT REPRODUCED");
  }
  std::printf("order of the methods: right in %zu of %zu\n", right, authors_figures.size());
  std::fflush(stdout);
}

void append_json(const std::string& file, const prediction& made) {
  std::ostringstream lines;
  for (const row& each : made.rows) {
    lines << figures(each, made.law) << "\n";
  }
  common::append_lines(file, lines.str());
}

}  // namespace survey

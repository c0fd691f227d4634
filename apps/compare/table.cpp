#include "compare/table.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/output.hpp"
#include "common/staleness.hpp"
#include "compare/break_even.hpp"
#include "tutti/base/version.hpp"

namespace compare {

namespace {

/// Whether a row is the fastest of its kind. Rows of kind `apart` are compared with none.
bool best_of_its_kind(const row& which, const std::vector<row>& rows) {
  // A strategy that sends only in some steps may have sent in none of the measured ones.
  const auto counts = [](const row& each) { return each.bytes_sent() > 0 || each.of.workers == 1; };
  const auto beats = [&](const row& other) {
    return other.what == which.what && counts(other) && other.iteration < which.iteration;
  };
  return which.what != kind::apart && counts(which) && std::ranges::none_of(rows, beats);
}

nlohmann::ordered_json figures(const row& of) {
  const auto milliseconds = [](double seconds) { return 1e3 * seconds; };
  const auto& shown = of.shown();
  nlohmann::ordered_json line{{"strategy", of.strategy},
                              {"kind", name_of(of.what)},
                              {"model", of.of.model->name},
                              {"world", of.of.world},
                              {"transport", of.transport},
                              {"link", of.of.where.name},
                              {"device", of.of.model->device},
                              {"precision", "fp32"},
                              {"ranks", of.of.workers + of.servers},
                              {"workers", of.of.workers},
                              {"servers", of.servers},
                              {"server_hosts", nullptr},
                              {"machines", of.machines()},
                              {"simulated_workers", of.stand_ins},
                              {"period", of.period},
                              {"kernels", of.of.kernels},
                              {"kernel_bytes_per_second", of.of.device.bytes_per_second},
                              {"charged_by", of.of.charged_by},
                              {"pays_below_bits_per_second", nullptr},
                              {"batch_size", of.of.model->batch},
                              {"iteration_ms",
                               {{"mean", milliseconds(shown.mean())},
                                {"median", milliseconds(shown.quantile(0.5))},
                                {"p5", milliseconds(shown.quantile(0.05))},
                                {"p95", milliseconds(shown.quantile(0.95))}}},
                              {"samples_per_second", of.samples_per_second()},
                              {"iterations_per_second", shown.iterations_per_second},
                              {"slow_rank", nullptr},
                              {"staleness", common::by_staleness(shown.pushes)},
                              {"pushes_dropped", shown.pushes.dropped},
                              {"pushes_held", shown.pushes.held},
                              {"consensus", nullptr},
                              {"exposed_ms", milliseconds(of.exposed())},
                              {"bytes_sent_per_rank", of.bytes_sent()},
                              {"wire_bound_ms", nullptr},
                              {"lower_bound_ms", milliseconds(of.bound())},
                              {"predicted_ms", milliseconds(of.predicted)},
                              {"measured_ms", nullptr},
                              {"wall_over_logical", nullptr},
                              {"mean_lateness_us", nullptr},
                              {"worst_lateness_us", nullptr},
                              {"unusable", nullptr},
                              {"plan_hash", shown.planned.hash},
                              {"busiest_nic_bytes", of.simulated.busiest_nic},
                              {"crosses_iterations", of.simulated.crosses_iterations},
                              {"shares_nics", of.simulated.shares_nics},
                              {"version", TUTTI_VERSION},
                              {"job", of.job}};
  if (const auto seconds = of.on_the_wire()) {
    line["wire_bound_ms"] = milliseconds(*seconds);
  }
  if (of.pays_below) {
    line["pays_below_bits_per_second"] = std::min(*of.pays_below, fastest_link);
  }
  if (of.consensus) {
    line["consensus"] = *of.consensus;
  }
  if (of.of.slow.rank >= 0) {
    line["slow_rank"] = of.of.slow.rank;
  }
  if (of.servers > 0) {
    line["server_hosts"] = name_of(of.of.serving);
  }
  if (of.measured) {
    line["measured_ms"] = milliseconds(of.iteration);
  }
  if (of.of.world == "emulated") {
    line["wall_over_logical"] = of.clock.wall / of.clock.time;
    line["mean_lateness_us"] = 1e6 * of.clock.mean_lateness;
    line["worst_lateness_us"] = 1e6 * of.clock.worst_lateness;
    line["unusable"] = of.unusable();
  }
  return line;
}

/// Quotes a text as RFC 4180 does, with quotes inside it doubled.
std::string csv_field(const nlohmann::ordered_json& value) {
  if (!value.is_string()) {
    return value.dump();
  }
  std::string quoted = "\"";
  for (const char each : value.get_ref<const std::string&>()) {
    quoted.append(each == '"' ? 2 : 1, each);
  }
  return quoted + "\"";
}

/// Returns the link rate below which a lossy row pays, as the table shows it.
std::string pays_below(const row& which) {
  if (!which.pays_below) {
    return "";
  }
  const double rate = *which.pays_below;
  if (rate == 0 || rate >= fastest_link) {
    return rate == 0 ? "never" : "always";
  }
  std::array<char, 32> text{};
  const bool giga = rate >= 1e9;
  std::snprintf(text.data(), text.size(), "%.3g %s", rate / (giga ? 1e9 : 1e6),
                giga ? "Gbit/s" : "Mbit/s");
  return text.data();
}

/// Returns the milliseconds for which a NIC is kept busy, or nothing if no NIC is known to be a
/// bottleneck.
std::string on_the_wire(const row& which) {
  std::array<char, 32> text{};
  if (const auto seconds = which.on_the_wire()) {
    std::snprintf(text.data(), text.size(), "%.2f", 1e3 * *seconds);
  }
  return text.data();
}

/// Whether servers that do not wait for all workers have counted their pushes.
bool pushes_are_counted(const row& which) {
  return which.shown().pushes.taken() + which.shown().pushes.dropped > 0;
}

std::string place_of(const row& which) {
  return which.of.model->name + " " + std::to_string(which.of.workers) + " x " +
         which.of.where.name;
}

/// Returns the width of the column of names: the length of the longest, or 15 if that is more, so
/// that most tables have equal columns.
int width_of_names(const std::vector<row>& rows) {
  std::size_t width = 15;
  for (const row& each : rows) {
    width = std::max(width, each.strategy.size());
  }
  return static_cast<int>(width);
}

}  // namespace

void print(const std::vector<row>& rows) {
  const scenario& shared = rows.front().of;
  const int width = width_of_names(rows);
  const bool counts_pushes = std::ranges::any_of(rows, pushes_are_counted);
  const bool drift =
      std::ranges::any_of(rows, [](const row& each) { return each.consensus.has_value(); });
  std::ostringstream slow;
  if (shared.slow.rank >= 0) {
    slow << ", rank " << shared.slow.rank << " " << shared.slow.times << " times as slow";
  }
  std::printf("%s, batch %zu, %d workers, %s, %s: %.1f ms of compute (%s)%s, kernels at %s\n",
              shared.model->name.c_str(), shared.model->batch, shared.workers,
              shared.where.name.c_str(), shared.world.c_str(),
              1e3 * rows.front().simulated.compute(), shared.model->device.c_str(),
              slow.str().c_str(), shared.charged_by.c_str());
  std::printf(
      "  %-*s kind   machines  samples/s  iteration ms  exposed ms  MB sent    wire ms"
      "   bound ms  of bound%s%s%s\n",
      width, "strategy",
      shared.world == "emulated" ? "   pays below  predicted ms  late us (worst)  wall/logical"
      : shared.world == "real"   ? "  predicted ms  error %  kernels     GB/s"
                                 : "   pays below",
      drift ? "  consensus" : "", counts_pushes ? "  staleness  dropped %" : "");
  for (const row& each : rows) {
    std::printf("%c %-*s %s  %8d  %9.1f  %12.2f  %10.2f  %7.1f  %9s  %9.2f  %8.3f",
                best_of_its_kind(each, rows) ? '*' : ' ', width, each.strategy.c_str(),
                name_of(each.what), each.machines(), each.samples_per_second(),
                1e3 * each.iteration, 1e3 * each.exposed(), each.bytes_sent() / 1e6,
                on_the_wire(each).c_str(), 1e3 * each.bound(), each.of_bound());
    if (shared.world == "real") {
      std::printf("  %12.2f  %7.2f  %-7s  %7.1f", 1e3 * each.predicted, 100 * each.error(),
                  each.of.kernels.c_str(), each.of.device.bytes_per_second / 1e9);
    } else {
      std::printf("  %11s", pays_below(each).c_str());
    }
    if (shared.world == "emulated") {
      std::printf("  %12.2f  %7.0f (%5.0f)  %12.3f%s", 1e3 * each.predicted,
                  1e6 * each.clock.mean_lateness, 1e6 * each.clock.worst_lateness,
                  each.clock.wall / each.clock.time,
                  each.unusable() ? " UNUSABLE: this host is too slow" : "");
    }
    if (each.consensus) {
      std::printf("  %9.3g", *each.consensus);
    } else if (drift && pushes_are_counted(each)) {
      std::printf("  %9s", "");
    }
    if (pushes_are_counted(each)) {
      const tutti::push_counts& pushes = each.shown().pushes;
      const auto dropped = static_cast<double>(pushes.dropped);
      std::printf("  %9.2f  %9.1f", pushes.mean_staleness(),
                  100 * dropped / (dropped + static_cast<double>(pushes.taken())));
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

void print_parts_of_periods(const std::vector<row>& rows, int iterations) {
  for (const row& each : rows) {
    if (each.of.workers > 1 && iterations % each.period != 0) {
      const std::int64_t period = each.period;
      std::printf(
          "  %s exchanges every %d iterations, but its row covers %d. Fix: --iterations %lld\n",
          each.strategy.c_str(), each.period, iterations,
          static_cast<long long>((iterations / period + 1) * period));
    }
  }
  std::fflush(stdout);
}

void print_rows_below_bounds(const std::vector<row>& rows, int iterations, int warmup) {
  constexpr double least = 0.9995;  // less shows as a multiple of the bound below 1.000
  constexpr int longest = 1 << 20;  // that --warmup accepts
  for (const row& each : rows) {
    if (iterations % each.period == 0 && each.predicted < least * each.bound()) {
      std::printf(
          "  %s is predicted below its bound, because its first iterations find idle links. Fix: "
          "--warmup %d or more\n",
          each.strategy.c_str(), std::min(10 * std::max(warmup, 1), longest));
    }
  }
  std::fflush(stdout);
}

void print_consistency(const std::vector<row>& rows) {
  std::vector<double> errors;
  const row* worst = &rows.front();
  std::vector<std::string> places;
  std::map<std::string, std::map<std::string, double>> cells;
  std::vector<std::string> strategies;
  for (const row& each : rows) {
    const std::string place = place_of(each);
    const double error = each.error();
    errors.push_back(std::abs(error));
    if (std::abs(error) > std::abs(worst->error())) {
      worst = &each;
    }
    if (!cells.contains(place)) {
      places.push_back(place);
    }
    if (std::ranges::find(strategies, each.strategy) == strategies.end()) {
      strategies.push_back(each.strategy);
    }
    cells[place][each.strategy] = 100 * error;
  }
  std::ranges::sort(errors);
  const int width = width_of_names(rows);
  std::printf("%s iteration time less the simulated one, in %% of the latter\n  %-*s",
              rows.front().of.world.c_str(), width, "strategy");
  for (const auto& place : places) {
    std::printf("  %s", place.c_str());
  }
  for (const auto& strategy : strategies) {
    std::printf("\n  %-*s", width, strategy.c_str());
    for (const auto& place : places) {
      std::printf("  %*.2f", static_cast<int>(place.size()), cells[place][strategy]);
    }
  }
  std::printf("\n%zu rows: median %.2f %%, worst %.2f %% (%s, %s)\n", rows.size(),
              100 * errors[errors.size() / 2], 100 * errors.back(), worst->strategy.c_str(),
              place_of(*worst).c_str());
}

void append_json(const std::string& file, const row& of) {
  common::append_lines(
      file, figures(of).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void write_csv(const std::string& file, const std::vector<row>& rows) {
  constexpr std::array columns{"strategy",
                               "kind",
                               "model",
                               "world",
                               "link",
                               "ranks",
                               "workers",
                               "servers",
                               "machines",
                               "batch_size",
                               "samples_per_second",
                               "exposed_ms",
                               "bytes_sent_per_rank",
                               "wire_bound_ms",
                               "lower_bound_ms",
                               "predicted_ms",
                               "measured_ms",
                               "wall_over_logical"};
  std::ofstream out(file);
  for (const char* each : columns) {
    out << each << ",";
  }
  out << "iteration_ms\n";
  for (const row& each : rows) {
    const auto line = figures(each);
    for (const char* column : columns) {
      out << csv_field(line[column]) << ",";
    }
    out << nlohmann::json(1e3 * each.iteration) << "\n";  // as in the table, also if it was read
  }
  out.flush();
  common::expect_writable(out, file);
}

}  // namespace compare

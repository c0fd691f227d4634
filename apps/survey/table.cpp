#include "survey/table.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/version.hpp"

namespace survey {

namespace {

int width(std::string_view text) { return static_cast<int>(text.size()); }

void print(const row& each) {
  const auto network = name_of(each.of.over);
  const auto method = name_of(each.of.how);
  std::printf("%-11.*s %-8.*s %3d  %11.2f", width(network), network.data(), width(method),
              method.data(), each.of.workers, 1e3 * each.of.iteration());
  if (each.predicted) {
    std::printf("  %12.2f  %+8.2f", 1e3 * *each.predicted, *each.error());
  } else {
    std::printf("  %12s  %8s", "-", "-");
  }
  const auto what = name_of(each.what);
  std::printf("  %.*s\n", width(what), what.data());
}

void print_summary(const std::vector<row>& rows, std::string_view of) {
  const summary errors = summarize(rows);
  std::printf("|error| of %zu predicted cells, %.*s: median %.1f %%, worst %.1f %%\n", errors.rows,
              width(of), of.data(), errors.median, errors.worst);
}

void print_summaries(const std::vector<row>& rows) {
  for (const method how : methods) {
    std::vector<row> own;
    std::ranges::copy_if(rows, std::back_inserter(own),
                         [&](const row& each) { return each.of.how == how; });
    print_summary(own, name_of(how));
  }
  print_summary(rows, "all");
}

void print_nic(network over, const calibrated& found) {
  const auto name = name_of(over);
  std::printf("calibrated %.*s: %.3f GB/s, %.1f us a message%s\n", width(name), name.data(),
              found.nic.bytes_per_second / 1e9, 1e6 * found.nic.latency,
              found.source == latency_from::nothing ? " (clamped: a negative one would fit)" : "");
}

nlohmann::ordered_json figures(const row& each, const prediction& of) {
  const auto& nic = of.nic(each.of.over).nic;
  nlohmann::ordered_json line{{"strategy", name_of(each.of.how)},
                              {"traffic", name_of(of.on_link)},
                              {"model", model().name},
                              {"world", "simulated"},
                              {"transport", "simulated"},
                              {"link", name_of(each.of.over)},
                              {"device", model().device},
                              {"precision", "fp32"},
                              {"ranks", each.of.workers},
                              {"servers", 0},
                              {"batch_size", batch},
                              {"measured_samples_per_second", each.of.samples_per_second},
                              {"measured_ms", 1e3 * each.of.iteration()},
                              {"predicted_ms", nullptr},
                              {"error_percent", nullptr},
                              {"cell", name_of(each.what)},
                              {"link_bytes_per_second", nic.bytes_per_second},
                              {"link_latency_us", 1e6 * nic.latency},
                              {"version", TUTTI_VERSION}};
  if (each.predicted) {
    line["predicted_ms"] = 1e3 * *each.predicted;
    line["error_percent"] = *each.error();
  }
  return line;
}

}  // namespace

void print_law() {
  std::printf(
      "ResNet-50 of \"A Quantitative Survey of Communication Optimizations in Distributed Deep\n"
      "Learning\" (Shi et al., IEEE Network 2020): batch %d, %d GPUs a host, one GPU %.1f "
      "samples/s.\n"
      "Law: a link's rate and its latency a message do not depend on P; time follows from the\n"
      "ring's 2(P-1) messages through the simulator. MG-WFBP merges by the same link's cost.\n"
      "Calibrated on P = %d alone: the rate on BSP, the latency on WFBP. Nothing is fitted to any\n"
      "other cell. P = %d stays inside one host, whose link P = %d says nothing of: no "
      "prediction.\n",
      batch, per_host, one_gpu, calibration_workers, per_host, calibration_workers);
}

void print(const prediction& made) {
  const auto on_link = name_of(made.on_link);
  std::printf("\nAll-reduces %.*s%s\n", width(on_link), on_link.data(),
              made.on_link == traffic::all_at_once
                  ? ", as the library's strategies are; MG-WFBP by the published rule"
                  : ", as the survey defines its methods");
  std::printf("network     method     P  measured ms  predicted ms   error %%  cell\n");
  for (const row& each : made.rows) {
    print(each);
  }
  print_summaries(made.rows);
  for (const network each : networks) {
    print_nic(each, made.nic(each));
  }
  std::fflush(stdout);
}

void append_json(const std::string& file, const prediction& made) {
  std::ofstream out(file, std::ios::app);
  for (const row& each : made.rows) {
    out << figures(each, made) << "\n";
  }
  out.flush();
  if (!out) {
    throw tutti::usage_error("cannot write " + file + ". Fix: a directory that exists");
  }
}

}  // namespace survey

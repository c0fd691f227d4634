#include "compare/kernel_rates.hpp"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/job.hpp"

namespace compare {

namespace {

constexpr const char* fix =
    ". Fix: a file of bench-kernels --benchmark_filter=rates --benchmark_out=FILE";

/// Returns the string field `name` of a row, or `otherwise` if the row has none.
std::string text(const nlohmann::json& row, const char* name, const char* otherwise) {
  const auto found = row.find(name);
  return found != row.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

/// Returns a counter of a row. Throws common::flag_error unless it is at least 0.
double counter(const std::string& file, const nlohmann::json& row, const char* name) {
  const auto found = row.find(name);
  const double value = found != row.end() && found->is_number() ? found->get<double>() : -1;
  if (!(value >= 0) || !(value < 1e12)) {
    throw common::flag_error(file + ": '" + name + "' of " + text(row, "name", "a row") +
                             " is missing or invalid" + fix);
  }
  return value;
}

}  // namespace

kernel_file::kernel_file(const std::string& name) : name_(name) {
  std::ifstream in(name);
  if (!in || std::filesystem::is_directory(name)) {
    throw common::flag_error("--kernels " + name + " is not a readable file" + fix +
                             ", or profile");
  }
  const auto whole = nlohmann::json::parse(in, nullptr, false);
  const auto rows = whole.find("benchmarks");
  const std::string kind = "rates/";
  for (const auto& row : rows != whole.end() && rows->is_array() ? *rows : nlohmann::json()) {
    const std::string full = text(row, "run_name", "");
    const bool of_a_run = text(row, "run_type", "iteration") == "iteration";
    if (full.starts_with(kind) && of_a_run) {
      const std::string compressor =
          full.substr(kind.size(), full.find('/', kind.size()) - kind.size());
      all_[compressor] = {1e-9 * counter(name, row, "encode_ns"),
                          counter(name, row, "encode_bytes"), 1e-9 * counter(name, row, "add_ns"),
                          counter(name, row, "add_bytes")};
    }
  }
  if (all_.empty()) {
    throw common::flag_error(name + " has no row rates/COMPRESSOR" + fix);
  }
}

const kernel_times& kernel_file::of(const std::string& compressor) const {
  const auto found = all_.find(compressor);
  if (found == all_.end()) {
    throw common::flag_error(name_ + " has no row rates/" + compressor + fix);
  }
  return found->second;
}

}  // namespace compare

#include "common/all_reduce_table.hpp"

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/job.hpp"
#include "tutti/base/error.hpp"
#include "tutti/strategies/all_reduce_spec.hpp"

namespace common {

namespace {

using tutti::strategies::tf_reduction;

constexpr const char* fix =
    ". Fix: a file of bench-collectives --benchmark_filter=all_reduce_spec --benchmark_out=FILE";

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  throw flag_error("--all-reduce-table " + file + " " + why + fix);
}

[[noreturn]] void refuse_counter(const std::string& file, const char* name) {
  refuse(file, std::string("has a row whose '") + name + "' is missing or invalid");
}

/// Returns the counter `name` of a row. Throws flag_error unless it is above 0.
double counter(const std::string& file, const nlohmann::json& row, const char* name) {
  const auto found = row.find(name);
  const double value = found != row.end() && found->is_number() ? found->get<double>() : 0;
  if (!(value > 0) || !(value < 1e15)) {
    refuse_counter(file, name);
  }
  return value;
}

/// Returns a counter that counts something. Throws flag_error unless it is a whole number above 0.
std::size_t whole_counter(const std::string& file, const nlohmann::json& row, const char* name) {
  const double value = counter(file, row, name);
  if (value != std::floor(value)) {
    refuse_counter(file, name);
  }
  return static_cast<std::size_t>(value);
}

/// Returns what a row measured: a size in elements, an algorithm with its shards, and the seconds.
/// Throws flag_error if the row's label names no algorithm.
tf_reduction::measured entry(const std::string& file, const nlohmann::json& row) {
  const auto label = row.find("label");
  const std::string way = label != row.end() && label->is_string() ? label->get<std::string>() : "";
  tf_reduction::range its;
  try {
    its = tutti::strategies::of_all_reduce_spec(way).ranges[0];
  } catch (const tutti::usage_error&) {
  }
  if (tf_reduction::written(its) != way) {
    refuse(file, "has a row of '" + way + "', which is not an all-reduce");
  }
  return {whole_counter(file, row, "elements"), its.algorithm, its.shards,
          counter(file, row, "seconds")};
}

}  // namespace

tf_reduction::options of_all_reduce_table(const std::string& file, const std::vector<int>& ranks) {
  std::ifstream in(file);
  if (!in || std::filesystem::is_directory(file)) {
    refuse(file, "is not a readable file");
  }
  const auto whole = nlohmann::json::parse(in, nullptr, false);
  const auto found = whole.is_object() ? whole.find("benchmarks") : whole.end();
  std::vector<tf_reduction::measured> table;
  for (const auto& row : found != whole.end() && found->is_array() ? *found : nlohmann::json()) {
    const auto text = [&row](const char* name) {
      const auto its = row.is_object() ? row.find(name) : row.end();
      return its != row.end() && its->is_string() ? its->get<std::string>() : std::string();
    };
    if (text("run_name").starts_with("all_reduce_spec/") && text("run_type") == "iteration") {
      table.push_back(entry(file, row));
      const std::size_t its = whole_counter(file, row, "ranks");
      for (const int wanted : ranks) {
        if (its != static_cast<std::size_t>(wanted)) {
          refuse(file, "has a row measured with " + std::to_string(its) + " ranks, not with " +
                           std::to_string(wanted));
        }
      }
    }
  }
  if (table.empty()) {
    refuse(file, "has no row all_reduce_spec/WAY");
  }
  try {
    return tf_reduction::fastest(table);
  } catch (const tutti::usage_error& refused) {
    throw flag_error(file + ": " + refused.what());
  }
}

}  // namespace common

#include "compare/earlier.hpp"

#include <bit>
#include <cstdint>
#include <fstream>
#include <sstream>

#include "compare/processes.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/version.hpp"

namespace compare {

namespace {

/// What a file's name does not say: the user may have changed what is in it.
std::uint64_t contents(const scenario& of) {
  tutti::running_hash seen;
  const auto figure = [&seen](double value) { seen.feed(std::bit_cast<std::uint64_t>(value)); };
  const auto card = [&figure](const tutti::transport::link& each) {
    figure(each.bytes_per_second);
    figure(each.latency);
  };
  card(of.where.card);
  card(of.where.inside);
  card(of.where.server_card.value_or(of.where.card));
  seen.feed(static_cast<std::uint64_t>(of.where.per_host));
  seen.feed(static_cast<std::uint64_t>(of.model->batch));
  for (const auto& each : of.model->tensors) {
    seen.feed(std::uint64_t{each.elements});
    figure(each.forward_seconds);
    figure(each.backward_seconds);
  }
  return seen.value();
}

}  // namespace

std::string job_of(const scenario& of, const contender& who, const common::job& asked) {
  std::ostringstream words;
  words << TUTTI_VERSION << " " << who.name << " " << of.model->name << " " << of.where.name << " "
        << "contents " << contents(of) << " " << of.workers << "+" << who.servers(asked) << " on "
        << asked.server_hosts << " " << of.world << " by "
        << (of.world == "emulated" ? emulated_by() : "simulated") << " " << asked.payloads
        << " iterations " << asked.iterations << " warmup " << asked.warmup << " repetitions "
        << asked.repetitions << " jitter " << asked.jitter << " slowdown " << asked.slowdown
        << " seed " << asked.seed << " memory " << of.device.bytes_per_second;
  for (const auto& [flag, value] : asked.policy_flags) {
    words << " " << flag << " " << value;
  }
  return words.str();
}

earlier::earlier(const std::string& file) {
  if (file.empty()) {
    return;
  }
  std::ifstream in(file);
  if (!in) {
    throw tutti::usage_error("cannot read " + file + ". Fix: --resume what --json has written");
  }
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (!parsed.is_object() || !parsed.contains("job")) {
      throw tutti::usage_error(file + " line " + std::to_string(number) +
                               " is no row of tutti-compare. Fix: delete it");
    }
    rows_[parsed["job"]] = parsed;
  }
}

std::optional<row> earlier::find(const std::string& job, const scenario& of) const {
  const auto found = rows_.find(job);
  if (found == rows_.end()) {
    return std::nullopt;
  }
  const nlohmann::json& line = found->second;
  row known;
  known.strategy = line["strategy"];
  known.what = line["kind"] == name_of(kind::exact)   ? kind::exact
               : line["kind"] == name_of(kind::lossy) ? kind::lossy
                                                      : kind::stale;
  known.of = of;
  known.job = job;
  known.transport = line["transport"];
  known.servers = line["servers"];
  known.stand_ins = line["simulated_workers"];
  known.payload_stretch = 1;
  tutti::replayed shown;  // three iterations with the quantiles of all
  for (const char* each : {"p5", "median", "p95"}) {
    shown.iterations.push_back(line["iteration_ms"][each].get<double>() / 1e3);
  }
  shown.bytes_sent = 3 * static_cast<std::uint64_t>(line["bytes_sent_per_rank"].get<double>());
  shown.planned.hash = line["plan_hash"];
  shown.busiest_card = line["busiest_card_bytes"];
  shown.crosses_iterations = line["crosses_iterations"];
  shown.forward = of.model->forward();
  shown.backward = of.model->backward();
  shown.first_gradient = of.model->tensors.back().backward_seconds;
  known.simulated = shown;
  if (!line["measured_ms"].is_null()) {
    known.emulated = shown;
    known.simulated.iterations = {line["predicted_ms"].get<double>() / 1e3};
    known.clock.time = 1;
    known.clock.wall = line["wall_over_logical"];
    known.clock.mean_lateness = line["mean_lateness_us"].get<double>() / 1e6;
    known.clock.worst_lateness = line["worst_lateness_us"].get<double>() / 1e6;
  }
  return known;
}

}  // namespace compare

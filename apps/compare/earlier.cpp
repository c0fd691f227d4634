#include "compare/earlier.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "compare/processes.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/version.hpp"

namespace compare {

namespace {

/// Returns a hash of the network's, profile's and kernel file's contents, because the user may have
/// changed a file without changing its name.
std::uint64_t contents(const scenario& of) {
  tutti::running_hash seen;
  const auto figure = [&seen](double value) { seen.feed(std::bit_cast<std::uint64_t>(value)); };
  const auto nic = [&figure](const tutti::transport::link& each) {
    figure(each.bytes_per_second);
    figure(each.latency);
    figure(each.share_of_one);
  };
  nic(of.where.nic);
  nic(of.where.inside);
  nic(of.where.server_nic.value_or(of.where.nic));
  for (const auto& [rank, its] : of.where.nic_of_rank) {
    seen.feed(static_cast<std::uint64_t>(rank));
    nic(its);
  }
  seen.feed(static_cast<std::uint64_t>(of.where.per_host));
  seen.feed(static_cast<std::uint64_t>(of.model->batch));
  for (const auto& each : of.model->tensors) {
    seen.feed(std::uint64_t{each.elements});
    figure(each.forward_seconds);
    figure(each.backward_seconds);
    for (std::size_t i = 0; i < each.shape.dimensions(); ++i) {
      seen.feed(std::uint64_t{each.shape[i]});
    }
  }
  if (of.file != nullptr) {
    for (const auto& [compressor, each] : of.file->all()) {
      seen.feed(std::as_bytes(std::span(compressor)));
      figure(each.encode_seconds);
      figure(each.encode_bytes);
      figure(each.add_seconds);
      figure(each.add_bytes);
    }
  }
  return seen.value();
}

}  // namespace

std::string job_of(const scenario& of, const contender& who, const common::job& asked) {
  std::ostringstream words;
  words << TUTTI_VERSION << " " << who.name << " " << of.model->name << " " << of.where.name << " "
        << "contents " << contents(of) << " " << of.workers << "+" << who.servers(asked) << " on "
        << asked.server_hosts << " " << of.world << " by "
        << (of.world == "emulated" ? emulated_by()
            : of.world == "real"   ? "mpi"
                                   : "simulated")
        << " " << asked.payloads << " iterations " << asked.iterations << " warmup " << asked.warmup
        << " repetitions " << asked.repetitions << " jitter " << asked.jitter << " slowdown "
        << asked.slowdown << " slow " << asked.slow_rank << " seed " << asked.seed << " kernels "
        << of.kernels << " progress " << asked.progress << " memory "
        << (of.kernels == "cpu" ? 1e9 * asked.memory_bandwidth.value_or(0)  // 0: measured
                                : of.device.bytes_per_second);
  for (const auto& [flag, value] : asked.policy_flags) {
    words << " " << flag << " " << value;
  }
  return words.str();
}

void expect_one_job(const common::job& asked) {
  const nlohmann::json flags{{"strategy", asked.strategies},
                             {"model", asked.models},
                             {"ranks", asked.rank_counts},
                             {"servers", asked.servers},
                             {"server-hosts", asked.server_hosts},
                             {"link", asked.links},
                             {"network", asked.networks},
                             {"world", asked.world},
                             {"progress", asked.progress},
                             {"payloads", asked.payloads},
                             {"kernels", asked.kernels},
                             {"iterations", asked.iterations},
                             {"warmup", asked.warmup},
                             {"repetitions", asked.repetitions},
                             {"jitter", asked.jitter},
                             {"slowdown", asked.slowdown},
                             {"slow-rank", asked.slow_rank},
                             {"seed", asked.seed},
                             {"memory-bandwidth", asked.memory_bandwidth.value_or(0)},
                             {"resume", asked.resume},
                             {"ROLE.OPTION", asked.policy_flags}};
  std::vector<std::uint64_t> words;
  for (const nlohmann::json& value : flags) {
    const auto bytes = nlohmann::json::to_cbor(value);
    tutti::running_hash seen;
    seen.feed(std::as_bytes(std::span(bytes)));
    words.push_back(seen.value());
  }
  const std::size_t unlike = first_unlike(words);
  if (unlike < words.size()) {
    throw common::flag_error("--" +
                             std::next(flags.begin(), static_cast<std::ptrdiff_t>(unlike)).key() +
                             " is not the same everywhere. Fix: set it alike on every rank");
  }
}

namespace {

/// Reads the fields of one row from a line of the file. Throws tutti::usage_error, naming the file,
/// the line and the field, for a field that is missing, of another type or out of range.
class line_reader {
 public:
  line_reader(const std::string& where, const nlohmann::json& line)
      : where_(&where), line_(&line) {}

  std::string text(const char* key) const { return at(key, &json::is_string).get<std::string>(); }
  bool truth(const char* key) const { return at(key, &json::is_boolean).get<bool>(); }
  std::uint64_t hash(const char* key) const {
    return at(key, &json::is_number_unsigned).get<std::uint64_t>();
  }
  int count(const char* key) const { return static_cast<int>(real(key, 1e9)); }
  double real(const char* key, double most = std::numeric_limits<double>::max()) const {
    const auto value = at(key, &json::is_number).get<double>();
    if (!(value >= 0 && value <= most)) {
      refuse(key);
    }
    return value;
  }
  /// Returns nothing if the field is null.
  std::optional<double> maybe(const char* key) const {
    return at(key, &json::is_primitive).is_null() ? std::nullopt : std::optional(real(key));
  }
  double of_iterations(const char* quantile) const {
    return line_reader(*where_, at("iteration_ms", &json::is_object)).real(quantile) / 1e3;
  }
  tutti::push_counts pushes() const {
    tutti::push_counts all;
    const json& by_staleness = at("staleness", &json::is_array);
    if (by_staleness.size() > all.staleness.size()) {
      refuse("staleness");
    }
    for (std::size_t i = 0; i < by_staleness.size(); ++i) {
      all.staleness[i] = by_staleness[i].is_number_unsigned() ? by_staleness[i].get<std::uint64_t>()
                                                              : (refuse("staleness"), 0);
    }
    all.dropped = hash("pushes_dropped");
    all.held = hash("pushes_held");
    return all;
  }
  kind what() const {
    const std::string name = text("kind");
    for (const kind each : {kind::exact, kind::lossy, kind::stale, kind::other, kind::apart}) {
      if (name == name_of(each)) {
        return each;
      }
    }
    refuse("kind");
  }

 private:
  using json = nlohmann::json;

  [[noreturn]] void refuse(const char* key) const {
    throw tutti::usage_error(*where_ + " is no row of this tutti-compare: '" + key +
                             "' is missing or cannot be. Fix: delete it");
  }
  const json& at(const char* key, bool (json::*is)() const noexcept) const {
    const auto found = line_->find(key);
    if (found == line_->end() || !((*found).*is)()) {
      refuse(key);
    }
    return *found;
  }

  const std::string* where_;
  const json* line_;
};

/// Reads all fields of a row but those that its scenario gives.
row read_row(const std::string& where, const nlohmann::json& json) {
  const line_reader line(where, json);
  row known;
  known.job = line.text("job");
  known.strategy = line.text("strategy");
  known.what = line.what();
  known.transport = line.text("transport");
  known.servers = line.count("servers");
  known.stand_ins = line.count("simulated_workers");
  known.period = std::max(line.count("period"), 1);
  known.payload_stretch = 1;
  known.of.kernels = line.text("kernels");
  known.of.device = {line.real("kernel_bytes_per_second")};
  known.pays_below = line.maybe("pays_below_bits_per_second");
  known.consensus = line.maybe("consensus");
  tutti::replayed shown;  // three iterations, whose quantiles are those of the row
  for (const char* each : {"p5", "median", "p95"}) {
    shown.iterations.push_back(line.of_iterations(each));
  }
  shown.iterations_per_second =  // null is infinity, which JSON lacks
      line.maybe("iterations_per_second").value_or(std::numeric_limits<double>::infinity());
  shown.pushes = line.pushes();
  shown.bytes_sent = 3 * static_cast<std::uint64_t>(line.real("bytes_sent_per_rank", 1e18));
  shown.planned.hash = line.hash("plan_hash");
  shown.busiest_nic = line.real("busiest_nic_bytes");
  shown.crosses_iterations = line.truth("crosses_iterations");
  shown.shares_nics = line.truth("shares_nics");
  known.simulated = shown;
  known.iteration = known.predicted = line.real("predicted_ms") / 1e3;
  if (const auto measured = line.maybe("measured_ms")) {
    known.iteration = *measured / 1e3;
    known.measured = shown;
    known.clock.time = 1;
    known.clock.wall = line.maybe("wall_over_logical").value_or(1);
    known.clock.mean_lateness = line.maybe("mean_lateness_us").value_or(0) / 1e6;
    known.clock.worst_lateness = line.maybe("worst_lateness_us").value_or(0) / 1e6;
  }
  return known;
}

}  // namespace

earlier::earlier(const std::string& file) {
  if (file.empty()) {
    return;
  }
  const tutti::usage_error cannot_read("cannot read " + file +
                                       ". Fix: --resume what --json has written");
  std::ifstream in(file);
  if (!in) {
    throw cannot_read;
  }
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    const std::string where = file + " line " + std::to_string(++number);
    const auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (!parsed.is_object()) {
      throw tutti::usage_error(where + " is no row of tutti-compare. Fix: delete it");
    }
    row known = read_row(where, parsed);
    const std::string job = known.job;
    rows_.insert_or_assign(job, std::move(known));
  }
  if (!in.eof()) {
    throw cannot_read;
  }
}

std::optional<row> earlier::find(const std::string& job, const scenario& of) const {
  const auto found = rows_.find(job);
  if (found == rows_.end()) {
    return std::nullopt;
  }
  row known = found->second;
  known.of = of;
  known.of.kernels = found->second.of.kernels;
  known.of.device = found->second.of.device;
  for (tutti::replayed* each : {&known.simulated, known.measured ? &*known.measured : nullptr}) {
    if (each != nullptr) {
      each->forward = of.model->forward();
      each->backward = of.model->backward();
      each->first_gradient = of.model->tensors.back().backward_seconds;
    }
  }
  return known;
}

}  // namespace compare

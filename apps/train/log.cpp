#include "train/log.hpp"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tutti/base/error.hpp"
#include "tutti/base/version.hpp"

namespace train {

log::log(const common::job& job, std::string_view strategy, int rank)
    : job_(&job), strategy_(strategy), speaks_(rank == 0), terminal_(isatty(STDOUT_FILENO) != 0) {
  if (speaks_) {
    std::printf(
        "%-14s epoch   loss    train   test   images/s   ms/step  exposed ms  MB sent/step\n",
        "strategy");
  }
}

void log::progress(std::size_t epoch, std::size_t step, std::size_t steps, float loss) {
  if (speaks_ && terminal_ && (step % 16 == 0 || step == steps)) {
    std::printf("\r%-14s %5zu   step %zu of %zu, loss %.4f ", strategy_.c_str(), epoch + 1, step,
                steps, static_cast<double>(loss));
    std::fflush(stdout);
  }
}

void log::epoch(std::size_t epoch, const epoch_totals& totals, const tutti::report& so_far) {
  if (!speaks_) {
    return;
  }
  const auto steps = static_cast<double>(totals.steps);
  const double seen = steps * static_cast<double>(job_->batch_size);
  const double images = seen * so_far.workers;
  const double train_accuracy = totals.correct / seen;
  const double sent = static_cast<double>(totals.bytes_sent) / steps;
  std::printf("%s%-14s %5zu  %.4f  %.4f  %.4f  %8.0f  %8.2f  %10.2f  %12.4f\n",
              terminal_ ? "\r\033[K" : "", strategy_.c_str(), epoch + 1, totals.loss,
              train_accuracy, totals.test_accuracy, images / totals.seconds,
              1e3 * totals.seconds / steps, 1e3 * totals.exposed / steps, sent / 1e6);
  std::fflush(stdout);
  if (job_->json.empty()) {
    return;
  }
  std::ofstream out(job_->json, std::ios::app);
  out << nlohmann::json{{"strategy", strategy_},
                        {"model", job_->model},
                        {"world", "real"},
                        {"transport", job_->transport},
                        {"device", "cpu"},
                        {"precision", "fp32"},
                        {"ranks", so_far.workers},
                        {"servers", so_far.servers},
                        {"batch_size", job_->batch_size},
                        {"epoch", epoch + 1},
                        {"loss", totals.loss},
                        {"train_accuracy", train_accuracy},
                        {"test_accuracy", totals.test_accuracy},
                        {"iteration_ms",
                         {{"mean", 1e3 * totals.seconds / steps},
                          {"median", nullptr},
                          {"p5", nullptr},
                          {"p95", nullptr}}},
                        {"samples_per_second", images / totals.seconds},
                        {"exposed_ms", 1e3 * totals.exposed / steps},
                        {"bytes_sent_per_rank", sent},
                        {"lower_bound_ms", nullptr},
                        {"predicted_ms", nullptr},
                        {"plan_hash", so_far.plan_hash},
                        {"version", TUTTI_VERSION}}
      << "\n";
  if (!out) {
    throw tutti::usage_error("cannot write " + job_->json + ". Fix: another file");
  }
}

void timelines::add(int rank, const tutti::monitor::timeline& seen,
                    const std::vector<tutti::tensor>& named) {
  const std::scoped_lock lock(mutex_);
  seen_.emplace(rank, seen);
  names_.clear();
  for (const auto& each : named) {
    names_.push_back(each.name);
  }
}

void timelines::write(const std::string& file) const {
  std::ofstream out(file);
  out << "{\"traceEvents\":[\n";
  const char* separator = "";
  for (const auto& [rank, seen] : seen_) {
    out << separator;
    tutti::monitor::write_trace_events(out, rank, seen, names_);
    separator = ",\n";
  }
  out << "\n]}\n";
  if (!out) {
    throw tutti::usage_error("cannot write " + file + ". Fix: another file");
  }
}

}  // namespace train

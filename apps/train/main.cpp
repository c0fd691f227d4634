// Trains a network on real images with any named strategy, on threads or MPI processes.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include "common/input.hpp"
#include "common/names.hpp"
#include "common/output.hpp"
#include "train/trainer.hpp"

namespace {

const train::trainable& find(const std::string& name) {
  common::expect_one_of("strategy", name, common::names_of(train::registry()));
  return *std::ranges::find(train::registry(), name, &train::trainable::name);
}

/// Returns the device on which `strategy` trains. Throws flag_error if this build or this machine
/// does not have it.
const train::device& find(const train::trainable& strategy, const common::job& asked) {
  common::expect_one_of("device", asked.device, {"cpu", "cuda"});
  const auto found = std::ranges::find(strategy.devices, asked.device, &train::device::name);
  if (found == strategy.devices.end()) {
    throw common::flag_error(
        "this build does not train " + asked.strategy + " on " + asked.device +
        ". Fix: cmake --preset cuda, with nvcc, cuBLAS and cuDNN installed, or --device cpu, "
        "the only one for OkTopk, QSGD and BytePSDithering");
  }
  found->expect(asked);
  return *found;
}

/// Throws common::flag_error if a file could not replace what is there.
void expect_no_folder(const std::string& file) {
  std::error_code none;
  if (std::filesystem::is_directory(file, none)) {
    throw common::flag_error(file + " is a folder. Fix: name another file, or remove it");
  }
}

/// Throws common::flag_error if an output file cannot be written, before a long run whose results
/// would otherwise be lost.
void check_outputs(const common::job& asked) {
  const bool timeline_a_rank = common::uses_mpi(asked);
  for (const auto& whole : {asked.json, timeline_a_rank ? std::string() : asked.timeline}) {
    if (!whole.empty()) {
      common::check_writable(whole, whole);
    }
  }
  for (const auto& prefix : {asked.checkpoint, timeline_a_rank ? asked.timeline : std::string()}) {
    if (!prefix.empty()) {
      common::check_writable(prefix + ".0.partial", prefix);
    }
  }
  for (int rank = 0; !asked.checkpoint.empty() && rank < asked.workers(); ++rank) {
    const std::string file = asked.checkpoint + "." + std::to_string(rank);
    expect_no_folder(file);
    expect_no_folder(train::previous(file));
  }
}

void print_help(const common::job& asked) {
  std::fputs(common::help(common::app::train).c_str(), stdout);
  std::printf("flags of %s:\n", asked.strategy.c_str());
  common::print_policy_flags(find(asked.strategy).flags(asked));
}

void run(int argc, char** argv) {
  const common::job asked = common::parse(argc, argv, common::app::train);
  if (asked.help) {
    print_help(asked);
  } else if (asked.list_strategies) {
    common::print_descriptions(train::registry());
  } else if (asked.list_models) {
    common::print_names(models::names());
  } else {
    const auto& strategy = find(asked.strategy);
    common::expect_one_of("model", asked.model, models::names());
    strategy.expect(asked);  // before any data is read
    const auto& device = find(strategy, asked);
    check_outputs(asked);
    device.run(asked, common::input(asked));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return common::guarded("tutti-train", [&] { run(argc, argv); });
}

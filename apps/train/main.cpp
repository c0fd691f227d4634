// Trains a network on real images with any named strategy, on threads or MPI processes.
#include <algorithm>
#include <cstdio>
#include <fstream>

#include "common/input.hpp"
#include "train/trainer.hpp"

namespace {

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const auto& each : train::registry()) {
    names.emplace_back(each.name);
  }
  return names;
}

const train::trainable& find(const std::string& name) {
  const auto& all = train::registry();
  const auto found = std::ranges::find(all, name, &train::trainable::name);
  if (found == all.end()) {
    throw tutti::usage_error("no strategy is named '" + name + "'. Did you mean " +
                             common::nearest(name, strategy_names()) + "?");
  }
  return *found;
}

void check_writable(const std::string& file) {
  if (!file.empty() && !std::ofstream(file, std::ios::app)) {
    throw tutti::usage_error("cannot write " + file + ". Fix: a directory that exists");
  }
}

void list(const std::vector<std::string>& names) {
  for (const auto& each : names) {
    std::puts(each.c_str());
  }
}

void print_help(const common::job& asked) {
  std::fputs(common::help().c_str(), stdout);
  if (!asked.strategy.empty()) {
    for (const auto& [flag, meaning] : find(asked.strategy).flags()) {
      std::printf("  --%s: %s\n", flag.c_str(), meaning.c_str());
    }
  }
}

int run(int argc, char** argv) {
  common::job asked = common::parse(argc, argv);
  if (asked.help) {
    print_help(asked);
  } else if (asked.list_strategies) {
    list(strategy_names());
  } else if (asked.list_models) {
    list(models::names());
  } else {
    if (asked.strategy.empty()) {
      asked.strategy = "Horovod";
    }
    const auto& strategy = find(asked.strategy);
    const auto known = models::names();
    if (std::ranges::find(known, asked.model) == known.end()) {
      throw tutti::usage_error("no model is named '" + asked.model + "'. Did you mean " +
                               common::nearest(asked.model, known) + "?");
    }
    check_writable(asked.json);
    check_writable(asked.timeline);
    check_writable(asked.checkpoint.empty() ? ""
                                            : train::of_rank(asked.checkpoint, 0) + ".partial");
    strategy.run(asked, common::input(asked.data));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return common::guarded("tutti-train", run, argc, argv); }

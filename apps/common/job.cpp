#include "common/job.hpp"

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <utility>

#include "tutti/base/error.hpp"

namespace common {

namespace po = boost::program_options;

namespace {

std::size_t edits(const std::string& from, const std::string& to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t kept = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({kept, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

po::options_description described(job& into) {
  po::options_description all("flags");
  auto add = all.add_options();
  const auto text = [](std::string& to) { return po::value(&to)->default_value(to, to); };
  add("strategy", text(into.strategy), "how to communicate");
  add("model", text(into.model), "what to train: mlp or cnn");
  add("data", text(into.data), "fashion-mnist[:DIRECTORY] or synthetic");
  add("batch-size", po::value(&into.batch_size)->default_value(into.batch_size),
      "images per worker and step");
  add("ranks", po::value(&into.ranks)->default_value(into.ranks), "workers in this process");
  add("servers", po::value(&into.servers)->default_value(into.servers),
      "parameter servers, where the strategy has any");
  add("transport", text(into.transport),
      "in_process, mpi, or automatic: mpi under mpirun and srun");
  add("epochs", po::value(&into.epochs)->default_value(into.epochs), "passes over the data");
  add("steps", po::value(&into.steps)->default_value(into.steps), "stop after so many; 0: do not");
  add("learning-rate", po::value<float>(), "instead of the model's and the strategy's own");
  add("momentum", po::value<float>(), "instead of the model's own");
  add("weight-decay", po::value(&into.weight_decay)->default_value(into.weight_decay),
      "share of a parameter added to its gradient");
  add("seed", po::value(&into.seed)->default_value(into.seed), "of parameters and shuffling");
  add("deadline", po::value(&into.deadline)->default_value(into.deadline),
      "seconds without progress before a rank says who holds it up");
  add("json", text(into.json), "append one object a line to this file");
  add("timeline", text(into.timeline), "write a Chrome trace to this file");
  add("checkpoint", text(into.checkpoint), "write FILE.rank after every epoch");
  add("resume", text(into.resume), "go on from FILE.rank");
  add("list-strategies", po::bool_switch(&into.list_strategies), "print their names");
  add("list-models", po::bool_switch(&into.list_models), "print their names");
  add("header", po::bool_switch(&into.header), "print the table's header");
  add("help", po::bool_switch(&into.help), "print this");
  return all;
}

std::vector<std::string> names_of(const po::options_description& all) {
  std::vector<std::string> names;
  for (const auto& each : all.options()) {
    names.push_back("--" + each->long_name());
  }
  return names;
}

/// `--role.option value` and `--role.option=value`; anything else is a mistake.
void take_policy_flags(const std::vector<std::string>& left, const po::options_description& all,
                       job& into) {
  for (std::size_t i = 0; i < left.size(); ++i) {
    const std::string name = left[i].substr(0, left[i].find('='));
    if (!name.starts_with("--") || name.find('.') == std::string::npos) {
      throw tutti::usage_error("nobody knows " + name + ". Did you mean " +
                               nearest(name, names_of(all)) + "?");
    }
    if (name.size() < left[i].size()) {
      into.policy_flags.emplace_back(name.substr(2), left[i].substr(name.size() + 1));
    } else if (i + 1 < left.size()) {
      into.policy_flags.emplace_back(name.substr(2), left[++i]);
    } else {
      throw tutti::usage_error(name + " needs a value");
    }
  }
}

void check(const job& read) {
  const auto refuse = [](const std::string& flag, const auto& value, const char* fix) {
    std::ostringstream line;
    line << "--" << flag << " " << value << " cannot be. Fix: " << fix;
    throw tutti::usage_error(line.str());
  };
  if (read.ranks < 1 || read.ranks > 1024) {
    refuse("ranks", read.ranks, "from 1 to 1024");
  }
  if (read.servers < 1 || read.servers > 1024) {
    refuse("servers", read.servers, "from 1 to 1024");
  }
  if (read.batch_size < 1 || read.batch_size > 1 << 20) {
    refuse("batch-size", read.batch_size, "from 1 to 1048576");
  }
  if (!(read.deadline > 0)) {
    refuse("deadline", read.deadline, "more than 0 seconds");
  }
  if (read.transport != "automatic" && read.transport != "in_process" && read.transport != "mpi") {
    refuse("transport", read.transport, "in_process, mpi or automatic");
  }
}

}  // namespace

std::string nearest(const std::string& wanted, const std::vector<std::string>& candidates) {
  const auto closest = std::ranges::min_element(
      candidates, {}, [&](const std::string& each) { return edits(wanted, each); });
  return closest == candidates.end() ? "" : *closest;
}

job parse(int argc, char** argv) {
  job read;
  const auto all = described(read);
  po::variables_map values;
  try {
    const auto parsed =
        po::command_line_parser(argc, argv)
            .options(all)
            .style(po::command_line_style::unix_style & ~po::command_line_style::allow_guessing)
            .allow_unregistered()
            .run();
    po::store(parsed, values);
    po::notify(values);
    take_policy_flags(po::collect_unrecognized(parsed.options, po::include_positional), all, read);
  } catch (const po::error& wrong) {
    throw tutti::usage_error(std::string(wrong.what()) + ". Fix: see --help");
  }
  if (values.count("learning-rate") != 0) {
    read.learning_rate = values["learning-rate"].as<float>();
  }
  if (values.count("momentum") != 0) {
    read.momentum = values["momentum"].as<float>();
  }
  check(read);
  return read;
}

std::string help() {
  job defaults;
  std::ostringstream out;
  out << described(defaults) << "  --ROLE.OPTION arg     a policy's own, as --fusion.bytes 32MiB\n";
  return out.str();
}

int guarded(const char* program, int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const tutti::usage_error& wrong) {
    std::fprintf(stderr, "%s: %s\n", program, wrong.what());
    return 2;
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "%s: %s\n", program, failed.what());
    return 1;
  }
}

bool under_launcher() {
  return std::ranges::any_of(
      std::to_array<const char*>({"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}),
      [](const char* each) { return std::getenv(each) != nullptr; });
}

}  // namespace common

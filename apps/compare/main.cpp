// Which strategy wins on which network: strategies x models x workers x links, each beside the
// bound that its architecture cannot beat.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "common/names.hpp"
#include "common/nearest.hpp"
#include "common/on_processes.hpp"
#include "common/output.hpp"
#include "compare/contender.hpp"
#include "compare/earlier.hpp"
#include "compare/explain.hpp"
#include "compare/processes.hpp"
#include "compare/slow_rank.hpp"
#include "compare/table.hpp"

namespace compare {

namespace {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// The 16-bit dense baseline is in every table.
std::vector<contender> contenders(const common::job& asked) {
  if (asked.strategies == "all") {
    return registry();
  }
  std::vector<contender> chosen;
  const auto add = [&chosen](const std::string& name) {
    if (std::ranges::find(chosen, name, &contender::name) == chosen.end()) {
      chosen.push_back(*std::ranges::find(registry(), name, &contender::name));
    }
  };
  for (const auto& wanted : split(asked.strategies)) {
    std::ranges::for_each(common::names_like("strategy", wanted, common::names_of(registry())),
                          add);
  }
  add("Dense16");
  return chosen;
}

std::vector<int> worker_counts(const common::job& asked) {
  std::vector<int> counts;
  for (const auto& text : split(asked.rank_counts)) {
    int count = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (status != std::errc{} || end != text.data() + text.size() || count < 1 ||
        count > 1'000'000) {
      throw common::flag_error("--ranks " + text +
                               " cannot be. Fix: from 1 to 1000000, as 4 or 4,8,16");
    }
    counts.push_back(count);
  }
  return counts;
}

std::vector<place> places(const common::job& asked) {
  std::vector<place> all;
  for (const auto& name :
       asked.networks.empty() ? std::vector<std::string>() : split(asked.networks)) {
    all.push_back(find_network(name));
  }
  const bool neither = asked.networks.empty() && asked.links.empty();
  for (const auto& text : split(neither ? "10Gbit/50us" : asked.links)) {
    if (!text.empty()) {
      all.push_back(parse_link(text));
    }
  }
  return all;
}

/// A policy's flag is for the strategies that have it; one that none has is a mistake.
common::job only_its_flags(const common::job& asked, const contender& who) {
  common::job own = asked;
  const auto known = who.flags();
  std::erase_if(own.policy_flags, [&](const auto& flag) {
    return std::ranges::none_of(known, [&](const auto& each) { return each.first == flag.first; });
  });
  return own;
}

void check_policy_flags(const common::job& asked, const std::vector<contender>& all) {
  std::vector<std::string> known;
  for (const auto& who : all) {
    for (const auto& each : who.flags()) {
      known.push_back(each.first);
    }
    who.servers(only_its_flags(asked, who));  // refuses a value that cannot be
  }
  for (const auto& [flag, value] : asked.policy_flags) {
    if (std::ranges::find(known, flag) == known.end()) {
      throw common::flag_error("none of these strategies has --" + flag + ". Did you mean --" +
                               common::nearest(flag, known) + "?");
    }
  }
}

/// Whose time kernels take.
std::string kernels_of(const common::job& asked) {
  return !asked.kernels.empty() ? asked.kernels : asked.world == "real" ? "cpu" : "profile";
}

/// What only a real world has, or only another.
void check_world(const common::job& asked) {
  common::expect_one_of("world", asked.world, {"simulated", "emulated", "real"});
  common::expect_one_of("way with kernels", kernels_of(asked), {"cpu", "profile"});
  if (asked.world != "real") {
    if (asked.kernels == "cpu") {
      throw common::flag_error(
          "--kernels cpu runs them, as --world real does alone. Fix: leave it "
          "out, or --memory-bandwidth for this CPU's");
    }
    return;
  }
  if (!common::under_launcher()) {
    throw common::flag_error(
        "--world real takes a process a rank. Fix: mpirun -np 4 tutti-compare --world real "
        "--ranks 4 --link 1Gbit/50us");
  }
  common::expect_processes(asked);
  if (asked.links.empty() && asked.networks.empty()) {
    throw common::flag_error(
        "--world real is set beside a simulation, which must know what connects these processes. "
        "Fix: --link 1Gbit/50us, as it is");
  }
  if (asked.jitter > 0 || asked.slowdown > 0) {
    throw common::flag_error(
        "--jitter and --slowdown are made up, and a real world has its own. Fix: leave them out");
  }
}

/// Bytes a second of the memory of the GPU that a profile was measured on, as its maker states
/// them; an unnamed one is taken to be a V100.
double memory_bandwidth(const common::job& asked, const models::replayed& model) {
  if (asked.memory_bandwidth) {
    return 1e9 * *asked.memory_bandwidth;
  }
  const bool p100 = model.device.find("P100") != std::string::npos;
  return p100 ? 732e9 : 900e9;
}

void say_progress(const scenario& of, std::string_view strategy) {
  if (speaks() && isatty(STDERR_FILENO) != 0) {
    std::fprintf(stderr, "\r\033[K%s, %d workers, %s: %.*s ", of.model->name.c_str(), of.workers,
                 of.where.name.c_str(), static_cast<int>(strategy.size()), strategy.data());
  }
}

void clear_progress() {
  if (speaks() && isatty(STDERR_FILENO) != 0) {
    std::fprintf(stderr, "\r\033[K");
  }
}

/// The row is run unless it was before.
row compare_one(const scenario& of, const contender& who, const common::job& asked,
                const earlier& before) {
  const std::string job = job_of(of, who, asked);
  if (auto known = before.find(job, of)) {
    return *std::move(known);
  }
  say_progress(of, who.name);
  row found = who.run(of, asked);
  found.job = job;
  if (speaks() && !asked.json.empty()) {
    append_json(asked.json, found);
  }
  return found;
}

std::vector<row> compare_all(const scenario& of, const std::vector<contender>& all,
                             const common::job& asked, const earlier& before) {
  std::vector<row> rows;
  for (const auto& who : all) {
    rows.push_back(compare_one(of, who, only_its_flags(asked, who), before));
  }
  clear_progress();
  if (!speaks()) {
    return rows;
  }
  print(rows);
  if (asked.explain) {
    for (const row& each : rows) {
      explain(each);
    }
  }
  return rows;
}

/// Whoever cannot be simulated for so many workers is left out of all strategies in a line, and
/// refused where it was asked for by name.
void leave_to_few_workers(std::vector<contender>& all, const common::job& asked, int most) {
  for (auto each = all.begin(); most > message_by_message && each != all.end();) {
    if (each->has_stand_ins) {
      ++each;
      continue;
    }
    const std::string sentence = std::string(each->name) +
                                 " is simulated message by message, so for " +
                                 std::to_string(message_by_message) + " workers at most";
    if (asked.strategies != "all") {
      throw common::flag_error(sentence + ". Fix: less --ranks, or other strategies");
    }
    if (speaks()) {
      std::fprintf(stderr, "tutti-compare: left out: %s\n", sentence.c_str());
    }
    each = all.erase(each);
  }
}

tutti::server_hosts servers_on(const std::string& hosts) {
  const auto all = names(tutti::server_hosts());
  common::expect_one_of("place for servers", hosts, {all.begin(), all.end()});
  return static_cast<tutti::server_hosts>(std::ranges::find(all, hosts) - all.begin());
}

void run(const common::job& asked) {
  check_world(asked);
  common::expect_one_of("way with payloads", asked.payloads, {"counted", "carried"});
  auto all = contenders(asked);
  check_policy_flags(asked, all);
  const auto where = places(asked);
  const auto counts = worker_counts(asked);
  leave_to_few_workers(all, asked, *std::ranges::max_element(counts));
  for (const auto& file : {asked.json, asked.csv}) {
    if (!file.empty()) {
      common::check_writable(file, file);
    }
  }
  const auto serving = servers_on(asked.server_hosts);
  for (const auto& each : where) {
    if (each.server_nic && serving != tutti::server_hosts::own) {
      throw common::flag_error(each.name +
                               " gives servers NICs of their own, and they have none on the "
                               "workers' hosts. Fix: --server-hosts own");
    }
    if (each.per_host != 1 && serving == tutti::server_hosts::mixed) {
      throw common::flag_error(
          "--server-hosts mixed wants a NIC for each worker. Fix: --link "
          "without a number of ranks");
    }
  }
  const earlier before(asked.resume);
  std::vector<row> rows;
  std::vector<models::replayed> networks;
  for (const auto& name : split(asked.models)) {
    networks.push_back(models::replay(name));
  }
  for (const auto& model : networks) {
    for (const auto& each : where) {
      for (const int workers : counts) {
        const scenario of{&model,
                          each,
                          workers,
                          asked.world,
                          serving,
                          parse_slow_rank(asked.slow_rank, workers),
                          {memory_bandwidth(asked, model)},
                          kernels_of(asked)};
        std::ranges::move(compare_all(of, all, asked, before), std::back_inserter(rows));
      }
    }
  }
  if (speaks() && asked.world != "simulated") {
    print_consistency(rows);
  }
  if (speaks() && !asked.csv.empty()) {
    write_csv(asked.csv, rows);
  }
}

}  // namespace

}  // namespace compare

int main(int argc, char** argv) {
  return common::guarded("tutti-compare", [&] {
    const common::job asked = common::parse(argc, argv, common::app::compare);
    if (asked.help) {
      std::fputs(common::help(common::app::compare).c_str(), stdout);
    } else if (asked.list_strategies) {
      common::print_descriptions(compare::registry());
    } else if (asked.list_models) {
      common::print_names(models::replayed_names());
    } else {
      compare::together([&] { compare::run(asked); });
    }
  });
}

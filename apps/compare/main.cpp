// Compares strategies x models x workers x links, and sets each row beside the bound that its
// architecture cannot beat on that network.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "common/launcher.hpp"
#include "common/lists.hpp"
#include "common/names.hpp"
#include "common/nearest.hpp"
#include "common/on_processes.hpp"
#include "common/output.hpp"
#include "compare/break_even.hpp"
#include "compare/contender.hpp"
#include "compare/earlier.hpp"
#include "compare/explain.hpp"
#include "compare/processes.hpp"
#include "compare/slow_rank.hpp"
#include "compare/table.hpp"
#include "tutti/base/error.hpp"

namespace compare {

namespace {

constexpr std::string_view baseline = "Dense16";

void add(std::vector<contender>& chosen, std::string_view name) {
  if (std::ranges::find(chosen, name, &contender::name) == chosen.end()) {
    chosen.push_back(*std::ranges::find(registry(), name, &contender::name));
  }
}

std::vector<contender> contenders(const common::job& asked) {
  std::vector<contender> chosen;
  if (asked.strategies == "all") {
    std::ranges::copy_if(registry(), std::back_inserter(chosen),
                         [](const contender& each) { return each.in == listed::always; });
  } else {
    for (const auto& wanted : common::split(asked.strategies)) {
      std::ranges::for_each(common::names_like("strategy", wanted, common::names_of(registry())),
                            [&chosen](const auto& name) { add(chosen, name); });
    }
  }
  return chosen;
}

std::vector<place> places(const common::job& asked) {
  std::vector<place> all;
  for (const auto& name :
       asked.networks.empty() ? std::vector<std::string>() : common::split(asked.networks)) {
    all.push_back(find_network(name));
  }
  const bool neither = asked.networks.empty() && asked.links.empty();
  for (const auto& text : common::split(neither ? "10Gbit/50us" : asked.links)) {
    if (!text.empty()) {
      all.push_back(parse_link(text));
    }
  }
  if (all.empty()) {
    throw common::flag_error("--link " + asked.links + " names no link. Fix: one as 10Gbit/50us");
  }
  return all;
}

/// Returns the job with only the policy flags that this strategy has. The others are for other
/// strategies of the list; `check_policy_flags` refuses a flag that none has.
common::job only_its_flags(const common::job& asked, const contender& who) {
  common::job own = asked;
  const auto known = who.flags(asked);
  std::erase_if(own.policy_flags, [&](const auto& flag) {
    return std::ranges::none_of(known, [&](const auto& each) { return each.first == flag.first; });
  });
  return own;
}

/// Returns what `ask` returns. If it throws, the message is given the name of the strategy, because
/// several are compared.
template <class Ask>
auto in_its_name(const contender& who, Ask ask) {
  const auto named = [&who](const std::exception& wrong) {
    return std::string(who.name) + ": " + wrong.what();
  };
  try {
    return ask();
  } catch (const common::flag_error& wrong) {
    throw common::flag_error(named(wrong));
  } catch (const tutti::usage_error& wrong) {
    throw tutti::usage_error(named(wrong));
  }
}

/// Throws common::flag_error for a policy flag that none of the strategies that the user has asked
/// for has, even if the baseline has it.
void check_policy_flags(const common::job& asked, const std::vector<contender>& all) {
  std::vector<std::string> known;
  for (const auto& who : all) {
    for (const auto& each : who.flags(asked)) {
      known.push_back(each.first);
    }
  }
  for (const auto& [flag, value] : asked.policy_flags) {
    if (std::ranges::find(known, flag) == known.end()) {
      const std::string closest = common::nearest(flag, known);
      throw common::flag_error("none of these strategies has --" + flag +
                               (closest.empty() ? " because they have no options. Fix: leave it out"
                                                : ". Did you mean --" + closest + "?"));
    }
  }
}

/// Throws if one of the strategies refuses the value of a policy flag.
void check_policy_values(const common::job& asked, const std::vector<contender>& all) {
  for (const auto& who : all) {
    in_its_name(who, [&] { return who.servers(only_its_flags(asked, who)); });
  }
}

/// Throws common::flag_error if one of the rows needs more processes than there are, before time is
/// spent on the others. Rows of more workers than are simulated message by message need few, and
/// those that --resume finds none.
void check_processes(const common::job& asked, const std::vector<contender>& all,
                     const std::vector<int>& counts) {
  int most = 0;
  for (const int workers : counts) {
    most = workers > message_by_message ? most : std::max(most, workers);
  }
  if (asked.world == "simulated" || !asked.resume.empty() || most == 0) {
    return;
  }
  for (const auto& who : all) {
    in_its_name(who, [&] { expect_processes_for(most + who.servers(only_its_flags(asked, who))); });
  }
}

/// Returns the value of `--kernels`, or its default for the world.
std::string kernels_of(const common::job& asked) {
  return !asked.kernels.empty() ? asked.kernels : asked.world == "real" ? "cpu" : "profile";
}

/// Throws common::flag_error if a flag does not go together with the world.
void check_world(const common::job& asked) {
  common::expect_one_of("world", asked.world, {"simulated", "emulated", "real"});
  common::expect_one_of("mode of --payloads", asked.payloads, {"counted", "carried"});
  if (asked.world == "simulated" && asked.payloads == "carried") {
    throw common::flag_error(
        "--payloads carried takes time of this host, which a simulation does not measure. Fix: "
        "leave it out, or --world emulated");
  }
  if (asked.world != "real") {
    if (asked.kernels == "cpu") {
      throw common::flag_error(
          "--kernels cpu runs them here, which only --world real does. Fix: --kernels FILE, with a "
          "file of bench-kernels --benchmark_filter=rates --benchmark_out=FILE");
    }
    if (asked.progress != "automatic") {
      throw common::flag_error(
          "--progress is for --world real: on a logical clock messages move by themselves. Fix: "
          "leave it out, or --world real");
    }
    return;
  }
  common::expect_one_of("mode of --kernels", kernels_of(asked), {"cpu", "profile"});
  if (!common::under_launcher()) {
    throw common::flag_error(
        "--world real needs a process for each rank. Fix: mpirun -np 4 tutti-compare --world real "
        "--ranks 4 --link 1Gbit/50us");
  }
  common::expect_processes(asked);
  if (asked.links.empty() && asked.networks.empty()) {
    throw common::flag_error(
        "--world real is compared with a simulation, which must know what connects these "
        "processes. Fix: --link 1Gbit/50us, or whatever it is");
  }
  if (asked.jitter > 0 || asked.slowdown > 0) {
    throw common::flag_error(
        "--jitter and --slowdown are simulated, but a real world has its own. Fix: leave them out");
  }
}

/// Sets the device that kernels are charged on, and what the table's head says about it. A GPU's
/// memory has the bandwidth that its maker's data sheet states. A profile that does not name a P100
/// is taken for a V100's.
void charge_kernels(scenario& of, const common::job& asked) {
  const bool p100 = of.model->device.find("P100") != std::string::npos;
  of.device = {asked.memory_bandwidth ? 1e9 * *asked.memory_bandwidth : p100 ? 732e9 : 900e9};
  const std::string at = std::to_string(std::lround(of.device.bytes_per_second / 1e9)) + " GB/s";
  of.charged_by = asked.memory_bandwidth ? at
                  : of.file != nullptr   ? "the times in " + of.kernels
                  : of.kernels == "cpu"  ? "the speed of this host"
                  : p100                 ? at + ", a P100's by its data sheet"
                                         : at + ", a V100's by its data sheet";
}

void say_progress(const scenario& of, std::string_view strategy) {
  if (is_first_process() && isatty(STDERR_FILENO) != 0) {
    std::fprintf(stderr, "\r\033[K%s, %d workers, %s: %.*s ", of.model->name.c_str(), of.workers,
                 of.where.name.c_str(), static_cast<int>(strategy.size()), strategy.data());
  }
}

void clear_progress() {
  if (is_first_process() && isatty(STDERR_FILENO) != 0) {
    std::fprintf(stderr, "\r\033[K");
  }
}

/// Returns the scenario with NICs of the given rate. The NICs of servers' own hosts and of single
/// ranks change in proportion.
scenario behind(scenario of, double bits_per_second) {
  of.where = of.where.faster(bits_per_second / 8 / of.where.nic.bytes_per_second);
  return of;
}

/// Iteration times of the 16-bit dense baseline by link rate. Each is simulated once.
class dense_iterations {
 public:
  dense_iterations(const scenario& of, const common::job& asked)
      : who_(&*std::ranges::find(registry(), baseline, &contender::name)),
        asked_(only_its_flags(asked, *who_)),
        of_(of) {}

  double at(double bits_per_second) {
    if (known_.empty()) {
      of_.device = who_->device(of_, asked_);
    }
    const auto [found, is_new] = known_.try_emplace(bits_per_second);
    if (is_new) {
      found->second = iteration(*who_, behind(of_, bits_per_second), asked_);
    }
    return found->second;
  }

 private:
  const contender* who_;
  common::job asked_;
  scenario of_;
  std::map<double, double> known_{};
};

/// Returns a row, from the interrupted run if it is there, and otherwise by running it. The rate
/// below which a lossy strategy pays is not searched in a real world: the search takes minutes, in
/// which the other processes would wait for this one.
row compare_one(const scenario& of, const contender& who, const common::job& asked,
                const earlier& before, dense_iterations& dense) {
  const std::string job = job_of(of, who, asked);
  if (auto known = before.find(job, of)) {
    return *std::move(known);
  }
  say_progress(of, who.name);
  row found = in_its_name(who, [&] { return row_of(who, of, asked); });
  found.job = job;
  if (found.what == kind::lossy && found.strategy != baseline && of.world != "real") {
    found.pays_below = pays_below([&](double bits_per_second) {
      return iteration(who, behind(found.of, bits_per_second), asked) < dense.at(bits_per_second);
    });
  }
  if (is_first_process() && !asked.json.empty()) {
    append_json(asked.json, found);
  }
  return found;
}

std::vector<row> compare_all(const scenario& of, const std::vector<contender>& all,
                             const common::job& asked, const earlier& before) {
  std::vector<row> rows;
  dense_iterations dense(of, asked);
  for (const auto& who : all) {
    rows.push_back(compare_one(of, who, only_its_flags(asked, who), before, dense));
  }
  clear_progress();
  if (!is_first_process()) {
    return rows;
  }
  print(rows);
  print_parts_of_periods(rows, asked.iterations);
  print_rows_below_bounds(rows, asked.iterations, asked.warmup);
  if (asked.explain) {
    for (const row& each : rows) {
      explain(each);
    }
  }
  return rows;
}

tutti::server_hosts servers_on(const std::string& hosts) {
  const auto all = names(tutti::server_hosts());
  common::expect_one_of("mode of --server-hosts", hosts, {all.begin(), all.end()});
  return static_cast<tutti::server_hosts>(std::ranges::find(all, hosts) - all.begin());
}

/// Removes strategies that cannot be simulated with so many workers from a table of all strategies,
/// and prints a line for each. Throws common::flag_error if the user asked for one by name.
void leave_to_few_workers(std::vector<contender>& all, const common::job& asked, int most) {
  for (auto each = all.begin(); most > message_by_message && each != all.end();) {
    const common::job its = only_its_flags(asked, *each);
    const bool represented = each->has_representatives(its);
    const bool beside_workers = represented && asked.strategies == "all" &&
                                each->servers(its) > 0 &&
                                servers_on(asked.server_hosts) != tutti::server_hosts::own;
    if (represented && !beside_workers) {
      ++each;
      continue;
    }
    const std::string sentence =
        std::string(each->name) +
        (beside_workers ? " with --server-hosts " + asked.server_hosts : "") +
        " is simulated message by message, with at most " + std::to_string(message_by_message) +
        " workers";
    if (asked.strategies != "all") {
      throw common::flag_error(sentence + ". Fix: fewer --ranks, or other strategies");
    }
    if (is_first_process()) {
      std::fprintf(stderr, "tutti-compare: left out: %s\n", sentence.c_str());
    }
    each = all.erase(each);
  }
}

/// Throws common::flag_error if workers differ although a few are simulated in place of all.
void check_workers_are_alike(const common::job& asked, int most) {
  if (most > message_by_message && (asked.jitter > 0 || !asked.slow_rank.empty())) {
    throw common::flag_error(std::string(asked.jitter > 0 ? "--jitter" : "--slow-rank") +
                             " makes workers differ, so they are simulated message by message, " +
                             std::to_string(message_by_message) +
                             " at most. Fix: fewer --ranks, or leave it out");
  }
}

void run(const common::job& asked) {
  check_world(asked);
  auto all = contenders(asked);
  check_policy_flags(asked, all);
  add(all, baseline);
  check_policy_values(asked, all);
  const auto where = places(asked);
  const auto counts = common::worker_counts(asked.rank_counts);
  check_workers_are_alike(asked, *std::ranges::max_element(counts));
  leave_to_few_workers(all, asked, *std::ranges::max_element(counts));
  for (const auto& file : {asked.json, asked.csv}) {
    if (!file.empty()) {
      common::check_writable(file, file);
    }
  }
  expect_one_job(asked);
  check_processes(asked, all, counts);
  const auto serving = servers_on(asked.server_hosts);
  for (const auto& each : where) {
    if (each.server_nic && serving != tutti::server_hosts::own) {
      throw common::flag_error(each.name +
                               " gives servers NICs of their own, but they share those of the "
                               "workers' hosts. Fix: --server-hosts own");
    }
    if (!each.nic_of_rank.empty()) {
      const int last = each.nic_of_rank.rbegin()->first;
      if (last >= *std::ranges::min_element(counts)) {
        throw common::flag_error(each.name + " gives rank " + std::to_string(last) +
                                 " a NIC, but that rank does not train. Fix: more --ranks");
      }
      if (*std::ranges::max_element(counts) > message_by_message) {
        throw common::flag_error(each.name + " gives single ranks a NIC, so it is simulated " +
                                 "message by message, with at most " +
                                 std::to_string(message_by_message) +
                                 " workers. Fix: fewer --ranks");
      }
    }
    if (each.per_host != 1 && serving == tutti::server_hosts::mixed) {
      throw common::flag_error(
          "--server-hosts mixed needs a NIC for each worker. Fix: --link "
          "without a number of ranks");
    }
  }
  std::optional<kernel_file> file;
  if (kernels_of(asked) != "cpu" && kernels_of(asked) != "profile") {
    file.emplace(asked.kernels);
  }
  const kernel_file* const times = file ? &*file : nullptr;
  const earlier before(asked.resume);
  std::vector<row> rows;
  std::vector<models::replayed> networks;
  for (const auto& name : common::split(asked.models)) {
    networks.push_back(models::replay(name));
  }
  for (const auto& model : networks) {
    for (const auto& each : where) {
      for (const int workers : counts) {
        scenario of{&model,  each,
                    workers, asked.world,
                    serving, parse_slow_rank(asked.slow_rank, workers),
                    {},      kernels_of(asked),
                    times,   {}};
        charge_kernels(of, asked);
        std::ranges::move(compare_all(of, all, asked, before), std::back_inserter(rows));
      }
    }
  }
  if (is_first_process() && asked.world != "simulated") {
    print_consistency(rows);
  }
  if (is_first_process() && !asked.csv.empty()) {
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

#include "common/job.hpp"

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <cstdio>
#include <sstream>
#include <string_view>

#include "common/all_reduce_table.hpp"
#include "common/launcher.hpp"
#include "common/lists.hpp"
#include "common/nearest.hpp"
#include "common/output.hpp"
#include "tutti/strategies/all_reduce_spec.hpp"
#include "tutti/strategies/kvstore.hpp"
#include "tutti/strategies/tf_replicated.hpp"

namespace common {

namespace po = boost::program_options;

namespace {

template <class T>
[[noreturn]] void refuse(const std::string& flag, const T& value, const std::string& fix) {
  std::ostringstream line;
  line << "--" << flag << " " << value << " is out of range. Fix: " << fix;
  throw flag_error(line.str());
}

/// Describes the flags of an app and where to store their values.
class flags {
 public:
  explicit flags(job& into) : into_(&into) {}

  po::options_description of(app reader) {
    switch (reader) {
      case app::cell:
        trained();
        steps("stop after this many steps, or after an epoch; 0: after 20");
        named("header", "print only the header of the table", po::bool_switch(&into_->header));
        break;
      case app::train:
        trained();
        trainer();
        steps("stop after this many steps; 0: no limit");
        break;
      case app::compare:
        compared();
        break;
      case app::survey:
        text("json", into_->json, "append a line of JSON for each row to this file");
        break;
    }
    named("help,h", "print this text", po::bool_switch(&into_->help));
    return all_;
  }

 private:
  void trained() {
    text("model", into_->model,
         "what to train: mlp, cnn, resnet20, resnet50 or inception-bn-28-small");
    text("data", into_->data,
         "fashion-mnist[:DIRECTORY], cifar10:DIRECTORY with its binary files, synthetic, or "
         "one-batch, which every step repeats, to measure throughput");
    count("batch-size", into_->batch_size, 1, 1 << 20, "images per worker and step");
    named("ranks", "workers (=4); under mpirun and srun: all ranks except the servers",
          po::value<int>()->notifier(
              [to = &into_->ranks](int value) { *to = within("ranks", value, 1, most_ranks); }));
    count("servers", into_->servers, 1, most_ranks, "parameter servers, if the strategy has any");
    text("transport", into_->transport, "in_process, mpi, or automatic: mpi under mpirun and srun");
    real("learning-rate", into_->learning_rate, "replaces the model's and strategy's default");
    real("momentum", into_->momentum, "replaces the model's default");
    real("weight-decay", into_->weight_decay, "replaces the optimizer's default");
    count("seed", into_->seed, 0, most, "for the initial parameters and for shuffling");
    real("deadline", into_->deadline,
         "seconds without progress after which a rank asks which other rank holds it up (=60)");
    text("progress", into_->progress,
         "what drives the communication: caller (the training thread), thread (one of its own), or "
         "automatic: a thread if this host has two cores for each rank");
  }

  void compared() {
    text("strategy", into_->strategies,
         "names, separated by commas; patterns such as 'horovod*', in either case; all: all but "
         "variants");
    text("model", into_->models, "networks to replay, by name or as files NAME.csv");
    text("ranks", into_->rank_counts, "numbers of workers");
    count("servers", into_->servers, 1, most_ranks, "parameter servers, if the strategy has any");
    text(
        "server-hosts", into_->server_hosts,
        "where servers run: workers: on the workers' hosts, in turn; own: each on a machine of its "
        "own; mixed: one on each worker's host, the others on machines of their own");
    text("link", into_->links,
         "NICs, as 10Gbit/50us; 4x10Gbit/50us puts four ranks behind each; 10Gbit/50us/75%: a "
         "message alone gets 75% of the rate, several at once get all of it (=10Gbit/50us)");
    text("network", into_->networks,
         "10GbE, 100GbE-TCP or 100GbIB, with four ranks on a host; or a FILE with lines such as\n"
         "link 4x25Gbit/10us, the ranks of a host and its NIC;\n"
         "inside 48Gbit/5us, the link between ranks of one host;\n"
         "servers 10Gbit/10us, the NICs of the servers' own hosts;\n"
         "rank 2 1Gbit/10us, the NIC of one worker");
    text("world", into_->world,
         "simulated: on a logical clock; emulated: on the same logical clock, slowed down to the "
         "wall clock, with a process for each rank under mpirun; real: on the wall clock, over "
         "the network of mpirun's processes, compared with the prediction for --link");
    text("progress", into_->progress,
         "what drives the communication of a real world: caller (between its computations), or "
         "thread (=thread, because the profile's device leaves the CPU free)");
    text("payloads", into_->payloads,
         "in an emulation: counted, or carried, which also takes this host's time");
    text("kernels", into_->kernels,
         "how long compression takes: profile: as on the profile's device; FILE: as measured by "
         "bench-kernels --benchmark_filter=rates --benchmark_out=FILE; in a real world cpu: runs "
         "here, predicted at the rate measured here (its default), or profile: sleeps "
         "(=profile otherwise)");
    count("iterations", into_->iterations, 1, 1 << 20, "iterations that are measured");
    count("warmup", into_->warmup, 0, 1 << 20, "iterations before the measured ones");
    count("repetitions", into_->repetitions, 1, 1 << 20,
          "runs of each row, each with its own seed; figures cover the iterations of all of them");
    real("jitter", into_->jitter,
         "a pass takes 1 + jitter |z| times as long, where z is normally distributed (=0)");
    real("slowdown", into_->slowdown,
         "share by which a rank computes longer while it communicates (=0)");
    text("slow-rank", into_->slow_rank,
         "a worker and how many times longer than its profile it computes, as 2:10");
    count("seed", into_->seed, 0, most, "for the jitter of the first repetition");
    real("memory-bandwidth", into_->memory_bandwidth,
         "GB/s at which a rank encodes, decodes and adds (=that of the profile's device)");
    named("explain", "print each strategy's plan and when it exchanged each chunk",
          po::bool_switch(&into_->explain));
    text("json", into_->json, "append a line of JSON for each row to this file");
    text("resume", into_->resume, "rows of this file, which --json wrote, are not run again");
    text("csv", into_->csv, "write the rows to this file");
    spec();
    lists();
  }

  void trainer() {
    text("strategy", into_->strategy, "the strategy that exchanges gradients");
    text("kvstore", into_->kvstore, "a type of MXNet's kvstore, which selects its strategy");
    text("optimizer", into_->optimizer,
         "sgd, adam, adamw, lars or lamb (=sgd, or the one that the strategy brings, as "
         "OneBitAdam does)");
    text("density-warm-up", into_->density_warm_up,
         "shares of elements that a compressor selects in the first epochs, as 0.25,0.0625; own: "
         "those of the strategy's authors; none");
    spec();
    text("device", into_->device,
         "cpu, or cuda: threads share one GPU, processes under mpirun use a host's GPUs in turn");
    text("precision", into_->precision,
         "fp32, or bf16 on a GPU; parameters and gradients stay fp32");
    text("augment", into_->augment,
         "crop-flip: random windows of padded images, as large as the model's input, half of them "
         "mirrored; none");
    text("rate", into_->rate,
         "the learning rate: linear or cosine: falls to 0 over all epochs; in_steps: falls by a "
         "factor every few epochs; constant");
    real("rate-warm-up", into_->rate_warm_up,
         "epochs over which the learning rate first rises, step by step (=0)");
    real("rate-every", into_->rate_every, "in_steps: epochs after which the rate falls (=1)");
    real("rate-factor", into_->rate_factor, "in_steps: by which the rate is multiplied (=0.1)");
    count("epochs", into_->epochs, 1, 1 << 20, "passes over the data");
    text("json", into_->json,
         "append a line of JSON for each epoch, and one at the end, to this file");
    text("timeline", into_->timeline,
         "write a trace for Perfetto to this file; under mpirun, to FILE.RANK");
    text("checkpoint", into_->checkpoint,
         "save to FILE.RANK after every epoch; the one before is kept as FILE.RANK.previous");
    text("resume", into_->resume, "continue from the newest step that every rank's FILE.RANK has");
    lists();
  }

  void spec() {
    text("all-reduce-spec", into_->all_reduce_spec,
         "how TFReplicated reduces tensors, by their size, in the words of tf_cnn_benchmarks: "
         "xring#2, or pscpu:32k:nccl/xring");
    text("all-reduce-table", into_->all_reduce_table,
         "the same, but with what was fastest in FILE, as measured with as many ranks by "
         "bench-collectives --benchmark_filter=all_reduce_spec --benchmark_out=FILE");
  }

  void lists() {
    named("list-strategies",
          "print all strategies with their compositions, papers, defaults and deviations",
          po::bool_switch(&into_->list_strategies));
    named("list-models", "print the names of all models", po::bool_switch(&into_->list_models));
  }

  void named(const char* name, const char* meaning, const po::value_semantic* value) {
    all_.add_options()(name, value, meaning);
  }
  void text(const char* name, std::string& to, const char* meaning) {
    auto* value = po::value(&to)->notifier([name](const std::string& said) {
      if (said.empty()) {
        throw flag_error(std::string("--") + name + " has no value. Fix: give one, or leave --" +
                         name + " out");
      }
    });
    named(name, meaning, to.empty() ? value : value->default_value(to, to));
  }
  void steps(const char* meaning) { count("steps", into_->steps, 0, most, meaning); }

  template <class T>
  void count(const char* name, T& to, std::int64_t least, std::int64_t greatest,
             const char* meaning) {
    named(name, meaning,
          po::value<std::int64_t>()
              ->default_value(static_cast<std::int64_t>(to))
              ->notifier([name, to = &to, least, greatest](std::int64_t value) {
                *to = static_cast<T>(within(name, value, least, greatest));
              }));
  }
  template <class T>
  void real(const char* name, T& to, const char* meaning) {
    named(name, meaning, po::value<double>()->notifier([name, to = &to](double value) {
      if (!(value >= 0 && value <= most_real)) {
        refuse(name, value, "a number from 0 to 1e15");
      }
      *to = narrowed(value, *to);
    }));
  }
  static double narrowed(double value, double) { return value; }
  static float narrowed(double value, float) { return static_cast<float>(value); }
  static double narrowed(double value, std::optional<double>) { return value; }
  static float narrowed(double value, std::optional<float>) { return static_cast<float>(value); }

  template <class T>
  static T within(const char* name, T value, std::int64_t least, std::int64_t greatest) {
    if (value < least || value > greatest) {
      refuse(name, value, "from " + std::to_string(least) + " to " + std::to_string(greatest));
    }
    return value;
  }

  static constexpr std::int64_t most = std::int64_t{1} << 53;
  static constexpr double most_real = 1e15;  // so that sums and products of a few values are finite

  job* into_;
  po::options_description all_{"flags", 100};
};

std::vector<std::string> names_of(const po::options_description& all) {
  std::vector<std::string> names;
  for (const auto& each : all.options()) {
    names.push_back("--" + each->long_name());
  }
  return names;
}

/// Whether an app has flags for policies. tutti-survey has none, because it runs its strategies as
/// they are.
bool sets_policies(app reader) { return reader != app::survey; }

bool is_set(const flag_values& flags, std::string_view name) {
  return std::ranges::find(flags, name, &flag_values::value_type::first) != flags.end();
}

/// Stores flags written as `--role.option value` or `--role.option=value`. Throws flag_error for
/// anything else.
void take_policy_flags(const std::vector<std::string>& left, const po::options_description& all,
                       app reader, job& into) {
  for (std::size_t i = 0; i < left.size(); ++i) {
    const std::string name = left[i].substr(0, left[i].find('='));
    if (!sets_policies(reader) || !name.starts_with("--") || name.find('.') == std::string::npos) {
      const std::string closest =
          nearest(name.starts_with("-") ? name : "--" + name, names_of(all));
      throw flag_error("there is no flag " + name + ". Did you mean " + closest + "?");
    }
    auto& flags = reader == app::train && name.starts_with("--optimizer.") ? into.optimizer_flags
                                                                           : into.policy_flags;
    if (is_set(flags, name.substr(2))) {
      throw flag_error(name + " is given twice. Fix: leave one out");
    }
    if (name.size() < left[i].size()) {
      flags.emplace_back(name.substr(2), left[i].substr(name.size() + 1));
    } else if (i + 1 < left.size()) {
      flags.emplace_back(name.substr(2), left[++i]);
    } else {
      throw flag_error(name + " needs a value. Fix: for example " + name + " 1");
    }
  }
}

void one_of(const char* flag, const std::string& value, const std::vector<std::string>& all) {
  if (std::ranges::find(all, value) == all.end()) {
    throw flag_error(std::string("--") + flag + " " + value + " is not valid. " +
                     choices(value, all));
  }
}

void check(const job& read, app reader) {
  expect_files_apart(read, reader);
  if (!(read.deadline > 0)) {
    refuse("deadline", read.deadline, "more than 0 seconds");
  }
  if (!(read.rate_every > 0)) {
    refuse("rate-every", read.rate_every, "more than 0 epochs");
  }
  constexpr double least_bandwidth = 1e-3;  // with which a kernel's time still fits a table
  if (read.memory_bandwidth && !(*read.memory_bandwidth >= least_bandwidth)) {
    refuse("memory-bandwidth", *read.memory_bandwidth,
           "0.001 GB/s or more, or leave it out for the profile's device");
  }
  for (const auto& [flag, value] : read.optimizer_flags) {
    if (value.starts_with('-')) {
      refuse(flag, value, "a number that is not negative");
    }
  }
  one_of("transport", read.transport, {"automatic", "in_process", "mpi"});
  one_of("precision", read.precision, {"fp32", "bf16"});
  one_of("augment", read.augment, {"none", "crop-flip"});
  one_of("rate", read.rate, {"constant", "linear", "cosine", "in_steps"});
  one_of("progress", read.progress, {"automatic", "caller", "thread"});
}

/// Throws flag_error if two flags set the same value, because only one of them could take effect.
void expect_said_once(const po::variables_map& values, const job& read) {
  static constexpr std::array<std::pair<const char*, const char*>, 4> all{
      {{"servers", "architecture.servers"},
       {"learning-rate", "optimizer.learning_rate"},
       {"momentum", "optimizer.momentum"},
       {"weight-decay", "optimizer.weight_decay"}}};
  for (const auto& [shared, own] : all) {
    const bool is_said = values.count(shared) > 0 && !values[shared].defaulted();
    if (is_said && (is_set(read.policy_flags, own) || is_set(read.optimizer_flags, own))) {
      throw flag_error(std::string("--") + shared + " and --" + own +
                       " set the same value. Fix: leave one out");
    }
  }
}

/// Throws flag_error if a flag of `--rate in_steps` is given with another rate, which would ignore
/// it.
void expect_rate_in_steps(const po::variables_map& values, const job& read) {
  for (const std::string flag : {"rate-every", "rate-factor"}) {
    if (values.count(flag) > 0 && read.rate != "in_steps") {
      throw flag_error("--" + flag + " is for --rate in_steps, not for --rate " + read.rate +
                       ". Fix: --rate in_steps, or leave --" + flag + " out");
    }
  }
}

/// Sets the strategy from `--kvstore`, which takes the place of `--strategy`.
void take_kvstore(const po::variables_map& values, job& into) {
  if (values.count("kvstore") == 0) {
    return;
  }
  if (!values["strategy"].defaulted()) {
    throw flag_error("--strategy " + into.strategy + " and --kvstore " + into.kvstore +
                     " each name a strategy. Fix: leave one out");
  }
  try {
    into.strategy = tutti::strategies::of_kvstore(into.kvstore);
  } catch (const tutti::usage_error& refused) {
    throw flag_error(refused.what());
  }
}

/// Applies `--all-reduce-spec` or `--all-reduce-table`. Both select TFReplicated, which tutti-train
/// then trains with, and set its options. A `--architecture.OPTION` flag that the user gives as
/// well takes precedence.
void take_all_reduce_spec(const po::variables_map& values, app reader, job& into) {
  const bool by_table = values.count("all-reduce-table") > 0;
  if (values.count("all-reduce-spec") > 0 && by_table) {
    throw flag_error(
        "--all-reduce-spec and --all-reduce-table set the same options. Fix: leave one out");
  }
  if (values.count("all-reduce-spec") == 0 && !by_table) {
    return;
  }
  const std::string& said = by_table ? into.all_reduce_table : into.all_reduce_spec;
  const std::vector<int> ranks = reader == app::compare
                                     ? worker_counts(into.rank_counts)
                                     : std::vector{uses_mpi(into) ? launched() : into.workers()};
  const std::string wanted(tutti::strategies::TFReplicated::name);
  std::string& chosen = reader == app::train ? into.strategy : into.strategies;
  const bool named = !values["strategy"].defaulted() || values.count("kvstore") > 0;
  if (named && ("," + chosen + ",").find("," + wanted + ",") == std::string::npos) {
    throw flag_error((by_table ? "--all-reduce-table " : "--all-reduce-spec ") + said + " is for " +
                     wanted + ", not for " + chosen + ". Fix: --strategy " + wanted);
  }
  if (reader == app::train) {
    chosen = wanted;
  }
  flag_values all;
  const auto note = [&all](std::string_view name, const auto& value, std::string_view) {
    using T = std::remove_cvref_t<decltype(value)>;
    std::string text;
    if constexpr (std::is_enum_v<T>) {
      text = names(value)[static_cast<std::size_t>(value)];
    } else {
      text = std::to_string(value);
    }
    all.emplace_back("architecture." + std::string(name), text);
  };
  try {
    const auto its =
        by_table ? of_all_reduce_table(said, ranks) : tutti::strategies::of_all_reduce_spec(said);
    tutti::strategies::tf_reduction::options::describe(its, note);
  } catch (const tutti::usage_error& refused) {
    throw flag_error(refused.what());
  }
  into.policy_flags.insert(into.policy_flags.begin(), all.begin(), all.end());
}

}  // namespace

job parse(int argc, char** argv, app reader) {
  job read;
  const auto all = flags(read).of(reader);
  po::variables_map values;
  try {
    const auto parsed =
        po::command_line_parser(argc, argv)
            .options(all)
            .style(po::command_line_style::unix_style & ~po::command_line_style::allow_guessing)
            .allow_unregistered()
            .run();
    po::store(parsed, values);
    take_policy_flags(po::collect_unrecognized(parsed.options, po::include_positional), all, reader,
                      read);
    po::notify(values);
    expect_said_once(values, read);
    expect_rate_in_steps(values, read);
    take_kvstore(values, read);
    take_all_reduce_spec(values, reader, read);
  } catch (const po::error& wrong) {
    throw flag_error(std::string(wrong.what()) + ". Fix: see --help");
  }
  check(read, reader);
  return read;
}

std::string help(app reader) {
  job defaults;
  std::ostringstream out;
  out << flags(defaults).of(reader);
  if (sets_policies(reader)) {
    out << "  --ROLE.OPTION arg            an option of a policy, as --fusion.bytes 32MiB\n";
  }
  return out.str();
}

std::string megabytes(double sent) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4f", sent / 1e6);
  return sent == 0 ? "shared" : text.data();
}

bool uses_mpi(const job& asked) {
  return asked.transport == "mpi" || (asked.transport == "automatic" && under_launcher());
}

}  // namespace common

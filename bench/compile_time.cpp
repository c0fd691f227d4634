// How much does a strategy cost the compiler? The rows are the seconds of processor time that a
// strategy adds to a translation unit that already trains (`foundation`: with `Local`, which brings
// in the engine and the transport, and communicates nothing), the share of one strategy in a unit
// of all (`together`), and the peak memory. `first` is a unit with one strategy, with headers alone
// and (`first_linked`) linked with tutti::in_process. The best of three compilations counts,
// because other load on the machine only adds time.
//
//   bench-compile-time --benchmark_filter='first|Horovod|together'

#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <spawn.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace bench {

namespace {

constexpr double limit_first_seconds = 6;
constexpr double limit_seconds = 1.5;  // of a further strategy
constexpr double limit_mib = 1024;
constexpr int repetitions = 3;
constexpr double limit_registry_seconds = 180;
constexpr std::size_t registry_unit = 16;  // strategies, as in apps/CMakeLists.txt

struct named {
  std::string strategy;
  std::string header;
};

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<named> strategies() {
  std::vector<named> all;
  for (const auto& each : split(TUTTI_STRATEGIES, ',')) {
    const auto both = split(each, ' ');
    all.push_back({both[0], both[1]});
  }
  return all;
}

/// A translation unit: its strategies, those of the unit that it is compared with, and the header
/// that it includes first.
struct unit {
  std::string name;
  std::vector<named> strategies;
  std::vector<named> beyond{};
  std::string header{"tutti/tutti.hpp"};
};

/// A temporary directory of this process, removed at the end.
class workshop {
 public:
  workshop()
      : path_(std::filesystem::temp_directory_path() /
              ("tutti-compile-time-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  workshop(const workshop&) = delete;
  workshop& operator=(const workshop&) = delete;
  ~workshop() {
    std::error_code ignored;  // what cannot be removed is in a temporary directory
    std::filesystem::remove_all(path_, ignored);
  }

  /// Writes a header that can be compiled before the units that begin with it.
  std::string write_foundations() const {
    const auto file = path_ / "foundations.hpp";
    std::ofstream(file) << "#include \"tutti/tutti.hpp\"\n";
    return file;
  }

  /// Writes a translation unit that trains with each of its strategies.
  std::string write(const unit& its) const {
    const auto file = path_ / (its.name + ".cpp");
    std::ofstream text(file);
    text << "#include \"" << its.header << "\"\n#include \"tutti/tutti.hpp\"\n";
    for (const auto& each : its.strategies) {
      text << "#include \"tutti/strategies/" << each.header << "\"\n";
    }
    text << "template <class Strategy>\n"
         << "int train(tutti::transport::in_process& world, std::vector<tutti::tensor> all) {\n"
         << "  auto engine = tutti::make_engine<Strategy>(world, std::move(all),\n"
         << "                                             tutti::optimizer::sgd{});\n"
         << "  if (engine.serves()) return engine.serve();\n"
         << "  engine.ready(tutti::tensor_id{0});\n"
         << "  engine.wait(tutti::tensor_id{0});\n"
         << "  engine.wait();\n"
         << "  return 0;\n"
         << "}\n";
    for (const auto& each : its.strategies) {
      text << "template int train<tutti::strategies::" << each.strategy
           << ">(tutti::transport::in_process&, std::vector<tutti::tensor>);\n";
    }
    return file;
  }

 private:
  std::filesystem::path path_;
};

struct cost {
  double seconds{};
  double mib{};
};

/// Starts compiling a unit or a header.
pid_t start_compiler(const std::string& file) {
  std::vector<std::string> words = split(TUTTI_ROOTS, ',');
  words.insert(words.begin(), {TUTTI_COMPILER, "-std=c++20", "-O2", "-DNDEBUG", "-ffp-contract=off",
                               "-c", file, "-o", file + (file.ends_with(".hpp") ? ".gch" : ".o")});
  std::vector<char*> arguments;
  for (auto& each : words) {
    arguments.push_back(each.data());
  }
  arguments.push_back(nullptr);
  pid_t child = 0;
  if (posix_spawnp(&child, TUTTI_COMPILER, nullptr, nullptr, arguments.data(), environ) != 0) {
    throw std::runtime_error("cannot start " TUTTI_COMPILER);
  }
  return child;
}

/// Waits for one compiler. The kernel reports its processor time and the memory of its largest
/// process.
cost await_compiler(pid_t child) {
  int status = 0;
  rusage used{};
  wait4(child, &status, 0, &used);
  if (status != 0) {
    throw std::runtime_error("the compiler refused a strategy");
  }
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {seconds(used.ru_utime) + seconds(used.ru_stime),
          static_cast<double>(used.ru_maxrss) / 1024};
}

cost compile(const workshop& in, const unit& its) {
  return await_compiler(start_compiler(in.write(its)));
}

/// The lowest cost of several compilations.
class best_of {
 public:
  void add(cost now) {
    best_ = {std::min(best_.seconds, now.seconds), std::min(best_.mib, now.mib)};
  }
  cost best() const { return best_; }

 private:
  cost best_{1e9, 1e9};
};

/// Returns the cost of the unit with these strategies, which is compiled once for all rows compared
/// with it.
cost of_foundation(const workshop& in, const std::vector<named>& strategies) {
  static std::map<std::size_t, cost> found;
  const auto known = found.find(strategies.size());
  if (known != found.end()) {
    return known->second;
  }
  best_of all;
  for (int i = 0; i < repetitions; ++i) {
    all.add(compile(in, {"foundation", strategies}));
  }
  return found[strategies.size()] = all.best();
}

void compare(benchmark::State& state, const workshop& in, const unit& of) {
  try {
    const cost base = of.beyond.empty() ? cost{} : of_foundation(in, of.beyond);
    best_of all;
    for (auto _ : state) {
      const cost now = compile(in, of);
      state.SetIterationTime(now.seconds);
      all.add(now);
    }
    const cost whole = all.best();
    const auto count = static_cast<double>(of.strategies.size() - of.beyond.size());
    const double each = (whole.seconds - base.seconds) / count;
    state.counters["unit_s"] = whole.seconds;
    state.counters["strategy_s"] = each;
    state.counters["peak_MiB"] = whole.mib;
    if (of.beyond.empty()) {
      state.SetLabel(whole.seconds <= limit_first_seconds ? "within 6 s" : "BEYOND 6 s");
    } else {
      const bool within = each <= limit_seconds && whole.mib / count <= limit_mib;
      state.SetLabel(within ? "within 1.5 s and 1 GiB" : "BEYOND 1.5 s or 1 GiB");
    }
  } catch (const std::exception& failure) {
    state.SkipWithError(failure.what());
  }
}

/// Compiles all strategies as an app's registry does: several in a unit, with a header that is
/// compiled once, two compilers at a time. Measures wall-clock time.
void registry(benchmark::State& state, const workshop& in, const std::vector<named>& all) {
  try {
    for (auto _ : state) {
      const auto begin = std::chrono::steady_clock::now();
      const std::string foundations = in.write_foundations();
      await_compiler(start_compiler(foundations));
      std::vector<pid_t> running;
      for (std::size_t first = 0; first < all.size(); first += registry_unit) {
        if (running.size() == 2) {
          await_compiler(running.front());
          running.erase(running.begin());
        }
        const auto from = all.begin() + static_cast<std::ptrdiff_t>(first);
        const std::vector<named> some(
            from, from + static_cast<std::ptrdiff_t>(std::min(registry_unit, all.size() - first)));
        running.push_back(start_compiler(in.write({some[0].strategy, some, {}, foundations})));
      }
      for (const pid_t each : running) {
        await_compiler(each);
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      state.SetIterationTime(took.count());
      state.SetLabel(took.count() <= limit_registry_seconds ? "within 180 s" : "BEYOND 180 s");
    }
  } catch (const std::exception& failure) {
    state.SkipWithError(failure.what());
  }
}

template <class Case>
void add(const std::string& name, int iterations, Case measured) {
  benchmark::RegisterBenchmark(("compile/" + name).c_str(), measured)
      ->Iterations(iterations)
      ->UseManualTime()
      ->Unit(benchmark::kSecond);
}

}  // namespace

}  // namespace bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  const bench::workshop in;
  const auto all = bench::strategies();
  const auto alone = *std::ranges::find(all, "Local", &bench::named::strategy);
  const auto first = *std::ranges::find(all, "WFBPUnlimited", &bench::named::strategy);
  std::vector<bench::unit> rows{{"foundation", {alone}},
                                {"first", {first}},
                                {"first_linked", {first}, {}, "tutti/compiled/in_process.hpp"}};
  for (const auto& each : all) {
    if (each.strategy != alone.strategy) {
      rows.push_back({each.strategy, {alone, each}, {alone}});
    }
  }
  rows.push_back({"together", all, {alone}});
  for (const auto& row : rows) {
    bench::add(row.name, bench::repetitions,
               [&in, row](benchmark::State& state) { bench::compare(state, in, row); });
  }
  bench::add("registry", 1, [&](benchmark::State& state) { bench::registry(state, in, all); });
  benchmark::AddCustomContext("compiler", TUTTI_COMPILER " -O2");
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}

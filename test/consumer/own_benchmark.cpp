// Registers a user's strategy in a Google Benchmark program by one line.
#include <cstdint>
#include <tutti/architecture/parameter_server.hpp>
#include <tutti/benchmark.hpp>
#include <tutti/compression/top_k.hpp>
#include <tutti/fusion/all.hpp>
#include <tutti/tutti.hpp>

// example-begin benchmark
using Mine = tutti::compose<tutti::fusion::all>;

const auto my_row = tutti::benchmark::add<Mine>("mine");

BENCHMARK_MAIN();
// example-end

// A strategy that is refused is reported in its row, and the others run.
const auto refused = tutti::benchmark::add_simulated<tutti::compose<tutti::compression::top_k>>(
    "refused", {{.model = "none", .link = "8Gbit", .nic = {1e9, 0}, .workers = 2}},
    {.compression = {.density = 3}});

/// Servers whose number is an option of another name.
struct hubs : tutti::architecture::parameter_server<> {
  using base = tutti::architecture::parameter_server<>;

  struct options {
    int hubs{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("hubs", self.hubs, "how many ranks serve");
    }
  };
  static base::options those(const options& set) { return {.servers = set.hubs}; }
  static int workers(const options& set, int size) { return base::workers(those(set), size); }
  static bool listens(const options& set, int rank, int size) {
    return base::listens(those(set), rank, size);
  }
  static void place(tutti::plan& made, const options& set, int size) {
    base::place(made, those(set), size);
  }

  template <class Compression>
  static void expect_replan(const options&, const options&, std::uint64_t) {}

  template <class World>
  struct state : base::state<World> {
    using conditional_verbs = state;
    state(World& world, const options& set) : base::state<World>(world, those(set)) {}
  };
};

const auto served = tutti::benchmark::add<tutti::compose<hubs>>("served");
const auto served_on_paper = tutti::benchmark::add_simulated<tutti::compose<hubs>>(
    "served",
    {{.model = "one",
      .profile = {{.name = "weight", .elements = 1000, .forward = 1e-3, .backward = 1e-3}},
      .link = "8Gbit",
      .nic = {1e9, 0},
      .workers = 2}});

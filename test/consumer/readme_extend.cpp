// The READMEs' collective, architecture, schedule and monitor: written outside tutti, composed, and
// trained.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <tutti/architecture/all_reduce.hpp>
#include <tutti/core/replay.hpp>
#include <tutti/partition/into.hpp>
#include <tutti/transport/simulated.hpp>
#include <tutti/tutti.hpp>
#include <vector>

// example-begin collective
/// Everything to rank 0, which adds in the ranks' order, and back.
struct by_rank_0 {
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = true;    // the sum is ((x0 + x1) + x2) + …
  static constexpr bool ordered_start = false;  // ranks may start them in any order

  std::size_t scratch_bytes(std::size_t, std::size_t, int) const { return 0; }

  template <class Endpoint, class Fold>
  tutti::task all_reduce(Endpoint self, tutti::reduction<Fold> sum) const {
    for (int rank = 1; rank < self.size(); ++rank) {
      if (self.rank() == 0) co_await self.receive_fold(rank, sum.all(), sum.fold);
      if (self.rank() == rank) co_await self.send(0, sum.all());
    }
    for (int rank = 1; rank < self.size(); ++rank) {
      if (self.rank() == 0) co_await self.send(rank, sum.all());
      if (self.rank() == rank) co_await self.receive(0, sum.all());
    }
  }
};
static_assert(tutti::collective_policy<by_rank_0>);
// example-end

// example-begin architecture
/// Each rank takes its own step, then the mean of its model and its two neighbours'.
/// After: Lian et al., "Can decentralized algorithms outperform centralized ones?", NeurIPS 2017.
struct neighbours {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;    // models travel whole and are added here
  static constexpr bool completes_alone = false;  // both neighbours must send, too
  static constexpr auto carries = tutti::carries::parameters;
  static constexpr bool updates_first = true;

  /// Bytes through the busiest NIC: predictions stand beside this bound.
  static constexpr double busiest_nic(double payload, double, tutti::placement) {
    return 2 * payload;
  }

  template <class World>
  struct state {
    state(World& its_world, const tutti::no_options&) : world(&its_world) {}

    std::size_t workspace_bytes(std::size_t elements) const { return 2 * sizeof(float) * elements; }
    float average() const { return 1.0f / 3; }

    void depart(std::size_t position, std::uint64_t step) { world->update_alone(position, step); }
    void outgoing(const tutti::chunk& piece, std::span<float> buffer) {
      world->read_parameters(piece, buffer);
    }
    tutti::task exchange(typename World::endpoint self, const typename World::launch& what) {
      const int right = (self.rank() + 1) % self.size();
      const int left = (self.rank() + self.size() - 1) % self.size();
      const auto mine = std::as_bytes(what.data);
      const auto room = [&](std::size_t i) {  // a simulated launch has lengths and no memory
        return std::span(what.phantom() ? nullptr : &what.workspace[i * mine.size()], mine.size());
      };
      const auto from_left = room(0);
      const auto from_right = room(1);
      co_await self.exchange(right, mine, left, from_left);
      co_await self.exchange(left, mine, right, from_right);
      what.accumulate(self.queue(), from_left, 0, what.data.size());
      what.accumulate(self.queue(), from_right, 0, what.data.size());
      what.scale(self.queue(), 0, what.data.size());
    }
    void incoming(const tutti::chunk& piece, std::span<float> buffer) {
      world->write_parameters(piece, buffer);
    }
    void arrive(std::size_t, std::uint64_t) {}

    World* world;
  };
};
static_assert(tutti::architecture_policy<neighbours>);
// example-end

// example-begin schedule
/// What became ready last goes first, two chunks at a time.
struct newest_first {
  using role = tutti::role::schedule;
  static constexpr bool limits_in_flight = true;  // a ready chunk may have to wait
  static constexpr bool static_order = false;     // so rank 0 leads, where ranks must agree

  struct state {
    state(const tutti::plan& made, const tutti::no_options&) : plan(&made) {
      waiting.reserve(made.chunks.size());
    }
    void ready(std::uint32_t bucket) {
      for (std::uint32_t i = plan->buckets[bucket].chunks; i-- > 0;)
        waiting.push_back(plan->buckets[bucket].first_chunk + i);
    }
    void released(std::uint32_t) { --in_flight; }
    bool admits(std::uint32_t) const { return in_flight < 2; }
    void take(std::uint32_t) { ++in_flight; }
    std::optional<std::uint32_t> next() {
      if (waiting.empty() || !admits(waiting.back())) return std::nullopt;
      const std::uint32_t newest = waiting.back();
      waiting.pop_back();
      take(newest);
      return newest;
    }

    const tutti::plan* plan;
    std::vector<std::uint32_t> waiting{};
    int in_flight = 0;
  };
};
static_assert(tutti::schedule_policy<newest_first>);

using Mine = tutti::compose<tutti::architecture::all_reduce<by_rank_0>, newest_first>;
using Gossip = tutti::compose<neighbours>;
// example-end

// example-begin monitor
/// The share of the gradients' elements that are zero, of all workers.
struct zeros {
  using role = tutti::role::monitor;
  static constexpr bool observes = true;
  static constexpr bool reads_memory = true;  // which the host must reach, then: a rule

  void record(tutti::event what, std::uint32_t which, tutti::seconds) {
    if (what == tutti::event::ready)
      for (const float each : tensors[which].gradient) {
        counted[0] += each == 0 ? 1 : 0;
        counted[1] += 1;
      }
  }
  std::span<double> sums() { return counted; }  // what this worker adds for a step
  void summed(std::span<const double> totals) { share = totals[0] / totals[1]; }

  std::span<const tutti::tensor> tensors{};
  std::array<double, 2> counted{};
  double share = 0;
};
static_assert(tutti::monitor_policy<zeros>);
// example-end

/// What every rank's monitor says after a step in which so many of 308 elements are zero, of ranks
/// 0 and 1.
double zeros_seen(std::size_t of_rank_0, std::size_t of_rank_1) {
  double seen = 0;
  tutti::transport::run_ranks(2, [&](tutti::transport::in_process& world) {
    tutti::arena memory(std::vector<tutti::arena::declaration>{{"weight", 301}, {"bias", 7}});
    auto engine = tutti::make_engine<tutti::compose<>>(
        world, memory.tensors(), tutti::optimizer::sgd{}, {}, zeros{.tensors = memory.tensors()});
    std::fill(memory.gradients().begin(), memory.gradients().end(), 1.0f);
    std::fill_n(memory.gradients().begin(), world.rank() == 0 ? of_rank_0 : of_rank_1, 0.0f);
    for (unsigned id = 2; id-- > 0;) engine.ready(tutti::tensor_id{id});
    engine.drain();
    if (world.rank() == 1) seen = engine.observed().share;
  });
  return seen;
}

/// The largest distance of a parameter to the mean of what the ranks see, after training.
template <class Strategy>
float distance_left(int ranks, tutti::engine_options<Strategy> options = {}) {
  std::vector<float> left(static_cast<std::size_t>(ranks));
  const float mean = static_cast<float>(ranks - 1) / 2;
  tutti::transport::run_ranks(ranks, [&](tutti::transport::in_process& world) {
    tutti::arena memory(std::vector<tutti::arena::declaration>{{"weight", 301}, {"bias", 7}});
    auto engine = tutti::make_engine<Strategy>(
        world, memory.tensors(), tutti::optimizer::sgd{.learning_rate = 0.1f}, options);
    for (int step = 0; step < 100; ++step) {
      engine.wait();
      for (std::size_t i = 0; i < memory.parameters().size(); ++i)
        memory.gradients()[i] = memory.parameters()[i] - static_cast<float>(world.rank());
      for (unsigned id = 2; id-- > 0;) engine.ready(tutti::tensor_id{id});
    }
    engine.wait();
    for (const float each : memory.parameters())
      left[static_cast<std::size_t>(world.rank())] =
          std::max(left[static_cast<std::size_t>(world.rank())], std::abs(each - mean));
  });
  return *std::max_element(left.begin(), left.end());
}

/// Milliseconds of a simulated step.
template <class Strategy>
double simulated_step(int ranks) {
  tutti::replay<Strategy> job({{"weight", 1'000'000, 1e-3, 1e-3}},
                              tutti::engine_options<Strategy>{}, tutti::payloads::counted,
                              {.iterations = 2, .warmup = 1});
  tutti::transport::run_simulated(ranks, tutti::transport::link{1e9, 0},
                                  [&](tutti::transport::simulated& world) { return job(world); });
  return 1e3 * job.result().quantile(0.5);
}

int main() {
  const float added = std::max(distance_left<Mine>(1), distance_left<Mine>(4));
  using cut = tutti::compose<tutti::architecture::all_reduce<by_rank_0>, newest_first,
                             tutti::partition::into>;
  const float pieces = distance_left<cut>(3, {.partition = {.bytes = 64}});
  // Three ranks are everybody's neighbours; of more, each stays near its own data.
  const float near = distance_left<Gossip>(3);
  const float far = distance_left<Gossip>(5);
  std::printf("left: %g, %g in pieces, %g with both neighbours, %g among five\n", added, pieces,
              near, far);
  // 2 ms of compute and 4 MB through a NIC of 1 GB/s, so often.
  const double star = simulated_step<Mine>(3);
  const double gossip = simulated_step<Gossip>(5);
  std::printf("simulated steps: %g and %g ms\n", star, gossip);
  if (std::abs(star - (2 + 2 * 8)) > 0.01 || std::abs(gossip - (2 + 2 * 4)) > 0.01) {
    return EXIT_FAILURE;
  }
  if (zeros_seen(7, 70) != 77.0 / 616) {
    return EXIT_FAILURE;
  }
  return added < 1e-3f && pieces < 1e-3f && near < 1e-3f && far > 1e-2f && far < 0.5f
             ? EXIT_SUCCESS
             : EXIT_FAILURE;
}

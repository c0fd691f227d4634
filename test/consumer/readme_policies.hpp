#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tutti/base/host_device.hpp>
#include <tutti/role/architecture.hpp>
#include <tutti/role/collective.hpp>
#include <tutti/role/compression.hpp>
#include <tutti/role/monitor.hpp>
#include <tutti/role/schedule.hpp>
#include <vector>

// The README's policies, written outside tutti. test/support/ has them in its lists, where they
// keep the laws of their roles.

// example-begin compressor
/// One byte per element: a multiple of a unit, of which the chunk's mean magnitude is 8 to 16.
/// Values are clipped to 127 units; error feedback sends the rest later. TUTTI_HD (of
/// tutti/base/host_device.hpp) marks functions that nvcc --extended-lambda also compiles for a GPU.
struct byte_codes {
  using role = tutti::role::compression;
  static constexpr bool summable = false;  // codes in different units cannot be added

  static std::size_t wire_bytes(std::size_t elements) { return sizeof(float) + elements; }

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, tutti::wire out) const {
    const float* from = gradient.data();
    const auto n = static_cast<float>(gradient.size());
    float* unit = out.header<float>();  // the mean, then, if finite, the unit
    auto* codes = reinterpret_cast<signed char*>(out.body<float>().data());
    queue.transform_reduce(gradient, unit, [=] TUTTI_HD(float x) { return std::abs(x) / n; });
    queue.for_each(1, [=] TUTTI_HD(std::size_t) {
      if (*unit > 0 && std::isfinite(*unit)) *unit = std::ldexp(1.0f, std::ilogb(*unit) - 3);
    });
    queue.for_each(gradient.size(), [=] TUTTI_HD(std::size_t i) {
      const float code = std::fmin(std::fmax(from[i] / *unit, -127.0f), 127.0f);
      codes[i] = static_cast<signed char>(std::lrint(code));
    });
  }
  template <class Queue>
  void accumulate(Queue& queue, tutti::const_wire in, std::span<float> sum) const {
    const float* unit = in.header<float>();
    const auto* codes = reinterpret_cast<const signed char*>(in.body<float>().data());
    float* to = sum.data();
    queue.for_each(sum.size(), [=] TUTTI_HD(std::size_t i) { to[i] += codes[i] * *unit; });
  }
};
static_assert(tutti::compression_policy<byte_codes>);
// example-end

// example-begin collective
/// Every rank sends its data to rank 0, which adds in rank order and sends the sum back.
struct by_rank_0 {
  using role = tutti::role::collective;
  static constexpr bool rank_ordered = true;    // the sum is ((x0 + x1) + x2) + …
  static constexpr bool ordered_start = false;  // ranks may start all-reduces in any order

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
  static constexpr bool adds_payloads = false;    // models are sent whole and added by exchange()
  static constexpr bool completes_alone = false;  // needs messages of both neighbours
  static constexpr auto carries = tutti::carries::parameters;
  static constexpr bool updates_first = true;

  /// Bytes through the busiest NIC, from which predictions compute their bound.
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
      const auto room = [&](std::size_t i) {  // simulated launches have no memory
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
/// Launches the chunk that became ready last, with at most two chunks in flight.
struct newest_first {
  using role = tutti::role::schedule;
  static constexpr bool limits_in_flight = true;  // a ready chunk may have to wait
  static constexpr bool static_order = false;     // rank 0 decides where ranks need one order

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
// example-end

// example-begin monitor
/// Measures which share of all workers' gradient elements is zero.
struct zeros {
  using role = tutti::role::monitor;
  static constexpr bool observes = true;
  static constexpr bool reads_memory = true;  // a rule: gradients must be in host memory

  void record(tutti::event what, std::uint32_t which, tutti::seconds) {
    if (what == tutti::event::ready)
      for (const float each : tensors[which].gradient) {
        counted[0] += each == 0 ? 1 : 0;
        counted[1] += 1;
      }
  }
  std::span<double> sums() { return counted; }  // this worker's counts of a step, to be summed
  void summed(std::span<const double> totals) { share = totals[0] / totals[1]; }

  std::span<const tutti::tensor> tensors{};
  std::array<double, 2> counted{};
  double share = 0;
};
static_assert(tutti::monitor_policy<zeros>);
// example-end

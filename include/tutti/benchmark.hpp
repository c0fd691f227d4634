#pragma once

#include <algorithm>
#include <atomic>
#include <benchmark/benchmark.h>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <pthread.h>
#include <sched.h>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tutti::benchmark {

/// The cores that this process may use, also where a launcher has bound its first thread to one.
inline const std::vector<int>& cores() {
  static const std::vector<int> found = [] {
    std::vector<int> all;
    std::thread([&all] {
      cpu_set_t allowed;
      CPU_ZERO(&allowed);
      for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
        CPU_SET(core, &allowed);
      }
      pthread_setaffinity_np(pthread_self(), sizeof allowed, &allowed);
      pthread_getaffinity_np(pthread_self(), sizeof allowed, &allowed);
      for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(static_cast<std::size_t>(core), &allowed)) {
          all.push_back(core);
        }
      }
    }).join();
    return all;
  }();
  return found;
}

/// The calling thread stays on one core: rank by rank, and around again where ranks are more.
inline void stay_on_core(int rank) {
  const auto& all = cores();
  if (!all.empty()) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(all[static_cast<std::size_t>(rank) % all.size()]), &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);  // where refused: as it was
  }
}

/// One-way latency of a cache line between two cores, in ns; 0 where there is only one core.
///
/// Virtual machines move between cores that share everything, a cache, or nothing, and every figure
/// moves with them: only figures of the same state can be compared.
inline double core_to_core_ns() {
  if (cores().size() < 2) {
    return 0;
  }
  constexpr int rounds = 3;
  constexpr std::uint32_t trips = 20000;
  alignas(128) std::atomic<std::uint32_t> ball{0};
  double best = 0;
  std::thread far([&ball] {
    stay_on_core(1);
    for (std::uint32_t hit = 1; hit < 2 * rounds * trips; hit += 2) {
      while (ball.load(std::memory_order_acquire) != hit) {
      }
      ball.store(hit + 1, std::memory_order_release);
    }
  });
  std::thread near([&ball, &best] {
    stay_on_core(0);
    std::uint32_t hit = 0;
    for (int round = 0; round < rounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      for (std::uint32_t trip = 0; trip < trips; ++trip, hit += 2) {
        ball.store(hit + 1, std::memory_order_release);
        while (ball.load(std::memory_order_acquire) != hit + 2) {
        }
      }
      const std::chrono::duration<double, std::nano> took =
          std::chrono::steady_clock::now() - begin;
      const double one_way = took.count() / (2.0 * trips);
      best = round == 0 ? one_way : std::min(best, one_way);
    }
  });
  near.join();
  far.join();
  return best;
}

/// `smt`: two threads of one core; `ccx`: two cores on one cache; `far`: no cache in common.
inline std::string_view core_to_core_state(double ns) {
  return ns < 35 ? "smt" : ns < 120 ? "ccx" : "far";
}

/// Notes the state of the cores before and after a case: counter `c2c_ns` and the case's label.
class core_to_core_note {
 public:
  explicit core_to_core_note(::benchmark::State& state)
      : state_(&state), before_(core_to_core_ns()) {}
  core_to_core_note(const core_to_core_note&) = delete;
  core_to_core_note& operator=(const core_to_core_note&) = delete;
  ~core_to_core_note() {
    const double after = core_to_core_ns();
    const auto began = core_to_core_state(before_);
    const auto ended = core_to_core_state(after);
    state_->counters["c2c_ns"] = (before_ + after) / 2;
    state_->SetLabel(began == ended ? std::string(began)
                                    : std::string(began) + ">" + std::string(ended));
  }

 private:
  ::benchmark::State* state_;
  double before_;
};

}  // namespace tutti::benchmark

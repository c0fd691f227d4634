// What monitors observe of a training run, and that an engine without a monitor stores nothing for
// one.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "support/training.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/monitor/counters.hpp"
#include "tutti/monitor/none.hpp"
#include "tutti/monitor/timeline.hpp"

namespace tutti::test {
namespace {

using monitor::counters;
using monitor::timeline;

constexpr int steps = 3;

/// Trains with the monitor `watching` on every rank, and returns each worker's monitor.
template <class Strategy, class Monitor>
std::map<int, Monitor> seen_by_workers(int workers, const Monitor& watching) {
  std::map<int, Monitor> all;
  std::mutex mutex;
  const engine_options<Strategy> options{};
  transport::run_ranks(workers + servers_in(options), [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), options, watching);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    for (int step = 0; step < steps; ++step) {
      backward(memory, engine.worker(), step);
      for (const tensor_id id : shuffled(memory.tensors().size(), world.rank(), step)) {
        engine.ready(id);
      }
      engine.wait();
    }
    const std::scoped_lock lock(mutex);
    all.emplace(world.rank(), engine.observed());
  });
  return all;
}

std::vector<std::string> tensor_names() {
  std::vector<std::string> names;
  for (const auto& each : declarations()) {
    names.push_back(each.name);
  }
  return names;
}

template <class Strategy>
void counts_what_every_gradient_lives_through() {
  const auto tensors = declarations().size();
  for (const auto& [rank, seen] : seen_by_workers<Strategy>(3, counters())) {
    EXPECT_EQ(seen.count(event::ready), steps * tensors) << "rank " << rank;
    EXPECT_EQ(seen.count(event::arrived), steps * tensors);
    EXPECT_GE(seen.count(event::started), static_cast<std::uint64_t>(steps));
    EXPECT_EQ(seen.count(event::started), seen.count(event::finished));
    EXPECT_EQ(seen.count(event::started), seen.count(event::released));
    EXPECT_EQ(seen.count(event::wait_begins), seen.count(event::wait_ends));
    EXPECT_GT(seen.waited(), 0);
  }
}
TEST(Counters, CountWhatEveryGradientLivesThrough) {
  counts_what_every_gradient_lives_through<compose<>>();
  counts_what_every_gradient_lives_through<compose<fusion::up_to>>();
  counts_what_every_gradient_lives_through<compose<architecture::parameter_server<>>>();
}

TEST(Counters, AddUpWaits) {
  counters seen;
  seen.record(event::wait_begins, 4, 1.0);
  seen.record(event::wait_ends, 4, 1.5);
  seen.record(event::wait_begins, no_tensor, 2.0);
  seen.record(event::wait_ends, no_tensor, 2.25);
  EXPECT_EQ(seen.waited(), 0.75);
  EXPECT_EQ(seen.count(event::wait_begins), 2U);
  EXPECT_EQ(seen.count(event::ready), 0U);
}

TEST(Timeline, KeepsWhatFitsAndCountsTheRest) {
  timeline seen(2);
  for (std::uint32_t i = 0; i < 5; ++i) {
    seen.record(event::ready, i, 0.5 * i);
  }
  ASSERT_EQ(seen.moments().size(), 2U);
  EXPECT_EQ(seen.moments()[1].which, 1U);
  EXPECT_EQ(seen.moments()[1].when, 0.5);
  EXPECT_EQ(seen.missed(), 3U);
  timeline copied = timeline(4);
  const timeline before = copied;
  copied = before;
  copied.record(event::ready, 0, 0);
  EXPECT_EQ(copied.moments().size(), 1U) << "a copy has room too";
}

nlohmann::json trace(const std::map<int, timeline>& ranks, const std::vector<std::string>& names) {
  std::ostringstream out;
  monitor::write_trace(out, ranks, names);
  return nlohmann::json::parse(out.str());  // throws unless it is JSON
}

TEST(Timeline, WritesJsonWhateverHappened) {
  EXPECT_NO_THROW(trace({}, {}));
  EXPECT_NO_THROW(trace({{0, timeline(0)}}, {}));
  timeline seen(1);
  seen.record(event::ready, 0, 1e9);
  seen.record(event::ready, 0, 1e9);
  const auto written = trace({{3, seen}}, {"a \"quoted\\name\"\n"});
  const auto& last = written["traceEvents"].back();
  EXPECT_EQ(last["name"], "a \"quoted\\name\" ");
  EXPECT_EQ(last["pid"], 3);
  EXPECT_EQ(last["ts"], 1e15);
  EXPECT_EQ(written["otherData"]["events that did not fit"], "1");
}

TEST(Timeline, ShowsARowForEveryRankAndPhase) {
  const auto ranks = seen_by_workers<compose<>>(3, timeline());
  const auto written = trace(ranks, tensor_names());
  std::set<std::pair<int, std::string>> rows;
  std::map<int, std::set<std::string>> ready;
  std::map<std::string, int> open_chunks;
  std::map<int, int> open_waits;
  double last = 0;
  for (const auto& each : written["traceEvents"]) {
    const std::string phase = each["ph"];
    const int rank = each["pid"];
    if (phase == "M") {
      if (each["name"] == "thread_name") {
        rows.emplace(rank, each["args"]["name"]);
      }
      last = 0;
      continue;
    }
    EXPECT_GE(each["ts"].get<double>(), last) << "within a rank, time does not run backwards";
    last = each["ts"];
    if (phase == "i" && each["tid"] == 0) {
      ready[rank].insert(each["name"].get<std::string>());
    } else if (phase == "b") {
      EXPECT_EQ(++open_chunks[each["id"]], 1) << each;
    } else if (phase == "e") {
      EXPECT_EQ(--open_chunks[each["id"]], 0) << each;
    } else if (phase == "B") {
      EXPECT_EQ(++open_waits[rank], 1);
    } else if (phase == "E") {
      EXPECT_EQ(--open_waits[rank], 0);
    }
  }
  const auto names = tensor_names();
  for (int rank = 0; rank < 3; ++rank) {
    for (const char* row : {"gradients", "exchange", "results", "waits"}) {
      EXPECT_TRUE(rows.contains({rank, row})) << rank << " " << row;
    }
    EXPECT_EQ(ready[rank], std::set<std::string>(names.begin(), names.end()));
  }
  EXPECT_FALSE(open_chunks.empty());
  for (const auto& [id, open] : open_chunks) {
    EXPECT_EQ(open, 0) << id << " began and never ended";
  }
}

/// A monitor that would end the program if an event were recorded.
struct unobserving {
  using role = tutti::role::monitor;
  static constexpr bool observes = false;
  void record(event, std::uint32_t, seconds) { std::abort(); }
};

TEST(None, IsNeitherTold) { EXPECT_EQ(seen_by_workers<compose<>>(2, unobserving()).size(), 2U); }

template <class Monitor>
using engine_with = engine<compose<>, transport::in_process, optimizer::sgd, Monitor>;

// An engine does not store anything for a monitor that observes nothing.
static_assert(std::is_empty_v<monitor::none> && !monitor::none::observes);
static_assert(sizeof(engine_with<monitor::none>) == sizeof(engine_with<unobserving>));
static_assert(sizeof(engine_with<monitor::none>) + sizeof(timeline) <=
              sizeof(engine_with<timeline>) + alignof(timeline));
static_assert(sizeof(engine_with<monitor::none>) + sizeof(counters) <=
              sizeof(engine_with<counters>) + alignof(counters));

}  // namespace
}  // namespace tutti::test

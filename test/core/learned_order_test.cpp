// The learned order of launches is part of a checkpoint. A run that continues from one launches in
// that order from its first step on.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/training.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/coordination/learned.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/fusion/by_arrival.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"

namespace tutti::test {
namespace {

using strategy = compose<coordination::learned, fusion::when_ready>;
using order = std::vector<std::uint32_t>;

constexpr int stop = 2;
constexpr int steps = 5;

engine_options<strategy> gathered() {
  engine_options<strategy> options;
  options.fusion = {.bytes = 2200, .cycle = 0};
  options.run.deadline = 20;
  return options;
}

/// Hands in every tensor. If no order is learned, the rank's order decides what rank 0 gathers.
template <class Engine>
void step_of(Engine& engine, arena& memory, int step, bool forwards) {
  engine.wait();
  backward(memory, engine.worker(), step);
  const auto tensors = memory.tensors().size();
  for (std::size_t i = 0; i < tensors; ++i) {
    engine.ready(tensor_id(forwards ? i : tensors - 1 - i));
  }
}

struct run {
  std::vector<std::string> files;
  std::vector<std::vector<float>> parameters;
  std::vector<order> orders;

  explicit run(int size)
      : files(static_cast<std::size_t>(size)), parameters(files.size()), orders(files.size()) {}
};

template <class Engine>
void keep(run& into, Engine& engine, arena& memory) {
  const auto rank = static_cast<std::size_t>(engine.worker());
  into.parameters[rank].assign(memory.parameters().begin(), memory.parameters().end());
  into.orders[rank].assign(engine.learned_order().begin(), engine.learned_order().end());
}

TEST(Book, ARunThatGoesOnLaunchesByIt) {
  for (int size = 1; size <= 5; ++size) {
    run whole(size);
    transport::run_ranks(size, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), gathered());
      EXPECT_TRUE(engine.learned_order().empty());
      for (int step = 0; step < steps; ++step) {
        if (step == stop) {
          std::ostringstream out;
          save(engine, out);
          whole.files[static_cast<std::size_t>(world.rank())] = out.str();
        }
        step_of(engine, memory, step, false);
      }
      engine.wait();
      keep(whole, engine, memory);
    });
    run resumed(size);
    transport::run_ranks(size, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), gathered());
      std::istringstream in(whole.files[static_cast<std::size_t>(world.rank())]);
      load(engine, in);
      EXPECT_TRUE(std::ranges::equal(engine.learned_order(), whole.orders[0]));
      for (int step = stop; step < steps; ++step) {
        step_of(engine, memory, step, true);
      }
      engine.wait();
      keep(resumed, engine, memory);
    });
    for (const auto& each : whole.orders) {
      EXPECT_EQ(each, whole.orders[0]);
    }
    EXPECT_FALSE(whole.orders[0].empty());
    EXPECT_EQ(resumed.orders, whole.orders);
    EXPECT_EQ(resumed.parameters, whole.parameters) << size << " ranks";
  }
}

/// Where groups are made anew after the first step, a run that was saved before it makes them
/// again, and a run that was saved later has them. Ranks add in rank order, so the bits are the
/// same.
TEST(Book, GroupsByArrivalAreKept) {
  using arriving = compose<coordination::learned, fusion::by_arrival,
                           architecture::all_reduce<collective::canonical>>;
  engine_options<arriving> options;
  options.fusion = {.bytes = 2200, .first_bytes = 300};
  options.run.deadline = 20;
  for (int size = 1; size <= 3; ++size) {
    const auto train = [&](int from, const std::vector<std::string>* resumed) {
      std::array<std::vector<std::string>, steps> files;
      for (auto& each : files) {
        each.resize(static_cast<std::size_t>(size));
      }
      transport::run_ranks(size, [&](transport::in_process& world) {
        const auto rank = static_cast<std::size_t>(world.rank());
        arena memory = model_of(world.rank());
        auto engine = make_engine<arriving>(world, memory.tensors(), optimizer_of(), options);
        if (resumed != nullptr) {
          std::istringstream in((*resumed)[rank]);
          load(engine, in);
          EXPECT_EQ(engine.learned_order().empty(), from < 2);
        }
        for (int step = from; step < steps; ++step) {
          engine.wait();
          std::ostringstream out;
          save(engine, out);
          files[static_cast<std::size_t>(step)][rank] = out.str();
          backward(memory, engine.worker(), step);
          for (const tensor_id id : shuffled(tensor_sizes().size(), world.rank(), step)) {
            engine.ready(id);
          }
        }
        engine.wait();
        EXPECT_FALSE(engine.learned_order().empty());
        const std::vector<float> expected = trained(size, steps);
        EXPECT_TRUE(std::ranges::equal(memory.parameters(), expected)) << size << " from " << from;
      });
      return files;
    };
    const auto files = train(0, nullptr);
    for (const int from : {1, 2, 3}) {
      train(from, &files[static_cast<std::size_t>(from)]);
    }
  }
}

/// Returns a checkpoint of one rank after `steps_before` steps.
std::string saved_after(int steps_before, const engine_options<strategy>& options) {
  std::ostringstream out;
  transport::run_ranks(1, [&](transport::in_process& world) {
    arena memory = model_of(0);
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), options);
    for (int step = 0; step < steps_before; ++step) {
      step_of(engine, memory, step, false);
    }
    save(engine, out);
  });
  return out.str();
}

std::string refusal(const std::string& bytes) {
  return errors(1, [&](transport::in_process& world) {
    arena memory = model_of(0);
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), gathered());
    std::istringstream in(bytes);
    load(engine, in);
    step_of(engine, memory, 0, true);
    engine.wait();
  })[0];
}

/// Returns `file` with another order in place of the old one and with its hashes corrected. A hash
/// is found as any eight bytes that are the hash of all bytes before them other than hashes.
std::string with_order(const std::string& file, const order& old, const order& other) {
  const auto bytes_of = [](std::uint64_t number) {
    return std::string(reinterpret_cast<const char*>(&number), sizeof number);
  };
  const auto bytes_of_order = [&](const order& its) {
    return bytes_of(its.size()) +
           std::string(reinterpret_cast<const char*>(its.data()), its.size() * sizeof its[0]);
  };
  const auto feed = [](running_hash& hash, const std::string& bytes) {
    hash.feed(std::as_bytes(std::span(bytes)));
  };
  std::string hashed;  // all bytes but the hashes
  std::vector<std::size_t> ends;
  running_hash was;
  for (std::size_t i = 0; i < file.size();) {
    if (file.compare(i, sizeof(std::uint64_t), bytes_of(was.value())) == 0) {
      ends.push_back(hashed.size());
      i += sizeof(std::uint64_t);
    } else {
      feed(was, file.substr(i, 1));
      hashed += file[i++];
    }
  }
  const auto place = hashed.rfind(bytes_of_order(old));
  EXPECT_NE(place, std::string::npos);
  hashed.replace(place, bytes_of_order(old).size(), bytes_of_order(other));
  std::string made;
  running_hash now;
  std::size_t begin = 0;
  for (std::size_t end : ends) {
    if (end > place + sizeof(std::uint64_t)) {
      end += bytes_of_order(other).size() - bytes_of_order(old).size();
    }
    feed(now, hashed.substr(begin, end - begin));
    made += hashed.substr(begin, end - begin) + bytes_of(now.value());
    begin = end;
  }
  return made;
}

/// After a re-plan the order is learned again. A run that is saved before it has been learned
/// learns it again, too.
TEST(Book, ARunThatHasJustBeenPlannedAnewMayBeSaved) {
  std::ostringstream out;
  transport::run_ranks(1, [&](transport::in_process& world) {
    arena memory = model_of(0);
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), gathered());
    for (int step = 0; step < 3; ++step) {
      step_of(engine, memory, step, true);
    }
    engine.wait();
    EXPECT_FALSE(engine.learned_order().empty());
    engine.replan(gathered());
    EXPECT_TRUE(engine.learned_order().empty());
    save(engine, out);
  });
  EXPECT_EQ(refusal(out.str()), "");
}

/// Returns the orders that a run of one rank has learned in a step, that a run which continues from
/// it with the options `next` has at once, and that this one has after a step.
template <class Strategy>
std::array<order, 3> learned_over(const engine_options<Strategy>& set,
                                  const engine_options<Strategy>& next) {
  std::array<order, 3> found;
  const auto of = [](auto& engine) {
    return order(engine.learned_order().begin(), engine.learned_order().end());
  };
  std::stringstream file;
  transport::run_ranks(1, [&](transport::in_process& world) {
    arena memory = model_of(0);
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), set);
    step_of(engine, memory, 0, true);
    save(engine, file);
    found[0] = of(engine);
  });
  transport::run_ranks(1, [&](transport::in_process& world) {
    arena memory = model_of(0);
    auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer_of(), next);
    load(engine, file);
    found[1] = of(engine);
    step_of(engine, memory, 1, true);
    engine.wait();
    found[2] = of(engine);
  });
  return found;
}

/// An order names chunks by their numbers, and its launches are as long as options allow. Under
/// other options it is learned again, as after a re-plan.
TEST(Book, AnOrderOfOtherLaunchesIsLearnedAgain) {
  engine_options<strategy> alone = gathered();
  engine_options<strategy> gathers = gathered();
  gathers.fusion.cycle = 0.1;
  alone.fusion.bytes = 0;
  const auto [together, kept, anew] = learned_over(gathers, alone);
  EXPECT_LT(together.size(), 2 * tensor_sizes().size());
  EXPECT_EQ(kept, order());
  EXPECT_EQ(anew.size(), 2 * tensor_sizes().size()) << "every tensor alone";

  using cut = compose<coordination::learned, fusion::when_ready, partition::into>;
  engine_options<cut> pieces;
  pieces.partition.bytes = 1000;
  pieces.run.deadline = 20;
  const auto [whole, kept_whole, in_pieces] = learned_over<cut>({.run = pieces.run}, pieces);
  EXPECT_EQ(kept_whole, order());
  EXPECT_GT(in_pieces.size(), whole.size());

  using windowed = compose<coordination::learned, fusion::when_ready, schedule::by_priority>;
  engine_options<windowed> narrow;
  narrow.fusion.cycle = 0.1;
  narrow.run.deadline = 20;
  engine_options<windowed> wide = narrow;
  wide.schedule.credit = 0;
  narrow.schedule.credit = 1;
  const auto [unlimited, kept_unlimited, limited] = learned_over(wide, narrow);
  EXPECT_LT(unlimited.size(), 2 * tensor_sizes().size());
  EXPECT_EQ(kept_unlimited, order());
  EXPECT_FALSE(limited.empty());
}

TEST(Book, WhatWasNotLearnedForThisPlanIsRefusedInOneLine) {
  EXPECT_EQ(refusal(saved_after(0, gathered())), "") << "nothing is learned before the first step";
  const std::string file = saved_after(1, gathered());
  const order learned = [&] {
    order found;
    transport::run_ranks(1, [&](transport::in_process& world) {
      arena memory = model_of(0);
      auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of(), gathered());
      std::istringstream in(file);
      load(engine, in);
      found.assign(engine.learned_order().begin(), engine.learned_order().end());
    });
    return found;
  }();
  EXPECT_EQ(refusal(with_order(file, learned, learned)), "");
  const std::string other =
      "the learned order was not written for this plan. Fix: resume with the options that it was "
      "saved with, or learn it again";
  EXPECT_EQ(refusal(with_order(file, learned, {1, 0, 1, 1, 1, 2})), other);  // of another model
  order longer = learned;
  longer.push_back(0);
  EXPECT_EQ(refusal(with_order(file, learned, longer)), other);
  EXPECT_EQ(refusal(with_order(file, learned, {})),
            "the checkpoint is from step 1 but holds no learned order. Fix: use one that `save` "
            "wrote");
}

}  // namespace
}  // namespace tutti::test

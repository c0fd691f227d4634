#include "compare/measure.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>

namespace compare {

namespace {

/// Returns the mean of `value` over the workers. Every worker must call it.
double mean_of(trainer& engine, double value) {
  engine.average(std::span(&value, 1));
  return value;
}

/// Returns how far the workers' models are apart (`tutti::replayed::consensus`), from the elements
/// of its own model that each worker has recorded. Every worker must call it.
double consensus(trainer& engine, const std::vector<double>& own) {
  std::vector<double> mean = own;
  engine.average(std::span(mean));
  double squares = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    squares += (own[i] - mean[i]) * (own[i] - mean[i]);
  }
  return std::sqrt(mean_of(engine, squares) / static_cast<double>(own.size()));
}

}  // namespace

tutti::replayed measure(trainer& engine, const any_world& world, tutti::arena& memory,
                        const std::vector<tutti::computation>& model,
                        const tutti::replay_options& length, trained_as how) {
  tutti::replayed seen;
  if (engine.serves()) {
    engine.serve();
    return seen;
  }
  slept_device device(world);
  const double times = length.slow.times_of(world.rank());
  const auto wait = [&](std::size_t i) {
    const tutti::seconds before = engine.exposed();
    engine.wait(tutti::tensor_id(i));
    if (engine.exposed() > before) {
      device.starved();
    }
  };
  std::vector<double> own;  // elements of this worker's model, from the measured iterations
  std::mt19937_64 noise(static_cast<std::uint64_t>(world.rank()));
  tutti::seconds ended = device.due();
  std::uint64_t sent_before = 0;
  for (int step = 0; step <= length.warmup + length.iterations; ++step) {
    for (std::size_t i = 0; !how.crosses && i < model.size(); ++i) {
      wait(i);
    }
    for (std::size_t i = 0; i < model.size(); ++i) {
      wait(i);
      device.compute(times * model[i].forward);
    }
    if (step == length.warmup + 1) {
      sent_before = engine.bytes_sent();  // includes all bytes of the earlier steps
    }
    for (std::size_t i = model.size(); i-- > 0;) {
      if (how.encodes) {
        fill(memory.tensors()[i].gradient);
      }
      if (how.drifts) {
        if (step > length.warmup) {
          std::ranges::copy(moved_of(memory.tensors()[i].parameter), std::back_inserter(own));
        }
        tutti::detail::fill_with_signs(moved_of(memory.tensors()[i].gradient), noise);
      }
      device.compute(times * model[i].backward);
      engine.ready(tutti::tensor_id(i));
    }
    if (step > length.warmup) {
      seen.iterations.push_back(device.due() - ended);
    }
    ended = device.due();
  }
  engine.wait();
  seen.bytes_sent = engine.bytes_sent() - sent_before;
  const double its_pace = tutti::pace_of(seen.iterations);
  const double pace = mean_of(engine, its_pace);
  for (tutti::seconds& each : seen.iterations) {
    each = mean_of(engine, each * its_pace) / pace;
  }
  seen.iterations_per_second = pace * engine.workers();
  if (how.drifts) {
    seen.consensus = consensus(engine, own);
  }
  seen.pushes = engine.pushes();
  seen.planned = engine.planned();
  return seen;
}

}  // namespace compare

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/remote_memories.hpp"
#include "tutti/core/state_memory.hpp"
#include "tutti/role/architecture.hpp"

/// Whether what an engine has remembered finds its place in another engine, which may have another
/// plan. For core/checkpoint.hpp, and for frameworks that keep checkpoints of their own.
namespace tutti {

/// Hash of where each chunk lies in the model and which rank owns it.
[[gnu::cold]] inline std::uint64_t hash_of_owners(const plan& made) {
  running_hash hash;
  for (const chunk& each : made.chunks) {
    hash.feed(each.first_element);
    hash.feed(each.elements);
    hash.feed(static_cast<std::uint64_t>(each.placed_on));
  }
  return hash.value();
}

/// Returns how many floats the memories hold. They are saved one after the other, because a memory
/// may be that of a chunk, and chunks are not those of a run with another fusion or partition.
[[gnu::cold]] inline std::uint64_t floats_in(std::span<const std::span<float>> memories) {
  std::uint64_t all = 0;
  for (const std::span<float> each : memories) {
    all += each.size();
  }
  return all;
}

/// Throws usage_error if memories were saved under a plan in which tensors had other places, or
/// chunks other owners where owners remember something. `order` and `owners` are that plan's
/// `hash_of_order` and `hash_of_owners`.
template <class Engine>
[[gnu::cold]] void expect_same_places(Engine& engine, std::uint64_t order, std::uint64_t owners) {
  using architecture = typename Engine::architecture;
  if (order != hash_of_order(engine.planned())) {
    throw usage_error(
        "the checkpoint was saved with a compressor that selects other tensors. Fix: give its rule "
        "the options that it was saved with");
  }
  const bool same_owners = owners == hash_of_owners(engine.planned());
  if (facts::updates_parts<architecture> && !same_owners) {
    throw usage_error(
        "the checkpoint was saved where ranks update parts of other chunks. Fix: load it with the "
        "options that it was saved with, then replan");
  }
  if (facts::encodes_means<architecture> && !engine.memories()[1].empty() && !same_owners) {
    throw usage_error(
        "the checkpoint's residuals of means belong to other chunks. Fix: load it with the options "
        "that it was saved with, then replan");
  }
}

/// Returns what an engine with the run options `was` has saved of its memories, as the memories of
/// `engine`: cut where this plan cuts them, and residuals as large as its passes make them. Throws
/// usage_error if they hold another number of floats.
template <class Engine>
[[gnu::cold]] memories_of_rank as_memories_of(Engine& engine, const memories_of_rank& saved,
                                              const run_options& was) {
  std::vector<float> floats;
  for (const std::vector<float>& each : saved) {
    floats.insert(floats.end(), each.begin(), each.end());
  }
  const std::vector<std::span<float>> places = engine.memories();
  if (floats.size() != floats_in(places)) {
    throw usage_error(
        "this state is of another strategy, model or optimizer. Fix: load one that the same ones "
        "saved, in a job of as many ranks");
  }
  memories_of_rank all;
  auto next = floats.cbegin();
  for (const std::span<float> each : places) {
    const auto end = next + static_cast<std::ptrdiff_t>(each.size());
    all.emplace_back(next, end);
    next = end;
  }
  follow_gradients<typename Engine::compression>(
      all.front(), change_of_passes<typename Engine::architecture>(was, engine.asked().run));
  return all;
}

}  // namespace tutti

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/assert.hpp"
#include "tutti/base/cost.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/role/fusion.hpp"
#include "tutti/role/partition.hpp"

namespace tutti {

/// Tags carry a chunk's number in a few bits; beyond this many a partition is too fine.
inline constexpr std::size_t most_chunks = 30'000;

namespace detail {

inline void add_hash(plan& made, std::span<const tensor> forward) {
  running_hash hash;
  for (const auto& each : forward) {
    for (const char letter : each.name) {
      hash.feed(static_cast<unsigned char>(letter));
    }
    hash.feed(each.elements);
  }
  for (const auto& each : made.buckets) {
    hash.feed(each.first_tensor);
    hash.feed(each.elements);
  }
  for (const auto& each : made.chunks) {
    hash.feed(each.first_element);
    hash.feed(each.elements);
    hash.feed(static_cast<std::uint64_t>(each.server));
  }
  made.hash = hash.value();
}

/// Each chunk to the server with the fewest elements so far.
inline void place_on_servers(plan& made, int first_server, int servers) {
  std::vector<std::size_t> load(static_cast<std::size_t>(servers));
  for (auto& each : made.chunks) {
    const auto least = std::ranges::min_element(load);
    *least += each.elements;
    each.server = first_server + static_cast<int>(least - load.begin());
  }
}

}  // namespace detail

/// The plan of a strategy for these tensors. Throws usage_error if it has too many chunks.
template <fusion_policy Fusion, partition_policy Partition>
plan make_plan(std::span<const tensor> forward, const Fusion& fusion, const Partition& partition,
               const profile& known, int first_server, int servers) {
  plan made;
  made.first_element.push_back(0);
  for (std::size_t i = forward.size(); i-- > 0;) {
    made.backward.push_back({static_cast<tensor_id>(i), forward[i].elements});
    made.first_element.push_back(made.first_element.back() + forward[i].elements);
  }
  std::size_t first_tensor = 0;
  for (const std::size_t end : fusion.group_ends(made.backward, known)) {
    TUTTI_ASSERT(end > first_tensor && end <= forward.size(), "a fusion's groups must ascend");
    const auto number = static_cast<std::uint32_t>(made.buckets.size());
    const std::size_t begin = made.first_element[first_tensor];
    bucket group{first_tensor,
                 end - first_tensor,
                 begin,
                 made.first_element[end] - begin,
                 static_cast<std::uint32_t>(made.chunks.size()),
                 0};
    made.bucket_of.resize(end, number);
    std::size_t cut = 0;
    for (const std::size_t piece_end : partition.piece_ends(group.elements)) {
      made.chunks.push_back({number, begin + cut, piece_end - cut,
                             static_cast<std::uint32_t>(index(made.at(end - 1))), 0});
      cut = piece_end;
      ++group.chunks;
    }
    TUTTI_ASSERT(cut == group.elements && group.chunks > 0, "a partition must cover its bucket");
    made.buckets.push_back(group);
    first_tensor = end;
  }
  TUTTI_ASSERT(first_tensor == forward.size(), "a fusion must cover every tensor");
  if (made.chunks.size() > most_chunks) {
    throw usage_error(sentence({"the plan has ", made.chunks.size(), " chunks and at most ",
                                most_chunks, " can be told apart. Fix: raise partition.bytes"}));
  }
  if (servers > 0) {
    detail::place_on_servers(made, first_server, servers);
  }
  detail::add_hash(made, forward);
  return made;
}

}  // namespace tutti

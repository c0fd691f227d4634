// The bytes that engines send beyond those checked in order_test.cpp: by other collectives, and
// under architectures whose order follows from another's.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <map>

#include "support/byte_laws.hpp"
#include "tutti/architecture/adasum.hpp"
#include "tutti/architecture/diloco.hpp"
#include "tutti/architecture/elastic_averaging.hpp"
#include "tutti/architecture/independent.hpp"
#include "tutti/architecture/selecting_all_gather.hpp"
#include "tutti/architecture/sparse_tree.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/compression/top_k.hpp"

namespace tutti::test {
namespace {

TEST(Bytes, OfAnAdaptiveSum) {
  sends_as_stated<compose<architecture::adasum<>, coordination::local>>(
      {}, bytes::halved_and_doubled, counted_steps, SIZE_MAX);
  sends_as_stated<compose<architecture::adasum<carries::difference>, coordination::local>>(
      {}, bytes::halved_and_doubled, counted_steps, SIZE_MAX);
}
/// Returns the bytes of sending a tenth of the elements to all, an index and a value each.
std::uint64_t pairs_to_all(std::size_t, std::size_t workers, std::size_t n) {
  return (workers - 1) * 8 * std::max<std::size_t>(n / 10, 1);
}
TEST(Bytes, OfASelection) {
  sends_as_stated<compose<architecture::sparse_tree, compression::top_k, coordination::local>>(
      {.compression = {.density = 0.1}}, bytes::up_and_down_a_tree, counted_steps, SIZE_MAX);
  using selected_again =
      compose<architecture::selecting_all_gather, compression::top_k, coordination::local>;
  sends_as_stated<selected_again>({.compression = {.density = 0.1}}, pairs_to_all, counted_steps,
                                  SIZE_MAX);
}
/// Returns the bytes of sending all data to rank 0, and the sum from there to all.
std::uint64_t through_one(std::size_t rank, std::size_t workers, std::size_t n) {
  return 4 * (rank == 0 ? workers - 1 : 1) * n;
}
/// Returns the bytes of sending all data up a binary tree, and the sum down to both children.
std::uint64_t up_and_down_two_by_two(std::size_t rank, std::size_t workers, std::size_t n) {
  const std::size_t children =
      (2 * rank + 1 < workers ? 1U : 0U) + (2 * rank + 2 < workers ? 1U : 0U);
  return 4 * ((rank == 0 ? 0 : 1) + children) * n;
}
/// Thakur et al.: among the largest power of two of ranks, each sends all parts but its own, and
/// then, to ever farther ranks, the parts that it has collected: its own, two, four. A rank above
/// them sends everything to a rank below, and gets everything back.
std::uint64_t halves(std::size_t rank, std::size_t workers, std::size_t n) {
  const std::size_t core = std::bit_floor(workers);
  if (rank >= core) {
    return 4 * n;
  }
  std::size_t sent = n - bytes::part(n, core, rank) + (rank + core < workers ? n : 0);
  for (std::size_t known = 1; known < core; known *= 2) {
    for (std::size_t each = rank / known * known; each < rank / known * known + known; ++each) {
      sent += bytes::part(n, core, each);
    }
  }
  return 4 * sent;
}
TEST(Bytes, OfAMeanOfTheStepBefore) {
  counts_as_stated<architecture::delayed<architecture::all_reduce<collective::canonical>>>(
      bytes::to_owners);
  counts_as_stated<architecture::delayed<architecture::all_reduce<collective::star>>>(through_one);
}
/// All ranks together send equally many bytes with each collective; how they are divided over the
/// ranks tells some collectives apart.
TEST(Bytes, OfAMeanByEachCollective) {
  using strategy = compose<architecture::all_reduce<any_collective>, partition::into>;
  const std::map<some_collective, bytes_of_piece> by_rank{
      {some_collective::ring, bytes::around},
      {some_collective::halving_doubling, halves},
      {some_collective::star, through_one},
      {some_collective::canonical, bytes::to_owners},
      {some_collective::by_graph, up_and_down_two_by_two}};
  for (std::size_t i = 0; i < names(some_collective()).size(); ++i) {
    SCOPED_TRACE(names(some_collective())[i]);
    engine_options<strategy> options{.partition = {.bytes = 4 * counted_piece}};
    options.architecture.ranges[0].algorithm = some_collective(i);
    if (const auto stated = by_rank.find(some_collective(i)); stated != by_rank.end()) {
      sends_as_stated<strategy>(options, stated->second);
    } else {
      send_together<strategy>(options, [](std::size_t workers) { return 2 * (workers - 1); });
    }
  }
}
TEST(Bytes, OfModelsByOtherCollectives) {
  counts_as_stated<architecture::local_sgd<collective::canonical>>(bytes::to_owners,
                                                                   counted_steps / 4);
  counts_as_stated<architecture::sharded<collective::canonical>>(bytes::to_owners_of_parts);
  using architecture::gradients;
  counts_as_stated<architecture::sharded<collective::ring, gradients::given_back>>(
      bytes::around_parts);
  counts_as_stated<architecture::model_averaging<collective::star>>(through_one);
  counts_as_stated<architecture::elastic_averaging<collective::canonical>>(bytes::to_owners);
  counts_as_stated<architecture::independent>(bytes::none);
  counts_as_stated<architecture::elastic_averaging<>>(bytes::around);
  using outer = compose<architecture::diloco<>, partition::into>;
  sends_as_stated<outer>({.architecture = {.period = 4}}, bytes::around, counted_steps / 4);
  using outer_in_halves =
      compose<architecture::diloco<collective::halving_doubling>, partition::into>;
  sends_as_stated<outer_in_halves>({.architecture = {.period = 4}}, halves, counted_steps / 4);
}
TEST(Bytes, OfOneAndThenAnother) {
  using strategy =
      compose<architecture::switch_at<architecture::all_reduce<>, architecture::local_sgd<>>,
              partition::into>;
  const engine_options<strategy> options{.architecture = {.step = 3}};
  sends_as_stated<strategy>(options, bytes::around, 2 + 2);  // in the fourth step and the eighth
}

}  // namespace
}  // namespace tutti::test

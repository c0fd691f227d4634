// Variants of named strategies that no registry has, and compositions as users of their systems
// make them. Each one's rule holds, and fails when a policy that it names is replaced by its role's
// default.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "support/rule.hpp"
#include "tutti/architecture/all_reduce.hpp"
#include "tutti/base/tensor_rule.hpp"
#include "tutti/coordination/learned.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/fusion/by_group.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/strategies/byteps.hpp"
#include "tutti/strategies/horovod.hpp"
#include "tutti/strategies/horovod_hierarchical.hpp"
#include "tutti/strategies/kungfu_nccl.hpp"

namespace tutti::test {
namespace {

constexpr std::uint64_t everything = 141'200'032;  // bytes of the large model
const std::vector<std::size_t> alone{1, 1, 1, 1, 1, 1};
const std::vector<std::size_t> tensor_by_tensor{2'500'000, 25'000'000, 5'000'000,
                                                8,         2'500'000,  300'000};

/// Horovod's cycles: the first launch gathers all tensors but tensor 1, which is bucket 4. Rank 0
/// announces the launches to each of the other ranks, which have reported the names.
rule in_cycles(std::size_t workers, std::uint64_t bytes) {
  rule stated{0, alone, tensor_by_tensor, {0, 4}};
  stated.bytes.assign(workers, bytes + 6 * 4 * sizeof(std::uint32_t));
  stated.bytes[0] = bytes + (workers - 1) * (1 + 5 + 1) * sizeof(std::uint32_t);
  stated.result = all_have(trained(static_cast<int>(workers), observed_steps));
  return stated;
}

/// Two hosts with two ranks each, whose NICs carry `times` the model's bytes in each direction. A
/// step takes that long, and at most 5 % longer.
constexpr conditions two_by_two{.on_a_host = 2};
bool crosses(const observation& made, double times) {
  const double wire = times * static_cast<double>(everything) / 1.25e9;
  return made.ended >= wire && made.ended < 1.05 * wire;
}
constexpr double around_all = 1.5;  // 2 * 3/4 of the model's bytes
constexpr double inside_first = 1;  // two halves, each once around the two hosts

template <class Strategy, class Collective>
void is_horovod_over() {
  // Half of the model goes to the other rank of the host, half across, and half back.
  const rule stated = in_cycles(4, everything / 2 * 3);
  const auto made = observe<Strategy>(4, {}, two_by_two);
  EXPECT_EQ(broken(made, stated), "");
  EXPECT_TRUE(crosses(made, inside_first)) << made.ended;

  constexpr auto own = Strategy::defaults();
  using unfused = compose<coordination::negotiated, architecture::all_reduce<Collective>>;
  EXPECT_EQ(broken(observe<unfused>(4, {.coordination = own.coordination}, two_by_two), stated),
            "starts bytes ");
  using unnamed = compose<fusion::when_ready, architecture::all_reduce<Collective>>;
  EXPECT_EQ(broken(observe<unnamed>(4, {.fusion = own.fusion}, two_by_two), stated), "bytes ");
}

TEST(Variants, HorovodHierarchical) {
  is_horovod_over<strategies::HorovodHierarchical, collective::hierarchical<>>();
  const auto flat = observe<strategies::Horovod>(4, {}, two_by_two);
  EXPECT_TRUE(crosses(flat, around_all)) << flat.ended;
}
TEST(Variants, HorovodTorus) { is_horovod_over<strategies::HorovodTorus, collective::torus>(); }

TEST(Variants, KungFuHierarchicalNCCL) {
  const auto made = observe<strategies::KungFuHierarchicalNCCL>(4, {}, two_by_two);
  EXPECT_TRUE(crosses(made, inside_first)) << made.ended;
  EXPECT_TRUE(all_have(trained(4, observed_steps))(made.parameters));
  const auto flat = observe<strategies::KungFuNCCL>(4, {}, two_by_two);
  EXPECT_TRUE(crosses(flat, around_all)) << flat.ended;
}

/// Returns the server of a piece of the whole model: djb2 of the piece's number and the key of the
/// tensor nearest the input, which is declared first.
int by_djb2(std::size_t piece, std::uint64_t servers) {
  std::uint64_t hash = 5381;
  for (const char digit : std::to_string(piece)) {
    hash = hash * 33 + static_cast<std::uint64_t>(digit);
  }
  return static_cast<int>(hash % servers);
}
TEST(Variants, BSPPS) {
  using strategies::BSPPS;
  rule stated{3, {6}};
  for (std::size_t left = 35'300'008; left > 0; left -= stated.chunks.back()) {
    stated.owners.push_back(by_djb2(stated.chunks.size(), 3));
    stated.starts.push_back(static_cast<std::uint32_t>(stated.chunks.size()));
    stated.chunks.push_back(std::min<std::size_t>(left, 1'024'000));
  }
  stated.bytes = {everything, everything};
  stated.result = all_have(trained(2, observed_steps));
  engine_options<BSPPS> three;
  three.architecture.servers = 3;
  EXPECT_EQ(broken(observe<BSPPS>(2, three), stated), "");
  engine_options<BSPPS> elsewhere = three;
  elsewhere.architecture.placed_by = architecture::placed_by::naive;
  EXPECT_EQ(broken(observe<BSPPS>(2, elsewhere), stated), "owners ");

  using served = architecture::parameter_server<>;
  constexpr auto own = BSPPS::defaults();
  EXPECT_EQ(own.architecture.engine_threads, 8);
  using unfused = compose<partition::into, schedule::at_end, served>;
  EXPECT_NE(
      broken(observe<unfused>(2, {.partition = own.partition, .architecture = three.architecture}),
             stated),
      "");
  using uncut = compose<fusion::all, schedule::at_end, served>;
  EXPECT_NE(broken(observe<uncut>(2, {.architecture = three.architecture}), stated), "");
  using unserved = compose<fusion::all, partition::into, schedule::at_end>;
  EXPECT_NE(broken(observe<unserved>(2, {.partition = own.partition}), stated), "");
  // The one bucket is full only at the end, so `at_end` shows only where there are several.
  using at_once = compose<fusion::all, partition::into, served>;
  EXPECT_EQ(
      broken(observe<at_once>(2, {.partition = own.partition, .architecture = three.architecture}),
             stated),
      "");
}

/// Horovod's `groups`: the tensors of a list become ready when the last of them does, and are then
/// sent together with whatever else fits.
TEST(Variants, HorovodWithNamedGroups) {
  using strategy = compose<fusion::by_group<fusion::when_ready, named<"tensor4", "tensor1">>,
                           schedule::as_ready, coordination::negotiated>;
  constexpr auto own = strategies::Horovod::defaults();
  engine_options<strategy> options{.fusion = own.fusion, .coordination = own.coordination};
  // The group is bucket 3 and is complete with tensor 1. In the one cycle that takes all tensors,
  // 5, 3, 2 and 0 come before it, and its 110 MB do not fit into 128 MiB with their 31.
  rule stated{0, {1, 1, 1, 2, 1}, {2'500'000, 5'000'000, 8, 27'500'000, 300'000}, {}};
  stated.bytes = {everything, everything};
  stated.result = all_have(trained(2, observed_steps));
  stated.starts = {0, 3};
  stated.bytes[0] += (1 + 4 + 1) * sizeof(std::uint32_t);
  stated.bytes[1] += 5 * 4 * sizeof(std::uint32_t);
  EXPECT_EQ(broken(observe<strategy>(2, options), stated), "");

  // Tensor 1 becomes ready 40 ms after any other, and tensor 4 waits for it on all ranks.
  const auto late = observe<strategy>(2, options, {.between = 0.04});
  EXPECT_EQ(late.seen.starts, (std::vector<std::uint32_t>{0, 1, 2, 4, 3}));
  EXPECT_GE(late.start_times.back(), 6 * 0.04);
  for (int workers = 1; workers <= 5; ++workers) {
    EXPECT_TRUE(
        all_have(trained(workers, observed_steps))(observe<strategy>(workers, options).parameters))
        << workers;
  }
}

}  // namespace
}  // namespace tutti::test

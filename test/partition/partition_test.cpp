// Partitions: every element is in one piece, and sizes are the published ones.
#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "support/policies.hpp"
#include "tutti/base/cost.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"
#include "tutti/core/plan_maker.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/partition/none.hpp"
#include "tutti/partition/over_servers.hpp"

namespace tutti {
namespace {

using ends = std::vector<std::size_t>;

void expect_covers_once(const ends& pieces, std::size_t elements) {
  ASSERT_FALSE(pieces.empty());
  EXPECT_EQ(pieces.back(), elements);
  EXPECT_TRUE(elements == 0 ? pieces.size() == 1 : pieces.front() > 0);
  EXPECT_TRUE(std::ranges::is_sorted(pieces, std::less_equal{})) << "an empty piece";
}

template <class P>
class partition_law : public testing::Test {};
TYPED_TEST_SUITE(partition_law, testing_lists::partitions);

TYPED_TEST(partition_law, covers_every_element_once) {
  for (const std::size_t elements : {0u, 1u, 2u, 31u, 1000u, 1'024'000u, 1'024'001u, 25'557'032u}) {
    expect_covers_once(TypeParam{}.piece_ends(elements), elements);
  }
}

TEST(partition_none, does_not_cut) {
  EXPECT_EQ(partition::none{}.piece_ends(7), (ends{7}));
  EXPECT_EQ(partition::none{}.piece_ends(0), (ends{0}));
}

TEST(partition_into, covers_every_size_and_keeps_to_the_limit) {
  for (std::size_t piece = 1; piece < 12; ++piece) {
    for (std::size_t elements = 0; elements < 60; ++elements) {
      for (const auto cut : {partition::cut::fixed, partition::cut::even}) {
        const partition::into policy({.elements = piece, .cut = cut});
        const ends pieces = policy.piece_ends(elements);
        expect_covers_once(pieces, elements);
        std::size_t shortest = elements;
        std::size_t longest = 0;
        for (std::size_t i = 0; i < pieces.size(); ++i) {
          const std::size_t length = pieces[i] - (i == 0 ? 0 : pieces[i - 1]);
          longest = std::max(longest, length);
          shortest = std::min(shortest, length);
          const bool full = cut == partition::cut::fixed && i + 1 < pieces.size();
          EXPECT_TRUE(!full || length == piece);
        }
        EXPECT_LE(longest, piece);
        EXPECT_EQ(pieces.size(), std::max<std::size_t>(1, (elements + piece - 1) / piece));
        EXPECT_TRUE(cut == partition::cut::fixed || longest - shortest <= 1);
      }
    }
  }
}

TEST(partition_into, puts_the_remainder_last) {
  EXPECT_EQ(partition::into({.bytes = 16}).piece_ends(10), (ends{4, 8, 10}));
}

TEST(partition_into, cuts_evenly_as_kungfu_does) {
  const partition::into mebibyte({.bytes = 1 << 20, .cut = partition::cut::even});
  EXPECT_EQ(mebibyte.piece_ends((1 << 18) + 1), (ends{(1 << 17) + 1, (1 << 18) + 1}));
}

/// Cuts into as many pieces as tf_cnn_benchmarks packs gradients into, whatever size is set
/// besides.
TEST(partition_into, cuts_in_so_many_pieces) {
  for (const std::size_t pieces : {1u, 2u, 3u, 8u}) {
    const partition::into policy({.elements = 5, .pieces = pieces});
    for (const std::size_t elements : {0u, 1u, 2u, 3u, 7u, 8u, 1001u}) {
      const ends all = policy.piece_ends(elements);
      expect_covers_once(all, elements);
      ASSERT_EQ(all.size(), std::max<std::size_t>(1, std::min(pieces, elements)));
      for (std::size_t i = 0; i < all.size(); ++i) {
        const std::size_t length = all[i] - (i == 0 ? 0 : all[i - 1]);
        EXPECT_GE(length, elements / all.size());
        EXPECT_LE(length, elements / all.size() + 1);
      }
    }
  }
}

/// As tensorpack's GradientPacker and tf_cnn_benchmarks' `--gradient_repacking` cut the gradients
/// of a model: each piece has the integer quotient, and the last one also has the rest. Both are
/// written here from descriptions; neither program was run.
TEST(partition_into, packs_as_tensorpack_does) {
  for (std::size_t split = 1; split <= 8; ++split) {
    for (const std::size_t total :
         {0u, 1u, 7u, 8u, 1023u, 1024u, 2047u, 2048u, 8191u, 8192u, 10'007u, 25'557'032u}) {
      const partition::into repacked({.cut = partition::cut::rest_in_last, .pieces = split});
      const partition::into packed(
          {.cut = partition::cut::rest_in_last, .pieces = split, .least = 1024});
      ends expected;
      for (std::size_t i = 1; i < split && total >= split; ++i) {
        expected.push_back(i * (total / split));
      }
      for (std::size_t i = 1; i < total && total < split; ++i) {
        expected.push_back(i);  // with fewer elements than pieces, those pieces that hold one
      }
      expected.push_back(total);
      EXPECT_EQ(repacked.piece_ends(total), expected) << total << " in " << split;
      const bool too_few = static_cast<double>(total) / static_cast<double>(split) < 1024;
      EXPECT_EQ(packed.piece_ends(total), too_few ? ends{total} : expected)
          << total << " in " << split;
    }
  }
  // By size: as many pieces of exactly that size as fit, and at least one piece.
  const partition::into threes({.elements = 3, .cut = partition::cut::rest_in_last});
  EXPECT_EQ(threes.piece_ends(8), (ends{3, 8}));
  EXPECT_EQ(threes.piece_ends(9), (ends{3, 6, 9}));
  EXPECT_EQ(threes.piece_ends(2), (ends{2}));
  EXPECT_EQ(threes.piece_ends(0), (ends{0}));
}

TEST(partition_into, refuses_a_piece_of_nothing) {
  for (const std::size_t bytes : {0u, 3u}) {
    try {
      partition::into policy({.bytes = bytes});
      FAIL() << bytes;
    } catch (const usage_error& sentence) {
      EXPECT_NE(std::string(sentence.what()).find("must hold at least one element"),
                std::string::npos);
    }
  }
}

/// How these values were first made is not recorded. On 25 November 2026 they were worked out
/// again, independently of this library, from the line of MXNet's `KVStoreDist::EncodeDefaultKey`
/// by which part i ends at size / servers * (i + 1), computed in double precision and rounded, with
/// halves away from zero. This applies from MXNet's bound of a million elements on. MXNet itself
/// was not built.
TEST(partition_over_servers, cuts_large_arrays_as_mxnet_does) {
  const struct {
    int servers;
    std::size_t elements;
    ends parts;
  } answers[] = {
      {1, 2'500'000, {2'500'000}},
      {3, 999'999, {999'999}},
      {3, 1'000'000, {333'333, 333'334, 333'333}},
      {3, 1'000'001, {333'334, 333'333, 333'334}},
      {3, 5'000'000, {1'666'667, 1'666'666, 1'666'667}},
      {3, 25'000'000, {8'333'333, 8'333'334, 8'333'333}},
      {4, 2'359'296, {589'824, 589'824, 589'824, 589'824}},
      {5, 1'000'003, {200'001, 200'000, 200'001, 200'000, 200'001}},
      {7, 1'000'003, {142'858, 142'857, 142'858, 142'857, 142'858, 142'857, 142'858}},
      {8, 1'000'004, {125'001, 125'000, 125'001, 125'000, 125'001, 125'000, 125'001, 125'000}},
  };
  for (const auto& [servers, elements, parts] : answers) {
    const ends pieces = among(partition::over_servers(), servers).piece_ends(elements);
    ends lengths(pieces.size());
    std::adjacent_difference(pieces.begin(), pieces.end(), lengths.begin());
    EXPECT_EQ(lengths, parts) << servers << " servers, " << elements << " elements";
  }
}

TEST(partition_over_servers, covers_every_size_below_and_above_any_bound) {
  for (int servers = 1; servers <= 5; ++servers) {
    for (std::size_t elements = 0; elements < 40; ++elements) {
      for (const std::size_t bound : {0u, 1u, 7u, 30u}) {
        const partition::over_servers whole({.bound = bound});
        const ends pieces = among(whole, servers).piece_ends(elements);
        expect_covers_once(pieces, elements);
        const std::size_t parts =
            elements < bound ? 1 : std::min(elements, static_cast<std::size_t>(servers));
        EXPECT_EQ(pieces.size(), std::max<std::size_t>(1, parts));
        EXPECT_EQ(whole.piece_ends(elements), ends{elements}) << "without servers";
      }
    }
  }
}

TEST(partition_among, leaves_alone_what_does_not_ask_for_servers) {
  EXPECT_EQ(among(partition::into({.elements = 3}), 2).piece_ends(7), (ends{3, 6, 7}));
}

/// A partition of one's own without a constructor.
struct in_pieces {
  using role = tutti::role::partition;

  struct options {
    std::size_t pieces{2};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("pieces", self.pieces, "cut a bucket into this many pieces");
    }
  };

  std::vector<std::size_t> piece_ends(std::size_t elements) const {
    std::vector<std::size_t> all(set.pieces);
    for (std::size_t i = 0; i < set.pieces; ++i) {
      all[i] = part_begin(elements, set.pieces, i + 1);
    }
    return all;
  }

  options set{};
};
static_assert(partition_policy<in_pieces>);

/// A partition of one's own that answers with these ends.
struct as_told {
  using role = tutti::role::partition;

  ends piece_ends(std::size_t) const { return told; }

  ends told{};
};
/// A fusion that answers with these ends.
struct groups_as_told {
  using role = tutti::role::fusion;

  ends group_ends(std::span<const tensor_facts>, const profile&) const { return told; }

  ends told{};
};

/// Ends of one's own partition or fusion are checked when the plan is made.
TEST(OwnPartition, IsRefusedUnlessItsEndsAscendToTheLast) {
  const std::vector<tensor> forward{tensor::phantom("a", 6), tensor::phantom("b", 4)};
  const auto refused = [&](const ends& pieces, const ends& groups) {
    try {
      make_plan(forward, groups_as_told{groups}, as_told{pieces}, {}, [](plan&) {});
      return std::string("not refused");
    } catch (const usage_error& sentence) {
      return std::string(sentence.what());
    }
  };
  EXPECT_EQ(refused({3, 7, 10}, {2}), "not refused");
  EXPECT_EQ(refused({0, 3, 3, 10}, {2}), "not refused");  // pieces of nothing are left out
  for (const ends& pieces : {ends{}, ends{3, 7}, ends{7, 3, 10}, ends{3, 11}, ends{11, 10}}) {
    EXPECT_NE(refused(pieces, {2}).find("partition"), std::string::npos);
  }
  for (const ends& groups : {ends{}, ends{1}, ends{0, 2}, ends{1, 1, 2}, ends{2, 1, 2}, ends{3}}) {
    EXPECT_NE(refused({10}, groups).find("fusion"), std::string::npos);
  }
  // A bucket without elements is one empty piece, and there is no bucket if there is no tensor.
  const std::vector<tensor> empty{tensor::phantom("nothing", 0)};
  EXPECT_THROW(make_plan(empty, fusion::none(), as_told{}, {}, [](plan&) {}), usage_error);
  EXPECT_EQ(make_plan(empty, fusion::none(), as_told{{0, 0}}, {}, [](plan&) {}).chunks.size(), 1u);
  EXPECT_TRUE(make_plan({}, groups_as_told{}, as_told{}, {}, [](plan&) {}).buckets.empty());
}

/// Which tensors arrive with which chunk, and which chunks hold a part of which tensor, with
/// tensors without elements between, before and behind others.
TEST(Plan, TensorsOfItsChunks) {
  const std::vector<std::size_t> sizes{0, 5, 0, 0, 3, 1, 0, 7, 0};
  std::vector<tensor> forward;
  for (const std::size_t elements : sizes) {
    forward.push_back(tensor::phantom("a" + std::to_string(forward.size()), elements));
  }
  for (const ends& groups : {ends{9}, ends{4, 9}, ends{1, 2, 3, 4, 5, 6, 7, 8, 9}}) {
    const plan made = make_plan(forward, groups_as_told{groups}, partition::into({.elements = 4}),
                                {}, [](plan&) {});
    std::vector<std::size_t> visits(sizes.size());
    for (const chunk& each : made.chunks) {
      std::size_t elements = 0;
      for (const std::size_t position : made.tensors_of(each)) {
        ++visits[position];
        elements += made.holds_some(each, position) ? made.backward[position].elements : 0;
      }
      EXPECT_GE(elements, each.elements);
      for (std::size_t position = 0; position < sizes.size(); ++position) {
        const std::size_t begin = std::max(each.first_element, made.first_element[position]);
        const std::size_t end =
            std::min(each.first_element + each.elements, made.first_element[position + 1]);
        EXPECT_EQ(made.holds_some(each, position), begin < end) << position;
      }
    }
    for (std::size_t position = 0; position < sizes.size(); ++position) {
      const auto parts = static_cast<std::size_t>(std::ranges::count_if(
          made.chunks, [&](const chunk& each) { return made.holds_some(each, position); }));
      EXPECT_EQ(visits[position], std::max<std::size_t>(parts, 1)) << position;
    }
  }
}

TEST(OwnPartition, IsMadeWithItsOptions) {
  EXPECT_EQ(make_policy<in_pieces>({.pieces = 3}).piece_ends(9), (ends{3, 6, 9}));
  EXPECT_EQ(make_policy<in_pieces>({}).piece_ends(9), (ends{5, 9}));
}

}  // namespace
}  // namespace tutti

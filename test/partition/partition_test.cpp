// Partitions: every element in one piece, then the published sizes.
#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

#include "support/policies.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/partition/none.hpp"

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

TEST(partition_into, refuses_a_piece_of_nothing) {
  for (const std::size_t bytes : {0u, 3u}) {
    try {
      partition::into policy({.bytes = bytes});
      FAIL() << bytes;
    } catch (const usage_error& sentence) {
      EXPECT_NE(std::string(sentence.what()).find("less than one element"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace tutti

#include "tutti/base/median.hpp"

#include <gtest/gtest.h>

namespace tutti {

TEST(median, is_one_in_the_middle) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({3, 9, 1}), 3);
  EXPECT_EQ(median({4, 3, 9, 1}), 4);
}

}  // namespace tutti

// As gtest_main, but a program all of whose tests were skipped tells CTest so.
#include <gtest/gtest.h>

#include "support/nothing_ran.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return tutti::test::unless_nothing_ran(RUN_ALL_TESTS());
}

// As gtest_main, but a program whose every test was skipped says so to CTest.
#include <gtest/gtest.h>

#include "support/nothing_ran.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return tutti::test::unless_nothing_ran(RUN_ALL_TESTS());
}

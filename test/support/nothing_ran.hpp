#pragma once

#include <gtest/gtest.h>

namespace tutti::test {

/// What a program of tests answers that has run none: CTest reports it as skipped.
inline constexpr int nothing_ran = 77;

/// For `main`, from what RUN_ALL_TESTS has answered.
inline int unless_nothing_ran(int failed) {
  const bool none = ::testing::UnitTest::GetInstance()->successful_test_count() == 0;
  return failed == 0 && none ? nothing_ran : failed;
}

}  // namespace tutti::test

#pragma once

#include <gtest/gtest.h>

namespace tutti::test {

/// The exit code of a test program that has run no test; CTest reports it as skipped.
inline constexpr int nothing_ran = 77;

/// Returns what `main` has to return, given the result of RUN_ALL_TESTS.
inline int unless_nothing_ran(int failed) {
  const bool none = ::testing::UnitTest::GetInstance()->successful_test_count() == 0;
  return failed == 0 && none ? nothing_ran : failed;
}

}  // namespace tutti::test

// Tests that memory which kernels read by vectors and by huge pages begins at their boundaries.
#include "tutti/base/line_vector.hpp"

#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

std::size_t begin_of(const line_vector<float>& memory) {
  return reinterpret_cast<std::uintptr_t>(memory.data());
}

TEST(line_vector, begins_with_a_cache_line) {
  for (const std::size_t elements : {1u, 15u, 17u, 1000u, 524'287u}) {
    EXPECT_EQ(begin_of(line_vector<float>(elements)) % 64, 0) << elements;
  }
}

TEST(line_vector, begins_with_a_huge_page_where_it_fills_one) {
  for (const std::size_t elements : {huge_page / 4, huge_page / 4 + 1, huge_page}) {
    EXPECT_EQ(begin_of(line_vector<float>(elements)) % huge_page, 0) << elements;
  }
}

TEST(line_vector, keeps_what_it_holds_where_it_grows_past_a_huge_page) {
  line_vector<float> memory(huge_page / 4 - 1, 3.0f);
  memory.push_back(4.0f);
  memory.resize(huge_page, 5.0f);
  EXPECT_EQ(begin_of(memory) % huge_page, 0);
  EXPECT_EQ(memory.front(), 3.0f);
  EXPECT_EQ(memory[huge_page / 4 - 2], 3.0f);
  EXPECT_EQ(memory[huge_page / 4 - 1], 4.0f);
  EXPECT_EQ(memory.back(), 5.0f);
}

}  // namespace
}  // namespace tutti

// The rows of the covering array on the virtual clock end with the same bits.
#include "support/covering.hpp"

#include <gtest/gtest.h>

namespace tutti::test {
namespace {

TEST(Covering, OnTheVirtualClock) {
  const auto train = []<class Engine>(const Engine*, const auto& options) {
    return train_in_simulation<typename Engine::strategy>(covering::workers, covering::steps,
                                                          options, covering::model());
  };
  EXPECT_GT(covering::rows_that_train<covering::on_the_virtual_clock>(train), 0);
}

}  // namespace
}  // namespace tutti::test

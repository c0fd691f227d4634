// Who owns a rank's loop, and until when.
#include "tutti/core/driver.hpp"

#include <gtest/gtest.h>
#include <stdexcept>

#include "tutti/transport/in_process.hpp"

namespace tutti::test {
namespace {

/// Counts how often somebody had the loop; refuses where it is told to.
struct counting_owner {
  int turns = 0;
  int refused = -1;  // of these turns, counted from 0

  bool open_posts() {
    if (turns++ == refused) {
      throw std::runtime_error("refused");
    }
    return false;
  }
  bool has_posts() const { return false; }
  bool carry_out() { return false; }
  bool has_decided() const { return false; }
  bool failed() const { return false; }
};

template <class Check>
void with_a_driver(Check check) {
  transport::run_ranks(1, [&](transport::in_process& world) {
    counting_owner owner;
    driver<transport::in_process, counting_owner> its(world, owner);
    check(its, owner);
  });
}

TEST(Driver, WhoThrowsLeavesTheLoopToOthers) {
  with_a_driver([](auto& its, counting_owner& owner) {
    EXPECT_THROW(its.exclusively([] { throw std::runtime_error("refused"); }), std::runtime_error);
    its.nudge();
    EXPECT_GT(owner.turns, 0);
  });
}

TEST(Driver, AnOwnerThatThrowsIsAskedAgain) {
  with_a_driver([](auto& its, counting_owner& owner) {
    owner.refused = 0;
    EXPECT_THROW(its.nudge(), std::runtime_error);
    its.nudge();
    EXPECT_GT(owner.turns, 1);
  });
}

}  // namespace
}  // namespace tutti::test

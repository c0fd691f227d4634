// A transport of one's own, written from the words of role/transport.hpp alone: it counts the
// messages of another.
#include <algorithm>
#include <cstddef>
#include <exception>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/queue.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/any_transport.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/network.hpp"
#include "tutti/transport/recording.hpp"
#include "tutti/transport/shaped.hpp"

namespace tutti::test {
namespace {

using transport::in_process;

/// States no fact, and does not say how to wait between two polls.
class restless {
 public:
  using role = tutti::role::transport;
  using queue_type = in_process::queue_type;

  explicit restless(in_process& inner) : inner_(&inner) {}

  int rank() const { return inner_->rank(); }
  int size() const { return inner_->size(); }
  int host_of(int rank) const { return inner_->host_of(rank); }
  queue_type& queue() { return inner_->queue(); }
  run_queue& ready_coroutines() { return inner_->ready_coroutines(); }
  bool poll() { return inner_->poll(); }
  seconds now() const { return inner_->now(); }
  auto sleep(seconds duration) { return inner_->sleep(duration); }
  auto send(int to, tag where, std::span<const std::byte> bytes) {
    ++messages;
    return inner_->send(to, where, bytes);
  }
  auto receive(int from, tag where, std::span<std::byte> into) {
    return inner_->receive(from, where, into);
  }
  template <class Fold>
  auto receive_fold(int from, tag where, std::span<std::byte> into, Fold fold) {
    return inner_->receive_fold(from, where, into, fold);
  }
  auto receive_loan(int from, tag where, std::size_t bytes) {
    return inner_->receive_loan(from, where, bytes);
  }
  auto receive_any(channel of) { return inner_->receive_any(of); }
  auto exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> into,
                tag where) {
    ++messages;
    return inner_->exchange(to, out, from, into, where);
  }
  template <class Fold>
  auto exchange_fold(int to, std::span<const std::byte> out, int from, std::span<std::byte> into,
                     tag where, Fold fold) {
    ++messages;
    return inner_->exchange_fold(to, out, from, into, where, fold);
  }
  void fail(std::exception_ptr why) { inner_->fail(why); }
  void abort(const std::string& reason) { inner_->abort(reason); }
  std::size_t in_flight() const { return inner_->in_flight(); }
  traffic counted() const { return inner_->counted(); }

  std::size_t messages = 0;

 protected:
  in_process* inner_;
};
static_assert(!transport_policy<restless>);

/// Waits as its inner transport does.
class counting : public restless {
 public:
  using restless::restless;
  seconds idle(std::size_t idle_polls, urgency who = urgency::waited_for) {
    return inner_->idle(idle_polls, who);
  }
};
static_assert(transport_policy<counting>);

/// Trains one tensor for a step, and expects the mean over the ranks.
template <class Transport>
void expect_mean(Transport& world) {
  std::vector<float> parameter(10, 1.0f);
  std::vector<float> gradient(10, static_cast<float>(world.rank()));
  auto engine = make_engine<compose<>>(
      world, std::vector{tensor("weight", std::span(parameter), std::span(gradient))},
      optimizer::sgd{.learning_rate = 1});
  engine.ready(tensor_id(0));
  engine.wait();
  for (const float each : parameter) {
    EXPECT_NEAR(each, 1 - static_cast<float>(world.size() - 1) / 2, 1e-6);
  }
}

TEST(OwnTransport, Trains) {
  for (const int size : {1, 2, 3, 4, 5}) {
    transport::run_ranks(size, [&](in_process& inner) {
      counting world(inner);
      expect_mean(world);
      EXPECT_TRUE(world.messages > 0 || size == 1);
    });
  }
}

TEST(OwnTransport, StandsInsideOthers) {
  transport::run_ranks(2, [](in_process& inner) {
    counting world(inner);
    transport::any_transport any(world);
    expect_mean(any);
  });
  transport::run_ranks(2, [](in_process& inner) {
    counting world(inner);
    transport::recording<counting> recorded(world, 1000);
    expect_mean(recorded);
    EXPECT_EQ(static_cast<std::size_t>(std::count_if(
                  recorded.log().begin(), recorded.log().end(),
                  [](const auto& each) { return each.what == transport::recorded::kind::send; })),
              world.messages);
  });
  transport::run_ranks(2, [](in_process& inner) {
    counting world(inner);
    transport::run_shaped(world, transport::network(2, transport::network::at_once),
                          [](transport::shaped<counting>& end) -> task {
                            std::byte letter{};
                            if (end.rank() == 0) {
                              co_await end.send(1, tag{}, std::span(&letter, 1));
                            } else {
                              co_await end.receive(0, tag{}, std::span(&letter, 1));
                            }
                          });
    EXPECT_GT(world.messages, 0u);
  });
}

}  // namespace
}  // namespace tutti::test

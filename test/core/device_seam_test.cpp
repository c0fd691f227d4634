// The seam a GPU will use, without one: every queue is a host_stream, memory is poison until the
// stream has written it, and the order of work is kept by marks alone.
#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tutti/architecture/majority_vote.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/base/host_stream.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test {
namespace {

using on_streams = transport::basic_in_process<host_stream, transport::by_mailbox>;

constexpr std::size_t sizes[] = {37, 1, 1000, 0, 5};
constexpr int steps = 6;

float gradient(int worker, int step, std::size_t element) {
  return static_cast<float>((worker + 1) * 37 + step * 11 + static_cast<int>(element) * 7 % 101) /
             64.0f -
         2.0f;
}

template <class Strategy>
std::vector<float> train_on_host(int ranks, engine_options<Strategy> options) {
  std::vector<float> result;
  transport::run_ranks(ranks, [&](transport::in_process& world) {
    std::vector<arena::declaration> declared;
    for (const std::size_t each : sizes) {
      declared.push_back({"t" + std::to_string(declared.size()), each});
    }
    arena memory(declared);
    auto engine =
        make_engine<Strategy>(world, memory.tensors(),
                              optimizer::sgd{.learning_rate = 0.125f, .momentum = 0.5f}, options);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    for (int step = 0; step < steps; ++step) {
      for (std::size_t id = std::size(sizes); id-- > 0;) {
        engine.wait(tensor_id(id));
        auto values = memory.tensors()[id].gradient;
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] = gradient(engine.worker(), step, i);
        }
        engine.ready(tensor_id(id));
      }
    }
    engine.wait();
    if (world.rank() == 0) {
      result.assign(memory.parameters().begin(), memory.parameters().end());
    }
  });
  return result;
}

template <class Strategy>
std::vector<float> train_on_streams(int ranks, engine_options<Strategy> options) {
  std::vector<float> result;
  transport::run_ranks<on_streams>(ranks, [&](on_streams& world) {
    host_stream compute;
    std::vector<std::unique_ptr<host_stream::buffer<float>>> memory;
    std::vector<tensor> tensors;
    for (const std::size_t each : sizes) {
      memory.push_back(std::make_unique<host_stream::buffer<float>>(compute, each));
      memory.push_back(std::make_unique<host_stream::buffer<float>>(compute, each));
      memory[memory.size() - 2]->write(std::vector<float>(each, 0.0f));
      tensors.emplace_back("t" + std::to_string(tensors.size()), memory[memory.size() - 2]->span(),
                           memory.back()->span());
    }
    compute.synchronize();
    auto engine = make_engine<Strategy>(
        world, tensors, optimizer::sgd{.learning_rate = 0.125f, .momentum = 0.5f}, options);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    for (int step = 0; step < steps; ++step) {
      for (std::size_t id = std::size(sizes); id-- > 0;) {
        engine.wait(tensor_id(id), compute);
        float* values = tensors[id].gradient.data();
        compute.for_each(tensors[id].elements, [=, worker = engine.worker()](std::size_t i) {
          values[i] = gradient(worker, step, i);
        });
        engine.ready(tensor_id(id), compute);
      }
    }
    engine.wait();
    for (std::size_t id = std::size(sizes); id-- > 0 && world.rank() == 0;) {
      engine.wait(tensor_id(id), compute);
      const auto values = memory[2 * id]->read_back();
      result.insert(result.end(), values.begin(), values.end());
    }
  });
  return result;
}

template <class Strategy>
void agrees(engine_options<Strategy> options = {}) {
  for (int ranks = facts::has_servers<typename Strategy::architecture> ? 2 : 1; ranks <= 4;
       ++ranks) {
    EXPECT_EQ(train_on_streams<Strategy>(ranks, options), train_on_host<Strategy>(ranks, options))
        << ranks << " ranks";
  }
}

}  // namespace

TEST(DeviceSeam, CanonicalSum) {
  agrees<compose<architecture::all_reduce<collective::canonical>>>();
}
TEST(DeviceSeam, FusedPackedAndPrioritised) {
  agrees<compose<architecture::all_reduce<collective::canonical>, fusion::up_to, partition::into,
                 schedule::by_priority>>(
      {.partition = {.elements = 100}, .schedule = {.credit = 400}});
}
TEST(DeviceSeam, ResidualsStayOnTheStream) {
  agrees<compose<compression::error_feedback<compression::top_k>>>(
      {.compression = {.density = 0.1}});
  agrees<compose<compression::error_feedback<compression::scaled_sign>, fusion::up_to>>();
}
TEST(DeviceSeam, Votes) { agrees<compose<compression::sign, architecture::majority_vote>>(); }
TEST(DeviceSeam, Servers) {
  agrees<compose<architecture::parameter_server<>>>();
  agrees<compose<architecture::parameter_server<consistency::synchronous, updated_by::servers>>>();
  agrees<compose<compression::sign, architecture::parameter_server<>>>();
}

}  // namespace tutti::test

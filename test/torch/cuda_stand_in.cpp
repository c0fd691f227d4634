// LibTorch's models over NCCL, where every device is one of the stand-in's and its memory is the
// host's, so that host tensors take the place of a device's. Gradients and parameters are compared
// with small integers of plain loops, and results without rounding must be equal. One file, because
// what replaces torch's memory does so in a whole program.
#include <ATen/ATen.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <c10/core/CPUAllocator.h>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <torch/csrc/autograd/variable.h>
#include <utility>
#include <vector>

#include "tutti/adapter/torch.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/error.hpp"
#include "tutti/compression/random_k.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/strategies/bytescheduler.hpp"
#include "tutti/strategies/horovod.hpp"
#include "tutti/strategies/top_k.hpp"
#include "tutti/strategies/wfbp.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/nccl.hpp"

namespace tutti::test {
namespace {

using adapter::gradients;
using adapter::unused_parameters;
using transport::in_process;
using world_type = transport::nccl<in_process>;

/// Allocates memory of the calling thread's device for every tensor. Freed memory is reused
/// immediately, without waiting for the device, as under torch's allocator.
class device_allocator : public at::Allocator {
 public:
  at::DataPtr allocate(std::size_t bytes) const override {
    const std::scoped_lock lock(mutex());
    void* memory = nullptr;
    block kind{0, bytes};
    cuda::check(cudaGetDevice(&kind.first));
    auto& free = lent_again()[kind];
    if (!free.empty()) {
      memory = free.back();
      free.pop_back();
    } else if (bytes != 0) {
      cuda::check(cudaMalloc(&memory, bytes));
      blocks()[memory] = kind;
    }
    return {memory, memory, &give_back, at::Device(at::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &give_back; }

 private:
  using block = std::pair<int, std::size_t>;  ///< a device, and bytes

  static void give_back(void* memory) {
    if (memory != nullptr) {
      const std::scoped_lock lock(mutex());
      lent_again()[blocks().at(memory)].push_back(memory);
    }
  }
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::map<block, std::vector<void*>>& lent_again() {
    static auto& never_destroyed = *new std::map<block, std::vector<void*>>;
    return never_destroyed;
  }
  static std::map<void*, block>& blocks() {
    static auto& never_destroyed = *new std::map<void*, block>;
    return never_destroyed;
  }
};

/// Replaces torch's current stream: the calling thread does work immediately, and therefore also
/// waits immediately for what the stream is made to wait for.
class eager_stream {
 public:
  using event = cuda::stream::event;

  event record() {
    ++records;
    return behind_.record();
  }
  void wait(const event& until) {
    behind_.wait(until);
    behind_.synchronize();
  }
  void synchronize() { behind_.synchronize(); }
  void copy(void* to, const void* from, std::size_t bytes) { behind_.copy(to, from, bytes); }
  void clear(void* at, std::size_t bytes) { behind_.clear(at, bytes); }

  static inline thread_local int records = 0;

 private:
  cuda::stream behind_;
};
static_assert(device_queue<eager_stream>);

}  // namespace
}  // namespace tutti::test

/// Tensors of doubles take the place of host tensors.
template <>
class tutti::adapter::torch_memory<tutti::cuda::stream> {
 public:
  explicit torch_memory(cuda::stream&) {}
  void expect(const at::Tensor&, const std::string&) const {}
  bool is_on_host(const at::Tensor& value) const { return value.scalar_type() == at::kDouble; }
  test::eager_stream& current() { return current_; }

 private:
  test::eager_stream current_{};
};

namespace tutti::test {
namespace {

class TorchOnAStandIn : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() {
    static device_allocator memory;
    c10::SetCPUAllocator(&memory, 1);
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, TorchOnAStandIn, ::testing::Values(1, 2, 3));

/// Calls `body(world, beside)` on threads that each own a device.
template <class Body>
void run_on_devices(int ranks, const Body& body) {
  in_process::fabric others(ranks);
  transport::run_ranks(ranks, [&](in_process& carrier) {
    cuda::check(cudaSetDevice(carrier.rank()));
    world_type world(carrier);
    body(world, others.end(carrier.rank()));
  });
}

/// A model of some tensors, which begins as zeros on rank 0 and as other values elsewhere.
struct model {
  model(int rank, at::ScalarType type, const std::vector<std::pair<std::string, int>>& tensors) {
    for (const auto& [name, elements] : tensors) {
      parameters.push_back({name, at::full({elements}, rank, type).requires_grad_()});
    }
  }
  const at::Tensor& operator[](std::size_t which) const { return parameters[which].value; }

  std::vector<adapter::named_parameter> parameters;
};

/// Returns the gradient of an element on a rank. It is an integer whose sum over any of the ranks
/// is divisible by their number, and no other element of the tensor has its magnitude.
float gradient_of(int rank, int ranks, int step, std::size_t tensor, int i) {
  const int sign = (i + step + rank) % 3 == 0 ? -1 : 1;
  return static_cast<float>(
      sign * ranks * (1 + (5 * i + 7 * rank + 3 * step) % 16 + 16 * static_cast<int>(tensor)));
}
at::Tensor gradient_of(const at::Tensor& parameter, int rank, int ranks, int step,
                       std::size_t tensor) {
  at::Tensor made = at::empty({parameter.numel()}, at::kFloat);
  for (int i = 0; i < parameter.numel(); ++i) {
    made.data_ptr<float>()[i] = gradient_of(rank, ranks, step, tensor, i);
  }
  return made.view(parameter.sizes()).to(parameter.scalar_type());
}
float mean_of(int ranks, int step, std::size_t tensor, int i) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    sum += gradient_of(rank, ranks, step, tensor, i);
  }
  return sum / static_cast<float>(ranks);
}

std::vector<float> values(const at::Tensor& of) {
  const at::Tensor wide = of.detach().to(at::kFloat).contiguous();
  return {wide.data_ptr<float>(), wide.data_ptr<float>() + wide.numel()};
}
template <class Value>
std::vector<float> each(std::size_t elements, Value value) {
  std::vector<float> all(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    all[i] = value(static_cast<int>(i));
  }
  return all;
}

/// Runs a backward pass whose gradients are `gradient_of` for the first `used` tensors.
void backward(const model& its, std::size_t used, int rank, int ranks, int step) {
  at::Tensor loss = at::zeros({});
  for (std::size_t which = 0; which < used; ++which) {
    loss = loss + (its[which] * gradient_of(its[which], rank, ranks, step, which)).sum();
  }
  loss.backward();
}

/// Checks what DistributedDataParallel promises, with two tensors that are used and one that is
/// not.
template <class Strategy>
void averages(int ranks, at::ScalarType type, unused_parameters unused) {
  run_on_devices(ranks, [&](world_type& world, in_process& beside) {
    const int rank = world.rank();
    model its(rank, type, {{"weight", 8}, {"bias", 3}, {"unused", 4}});
    its.parameters[0].value = at::full({2, 4}, rank, type).t().requires_grad_();
    adapter::data_parallel<Strategy, world_type> trained(world, beside, its.parameters, {}, unused);
    trained.listen();
    std::vector<std::vector<float>> expected{std::vector<float>(8), std::vector<float>(3)};
    for (int step = 0; step < 5; ++step) {
      trained.forward(gradients::averaged);
      eager_stream::records = 0;
      backward(its, 2, rank, ranks, step);
      EXPECT_GE(eager_stream::records, 3) << "every gradient departs behind torch's stream";
      const at::NoGradGuard no_graph;
      for (std::size_t which = 0; which < 2; ++which) {
        EXPECT_EQ(
            values(its[which].grad()),
            each(expected[which].size(), [&](int i) { return mean_of(ranks, step, which, i); }))
            << "step " << step;
        its[which].sub_(its[which].grad());
        for (std::size_t i = 0; i < expected[which].size(); ++i) {
          expected[which][i] -= mean_of(ranks, step, which, static_cast<int>(i));
        }
        if (step % 2 == 0) {
          its[which].mutable_grad() = at::Tensor();
        } else {
          its[which].grad().zero_();
        }
      }
      if (unused == unused_parameters::left_alone) {
        EXPECT_FALSE(its[2].grad().defined());
      } else {
        EXPECT_EQ(values(its[2].grad()), std::vector<float>(4));
      }
    }
    for (std::size_t which = 0; which < 2; ++which) {
      EXPECT_EQ(values(its[which]), expected[which]);
    }
  });
}

/// TopK of one tensor on each rank, as in its paper.
class top_k_of {
 public:
  top_k_of(int ranks, std::size_t elements)
      : residuals_(static_cast<std::size_t>(ranks), std::vector<float>(elements)) {}

  /// Returns the mean of what ranks send of these gradients and their residuals.
  std::vector<float> mean(const std::vector<std::vector<float>>& gradients, std::size_t k) {
    const std::size_t n = residuals_[0].size();
    std::vector<float> sum(n);
    for (std::size_t rank = 0; rank < residuals_.size(); ++rank) {
      std::vector<float>& left = residuals_[rank];
      std::vector<std::size_t> order(n);
      for (std::size_t i = 0; i < n; ++i) {
        left[i] += gradients[rank][i];
        order[i] = i;
      }
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return std::abs(left[a]) > std::abs(left[b]);
      });
      for (std::size_t i = 0; i < k; ++i) {
        sum[order[i]] += std::exchange(left[order[i]], 0.0f);
      }
    }
    for (float& element : sum) {
      element /= static_cast<float>(residuals_.size());
    }
    return sum;
  }
  void add(const std::vector<float>& unseen, std::size_t first, std::size_t last) {
    for (auto& left : residuals_) {
      for (std::size_t i = first; i < last; ++i) {
        left[i] += unseen[i];
      }
    }
  }

 private:
  std::vector<std::vector<float>> residuals_;
};

}  // namespace

TEST_P(TorchOnAStandIn, WFBPAverages) {
  averages<strategies::WFBPUnlimited>(GetParam(), at::kFloat, unused_parameters::as_zeros);
  averages<strategies::WFBPUnlimited>(GetParam(), at::kFloat, unused_parameters::left_alone);
}
TEST_P(TorchOnAStandIn, WFBPAverages16Bits) {
  averages<strategies::WFBPUnlimited>(GetParam(), at::kBFloat16, unused_parameters::as_zeros);
  averages<strategies::WFBPUnlimited>(GetParam(), at::kHalf, unused_parameters::left_alone);
}
TEST_P(TorchOnAStandIn, HorovodAverages) {
  averages<strategies::Horovod>(GetParam(), at::kFloat, unused_parameters::as_zeros);
}

TEST_P(TorchOnAStandIn, PassesAreAddedUpWhereTheyAreNotAveraged) {
  const int ranks = GetParam();
  run_on_devices(ranks, [&](world_type& world, in_process& beside) {
    const int rank = world.rank();
    const model its(rank, at::kFloat, {{"weight", 8}, {"bias", 3}});
    adapter::data_parallel<strategies::WFBPUnlimited, world_type> trained(world, beside,
                                                                          its.parameters);
    trained.listen();
    trained.forward(gradients::added_up);
    backward(its, 2, rank, ranks, 0);
    trained.forward(gradients::averaged);
    backward(its, 2, rank, ranks, 1);
    EXPECT_EQ(values(its[0].grad()),
              each(8, [&](int i) { return mean_of(ranks, 0, 0, i) + mean_of(ranks, 1, 0, i); }));
  });
}

/// Also if a rank's gradient is not finite, and if a tensor's mean reaches no model.
TEST_P(TorchOnAStandIn, TopKRemembers) {
  const int ranks = GetParam();
  constexpr std::size_t n = 12;  // 8 elements of the weight and 4 of the bias, in backward order
  constexpr std::size_t k = 3;
  constexpr int unbounded_in = 2;
  constexpr int without_bias = 4;
  run_on_devices(ranks, [&](world_type& world, in_process& beside) {
    const int rank = world.rank();
    const model its(rank, at::kFloat, {{"weight", 8}, {"bias", 4}});
    adapter::data_parallel<strategies::TopK, world_type> trained(world, beside, its.parameters,
                                                                 {.compression = {.density = 0.25}},
                                                                 unused_parameters::left_alone);
    trained.listen();
    top_k_of oracle(ranks, n);
    for (int step = 0; step < 8; ++step) {
      const bool has_bias = step != without_bias;
      std::vector<std::vector<float>> all;
      for (int other = 0; other < ranks; ++other) {
        const bool hidden = step == unbounded_in && other == ranks - 1;
        all.push_back(each(n, [&](int i) {
          return i < 4 ? (has_bias ? gradient_of(other, ranks, step, 1, i) : 0)
                       : (hidden ? 0 : gradient_of(other, ranks, step, 0, i - 4));
        }));
      }
      const std::vector<float> mean = oracle.mean(all, k);
      if (!has_bias) {
        oracle.add(mean, 0, 4);
      }
      trained.forward(gradients::averaged);
      const bool unbounded = step == unbounded_in && rank == ranks - 1;
      if (unbounded) {
        const float infinity = std::numeric_limits<float>::infinity();
        ((its[0] * infinity).sum() + (its[1] * gradient_of(its[1], rank, ranks, step, 1)).sum())
            .backward();
      } else {
        backward(its, has_bias ? 2 : 1, rank, ranks, step);
      }
      const auto weights = values(its[0].grad());
      if (step == unbounded_in) {
        EXPECT_TRUE(std::all_of(weights.begin(), weights.end(), [](float x) {
          return std::isinf(x);
        })) << "on every rank";
      } else {
        EXPECT_EQ(weights, std::vector<float>(mean.begin() + 4, mean.end())) << "step " << step;
        EXPECT_EQ(has_bias, its[1].grad().defined());
        if (has_bias) {
          EXPECT_EQ(values(its[1].grad()), std::vector<float>(mean.begin(), mean.begin() + 4));
        }
      }
      its[0].mutable_grad() = at::Tensor();
      its[1].mutable_grad() = at::Tensor();
    }
    trained.scaled_by(1);
    EXPECT_THROW(trained.scaled_by(2), usage_error);
  });
}

/// The loss is |parameter - batch|² / 2, so reading a parameter too early gives another model.
TEST_P(TorchOnAStandIn, OurOptimizerCrossesTheBarrier) {
  const int ranks = GetParam();
  run_on_devices(ranks, [&](world_type& world, in_process& beside) {
    const int rank = world.rank();
    const model its(rank, at::kFloat, {{"weight", 300}, {"bias", 3}, {"unused", 4}});
    adapter::data_parallel<strategies::ByteScheduler, world_type, optimizer::sgd> trained(
        world, beside, its.parameters, {.partition = {.bytes = 400}, .schedule = {.credit = 800}},
        unused_parameters::as_zeros, {.learning_rate = 0.5f, .momentum = 0.5f});
    trained.listen();
    std::vector<std::vector<float>> parameters{std::vector<float>(300), std::vector<float>(3)};
    auto momenta = parameters;
    for (int step = 0; step < 5; ++step) {
      trained.forward(gradients::averaged);
      at::Tensor loss = at::zeros({});
      for (std::size_t which = 0; which < 2; ++which) {
        trained.wait(which);
        EXPECT_EQ(values(its[which]), parameters[which]) << "step " << step;
        const at::Tensor batch = gradient_of(its[which], rank, ranks, step, which);
        loss = loss + (its[which] - batch).square().sum() * 0.5;
        for (std::size_t i = 0; i < parameters[which].size(); ++i) {
          float& momentum = momenta[which][i];
          float& parameter = parameters[which][i];
          momentum = 0.5f * momentum + parameter - mean_of(ranks, step, which, static_cast<int>(i));
          parameter -= 0.5f * momentum;
        }
      }
      loss.backward();
      trained.end_step();
    }
    trained.wait();
    EXPECT_EQ(values(its[0]), parameters[0]);
    EXPECT_EQ(values(its[1]), parameters[1]);
    EXPECT_EQ(values(its[2]), std::vector<float>(4));
  });
}

/// The last rank's backward pass stops between two layers until rank 0 has read the updated last
/// layer.
TEST_P(TorchOnAStandIn, ALayerWaitsForItsOwn) {
  const int ranks = GetParam();
  std::atomic<bool> read{false};
  run_on_devices(ranks, [&](world_type& world, in_process& beside) {
    const int rank = world.rank();
    const model its(rank, at::kFloat, {{"first", 300}, {"last", 3}});
    adapter::data_parallel<strategies::ByteScheduler, world_type, optimizer::sgd> trained(
        world, beside, its.parameters, {.partition = {.bytes = 400}}, unused_parameters::as_zeros,
        {.learning_rate = 0.5f, .momentum = 0.0f});
    trained.listen();
    trained.forward(gradients::averaged);
    const at::Tensor x = its[0] * 2;
    if (rank == ranks - 1 && ranks > 1) {
      x.register_hook([&](const at::Tensor&) { read.wait(false); });
    }
    const at::Tensor batch = gradient_of(its[1], rank, ranks, 0, 1);
    const at::Tensor loss = ((x.sum() * 0 + its[1]) * batch).sum();
    loss.backward();
    trained.end_step();
    if (rank == 0) {
      trained.wait(1);
      EXPECT_EQ(values(its[1]), each(3, [&](int i) { return -0.5f * mean_of(ranks, 0, 1, i); }));
      read = true;
      read.notify_all();
    }
    trained.wait();
    EXPECT_EQ(values(its[0]), std::vector<float>(300));
  });
}

/// The other ranks wait only for their devices, whose streams wait for the failed rank's gradient.
TEST_P(TorchOnAStandIn, ARankThatFailsEndsAll) {
  const int ranks = GetParam();
  run_on_devices(ranks, [&](world_type& world, in_process& beside) {
    const int rank = world.rank();
    const model its(rank, at::kFloat, {{"weight", 8}, {"bias", 3}});
    adapter::data_parallel<strategies::WFBPUnlimited, world_type> trained(world, beside,
                                                                          its.parameters);
    trained.listen();
    try {
      for (int step = 0; step < 3; ++step) {
        trained.forward(gradients::averaged);
        backward(its, 2, rank, ranks, step);
        if (rank == ranks - 1) {
          trained.fail(std::make_exception_ptr(communication_error("no batch is left")));
          return;
        }
      }
      ADD_FAILURE() << "rank " << rank << " goes on alone";
    } catch (const std::exception& heard) {
      EXPECT_NE(std::string(heard.what()).find("no batch is left"), std::string::npos)
          << heard.what();
    }
  });
}

/// An error before any gradient of a pass was launched leaves no pass half done.
TEST_P(TorchOnAStandIn, APassThatCannotBeginIsNotIncomplete) {
  const int ranks = GetParam();
  std::barrier<> first_pass(ranks);
  run_on_devices(ranks, [&](world_type& world, in_process& beside) {
    const int rank = world.rank();
    const model its(rank, at::kFloat, {{"weight", 8}, {"bias", 3}});
    adapter::data_parallel<strategies::WFBPUnlimited, world_type> trained(world, beside,
                                                                          its.parameters);
    trained.listen();
    trained.forward(gradients::averaged);
    backward(its, 2, rank, ranks, 0);
    first_pass.arrive_and_wait();
    trained.fail(std::make_exception_ptr(communication_error("no batch is left")));
    const auto expect_its_words = [](const auto& begin) {
      try {
        begin();
        ADD_FAILURE() << "a pass after the end";
      } catch (const std::exception& heard) {
        EXPECT_NE(std::string(heard.what()).find("no batch is left"), std::string::npos)
            << heard.what();
      }
    };
    for (int step = 1; step < 3; ++step) {
      expect_its_words([&] {
        trained.forward(gradients::averaged);
        backward(its, 2, rank, ranks, step);
      });
      expect_its_words([&] { trained.take_part(); });
    }
  });
}

TEST_P(TorchOnAStandIn, BuffersOfAnyTypeBecomeEverybodys) {
  const int ranks = GetParam();
  run_on_devices(ranks, [&](world_type& world, in_process& beside) {
    const int rank = world.rank();
    const int root = ranks - 1;
    const model its(rank, at::kFloat, {{"weight", 8}});
    adapter::data_parallel<strategies::WFBPUnlimited, world_type> trained(world, beside,
                                                                          its.parameters);
    const std::vector<at::Tensor> buffers{at::full({3}, rank == root, at::kBool),
                                          at::full({}, 40 + rank, at::kLong),
                                          at::full({2, 3}, rank, at::kBFloat16).t(),
                                          at::full({2}, rank + 0.5, at::kDouble),
                                          at::empty({0}, at::kFloat),
                                          at::full({5}, rank, at::kFloat)};
    trained.broadcast(buffers, root);
    EXPECT_TRUE(buffers[0].all().item<bool>());
    EXPECT_EQ(buffers[1].item<std::int64_t>(), 40 + root);
    EXPECT_TRUE(buffers[2].eq(root).all().item<bool>());
    EXPECT_TRUE(buffers[3].eq(root + 0.5).all().item<bool>());
    EXPECT_TRUE(buffers[5].eq(root).all().item<bool>());
  });
}

/// A model on the host whose residuals are restored. After a state is loaded, no step is skipped on
/// account of steps that had been skipped before it was saved.
TEST(TorchOnTheHost, AStepIsSkippedOnce) {
  std::stringstream state;
  for (const bool resumed : {false, true}) {
    in_process::fabric others(1);
    transport::run_ranks(1, [&](in_process& world) {
      const model its(0, at::kFloat, {{"weight", 8}});
      adapter::data_parallel<strategies::TopK, in_process> trained(world, others.end(0),
                                                                   its.parameters);
      trained.listen();
      if (resumed) {
        load(trained.trained_by(), state);
      }
      trained.scaled_by(2);
      trained.forward(gradients::averaged);
      (its[0] * (resumed ? 2 : std::numeric_limits<float>::infinity())).sum().backward();
      EXPECT_EQ(its[0].grad().isinf().all().item<bool>(), !resumed);
      save(trained.trained_by(), state);
    });
  }
}

/// Of two elements that are not finite one is sent, and no residual is kept.
TEST(TorchOnTheHost, AStepIsSkippedWhoseMeanMayNotShowIt) {
  in_process::fabric others(1);
  transport::run_ranks(1, [&](in_process& world) {
    const model its(0, at::kFloat, {{"weight", 2}});
    adapter::data_parallel<compose<compression::random_k, architecture::all_gather>, in_process>
        trained(world, others.end(0), its.parameters);
    trained.listen();
    trained.forward(gradients::averaged);
    (its[0] * std::numeric_limits<float>::infinity()).sum().backward();
    EXPECT_TRUE(its[0].grad().isinf().all().item<bool>());
  });
}

}  // namespace tutti::test

// Optimizers: what their facts promise, their recurrences, and what an engine stores for them.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "support/policies.hpp"
#include "support/training.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/sharded.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/optimizer/adam.hpp"
#include "tutti/optimizer/lamb.hpp"
#include "tutti/partition/into.hpp"

namespace tutti::test {
namespace {

/// Returns an optimizer with a nonzero value for everything that it describes.
template <class O>
O every_value_set() {
  O made;
  float next = 0.5f;
  O::describe(made, [&next](std::string_view, auto& value, std::string_view) {
    value = static_cast<std::remove_reference_t<decltype(value)>>(next);
    next /= 2;
  });
  return made;
}

/// Memory for `elements`, with `guard` floats behind each row that must not be written.
struct remembered {
  static constexpr std::size_t guard = 3;
  static constexpr float untouched = 7777.0f;

  remembered(std::size_t rows, std::size_t elements)
      : stride(elements + guard), floats(rows * stride, untouched) {
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t i = 0; i < elements; ++i) {
        floats[row * stride + i] = 0;
      }
    }
  }
  chunk_context at(std::size_t first, std::uint64_t step) {
    return {floats.empty() ? nullptr : floats.data() + first, stride, {}, step, first};
  }

  std::size_t stride;
  std::vector<float> floats;
};

template <class O>
class optimizer_law : public testing::Test {};
TYPED_TEST_SUITE(optimizer_law, testing_lists::optimizers);

/// Returns the parameters after three steps that are applied to runs of at most `piece` elements.
/// Expects the floats behind parameters and memory to be untouched.
template <class O>
std::vector<float> applied(const O& values, std::size_t elements, std::size_t piece) {
  inline_queue queue;
  remembered memory(values.memory_per_element(), elements);
  std::vector<float> x(elements + remembered::guard, remembered::untouched);
  std::vector<float> g(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    x[i] = initial(i);
  }
  for (int step = 0; step < 3; ++step) {
    for (std::size_t i = 0; i < elements; ++i) {
      g[i] = gradient(1, step, i);
    }
    for (std::size_t first = 0; first < elements; first += piece) {
      const std::size_t count = std::min(piece, elements - first);
      values.apply(queue, std::span(x).subspan(first, count),
                   std::span<const float>(g).subspan(first, count),
                   memory.at(first, static_cast<std::uint64_t>(step)));
    }
  }
  for (std::size_t i = 0; i < remembered::guard; ++i) {
    EXPECT_EQ(x[elements + i], remembered::untouched);
    for (std::size_t end = elements; end < memory.floats.size(); end += memory.stride) {
      EXPECT_EQ(memory.floats[end + i], remembered::untouched);
    }
  }
  x.resize(elements);
  return x;
}

TYPED_TEST(optimizer_law, an_elementwise_one_does_the_same_in_pieces) {
  if (!facts::elementwise<TypeParam>) {
    GTEST_SKIP() << "needs whole tensors";
  }
  for (const auto& values : {TypeParam{}, every_value_set<TypeParam>()}) {
    for (const std::size_t elements : {0u, 1u, 7u, 1000u}) {
      const auto whole = applied(values, elements, elements + 1);
      for (const std::size_t piece : {1u, 3u, 64u}) {
        EXPECT_EQ(applied(values, elements, piece), whole) << elements << " by " << piece;
      }
    }
  }
}

TYPED_TEST(optimizer_law, describes_all_that_it_does) {
  const auto values = every_value_set<TypeParam>();
  std::vector<double> described;
  TypeParam::describe(values, [&](std::string_view, const auto& value, std::string_view) {
    described.push_back(static_cast<double>(value));
  });
  TypeParam again;
  std::size_t i = 0;
  TypeParam::describe(again, [&](std::string_view, auto& value, std::string_view) {
    value = static_cast<std::remove_reference_t<decltype(value)>>(described[i++]);
  });
  EXPECT_EQ(applied(again, 100, 100), applied(values, 100, 100));
}

TEST(optimizer_none, leaves_parameters_alone) {
  const auto x = applied(optimizer::none{}, 9, 9);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(x[i], initial(i));
  }
}

/// Returns parameter `i` after one step for each of `momenta`, in double.
double descended(std::size_t i, const std::vector<double>& momenta, double rate, double decay) {
  double x = static_cast<double>(initial(i));
  double m = 0;
  for (std::size_t step = 0; step < momenta.size(); ++step) {
    const double g = static_cast<double>(gradient(1, static_cast<int>(step), i));
    m = momenta[step] * m + (g + decay * x);
    x -= rate * m;
  }
  return x;
}

TEST(optimizer_sgd, is_its_recurrence) {
  for (const double momentum : {0.0, 0.5, 0.875}) {
    const optimizer::sgd values{0.125f, static_cast<float>(momentum), 0.0625f};
    const auto x = applied(values, 33, 33);
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(x[i], descended(i, {momentum, momentum, momentum}, 0.125, 0.0625), 1e-4) << i;
    }
  }
}

TEST(optimizer_sgd, by_nesterovs_acceleration_is_its_recurrence) {
  const optimizer::sgd values{0.125f, 0.875f, 0.0625f, optimizer::acceleration::nesterov};
  const auto seen = applied(values, 33, 33);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    double x = static_cast<double>(initial(i));
    double m = 0;
    for (int step = 0; step < 3; ++step) {
      const double d = static_cast<double>(gradient(1, step, i)) + 0.0625 * x;
      m = 0.875 * m + d;
      x -= 0.125 * (d + 0.875 * m);
    }
    EXPECT_NEAR(seen[i], x, 1e-4) << i;
  }
}

TEST(optimizer_sgd, keeps_memory_only_where_there_is_momentum) {
  EXPECT_EQ(optimizer::sgd{}.memory_per_element(), 0u);
  EXPECT_EQ(optimizer::sgd{.momentum = 0.9f}.memory_per_element(), 1u);
}

/// Returns parameter `i` after three steps of Adam on the mean of these workers' gradients, in
/// double, by the algorithm in PyTorch's documentation.
double after_adam(std::size_t i, const optimizer::adam& set, const std::vector<int>& workers) {
  double x = static_cast<double>(initial(i));
  double m = 0;
  double v = 0;
  const bool coupled = set.decay == optimizer::decay::coupled;
  for (int t = 1; t <= 3; ++t) {
    double g = 0;
    for (const int worker : workers) {
      g += static_cast<double>(gradient(worker, t - 1, i)) / static_cast<double>(workers.size());
    }
    const double rate = static_cast<double>(set.learning_rate);
    const double decay = static_cast<double>(set.weight_decay);
    if (coupled) {
      g += decay * x;
    } else {
      x -= rate * decay * x;
    }
    m = set.beta1 * m + (1 - set.beta1) * g;
    v = set.beta2 * v + (1 - set.beta2) * g * g;
    const double mean = m / (1 - std::pow(set.beta1, t));
    const double mean_square = v / (1 - std::pow(set.beta2, t));
    x -= rate * mean / (std::sqrt(mean_square) + static_cast<double>(set.epsilon));
  }
  return x;
}

TEST(optimizer_adam, is_its_recurrence) {
  for (const auto decay : {optimizer::decay::coupled, optimizer::decay::decoupled}) {
    for (const double beta1 : {0.0, 0.9}) {
      const optimizer::adam values{.learning_rate = 0.125f,
                                   .beta1 = beta1,
                                   .beta2 = 0.99,
                                   .epsilon = 0.0625f,
                                   .weight_decay = 0.25f,
                                   .decay = decay};
      const auto x = applied(values, 33, 33);
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_NEAR(x[i], after_adam(i, values, {1}), 1e-5) << i;
      }
    }
  }
}

/// The owners of the parameters are the replicas, a server, or the ranks, each with a share.
template <class Strategy>
void trains_with_adam() {
  const optimizer::adam values{.learning_rate = 0.125f, .epsilon = 0.0625f, .weight_decay = 0.25f};
  const int servers = has_servers<Strategy> ? 1 : 0;
  transport::run_ranks(3 + servers, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), values);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    for (int step = 0; step < 3; ++step) {
      std::size_t element = 0;
      for (float& each : memory.gradients()) {
        each = gradient(world.rank(), step, element++);
      }
      for (std::size_t i = memory.tensors().size(); i-- > 0;) {
        engine.ready(tensor_id(i));
      }
      engine.wait();
    }
    for (std::size_t i = 0; i < total_elements(); i += 7) {
      ASSERT_NEAR(memory.parameters()[i], after_adam(i, values, {0, 1, 2}), 1e-4) << i;
    }
  });
}
TEST(optimizer_adam, is_its_recurrence_whoever_owns_parameters) {
  trains_with_adam<compose<fusion::all>>();
  trains_with_adam<
      compose<architecture::parameter_server<consistency::synchronous, updated_by::servers>>>();
  trains_with_adam<compose<fusion::all, architecture::sharded<>>>();
}

/// The first step is as long as the learning rate, whatever the gradient's magnitude.
TEST(optimizer_adam, steps_first_by_its_rate) {
  inline_queue queue;
  for (const float length : {1e-3f, 1.0f, 1e3f}) {
    std::vector<float> x{1, 1};
    const std::vector<float> g{length, -length};
    remembered memory(2, 2);
    optimizer::adam{.learning_rate = 0.5f}.apply(queue, x, g, memory.at(0, 0));
    EXPECT_NEAR(x[0], 0.5, 1e-4) << length;
    EXPECT_NEAR(x[1], 1.5, 1e-4) << length;
  }
}

/// With a beta of 1 the first step divides 0 by 0, and every parameter is NaN.
TEST(optimizer_adam, and_those_like_it_refuse_to_keep_all_of_the_past) {
  const auto refuses = []<class O>(O values) {
    for (const double share : {1.0, -0.5, std::numeric_limits<double>::quiet_NaN()}) {
      for (const auto beta : {&O::beta1, &O::beta2}) {
        O wrong = values;
        wrong.*beta = share;
        EXPECT_THROW(expect_values(wrong), usage_error) << share;
      }
    }
    values.beta1 = values.beta2 = 0;
    EXPECT_NO_THROW(expect_values(values));
  };
  refuses(optimizer::adam());
  refuses(optimizer::lamb());
}

/// Returns the bytes of worker 0's checkpoint.
template <class Strategy>
std::size_t checkpoint_bytes(int ranks, const optimizer::sgd& values) {
  std::size_t bytes = 0;
  transport::run_ranks(ranks, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), values);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    std::ostringstream out;
    save(engine, out);
    if (world.rank() == 0) {
      bytes = out.str().size();
    }
  });
  return bytes;
}

TEST(optimizer_sgd, an_engine_without_momentum_remembers_none_of_it) {
  const optimizer::sgd plain{0.1f};
  const optimizer::sgd heavy{0.1f, 0.9f};
  using workers_update = compose<>;
  using servers_update =
      compose<architecture::parameter_server<consistency::synchronous, updated_by::servers>>;
  const std::size_t momenta = sizeof(float) * total_elements();
  EXPECT_EQ(checkpoint_bytes<workers_update>(2, heavy),
            checkpoint_bytes<workers_update>(2, plain) + momenta);
  // Servers keep momenta chunk by chunk, each with its length before it and a hash behind it.
  const std::size_t lengths = 2 * sizeof(std::uint64_t) * tensor_sizes().size();
  const std::size_t served =
      checkpoint_bytes<servers_update>(2, heavy) - checkpoint_bytes<servers_update>(2, plain);
  EXPECT_GE(served, momenta);
  EXPECT_LE(served, momenta + lengths);
}

/// Trains one worker by the first values, and then one step with each of `momenta`.
template <class Strategy>
std::vector<float> changed_through(optimizer::sgd first, const std::vector<float>& momenta) {
  std::vector<float> result;
  const int servers = has_servers<Strategy> ? 1 : 0;
  transport::run_ranks(1 + servers, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(), first);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    for (std::size_t step = 0; step < momenta.size(); ++step) {
      first.momentum = momenta[step];
      engine.change(first);
      std::size_t element = 0;
      for (float& each : memory.gradients()) {
        each = gradient(1, static_cast<int>(step), element++);
      }
      for (std::size_t i = memory.tensors().size(); i-- > 0;) {
        engine.ready(tensor_id(i));
      }
    }
    engine.wait();
    result.assign(memory.parameters().begin(), memory.parameters().end());
  });
  return result;
}

template <class Strategy>
void goes_to_no_momentum_and_back() {
  const auto x = changed_through<Strategy>({0.125f, 0.5f, 0.0f}, {0.5f, 0.0f, 0.0f, 0.875f});
  ASSERT_EQ(x.size(), total_elements());
  for (std::size_t i = 0; i < x.size(); i += 97) {
    ASSERT_NEAR(x[i], descended(i, {0.5, 0, 0, 0.875}, 0.125, 0), 1e-3) << i;
  }
}
TEST(optimizer_sgd, goes_to_no_momentum_and_back) {
  goes_to_no_momentum_and_back<compose<>>();
  goes_to_no_momentum_and_back<
      compose<architecture::parameter_server<consistency::synchronous, updated_by::servers>>>();
}

TEST(optimizer_sgd, momentum_for_which_there_is_no_memory_is_refused) {
  try {
    changed_through<compose<>>({0.125f, 0.0f, 0.0f}, {0.0f, 0.5f});
    ADD_FAILURE() << "momentum without memory";
  } catch (const usage_error& refused) {
    EXPECT_STREQ(refused.what(),
                 "with these values the optimizer remembers 1 floats per element, but this engine "
                 "was made with room for 0. Fix: make the engine with values that need as much "
                 "memory, and change them before the first step");
  }
}

/// Steps along the gradient divided by its tensor's norm.
struct normalised {
  using role = tutti::role::optimizer;
  static constexpr bool elementwise = false;

  float rate{0.5f};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("rate", self.rate, "length of a step");
  }
  static std::size_t memory_per_element() { return 0; }
  template <class Queue>
  void apply(Queue& queue, std::span<float> parameters, std::span<const float> gradient,
             const chunk_context&) const {
    queue.run([=, rate = rate] {
      double squares = 0;
      for (const float each : gradient) {
        squares += static_cast<double>(each) * static_cast<double>(each);
      }
      const double scale = squares > 0 ? static_cast<double>(rate) / std::sqrt(squares) : 0;
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        parameters[i] -= static_cast<float>(scale * static_cast<double>(gradient[i]));
      }
    });
  }
};

/// Whole tensors are seen although pieces of buckets of many tensors are sent.
TEST(optimizer_of_whole_tensors, sees_each_whole) {
  using strategy = compose<fusion::all, partition::into>;
  engine_options<strategy> set;
  set.partition.bytes = 100;
  for (const int workers : {1, 3}) {
    transport::run_ranks(workers, [&](transport::in_process& world) {
      arena memory = model_of(world.rank());
      auto engine = make_engine<strategy>(world, memory.tensors(), normalised{}, set);
      std::size_t element = 0;
      for (float& each : memory.gradients()) {
        each = gradient(world.rank(), 0, element++);
      }
      const std::vector<float> from(memory.parameters().begin(), memory.parameters().end());
      for (std::size_t i = memory.tensors().size(); i-- > 0;) {
        engine.ready(tensor_id(i));
      }
      engine.wait();
      element = 0;
      for (std::size_t i = memory.tensors().size(); i-- > 0;) {
        const std::size_t first = element;
        const std::size_t end = first + memory.tensors()[i].elements;
        double squares = 0;
        std::vector<double> means;
        for (; element < end; ++element) {
          double sum = 0;
          for (int worker = 0; worker < workers; ++worker) {
            sum += static_cast<double>(gradient(worker, 0, element));
          }
          means.push_back(sum / workers);
          squares += means.back() * means.back();
        }
        const double norm = squares > 0 ? std::sqrt(squares) : 1;
        for (std::size_t k = first; k < end; ++k) {
          ASSERT_NEAR(memory.parameters()[k],
                      static_cast<double>(from[k]) - 0.5 * means[k - first] / norm, 1e-5)
              << k;
        }
      }
    });
  }
}

}  // namespace
}  // namespace tutti::test

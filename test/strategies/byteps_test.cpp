// BytePS with its compressors, against plain loops: the residuals of workers and servers, the bytes
// sent, and what is lost. Residuals that are parameter updates must follow the learning rate,
// wherever they are kept.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <vector>

#include "support/dealt.hpp"
#include "support/rule.hpp"
#include "support/training.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/architecture/sharded_by_owners.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/strategies/byteps_compressed.hpp"

namespace tutti::test {
namespace {

using compression::byteps_onebit;
using compression::dense_below;
using compression::nesterov_momentum;
using compression::rescaled_error_feedback;
using floats = std::vector<float>;

constexpr int workers = 3;
constexpr std::size_t dense_bytes = 1000;  // two of six tensors are longer
constexpr float rates[] = {0.25f, 0.25f, 0.125f, 0.5f, 0.5f};

/// The residuals of one end, a worker or an owner, in units that follow the learning rate.
class one_bit_end {
 public:
  /// Replaces each of `values`, the elements from `first` on, by its sign times the mean magnitude
  /// of all of them, residuals included.
  void encode(floats& values, std::size_t first, float rate_before, float rate) {
    if (values.size() * sizeof(float) < dense_bytes) {
      return;
    }
    double magnitude = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      float& error = errors_[first + i];
      error = error * (rate_before / rate) + values[i];
      magnitude += std::abs(static_cast<double>(error));
    }
    const auto mean = static_cast<float>(magnitude / static_cast<double>(values.size()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      float& error = errors_[first + i];
      values[i] = error < 0 ? -mean : mean;
      error -= values[i];
    }
  }

 private:
  floats errors_ = floats(total_elements());
};

/// Returns the parameters after training with `rates`. A chunk is a tensor, or a part of each
/// tensor for each worker.
floats trained_by_one_bit(float momentum, bool in_parts) {
  std::vector<one_bit_end> at_workers(workers);
  one_bit_end at_owners;
  std::vector<floats> directions(workers, floats(total_elements()));
  floats x(total_elements());
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = initial(i);
  }
  int step = 0;
  float before = rates[0];
  for (const float rate : rates) {
    std::size_t first = 0;
    for (std::size_t tensor = tensor_sizes().size(); tensor-- > 0;) {
      const std::size_t whole = tensor_sizes()[tensor];
      const std::size_t begin = first;
      for (std::size_t part = 0; part < (in_parts ? workers : 1); ++part) {
        const std::size_t count = in_parts ? dealt(begin, whole, part, workers) : whole;
        floats sum(count);
        for (int worker = 0; worker < workers; ++worker) {
          floats mine(count);
          for (std::size_t i = 0; i < count; ++i) {
            const float g = gradient(worker, step, first + i);
            float& m = directions[static_cast<std::size_t>(worker)][first + i];
            m = g + momentum * m;
            mine[i] = momentum == 0 ? g : g + momentum * m;
          }
          at_workers[static_cast<std::size_t>(worker)].encode(mine, first, before, rate);
          for (std::size_t i = 0; i < count; ++i) {
            sum[i] += mine[i];
          }
        }
        for (float& each : sum) {
          each *= 1.0f / workers;
        }
        at_owners.encode(sum, first, before, rate);
        for (std::size_t i = 0; i < count; ++i) {
          x[first + i] -= rate * sum[i];
        }
        first += count;
      }
    }
    before = rate;
    ++step;
  }
  return x;
}

/// Takes the steps [first, end) of every worker and returns the last worker's parameters. Loads
/// what was saved before, and saves after the next step's rate has been set.
template <class Strategy>
floats train_steps(const engine_options<Strategy>& set, std::size_t first, std::size_t end,
                   std::vector<std::string>& saved) {
  floats result;
  const int ranks = workers + servers_in<Strategy>(set);
  transport::run_ranks(ranks, [&](transport::in_process& world) {
    arena memory = model_of(world.rank());
    auto engine = make_engine<Strategy>(world, memory.tensors(),
                                        optimizer::sgd{.learning_rate = rates[0]}, set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    std::string& mine = saved[static_cast<std::size_t>(world.rank())];
    if (first != 0) {
      std::istringstream in(mine);
      load(engine, in);
    }
    for (std::size_t step = first; step < end; ++step) {
      engine.change(optimizer::sgd{.learning_rate = rates[step]});
      backward(memory, world.rank(), static_cast<int>(step));
      for (std::size_t i = memory.tensors().size(); i-- > 0;) {
        engine.ready(tensor_id(i));
      }
      engine.wait();
    }
    if (end < std::size(rates)) {
      engine.change(optimizer::sgd{.learning_rate = rates[end]});
      std::ostringstream out;
      save(engine, out);
      mine = out.str();
    }
    if (world.rank() == workers - 1) {
      result.assign(memory.parameters().begin(), memory.parameters().end());
    }
  });
  return result;
}

template <class Strategy>
floats trained_at_changing_rates(const engine_options<Strategy>& set) {
  std::vector<std::string> saved(workers);
  return train_steps(set, 0, std::size(rates), saved);
}

TEST(BytePSOneBit, trains_as_its_recurrence_at_changing_rates) {
  engine_options<strategies::BytePSOneBit> set;
  set.architecture.servers = 2;
  set.compression.bytes = dense_bytes;
  const floats expected = trained_by_one_bit(0, false);
  EXPECT_TRUE(close(trained_at_changing_rates(set), expected));
  set.compression.bytes = 0;  // so that every chunk is compressed
  EXPECT_FALSE(close(trained_at_changing_rates(set), expected));
}

/// Residuals that are loaded are in units of the rate that is loaded with them.
TEST(BytePSOneBit, goes_on_from_what_was_saved_between_two_rates) {
  engine_options<strategies::BytePSOneBit> set;
  set.architecture.servers = 2;
  set.compression.bytes = dense_bytes;
  const floats straight = trained_at_changing_rates(set);
  for (const std::size_t stop : {2u, 3u}) {
    std::vector<std::string> saved(workers);
    train_steps(set, 0, stop, saved);
    EXPECT_EQ(train_steps(set, stop, std::size(rates), saved), straight) << stop;
  }
}

TEST(BytePSOneBit, has_its_momentum_around_it) {
  using strategy = strategies::BytePSCompressed<
      nesterov_momentum<dense_below<rescaled_error_feedback<byteps_onebit>>>>;
  engine_options<strategy> set;
  set.architecture.servers = 2;
  set.compression = {.compressed = {.compressed = {}, .bytes = dense_bytes}, .momentum = 0.5f};
  EXPECT_TRUE(close(trained_at_changing_rates(set), trained_by_one_bit(0.5f, false)));
}

TEST(rescaled_error_feedback, follows_the_rate_at_owners_of_parts) {
  using remembering = dense_below<rescaled_error_feedback<byteps_onebit>>;
  using strategy = compose<remembering, architecture::reduce_scatter_all_gather>;
  engine_options<strategy> set;
  set.compression.bytes = dense_bytes;
  const floats expected = trained_by_one_bit(0, true);
  EXPECT_TRUE(close(trained_at_changing_rates(set), expected));
  using forgetting = compose<dense_below<compression::error_feedback<byteps_onebit>>,
                             architecture::reduce_scatter_all_gather>;
  engine_options<forgetting> other;
  other.compression.bytes = dense_bytes;
  EXPECT_FALSE(close(trained_at_changing_rates(other), expected));
}

/// Residuals of a difference, or of a parameter, do not depend on a rate. A first gradient is
/// followed by zeros at a hundredth of the rate, and parameters must be those of residuals that no
/// rate rescales.
template <template <class> class Feedback, class Code, class... Policies>
floats trained_at_a_falling_rate(int ranks, float first) {
  using strategy = compose<Feedback<Code>, Policies...>;
  engine_options<strategy> set;
  if constexpr (requires { set.architecture.servers; }) {
    set.architecture.servers = 1;
  }
  floats parameters;
  transport::run_ranks(ranks + servers_in(set), [&](transport::in_process& world) {
    arena memory(std::vector<arena::declaration>{{"x", 100}});
    for (std::size_t i = 0; i < 100; ++i) {
      memory.parameters()[i] = 1 + 0.01f * static_cast<float>(i);
    }
    optimizer::sgd values{0.125f, 0.0f};
    auto engine = make_engine<strategy>(world, memory.tensors(), values, set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    for (int step = 0; step < 4; ++step) {
      for (std::size_t i = 0; i < 100; ++i) {
        memory.gradients()[i] = step == 0 ? first * static_cast<float>(i % 7) : 0.0f;
      }
      engine.ready(tensor_id(0));
      engine.wait();
      if (step == 0) {
        values.learning_rate /= 100;
        engine.change(values);
      }
    }
    if (world.rank() == 0) {
      parameters.assign(memory.parameters().begin(), memory.parameters().end());
    }
  });
  return parameters;
}
TEST(rescaled_error_feedback, leaves_alone_what_is_in_no_rates_steps) {
  using architecture::sharded_by_owners;
  using compression::block_int8;
  using compression::error_feedback;
  EXPECT_EQ(
      (trained_at_a_falling_rate<rescaled_error_feedback, block_int8, sharded_by_owners>(2, 0)),
      (trained_at_a_falling_rate<error_feedback, block_int8, sharded_by_owners>(2, 0)));
  using asynchronous =
      architecture::parameter_server<consistency::asynchronous, updated_by::workers>;
  EXPECT_EQ(
      (trained_at_a_falling_rate<rescaled_error_feedback, byteps_onebit, asynchronous>(1, 0.3f)),
      (trained_at_a_falling_rate<error_feedback, byteps_onebit, asynchronous>(1, 0.3f)));
}

/// A chunk of exactly that many bytes is compressed and a shorter one is sent whole.
TEST(dense_below, counts_bytes_as_they_travel) {
  const dense_below<byteps_onebit> codec({.bytes = 400});
  EXPECT_EQ(codec.wire_bytes(99), 396u);
  EXPECT_EQ(codec.wire_bytes(100), byteps_onebit::wire_bytes(100));
  static_assert(dense_below<byteps_onebit>().wire_bytes(16383) == 4 * 16383);
  static_assert(dense_below<byteps_onebit>().wire_bytes(16384) == 16384 / 8 + 4);
}

/// Elements that were compressed until a re-plan cut them into shorter chunks may still have
/// residuals.
TEST(dense_below, sends_what_was_left_out_before_a_replan) {
  const dense_below<compression::error_feedback<byteps_onebit>> codec({.bytes = 400});
  floats residual{0.5f, -2, 0, 8};
  chunk_context where{};
  where.memory = residual.data();
  where.stride = residual.size();
  const floats gradient{1, 2, 3, 4};
  floats sent(4);
  inline_queue queue;
  codec.encode(queue, gradient, {reinterpret_cast<std::byte*>(sent.data()), codec.wire_bytes(4)},
               where);
  EXPECT_EQ(sent, (floats{1.5f, 0, 3, 12}));
  EXPECT_EQ(residual, floats(4));
}

/// A server and its workers draw the same elements in both directions, so that an element arrives
/// either exactly or not at all.
TEST(BytePSRandomK, draws_the_same_everywhere) {
  engine_options<strategies::BytePSRandomK> set;
  set.compression.bytes = dense_bytes;
  set.compression.compressed.density = 0.25;
  const floats x = trained_at_changing_rates(set);
  ASSERT_EQ(x.size(), total_elements());
  std::size_t arrived = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    arrived += x[i] != initial(i) ? 1 : 0;
  }
  // An element that is drawn in none of five steps stays as it was: (1 - 1/n)^(5n/4), which is
  // e^-1.25 = 0.29.
  EXPECT_NEAR(static_cast<double>(arrived) / static_cast<double>(x.size()), 0.71, 0.03);
}
/// With a density of 1 and 65535 levels, next to nothing is lost.
TEST(BytePSCompressed, trains_as_without_where_nothing_is_lost) {
  engine_options<strategies::BytePS> dense;
  const floats expected = trained_at_changing_rates(dense);
  engine_options<strategies::BytePSTopK> largest;
  largest.compression = {.compressed = {.density = 1}, .bytes = dense_bytes};
  EXPECT_TRUE(close(trained_at_changing_rates(largest), expected));
  engine_options<strategies::BytePSDithering> levels;
  levels.compression = {.compressed = {.levels = 65535}, .bytes = dense_bytes};
  const floats rounded = trained_at_changing_rates(levels);
  EXPECT_NE(rounded, expected);
  for (std::size_t i = 0; i < rounded.size(); ++i) {
    ASSERT_NEAR(rounded[i], expected[i], 64 * 2.0 * 5 / 65535) << i;
  }
}

}  // namespace
}  // namespace tutti::test

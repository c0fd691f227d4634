// 1-bit Adam against its recurrence in plain loops over all workers.
#include "tutti/strategies/one_bit_adam.hpp"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "strategies/one_bit_adam_vectors.hpp"
#include "support/dealt.hpp"
#include "support/trained_on.hpp"
#include "support/training.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/monitor/counters.hpp"
#include "tutti/partition/into.hpp"

namespace tutti::test {
namespace {

using floats = std::vector<float>;

constexpr optimizer::one_bit_adam values{.learning_rate = 0.125f,
                                         .beta1 = 0.75,
                                         .beta2 = 0.875,
                                         .epsilon = 0.25f,
                                         .weight_decay = 0.125f,
                                         .freeze_step = 3};

/// Replaces each element of `sum` by the sign of the element plus its residual, times the root mean
/// square of these.
void to_one_bit(floats& sum, float* errors) {
  double squares = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    errors[i] += sum[i];
    squares += static_cast<double>(errors[i]) * static_cast<double>(errors[i]);
  }
  const auto scale = static_cast<float>(std::sqrt(squares / static_cast<double>(sum.size())));
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] = errors[i] < 0 ? -scale : scale;
    errors[i] -= sum[i];
  }
}

/// Trains by Algorithm 1 of the paper, with steps of `passes` gradients each; every tensor has a
/// part for each worker.
floats trained_by_the_paper(int workers, int steps, int passes) {
  const std::size_t all = total_elements();
  const auto size = static_cast<std::size_t>(workers);
  std::vector<floats> at_workers(size, floats(all));
  floats at_owners(all);
  floats x(all);
  floats m(all);
  floats v(all);
  for (std::size_t i = 0; i < all; ++i) {
    x[i] = initial(i);
  }
  for (int step = 0; step < steps; ++step) {
    const bool frozen = step >= 3;
    std::size_t first = 0;
    for (std::size_t tensor = tensor_sizes().size(); tensor-- > 0;) {
      const std::size_t whole = tensor_sizes()[tensor];
      const std::size_t begin = first;
      for (std::size_t part = 0; part < size; ++part) {
        const std::size_t count = dealt(begin, whole, part, size);
        floats mean(count);
        for (std::size_t worker = 0; worker < size; ++worker) {
          floats mine(count);
          for (std::size_t i = 0; i < count; ++i) {
            for (int pass = 0; pass < passes; ++pass) {
              mine[i] += gradient(static_cast<int>(worker), step * passes + pass, first + i);
            }
            mine[i] /= static_cast<float>(passes);
            if (frozen) {
              mine[i] = 0.75f * m[first + i] + 0.25f * mine[i];
            }
          }
          if (frozen && count > 0) {
            to_one_bit(mine, at_workers[worker].data() + first);
          }
          for (std::size_t i = 0; i < count; ++i) {
            mean[i] += mine[i];
          }
        }
        for (float& each : mean) {
          each /= static_cast<float>(workers);
        }
        if (frozen && count > 0) {
          to_one_bit(mean, at_owners.data() + first);
        }
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t at = first + i;
          m[at] = frozen ? mean[i] : 0.75f * m[at] + 0.25f * mean[i];
          v[at] = frozen ? v[at] : 0.875f * v[at] + 0.125f * mean[i] * mean[i];
          x[at] -= 0.125f * (m[at] / (std::sqrt(v[at]) + 0.25f) + 0.125f * x[at]);
        }
        first += count;
      }
    }
  }
  return x;
}

/// Returns the number of elements that differ. Where a sum is nearly 0, another order of addition
/// may change its sign.
std::size_t different(const floats& a, const floats& b) {
  std::size_t count = a.size() == b.size() ? 0 : total_elements();
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    count += std::fabs(a[i] - b[i]) <= 1e-4f * (1 + std::fabs(b[i])) ? 0 : 1;
  }
  return count;
}

/// Takes the steps [first, end) of every worker, loading what was saved before and saving
/// afterwards.
template <class Strategy = strategies::OneBitAdam>
floats trained(int workers, int first, int end, int passes, std::vector<std::string>& saved,
               const engine_options<Strategy>& given = {}) {
  floats result;
  transport::run_ranks(workers, [&](transport::in_process& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    arena memory = model_of(world.rank());
    engine_options<Strategy> set = given;
    set.run.accumulation = static_cast<unsigned>(passes);
    auto engine = make_engine<Strategy>(world, memory.tensors(), values, set);
    if (first != 0) {
      std::istringstream in(saved[rank]);
      load(engine, in);
    }
    for (int step = first; step < end; ++step) {
      for (float& each : memory.gradients()) {
        each = 0;
      }
      for (int pass = 0; pass < passes; ++pass) {
        std::size_t element = 0;
        for (float& each : memory.gradients()) {
          each += gradient(world.rank(), step * passes + pass, element++);
        }
        for (std::size_t i = memory.tensors().size(); i-- > 0;) {
          engine.ready(tensor_id(i));
        }
      }
      engine.wait();
    }
    std::ostringstream out;
    save(engine, out);
    saved[rank] = out.str();
    if (world.rank() == workers - 1) {
      result.assign(memory.parameters().begin(), memory.parameters().end());
    }
  });
  return result;
}

TEST(OneBitAdam, is_the_papers_algorithm) {
  for (const int workers : {1, 2, 3, 5}) {
    std::vector<std::string> saved(static_cast<std::size_t>(workers));
    const floats x = trained(workers, 0, 8, 1, saved);
    EXPECT_LE(different(x, trained_by_the_paper(workers, 8, 1)), 2u) << workers;
    EXPECT_GT(different(x, trained_by_the_paper(workers, 7, 1)), 1000u) << workers;
  }
}

/// A tolerance is needed because DeepSpeed computes sums of squares in floats.
TEST(OneBitAdam, is_deepspeeds) {
  const floats x = trained_on<strategies::OneBitAdam>(
      2, std::vector(7, values), {64, 32}, parameters_for_deepspeed(), mirrored_gradients);
  ASSERT_EQ(x.size(), parameters_by_deepspeed.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(x[i], parameters_by_deepspeed[i], 1e-6) << i;
  }
}

TEST(OneBitAdam, takes_the_mean_of_passes_into_its_momentum) {
  std::vector<std::string> saved(2);
  EXPECT_LE(different(trained(2, 0, 6, 2, saved), trained_by_the_paper(2, 6, 2)), 2u);
}

/// Before and after the switch; residuals at both ends and both moments are part of what is saved.
TEST(OneBitAdam, resumes_bitwise) {
  for (const int stop : {2, 3, 5}) {
    std::vector<std::string> saved(3);
    const floats straight = trained(3, 0, 7, 1, saved);
    trained(3, 0, stop, 1, saved);
    EXPECT_EQ(trained(3, stop, 7, 1, saved), straight) << stop;
  }
}

TEST(OneBitAdam, trains_in_buckets) {
  using in_buckets =
      compose<fusion::up_to, compression::error_feedback<compression::norm_scaled_sign>,
              architecture::momentum_exchange>;
  engine_options<in_buckets> set;
  set.fusion.bytes = 64;  // the dense steps are the same under any fusion
  std::vector<std::string> saved(3);
  const floats x = trained<in_buckets>(3, 0, 3, 1, saved, set);
  EXPECT_EQ(different(x, trained_by_the_paper(3, 3, 1)), 0u);
}

/// Trains tensors of `sizes`, in backward order, whose elements are fused and then cut into pieces;
/// the second tensor's gradients have 16 bits.
floats trained_in_pieces(int workers, int passes, const std::vector<std::size_t>& sizes) {
  using in_pieces = compose<fusion::up_to, partition::into,
                            compression::error_feedback<compression::norm_scaled_sign>,
                            architecture::momentum_exchange>;
  engine_options<in_pieces> set;
  set.partition.elements = 100;
  set.run.accumulation = static_cast<unsigned>(passes);
  floats result;
  transport::run_ranks(workers, [&](transport::in_process& world) {
    const std::size_t all = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    floats parameters(all);
    floats gradients(all);
    std::vector<std::uint16_t> narrow(all);
    std::vector<tensor> tensors;
    std::size_t first = all;
    for (std::size_t i = sizes.size(); i-- > 0;) {
      first -= sizes[i];
      const auto its = std::span(parameters).subspan(first, sizes[i]);
      if (i == 1) {
        tensors.emplace_back("narrow", its, std::span(narrow).subspan(first, sizes[i]),
                             element_type::bf16);
      } else {
        tensors.emplace_back("w" + std::to_string(i), its,
                             std::span(gradients).subspan(first, sizes[i]));
      }
    }
    for (std::size_t i = 0; i < all; ++i) {
      parameters[i] = initial(i);
    }
    auto engine = make_engine<in_pieces>(world, tensors, values, set);
    for (int step = 0; step < 7; ++step) {
      for (std::size_t i = 0; i < all; ++i) {
        const auto bits = std::bit_cast<std::uint32_t>(gradient(world.rank(), step, i)) >> 16;
        narrow[i] = static_cast<std::uint16_t>(bits);
        gradients[i] = std::bit_cast<float>(bits << 16);
      }
      const floats as_given = gradients;
      for (int pass = 0; pass < passes; ++pass) {
        for (std::size_t i = tensors.size(); i-- > 0;) {
          engine.ready(tensor_id(i));
        }
      }
      engine.wait();
      EXPECT_EQ(gradients, as_given);
    }
    if (world.rank() == 0) {
      result = parameters;
    }
  });
  return result;
}

/// A momentum's chunk may span several tensors, begin within one, or need its gradients widened.
TEST(OneBitAdam, takes_gradients_in_wherever_they_lie) {
  for (const int workers : {1, 2, 3}) {
    for (const int passes : {1, 2}) {
      EXPECT_EQ(trained_in_pieces(workers, passes, {5, 700, 0, 33}),
                trained_in_pieces(workers, passes, {738}))
          << workers << " workers, " << passes << " passes";
    }
  }
}

/// After a return to exchanging gradients, a residual would wait until momenta are exchanged again
/// and then belong to old ones.
TEST(OneBitAdam, does_not_thaw_what_residuals_are_of) {
  using in_pieces = compose<fusion::up_to, partition::into,
                            compression::error_feedback<compression::norm_scaled_sign>,
                            architecture::momentum_exchange>;
  transport::run_ranks(2, [](transport::in_process& world) {
    arena memory(std::vector<arena::declaration>{{"x", 700}});
    auto engine = make_engine<in_pieces>(world, memory.tensors(), values);
    const auto freeze_at = [&](std::uint64_t step) {
      auto its = values;
      its.freeze_step = step;
      engine.change(its);
    };
    for (std::uint64_t step = 0; step < 5; ++step) {
      if (step <= values.freeze_step) {
        freeze_at(values.freeze_step);
      }
      engine.ready(tensor_id(0));
      engine.wait();
    }
    EXPECT_THROW(freeze_at(6), usage_error);
    EXPECT_EQ(engine.values().freeze_step, values.freeze_step);
    freeze_at(5);
  });
}

task count_bytes(transport::simulated& world, std::vector<std::uint64_t>& sent) {
  std::vector<tensor> tensors{tensor::phantom("x", 6400)};
  auto its = values;
  its.freeze_step = 1;
  auto engine = make_engine<strategies::OneBitAdam>(world, tensors, its, {}, monitor::counters());
  co_await engine.started();
  for (int step = 0; step < 3; ++step) {
    const std::uint64_t before = engine.counted().bytes_sent;
    engine.ready(tensor_id(0));
    co_await engine.arrival(tensor_id(0));
    if (world.rank() == 1) {
      sent.push_back(engine.counted().bytes_sent - before);
    }
  }
  co_await engine.close();
}

/// Two ranks exchange halves: first of floats, then of 100 words and a scale.
TEST(OneBitAdam, sends_floats_then_bits) {
  std::vector<std::uint64_t> sent;
  transport::run_simulated(2, {1.25e9, 50e-6},
                           [&](transport::simulated& world) { return count_bytes(world, sent); });
  EXPECT_EQ(sent, (std::vector<std::uint64_t>{2 * 3200 * 4, 2 * 404, 2 * 404}));
}

}  // namespace
}  // namespace tutti::test

// Ok-Topk between threads applies, keeps and sends what plain loops over integers do, while
// magnitudes and regions are re-estimated several times. One file, because most tests compare the
// same few histories.
#include "tutti/architecture/sparse_regions.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <mutex>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "compression/in_hex.hpp"
#include "core/ok_topk_vectors.hpp"
#include "support/lost.hpp"
#include "support/sparse_regions_oracle.hpp"
#include "support/training.hpp"
#include "tutti/architecture/dense.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/base/error.hpp"
#include "tutti/compression/by_kth_magnitude.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/optimizer/loss_scaled.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/strategies/ok_topk.hpp"
#include "tutti/transport/simulated.hpp"

namespace tutti::test {
namespace {

using integers = std::vector<std::int64_t>;
using history = regional_selections<std::int64_t>;
template <class... Policies>
using in_regions = compose<compression::error_feedback<compression::by_kth_magnitude>,
                           architecture::sparse_regions, Policies...>;
using strategy = in_regions<fusion::all>;

/// Returns 12 pseudo-random bits, larger in some steps and towards the end of the model, so that
/// magnitudes drift and even regions would hold unequal shares. All sums here are exact floats.
std::int64_t drifting(std::size_t rank, std::size_t step, std::size_t i) {
  auto x = static_cast<std::uint32_t>(i * 2654435761u + rank * 40503u + step * 2246822519u + 1);
  x = (x ^ x >> 15) * 2246822519u;
  x = (x ^ x >> 13) * 3266489917u;
  const auto value = static_cast<std::int64_t>((x ^ x >> 16) & 0xfff) - 2048;
  return value * static_cast<std::int64_t>(1 + step % 5) * (i % 40 > 20 ? 3 : 1);
}
/// Returns mostly zeros, and equal magnitudes of both signs: sums cancel, and often no k-th exists.
std::int64_t sparse(std::size_t rank, std::size_t step, std::size_t i) {
  return i % 3 == 0 ? 0 : drifting(rank, step, i) % 3;
}
std::int64_t nothing(std::size_t, std::size_t, std::size_t) { return 0; }

template <class Strategy = strategy>
engine_options<Strategy> with(const regional_rule& rule) {
  engine_options<Strategy> set;
  set.compression.k = rule.k;
  set.architecture.estimate_every = static_cast<int>(rule.estimate_every);
  set.architecture.divide_every = static_cast<int>(rule.divide_every);
  set.architecture.balance_above = static_cast<int>(rule.balance_above);
  set.architecture.raises = rule.raises;
  set.architecture.own_correction = rule.own_correction;
  set.architecture.sum_correction = rule.sum_correction;
  set.run.deadline = 20;
  return set;
}

/// Other options from step `at` on, which is never 0, either under a new plan or in engines that
/// continue from a checkpoint.
template <class Strategy>
struct turn {
  enum class by { none, checkpoint, plan } how{};
  std::size_t at{};
  engine_options<Strategy> next{};
};

/// Trains two tensors, so that fusion has an effect.
template <class Strategy, class Gradient>
history trained(const engine_options<Strategy>& set, std::size_t ranks, std::size_t n,
                std::size_t steps, Gradient gradient, const turn<Strategy>& after = {}) {
  using by = typename turn<Strategy>::by;
  history all{{}, std::vector<integers>(ranks), std::vector<std::uint64_t>(ranks)};
  std::mutex mutex;
  transport::run_ranks(static_cast<int>(ranks), [&](transport::in_process& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    std::vector<integers> sums(steps, integers(n));
    std::uint64_t sent = 0;
    std::string file;
    for (std::size_t first = 0; first < steps;) {
      const std::size_t last = after.how == by::checkpoint && first == 0 ? after.at : steps;
      arena memory(std::vector<arena::declaration>{{"one", n / 2}, {"two", n - n / 2}});
      auto engine = make_engine<Strategy>(world, memory.tensors(), optimizer::none{},
                                          first == 0 ? set : after.next);
      if (first > 0) {
        std::istringstream in(file);
        load(engine, in);
      }
      const std::uint64_t before = engine.counted().bytes_sent;
      for (std::size_t step = first; step < last; ++step) {
        if (after.how == by::plan && step == after.at) {
          engine.replan(after.next);
        }
        for (std::size_t i = 0; i < n; ++i) {
          memory.gradients()[i] = static_cast<float>(gradient(rank, step, i));
        }
        engine.ready(tensor_id(1));
        engine.ready(tensor_id(0));
        engine.wait();
        for (std::size_t i = 0; i < n; ++i) {
          const float mean = memory.gradients()[i];
          const auto sum = std::llround(static_cast<double>(mean) * static_cast<double>(ranks));
          EXPECT_EQ(mean, static_cast<float>(sum) * (1.0f / static_cast<float>(ranks)));
          sums[step][i] = sum;
        }
      }
      sent += engine.counted().bytes_sent - before;
      std::ostringstream out;
      save(engine, out);
      file = out.str();
      const auto residual = engine.memories()[0];
      const std::scoped_lock lock(mutex);
      all.residuals[rank].assign(residual.begin(), residual.end());
      first = last;
    }
    const std::scoped_lock lock(mutex);
    all.bytes[rank] = sent;
    all.sums = all.sums.empty() ? sums : all.sums;
    EXPECT_EQ(all.sums, sums) << "rank " << rank << " of " << ranks;
  });
  return all;
}

template <class Gradient>
history trained(const regional_rule& rule, std::size_t ranks, std::size_t n, std::size_t steps,
                Gradient gradient, std::size_t resumes = 0) {
  using by = turn<strategy>::by;
  return trained(with(rule), ranks, n, steps, gradient,
                 {resumes == 0 ? by::none : by::checkpoint, resumes, with(rule)});
}

/// In twelve steps magnitudes are found four times and regions three times, sometimes in one step.
TEST(SparseRegions, AreTheirLoopsOnAnyNumberOfRanks) {
  for (const std::size_t ranks : {1u, 2u, 3u, 4u, 5u}) {
    for (const std::size_t n : {0u, 1u, 7u, 40u, 5001u}) {
      const regional_rule rule{std::max<std::size_t>(n / 10, 1), 3, 5};
      const history all = trained(rule, ranks, n, 12, drifting);
      EXPECT_EQ(all, selected_in_regions(rule, ranks, n, 12, drifting)) << ranks << " ranks, " << n;
      EXPECT_EQ(lost(all, n, drifting), integers(n)) << ranks << " ranks, " << n;
    }
  }
}

/// Sums are balanced whenever they are uneven, or only where one rank has most of them.
TEST(SparseRegions, AreTheirLoopsWhereSumsAreBalanced) {
  const auto at_the_end = [](std::size_t rank, std::size_t step, std::size_t i) {
    return drifting(rank, step, i) % 512 * (step > 0 && i % 5000 > 4500 ? 64 : 1);
  };
  for (const std::size_t ranks : {1u, 2u, 3u, 4u, 5u}) {
    for (const std::size_t n : {0u, 1u, 7u, 40u, 5001u}) {
      for (const std::size_t above : {1u, 2u, 4u}) {
        const regional_rule rule{std::max<std::size_t>(n / 10, 1), 5, 40, above};
        const history all = trained(rule, ranks, n, 9, at_the_end);
        EXPECT_EQ(all, selected_in_regions(rule, ranks, n, 9, at_the_end))
            << ranks << " ranks, " << n << ", above " << above;
        EXPECT_EQ(lost(all, n, at_the_end), integers(n)) << ranks << " ranks, " << n;
      }
    }
  }
  const regional_rule never{500, 5, 40};
  const regional_rule rarely{500, 5, 40, 2};
  EXPECT_NE(selected_in_regions(never, 5, 5001, 9, at_the_end).bytes,
            selected_in_regions(rarely, 5, 5001, 9, at_the_end).bytes)
      << "no step had anything to balance";
}

/// While gradients stay the same, residuals grow, and the number of elements sent keeps to k only
/// if magnitudes rise. When gradients become zero, magnitudes fall.
TEST(SparseRegions, AreTheirLoopsWhereMagnitudesFollow) {
  const auto constant = [](std::size_t rank, std::size_t step, std::size_t i) {
    return step < 8 ? drifting(rank, 0, i) : step < 16 ? std::int64_t{0} : drifting(rank, step, i);
  };
  const auto expect_loops = [](const regional_rule& rule, std::size_t ranks, std::size_t n,
                               auto gradient) {
    const history all = trained(rule, ranks, n, 20, gradient, 5);
    EXPECT_EQ(all, selected_in_regions(rule, ranks, n, 20, gradient)) << ranks << " ranks, " << n;
    EXPECT_EQ(lost(all, n, gradient), integers(n)) << ranks << " ranks, " << n;
  };
  for (const std::size_t ranks : {1u, 2u, 3u, 4u, 5u}) {
    for (const std::size_t n : {0u, 1u, 7u, 40u, 5001u}) {
      for (const std::size_t above : {0u, 2u}) {
        const regional_rule rule{std::max<std::size_t>(n / 10, 1), 10, 15, above, 5, 1.012, 1.008};
        expect_loops(rule, ranks, n, constant);
        expect_loops(rule, ranks, n, drifting);
      }
    }
  }
  const regional_rule stays{500, 10, 15};
  const regional_rule follows{500, 10, 15, 0, 5, 1.012, 1.008};
  const auto sent = [&](const regional_rule& rule) {
    return selected_in_regions(rule, 3, 5001, 8, constant).bytes[0];
  };
  EXPECT_LT(sent(follows), 0.8 * static_cast<double>(sent(stays))) << "nothing had to rise";
}

/// Returns the sum of place (from 1) times value in units of `unit`, which must divide every value.
std::int64_t placed_sum(std::span<const float> values, double unit) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double count = static_cast<double>(values[i]) / unit;
    EXPECT_EQ(count, std::nearbyint(count)) << "element " << i;
    sum += static_cast<std::int64_t>(i + 1) * std::llround(count);
  }
  return sum;
}
/// The original multiplies magnitudes in double; here each of 31 steps may round six times.
void expect_magnitude(float ours, double theirs) {
  EXPECT_NEAR(static_cast<double>(ours), theirs, 6 * 31 * std::ldexp(theirs, -24));
}

/// Compares updates, residuals, bytes, magnitudes and regions with the original's, in steps that
/// re-estimate, that raise, and that correct in both directions.
TEST(SparseRegions, AreTheOriginals) {
  constexpr std::size_t n = 256;
  for (const ok_topk_run& theirs : ok_topk_runs()) {
    const std::size_t ranks = theirs.own.size();
    SCOPED_TRACE(ranks);
    transport::run_ranks(static_cast<int>(ranks), [&](transport::in_process& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      arena memory(std::vector<arena::declaration>{{"one", n}});
      engine_options<strategies::OkTopk> set;
      set.compression.density = 0.0625;
      auto engine =
          make_engine<strategies::OkTopk>(world, memory.tensors(), optimizer::none{}, set);
      const std::span<const float> residual = engine.memories().front();
      const std::span<const float> kept = engine.memories().back();
      for (std::size_t step = 0, compared = 0; step < theirs.sums.size(); ++step) {
        const std::uint64_t before = engine.counted().bytes_sent;
        std::ranges::copy(gradient_in_512ths(n, ranks * step + rank), memory.gradients().begin());
        engine.ready(tensor_id(0));
        engine.wait();
        const auto mean = static_cast<double>(512 * ranks);
        EXPECT_EQ(placed_sum(memory.gradients(), 1 / mean), theirs.sums[step]) << "step " << step;
        const std::size_t begins = step % 64 == 0 ? 4 * (ranks - 1) * (ranks - 1) : 0;
        EXPECT_EQ(engine.counted().bytes_sent - before,
                  2 * 4 * (ranks - 1) + 8 * theirs.sent[rank][step] + begins)
            << "step " << step;
        for (std::size_t i = 1; i < ranks; ++i) {
          EXPECT_EQ(std::bit_cast<std::uint32_t>(kept[5 + i]),
                    (step < 64 ? theirs.first_begins : theirs.begins)[i - 1]);
        }
        if (step == 31 || step == 63 || step == 67) {
          expect_magnitude(kept[4], theirs.own[rank][compared]);
          expect_magnitude(kept[5], theirs.of_sums[compared++]);
        }
      }
      EXPECT_EQ(placed_sum(residual, 1.0 / 512), theirs.residuals[rank]);
    });
  }
}

task count_bytes(transport::simulated& world, std::size_t above, std::uint64_t& sent) {
  std::vector<tensor> tensors{tensor::phantom("x", 6000)};
  auto engine = make_engine<strategy>(world, tensors, optimizer::none{},
                                      with(regional_rule{60, 30, 30, above}));
  co_await engine.started();
  for (int step = 0; step < 2; ++step) {
    const std::uint64_t before = engine.counted().bytes_sent;
    engine.ready(tensor_id(0));
    co_await engine.arrival(tensor_id(0));
    sent = engine.counted().bytes_sent - before;
  }
  co_await engine.close();
}
/// Without values, regions hold equally many sums, and ranks that may balance them send how many.
TEST(SparseRegions, AreBalancedWithoutValues) {
  for (const int ranks : {2, 3, 5}) {
    std::array<std::uint64_t, 2> sent{};
    std::uint64_t others = 0;
    for (const std::size_t above : {0u, 1u}) {
      transport::run_simulated(ranks, {1.25e9, 50e-6}, [&](transport::simulated& world) {
        return count_bytes(world, above, world.rank() == 0 ? sent[above] : others);
      });
    }
    EXPECT_EQ(sent[1] - sent[0], 4U * static_cast<unsigned>(ranks - 1));
  }
}

/// Elements equal to the k-th are sent, zeros never; ranks that select none propose even regions.
TEST(SparseRegions, AreTheirLoopsOnTiesAndZeros) {
  for (const std::size_t ranks : {2u, 5u}) {
    for (const std::size_t k : {1u, 20u, 60u}) {
      const regional_rule rule{k, 4, 2};
      EXPECT_EQ(trained(rule, ranks, 60, 9, sparse),
                selected_in_regions(rule, ranks, 60, 9, sparse))
          << ranks << " ranks, " << k;
    }
    EXPECT_EQ(trained({3, 2, 2}, ranks, 60, 3, nothing),
              selected_in_regions({3, 2, 2}, ranks, 60, 3, nothing));
  }
}

/// Steps after a checkpoint use the magnitudes and regions that were found before it.
TEST(SparseRegions, GoOnFromACheckpointBitwise) {
  const regional_rule rule{50, 6, 9};
  for (const std::size_t resumes : {1u, 4u, 6u}) {
    EXPECT_EQ(trained(rule, 3, 2000, 10, drifting, resumes),
              selected_in_regions(rule, 3, 2000, 10, drifting))
        << resumes;
  }
}

/// Pieces of 700 elements have magnitudes and regions of their own. A piece whose places contain no
/// multiple of 1024 re-estimates them in every step.
TEST(SparseRegions, KeepWhatTheyFindOfEachPiece) {
  constexpr std::size_t n = 5001;
  constexpr std::size_t piece = 700;
  using cut = in_regions<fusion::all, partition::into>;
  auto set = with<cut>({30, 4, 6});
  set.partition.elements = piece;
  const history all = trained(set, 3, n, 9, drifting);
  history expected{std::vector<integers>(9), std::vector<integers>(3),
                   std::vector<std::uint64_t>(3)};
  for (std::size_t first = 0; first < n; first += piece) {
    const std::size_t count = std::min(piece, n - first);
    const bool keeps = (first + count - 1) / 1024 * 1024 >= first;
    const auto its =
        selected_in_regions(keeps ? regional_rule{30, 4, 6} : regional_rule{30, 1, 1}, 3, count, 9,
                            [=](std::size_t rank, std::size_t step, std::size_t i) {
                              return drifting(rank, step, first + i);
                            });
    for (std::size_t step = 0; step < 9; ++step) {
      expected.sums[step].insert(expected.sums[step].end(), its.sums[step].begin(),
                                 its.sums[step].end());
    }
    for (std::size_t rank = 0; rank < 3; ++rank) {
      expected.residuals[rank].insert(expected.residuals[rank].end(), its.residuals[rank].begin(),
                                      its.residuals[rank].end());
      expected.bytes[rank] += its.bytes[rank];
    }
  }
  EXPECT_EQ(all, expected);
}

/// Launches that are gathered at run time differ from run to run, but nothing is lost.
TEST(SparseRegions, LoseNothingWhereLaunchesAreGathered) {
  using gathered = in_regions<fusion::when_ready, partition::into>;
  for (const std::size_t ranks : {1u, 2u, 5u}) {
    auto set = with<gathered>({30, 4, 6});
    set.partition.elements = 700;
    set.fusion.bytes = 8000;
    set.fusion.cycle = 0;
    EXPECT_EQ(lost(trained(set, ranks, 5001, 9, drifting), 5001, drifting), integers(5001));
  }
}

/// After a change of density the kept magnitudes are replaced from the first step on, also after a
/// checkpoint, and nothing is lost.
TEST(SparseRegions, KeepNothingForAnotherDensity) {
  constexpr std::size_t n = 2000;
  using by = turn<strategy>::by;
  const auto count = [](const integers& sums) {
    return std::ranges::count_if(sums, [](std::int64_t each) { return each != 0; });
  };
  for (const by how : {by::plan, by::checkpoint}) {
    const history all =
        trained(with({100, 30, 30}), 3, n, 6, drifting, {how, 2, with({10, 30, 30})});
    EXPECT_GE(count(all.sums[0]), 100);
    EXPECT_GE(count(all.sums[2]), 10);
    EXPECT_LT(count(all.sums[2]), 15) << "but for elements that are as large as the tenth";
    EXPECT_EQ(lost(all, n, drifting), integers(n));
  }
}

/// Infinities, for which loss scaling would skip the step, are not kept as magnitudes.
TEST(SparseRegions, KeepNoMagnitudeThatIsNoNumber) {
  constexpr std::size_t n = 2000;
  transport::run_ranks(3, [](transport::in_process& world) {
    arena memory(std::vector<arena::declaration>{{"one", n}});
    auto engine =
        make_engine<strategy>(world, memory.tensors(), optimizer::none{}, with({20, 30, 30}));
    for (std::size_t step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < n; ++i) {
        memory.gradients()[i] =
            step == 0 && world.rank() == 1
                ? std::numeric_limits<float>::infinity()
                : static_cast<float>(drifting(static_cast<std::size_t>(world.rank()), step, i));
      }
      engine.ready(tensor_id(0));
      engine.wait();
      std::size_t finite = 0;
      for (const float mean : memory.gradients()) {
        finite += std::isfinite(mean) && mean != 0 ? 1 : 0;
      }
      EXPECT_EQ(finite >= 10, step > 0) << "step " << step;
    }
  });
}

/// Returns the parameters after `steps` steps, and the bytes of the last one. Gradients are
/// multiplied by the loss scale.
template <class Strategy, class Gradient>
auto after_steps(std::size_t steps, const engine_options<Strategy>& set,
                 optimizer::loss_scaled<optimizer::sgd> scaled, Gradient gradient) {
  constexpr std::size_t n = 2000;
  scaled.learning_rate = 1;
  std::array<std::pair<std::vector<float>, std::uint64_t>, 3> all;
  transport::run_ranks(3, [&](transport::in_process& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    arena memory(std::vector<arena::declaration>{{"one", n}});
    auto engine = make_engine<Strategy>(world, memory.tensors(), scaled, set);
    for (std::size_t step = 0; step < steps; ++step) {
      const std::uint64_t before = engine.counted().bytes_sent;
      for (std::size_t i = 0; i < n; ++i) {
        memory.gradients()[i] = engine.values().scale * gradient(rank, step, i);
      }
      engine.ready(tensor_id(0));
      engine.wait();
      all[rank].second = engine.counted().bytes_sent - before;
    }
    all[rank].first.assign(memory.parameters().begin(), memory.parameters().end());
  });
  return all;
}

template <class Strategy>
auto after_skipping(std::size_t skipped, const engine_options<Strategy>& set) {
  optimizer::loss_scaled<optimizer::sgd> scaled;
  scaled.scale = static_cast<float>(1 << skipped);
  return after_steps(skipped + 1, set, scaled,
                     [=](std::size_t rank, std::size_t step, std::size_t i) {
                       return step < skipped ? std::numeric_limits<float>::infinity()
                                             : static_cast<float>(drifting(rank, 0, i));
                     });
}
TEST(SparseRegions, KeepNothingOfASkippedStep) {
  const auto set = with({20, 30, 30});
  EXPECT_EQ(after_skipping<strategy>(1, set), after_skipping<strategy>(0, set));

  using in_turn =
      compose<compression::error_feedback<compression::by_kth_magnitude>,
              architecture::switch_at<architecture::dense, architecture::sparse_regions>>;
  engine_options<in_turn> second;
  second.compression = set.compression;
  second.architecture = {0, {}, set.architecture};
  EXPECT_EQ(after_skipping<in_turn>(1, second), after_skipping<in_turn>(0, second));
}

/// A gradient of four passes is four times as large, and so is what is left of those of one pass.
TEST(SparseRegions, KeepNothingForAnotherNumberOfPasses) {
  transport::run_ranks(1, [](transport::in_process& world) {
    arena memory(std::vector<arena::declaration>{{"one", 2000}});
    auto set = with({20, 30, 30});
    auto engine =
        make_engine<strategy>(world, memory.tensors(), optimizer::sgd{.learning_rate = 1}, set);
    const auto changed_by_a_step_of = [&](unsigned passes) {
      const std::vector<float> before(memory.parameters().begin(), memory.parameters().end());
      for (unsigned pass = 0; pass < passes; ++pass) {
        for (std::size_t i = 0; i < before.size(); ++i) {
          memory.gradients()[i] = static_cast<float>(drifting(0, 0, i) * (pass + 1));
        }
        engine.ready(tensor_id(0));
      }
      engine.wait();
      std::size_t changed = 0;
      for (std::size_t i = 0; i < before.size(); ++i) {
        changed += memory.parameters()[i] != before[i];
      }
      return changed;
    };
    const std::size_t selected = changed_by_a_step_of(1);
    set.run.accumulation = 4;
    engine.replan(set);
    const std::size_t selected_again = changed_by_a_step_of(4);
    EXPECT_GT(selected_again, 0U);
    EXPECT_LT(selected_again, 2 * selected);
  });
}

/// Where the loss scale grows in every step, no kept magnitude is of any use.
TEST(SparseRegions, KeepNothingForAnotherLossScale) {
  const auto gradient = [](std::size_t rank, std::size_t step, std::size_t i) {
    return static_cast<float>(drifting(rank, step, i));
  };
  optimizer::loss_scaled<optimizer::sgd> constant;
  constant.scale = 1;
  auto grows = constant;
  grows.growth = 16;
  grows.interval = 1;
  EXPECT_EQ(after_steps(4, with({20, 30, 30}), grows, gradient),
            after_steps(4, with({20, 1, 1}), constant, gradient));
}

/// A compressor that states in one payload that it holds more elements than is possible.
struct says_too_many : compression::by_kth_magnitude {
  using by_kth_magnitude::by_kth_magnitude;
  static inline thread_local int payloads_before_it = 0;

  template <class Queue>
  void encode_from(Queue& queue, float from, std::span<const float> values, wire out,
                   std::size_t* length) const {
    by_kth_magnitude::encode_from(queue, from, values, out, length);
    if (payloads_before_it-- == 0) {
      std::fill_n(out.data, sizeof(std::uint32_t), std::byte{1});
    }
  }
};
TEST(SparseRegions, RefuseMoreSumsThanARegionHas) {
  using lying = compose<says_too_many, architecture::sparse_regions>;
  const auto two_steps = [](transport::in_process& world) {
    arena memory(std::vector<arena::declaration>{{"one", 100}});
    auto engine = make_engine<lying>(world, memory.tensors(), optimizer::none{},
                                     with<lying>({20, 30, 30, 1}));
    says_too_many::payloads_before_it = world.rank() == 1 ? 5 : -1;  // the sums of the second step
    for (int step = 0; step < 2; ++step) {
      std::ranges::fill(memory.gradients(), 1.0f);
      engine.ready(tensor_id(0));
      engine.wait();
    }
  };
  EXPECT_THROW(transport::run_ranks(2, two_steps), communication_error);
}

TEST(SparseRegions, RefuseWhatCannotBe) {
  transport::run_ranks(1, [](transport::in_process& world) {
    for (const regional_rule& rule : {regional_rule{1, 0, 1}, regional_rule{1, 1, 0}}) {
      arena memory(std::vector<arena::declaration>{{"one", 3}});
      EXPECT_THROW(make_engine<strategy>(world, memory.tensors(), optimizer::none{}, with(rule)),
                   usage_error);
    }
    for (const auto& wrong : {regional_rule{1, 1, 1, 0, -1}, regional_rule{1, 1, 1, 0, 0, 0.9},
                              regional_rule{1, 1, 1, 0, 0, 1, std::nan("")}}) {
      arena memory(std::vector<arena::declaration>{{"one", 3}});
      EXPECT_THROW(make_engine<strategy>(world, memory.tensors(), optimizer::none{}, with(wrong)),
                   usage_error);
    }
    auto set = with({1, 1, 1});
    set.architecture.balance_above = -1;
    arena memory(std::vector<arena::declaration>{{"one", 3}});
    EXPECT_THROW(make_engine<strategy>(world, memory.tensors(), optimizer::none{}, set),
                 usage_error);
  });
}

}  // namespace
}  // namespace tutti::test

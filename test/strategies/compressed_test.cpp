// The named strategies that send less than every gradient. Each one's rule, stated in plain loops,
// holds, and fails when any policy that it names is replaced by its role's default. One file,
// because each is compared with its neighbours, and OMGS with TopK's rule.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "compression/dist_ef_sgd_vectors.hpp"
#include "compression/in_hex.hpp"
#include "compression/sign_vectors.hpp"
#include "support/dealt.hpp"
#include "support/rule.hpp"
#include "support/sparse_regions_oracle.hpp"
#include "support/sparse_tree_oracle.hpp"
#include "support/trained_on.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/majority_vote.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/architecture/replicated.hpp"
#include "tutti/architecture/sparse_regions.hpp"
#include "tutti/architecture/sparse_tree.hpp"
#include "tutti/base/type_name.hpp"
#include "tutti/compression/by_kth_magnitude.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/momentum_correction.hpp"
#include "tutti/compression/push_only.hpp"
#include "tutti/compression/rescaled_error_feedback.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/compression/signum.hpp"
#include "tutti/compression/threshold.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/merge_gradients.hpp"
#include "tutti/fusion/sparse_merge.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/optimizer/adam.hpp"
#include "tutti/optimizer/lamb.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/at_most.hpp"
#include "tutti/strategies.hpp"

namespace tutti::test {
namespace {

constexpr int workers = 3;
using floats = std::vector<float>;
const std::vector<std::size_t> alone{1, 1, 1, 1, 1, 1};

// ---- TopK

/// Trains on the k largest elements, over the whole model, of each worker's gradient plus residual.
floats trained_on_the_largest(bool remembers) {
  std::vector<floats> left(workers, floats(total_elements()));
  return trained_with([&](int step, floats& means) {
    const std::size_t n = means.size();
    const std::size_t k = n / 1000;
    for (int worker = 0; worker < workers; ++worker) {
      floats& mine = left[static_cast<std::size_t>(worker)];
      for (std::size_t i = 0; i < n; ++i) {
        mine[i] = (remembers ? mine[i] : 0.0f) + gradient(worker, step, i);
      }
      std::vector<std::size_t> order(n);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
        return std::abs(mine[a]) > std::abs(mine[b]);
      });
      for (std::size_t i = 0; i < k; ++i) {
        means[order[i]] += mine[order[i]];
        mine[order[i]] = 0.0f;
      }
    }
    for (float& each : means) {
      each *= 1.0f / workers;
    }
  });
}

TEST(Named, TopK) {
  constexpr std::uint64_t payload = 35'300 * 8;  // a thousandth: index and value
  rule sparse{0,
              {6},
              {35'300'008},
              {0},
              {2 * payload, 2 * payload, 2 * payload},
              all_have(trained_on_the_largest(true))};
  using architecture::all_gather;
  using compression::error_feedback;
  using compression::top_k;
  EXPECT_EQ(broken(observe<strategies::TopK>(workers), sparse), "");
  EXPECT_NE(broken(observe<compose<error_feedback<top_k>, all_gather>>(workers), sparse), "");
  EXPECT_NE(broken(observe<compose<fusion::all, all_gather>>(workers), sparse), "");
  EXPECT_NE(broken(observe<compose<fusion::all, error_feedback<top_k>>>(workers), sparse), "");

  const auto forgetful = observe<compose<fusion::all, top_k, all_gather>>(workers);
  EXPECT_EQ(broken(forgetful, sparse), "result ");
  sparse.result = all_have(trained_on_the_largest(false));
  EXPECT_EQ(broken(forgetful, sparse), "");
}

// ---- gTopKSGD

/// Trains on the k largest elements that a tree selects from the ranks' k largest.
floats trained_on_a_tree(architecture::give_back rule) {
  const auto of_floats = [](std::size_t rank, std::size_t step, std::size_t i) {
    return gradient(static_cast<int>(rank), static_cast<int>(step), i);
  };
  const auto all = selected_by_a_tree(rule, 5, total_elements(), total_elements() / 1000,
                                      observed_steps, of_floats);
  return trained_with([&](int step, floats& means) {
    means = all.sums[static_cast<std::size_t>(step)];
    for (float& each : means) {
      each *= 1.0f / 5;
    }
  });
}

/// Rank 0 answers ranks 1, 2 and 4, and rank 2 answers rank 3. The results of the two rules of
/// `give_back` already differ.
TEST(Named, gTopKSGD) {
  using architecture::give_back;
  constexpr std::uint64_t payload = 35'300 * 8;
  rule tree{0,
            {6},
            {35'300'008},
            {0},
            {3 * payload, payload, 2 * payload, payload, payload},
            all_have(trained_on_a_tree(give_back::compatible))};
  using architecture::sparse_tree;
  using compression::error_feedback;
  using compression::top_k;
  EXPECT_EQ(broken(observe<strategies::gTopKSGD>(5), tree), "");
  EXPECT_NE(broken(observe<strategies::TopK>(5), tree), "");
  EXPECT_NE(broken(observe<compose<error_feedback<top_k>, sparse_tree>>(5), tree), "");
  EXPECT_EQ(broken(observe<compose<fusion::all, top_k, sparse_tree>>(5), tree), "result ");
  const auto exactly =
      observe<strategies::gTopKSGD>(5, {.architecture = {.give_back = give_back::exact}});
  EXPECT_EQ(broken(exactly, tree), "result ");
  tree.result = all_have(trained_on_a_tree(give_back::exact));
  EXPECT_EQ(broken(exactly, tree), "");
}

// ---- OkTopk

/// Trains on the largest of the sums that owners of regions make of the ranks' largest elements.
/// Magnitudes are those of step 0, corrected by how many elements they let through.
floats trained_in_regions() {
  const auto of_floats = [](std::size_t rank, std::size_t step, std::size_t i) {
    return gradient(static_cast<int>(rank), static_cast<int>(step), i);
  };
  const auto all = selected_in_regions({total_elements() / 50, 32, 64, 0, 5, 1.012, 1.008}, workers,
                                       total_elements(), observed_steps, of_floats);
  return trained_with([&](int step, floats& means) {
    means = all.sums[static_cast<std::size_t>(step)];
    for (float& each : means) {
      each *= 1.0f / workers;
    }
  });
}

/// The first step, in which magnitudes and regions are found. A rank sends two regions' payloads to
/// their owners and proposes two region boundaries to both other ranks. It then sends both as many
/// sums as if no two ranks had selected the same element.
TEST(Named, OkTopk) {
  constexpr std::uint64_t n = 35'300'008;
  constexpr std::uint64_t payload = 4 + 706'000 * 8;  // a fiftieth: index and value
  constexpr std::uint64_t regions[] = {n / 3 + 1, n / 3, n / 3};
  std::vector<std::uint64_t> bytes;
  for (const std::size_t rank : {0u, 1u, 2u}) {
    const auto share = [&](std::uint64_t of, std::size_t region) {
      return (of * regions[region % 3] + n - 1) / n;
    };
    bytes.push_back(share(payload, rank + 1) + share(payload, rank + 2) + 2 * 2 * 4 +
                    2 * share(3 * payload, rank));
  }
  rule sparse{0, {6}, {n}, {0}, bytes, all_have(trained_in_regions())};
  using architecture::sparse_regions;
  using compression::by_kth_magnitude;
  using compression::error_feedback;
  EXPECT_EQ(broken(observe<strategies::OkTopk>(workers), sparse), "");
  EXPECT_NE(broken(observe<strategies::TopK2>(workers, {.compression = {.density = 0.02}}), sparse),
            "");
  using in_buckets = compose<error_feedback<by_kth_magnitude>, sparse_regions>;
  EXPECT_NE(broken(observe<in_buckets>(workers, {.compression = {.density = 0.02}}), sparse), "");
  using forgetful = compose<fusion::all, by_kth_magnitude, sparse_regions>;
  EXPECT_EQ(broken(observe<forgetful>(workers, {.compression = {.density = 0.02}}), sparse),
            "result ");
}

// ---- DGC

/// Returns the factor by which a worker's gradient of some elements is clipped, so that the norm of
/// the workers' sum stays below `clip` if their gradients are independent.
float local_clipping(std::size_t worker, int step, const std::vector<std::size_t>& elements,
                     double clip) {
  double squares = 0;
  for (const std::size_t i : elements) {
    const double g = gradient(static_cast<int>(worker), step, i);
    squares += g * g;
  }
  return static_cast<float>(std::min(1.0, clip / std::sqrt(workers) / (std::sqrt(squares) + 1e-6)));
}

/// Trains on the k largest elements of each tensor's accumulated momenta, which then start again at
/// 0.
floats trained_on_corrected_momenta(bool masks,
                                    double clip = std::numeric_limits<double>::infinity()) {
  std::vector<floats> momenta(workers, floats(total_elements()));
  std::vector<floats> left(workers, floats(total_elements()));
  return trained_with(
      [&](int step, floats& means) {
        std::size_t begin = 0;
        for (std::size_t tensor = tensor_sizes().size(); tensor-- > 0;) {
          const std::size_t n = tensor_sizes()[tensor];
          for (std::size_t worker = 0; worker < workers; ++worker) {
            floats& u = momenta[worker];
            floats& v = left[worker];
            std::vector<std::size_t> order(n);
            std::iota(order.begin(), order.end(), begin);
            const float scale = local_clipping(worker, step, order, clip);
            for (const std::size_t i : order) {
              u[i] = 0.9f * u[i] + scale * gradient(static_cast<int>(worker), step, i);
              v[i] += u[i];
            }
            std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
              return std::abs(v[a]) > std::abs(v[b]);
            });
            order.resize(std::min(n, std::max<std::size_t>(n / 1000, 1)));
            for (const std::size_t i : order) {
              means[i] += v[i] * (1.0f / workers);
              v[i] = 0.0f;
              u[i] = masks ? 0.0f : u[i];
            }
          }
          begin += n;
        }
      },
      {.momentum = 0});
}

TEST(Named, DGC) {
  rule corrected{
      0,
      alone,
      {2'500'000, 25'000'000, 5'000'000, 8, 2'500'000, 300'000},
      {1, 0, 2, 3, 5, 4},
      std::vector<std::uint64_t>(workers, 2 * 8 * (2500 + 25'000 + 5000 + 1 + 2500 + 300)),
      all_have(trained_on_corrected_momenta(true))};
  using architecture::all_gather;
  using compression::error_feedback;
  using compression::momentum_correction;
  using compression::top_k;
  EXPECT_EQ(broken(observe<strategies::DGC>(workers), corrected), "");
  EXPECT_EQ(broken(observe<compose<error_feedback<top_k>, all_gather>>(workers), corrected),
            "result ");
  EXPECT_EQ(broken(observe<compose<momentum_correction<top_k>, all_gather>>(workers), corrected),
            "result ");
  EXPECT_NE(
      broken(observe<compose<momentum_correction<error_feedback<top_k>>>>(workers), corrected), "");
  // Tensors of two elements stay as they are, and longer ones are clipped.
  const auto clipped = observe<strategies::DGC>(workers, {.compression = {.clip = 2000}});
  EXPECT_EQ(broken(clipped, corrected), "result ");
  const auto unmasked = observe<strategies::DGC>(
      workers, {.compression = {.masking = compression::factor_masking::none}});
  EXPECT_EQ(broken(unmasked, corrected), "result ");
  corrected.result = all_have(trained_on_corrected_momenta(false));
  EXPECT_EQ(broken(unmasked, corrected), "");
  corrected.result = all_have(trained_on_corrected_momenta(true, 2000));
  EXPECT_EQ(broken(clipped, corrected), "");
}

/// An optimizer's momentum of momenta would diverge and is refused before the first step.
TEST(Named, DGCHasOneMomentum) {
  transport::run_ranks(1, [](transport::in_process& world) {
    arena memory = model_of(0);
    EXPECT_THROW(make_engine<strategies::DGC>(world, memory.tensors(), optimizer_of()),
                 usage_error);
    auto engine = make_engine<strategies::DGC>(world, memory.tensors(), optimizer::sgd());
    EXPECT_THROW(engine.change(optimizer_of()), usage_error);
    EXPECT_EQ(engine.values().momentum, 0.0f);
    EXPECT_NO_THROW(engine.change(optimizer::sgd{.learning_rate = 0.5f}));
  });
}
/// The refusal also covers Adam's name for momentum, and strategies that send the sign of a
/// momentum.
template <class Strategy, class Optimizer>
void has_one_momentum(const Optimizer& one, const Optimizer& two) {
  transport::run_ranks(1, [&](transport::in_process& world) {
    arena memory = model_of(0);
    try {
      make_engine<Strategy>(world, memory.tensors(), two);
      ADD_FAILURE() << type_name<Optimizer>() << " has a second momentum";
    } catch (const usage_error& refused) {
      EXPECT_STREQ(
          refused.what(),
          "this compressor sends each rank's momentum, and the optimizer would make a second "
          "momentum of it, which diverges. Fix: set the optimizer's momentum, or its beta1, to 0");
    }
    EXPECT_NO_THROW(make_engine<Strategy>(world, memory.tensors(), one));
  });
}
TEST(Named, MomentaThatTravelAreTheOnlyOnes) {
  has_one_momentum<strategies::DGC>(optimizer::adam{.beta1 = 0}, optimizer::adam{});
  has_one_momentum<strategies::DGC>(optimizer::lamb{.beta1 = 0}, optimizer::lamb{});
  has_one_momentum<strategies::Signum>(optimizer::sgd{}, optimizer_of());
  has_one_momentum<strategies::Signum>(optimizer::adam{.beta1 = 0}, optimizer::adam{});
}

// ---- MXNet2Bit

/// Each worker pushes -threshold, 0 or threshold for each element of its gradient plus residual.
floats trained_by_thresholds(float threshold, bool remembers) {
  constexpr int pushing = 2;
  std::vector<floats> left(pushing, floats(total_elements()));
  return trained_with([&](int step, floats& means) {
    for (int worker = 0; worker < pushing; ++worker) {
      floats& mine = left[static_cast<std::size_t>(worker)];
      for (std::size_t i = 0; i < means.size(); ++i) {
        mine[i] = (remembers ? mine[i] : 0.0f) + gradient(worker, step, i);
        const float sent = mine[i] >= threshold    ? threshold
                           : mine[i] <= -threshold ? -threshold
                                                   : 0.0f;
        mine[i] -= sent;
        means[i] += sent / pushing;
      }
    }
  });
}

/// Two workers and three servers, which own what MXNet's function assigns to them. Parts end at
/// words of 16 elements, and a worker sends two bits an element.
TEST(Named, MXNet2Bit) {
  using strategies::MXNet2Bit;
  constexpr std::uint64_t words = 156'250 + 1'562'500 + 312'500 + 1 + 156'250 + 18'750;
  rule pushed{3,
              alone,
              {833'344, 833'328, 833'328,        //
               8'333'344, 8'333'328, 8'333'328,  //
               1'666'672, 1'666'672, 1'666'656,  //
               8,                                //
               833'344, 833'328, 833'328,        //
               300'000},
              {3, 4, 5, 0, 1, 2, 6, 7, 8, 9, 13, 10, 11, 12},
              {4 * words, 4 * words},
              all_have(trained_by_thresholds(0.5f, true)),
              {0, 1, 2, 0, 1, 2, 0, 1, 2, 2, 0, 1, 2, 0}};
  engine_options<MXNet2Bit> options;
  options.architecture.servers = 3;
  EXPECT_EQ(broken(observe<MXNet2Bit>(2, options), pushed), "");
  options.compression.threshold = 1;
  EXPECT_EQ(broken(observe<MXNet2Bit>(2, options), pushed), "result ");

  using parts = MXNet2Bit::strategy;
  using forgetful =
      compose<parts::partition, parts::schedule, compression::two_bit, parts::architecture>;
  constexpr auto own = MXNet2Bit::defaults();
  const auto forgotten = observe<forgetful>(
      2, {.schedule = own.schedule,
          .architecture = {.servers = 3, .placed_by = own.architecture.placed_by}});
  EXPECT_EQ(broken(forgotten, pushed), "result ");
  pushed.result = all_have(trained_by_thresholds(0.5f, false));
  EXPECT_EQ(broken(forgotten, pushed), "");
}

/// Servers that send means back encode them again, unless only pushes are compressed.
TEST(Named, PushesAlone) {
  using both_ways = compression::error_feedback<compression::two_bit>;
  using servers = architecture::parameter_server<>;
  const auto published = all_have(trained_by_thresholds(0.5f, true));
  EXPECT_FALSE(published(observe<compose<both_ways, servers>>(2).parameters));
  EXPECT_TRUE(
      published(observe<compose<compression::push_only<both_ways>, servers>>(2).parameters));
}

// ---- OMGS

/// With the options' costs, tensors 3 and 2 of the large model are sent together, as are 1 and 0,
/// because a message of a thousandth of them takes 5.4 ms before its first byte. Tensor 4 waits for
/// no other, because the backward passes of the others take 12.5 and 25 ms. The tensors of the
/// small model take microseconds and go in one message.
TEST(Named, OMGS) {
  const std::uint64_t payload = std::uint64_t{2500 + 25'000 + 5000 + 2800} * 8;
  rule merged{0,
              {1, 1, 2, 2},
              {2'500'000, 25'000'000, 5'000'008, 2'800'000},
              {0, 1, 2, 3},
              {2 * payload, 2 * payload, 2 * payload},
              all_have(trained_on_the_largest(true))};
  using architecture::all_gather;
  using compression::error_feedback;
  using compression::top_k;
  using fusion::sparse_merge;
  using schedule::at_most;
  EXPECT_EQ(broken(observe<strategies::OMGS>(workers), merged), "");
  EXPECT_NE(broken(observe<compose<at_most, error_feedback<top_k>, all_gather>>(workers), merged),
            "");
  EXPECT_EQ(
      broken(observe<compose<sparse_merge, error_feedback<top_k>, all_gather>>(workers), merged),
      "starts ");
  EXPECT_NE(broken(observe<compose<sparse_merge, at_most, error_feedback<top_k>>>(workers), merged),
            "");
  // Whole gradients are 500 times as long. The link is then late, and what waits for it may just as
  // well be merged.
  const rule whole = observe<compose<sparse_merge, at_most, all_gather>>(workers).seen;
  EXPECT_EQ(whole.buckets, (std::vector<std::size_t>{1, 5}));
  EXPECT_NE(broken(observe<strategies::OMGS>(workers, {.compression = {.density = 0.01}}), merged),
            "");

  const auto forgetful = observe<compose<sparse_merge, at_most, top_k, all_gather>>(workers);
  EXPECT_EQ(broken(forgetful, merged), "result ");
}

/// Merging takes the payload's length into account. 100 MB take 40 ms, and what becomes ready in
/// that time is sent together. Half as many bytes take 20 ms, and the link is free when tensor 3
/// becomes ready 25 ms later.
TEST(Named, MergedGradientsAreWeighedAsTheyTravel) {
  fusion::merge_gradients::options costs;
  costs.startup = 1e-3;
  costs.seconds_per_byte = 4e-10;
  using floats_merged = compose<fusion::merge_gradients>;
  using halves_merged = compose<fusion::merge_gradients, compression::fp16>;
  const auto whole = observe<floats_merged>(workers, {.fusion = costs}).seen.buckets;
  EXPECT_EQ(whole, (std::vector<std::size_t>{1, 1, 4}));
  const auto halves = observe<halves_merged>(workers, {.fusion = costs}).seen.buckets;
  EXPECT_EQ(halves, (std::vector<std::size_t>{1, 1, 2, 1, 1}));
  costs.seconds_per_byte /= 2;
  EXPECT_EQ(observe<floats_merged>(workers, {.fusion = costs}).seen.buckets, halves);
}

// ---- SignSGD and Signum

/// Trains by a majority of signs of each element, of gradients or of their momenta. Zeros and ties
/// are positive.
floats trained_by_votes(float beta) {
  std::vector<floats> momenta(workers, floats(total_elements()));
  const auto vote = [&](int step, floats& means) {
    for (std::size_t i = 0; i < means.size(); ++i) {
      int votes = 0;
      for (int worker = 0; worker < workers; ++worker) {
        float& momentum = momenta[static_cast<std::size_t>(worker)][i];
        momentum = beta * momentum + (1.0f - beta) * gradient(worker, step, i);
        votes += momentum < 0.0f ? -1 : 1;
      }
      means[i] = votes < 0 ? -1.0f : 1.0f;
    }
  };
  return trained_with(vote, {.momentum = beta == 0 ? sgd_values{}.momentum : 0});
}

/// A bucket is closed before the tensor that would exceed 100 MiB. After the last gradient, one bit
/// an element is sent to rank 0 and one back, bucket by bucket.
template <class Strategy>
void is_a_vote(float beta) {
  // Words of 32 votes, by bucket.
  constexpr std::uint64_t ballots = (78'125 + 781'250 + 243'751) * 4;
  const rule vote{0,
                  {1, 1, 4},
                  {2'500'000, 25'000'000, 7'800'008},
                  {0, 1, 2},
                  {2 * ballots, ballots, ballots},
                  all_have(trained_by_votes(beta))};
  using votes = typename Strategy::strategy::compression;
  using architecture::majority_vote;
  constexpr auto buckets = Strategy::defaults().fusion;
  EXPECT_EQ(broken(observe<Strategy>(workers), vote), "");
  EXPECT_NE(broken(observe<compose<votes, majority_vote>>(workers), vote), "");
  using at_once = compose<fusion::up_to, votes, majority_vote>;
  EXPECT_EQ(broken(observe<at_once>(workers, {.fusion = buckets}), vote), "starts ");
  using no_vote = compose<fusion::up_to, schedule::at_end, votes>;
  EXPECT_EQ(broken(observe<no_vote>(workers, {.fusion = buckets}), vote), "bytes ");
}
TEST(Named, SignSGD) { is_a_vote<strategies::SignSGD>(0.0f); }
TEST(Named, Signum) { is_a_vote<strategies::Signum>(0.9f); }
TEST(Named, VotesOfGradientsAreNotVotesOfMomenta) {
  EXPECT_FALSE(close(trained_by_votes(0.0f), trained_by_votes(0.9f)));
  EXPECT_FALSE(close(trained_by_votes(0.0f), trained(workers, observed_steps)));
}

/// Votes on momenta and their effect on parameters, as in the paper's program on four machines of
/// one rank each.
TEST(Named, SignumTrainsAsItsProgram) {
  const optimizer::sgd values{.learning_rate = 0.25f, .weight_decay = 0.25f};
  EXPECT_EQ(trained_on<strategies::Signum>(4, std::vector(4, values), {35, 33, 6},
                                           parameters_of_program(),
                                           [](std::size_t worker, std::size_t step) {
                                             return gradient_in_512ths(74, 4 * step + worker);
                                           }),
            parameters_by_program);
}

// ---- EFSignSGD

/// Adds `values` to `memory`, and returns the signs of the sums times their mean magnitude. What
/// these leave of the sums stays in `memory`.
floats signs_of(const floats& values, float* memory, bool remembers) {
  double magnitude = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    memory[i] = (remembers ? memory[i] : 0.0f) + values[i];
    magnitude += std::abs(static_cast<double>(memory[i]));
  }
  const auto mean = static_cast<float>(magnitude / static_cast<double>(values.size()));
  floats sent(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    sent[i] = memory[i] < 0.0f ? -mean : mean;
    memory[i] -= sent[i];
  }
  return sent;
}

/// Trains on scaled signs: every tensor has a part for each worker, and each part has a scale of
/// its own, on the way to its owner and back.
floats trained_on_scaled_signs(bool remembers) {
  std::vector<floats> at_workers(workers, floats(total_elements()));
  floats at_owners(total_elements());
  return trained_with([&](int step, floats& means) {
    std::size_t begin = 0;
    for (std::size_t tensor = tensor_sizes().size(); tensor-- > 0;) {
      const std::size_t first = begin;
      for (std::size_t owner = 0; owner < workers; ++owner) {
        const std::size_t n = dealt(first, tensor_sizes()[tensor], owner, workers);
        if (n == 0) {
          continue;
        }
        floats mean(n);
        for (int worker = 0; worker < workers; ++worker) {
          floats mine(n);
          for (std::size_t i = 0; i < n; ++i) {
            mine[i] = gradient(worker, step, begin + i);
          }
          float* memory = at_workers[static_cast<std::size_t>(worker)].data() + begin;
          const floats sent = signs_of(mine, memory, remembers);
          for (std::size_t i = 0; i < n; ++i) {
            mean[i] += sent[i];
          }
        }
        for (float& each : mean) {
          each *= 1.0f / workers;
        }
        const floats sent = signs_of(mean, at_owners.data() + begin, remembers);
        std::ranges::copy(sent, means.begin() + static_cast<std::ptrdiff_t>(begin));
        begin += n;
      }
    }
  });
}

TEST(Named, EFSignSGD) {
  rule signs{0,
             alone,
             {2'500'000, 25'000'000, 5'000'000, 8, 2'500'000, 300'000},
             {1, 0, 2, 3, 5, 4},
             std::vector<std::uint64_t>(workers),
             all_have(trained_on_scaled_signs(true))};
  const auto payload = [](std::size_t n) { return 4 + (n + 31) / 32 * 4; };
  std::size_t first = 0;
  for (const std::size_t each : signs.chunks) {
    for (std::size_t worker = 0; worker < workers; ++worker) {
      const std::size_t mine = payload(dealt(first, each, worker, workers));
      // Each owner gets its part, and all ranks get this worker's own part.
      for (std::size_t owner = 0; owner < workers; ++owner) {
        signs.bytes[worker] +=
            owner == worker ? 0 : payload(dealt(first, each, owner, workers)) + mine;
      }
    }
    first += each;
  }
  using architecture::reduce_scatter_all_gather;
  using compression::error_feedback;
  using compression::scaled_sign;
  EXPECT_EQ(broken(observe<strategies::EFSignSGD>(workers), signs), "");
  EXPECT_NE(broken(observe<compose<reduce_scatter_all_gather>>(workers), signs), "");

  const auto forgetful = observe<compose<scaled_sign, reduce_scatter_all_gather>>(workers);
  EXPECT_EQ(broken(forgetful, signs), "result ");
  // The default architecture for payloads that can be cut is this one; only the name makes it
  // explicit.
  EXPECT_EQ(broken(observe<compose<error_feedback<scaled_sign>>>(workers), signs), "");
  static_assert(
      std::is_same_v<
          architecture::replicated<>::resolve<error_feedback<scaled_sign>, transport::simulated>,
          reduce_scatter_all_gather>);
  signs.result = all_have(trained_on_scaled_signs(false));
  EXPECT_EQ(broken(forgetful, signs), "");
}

/// In this program each bucket has one scale, and all three tensors fit into one bucket. Rank 0 is
/// the server, too.
TEST(Named, EFSignSGDByAServerTrainsAsZhengsProgram) {
  using by_a_server =
      compose<fusion::all, compression::rescaled_error_feedback<compression::scaled_sign>,
              architecture::parameter_server<>>;
  std::vector<optimizer::sgd> values;
  for (const dist_ef_sgd_step& each : dist_ef_sgd_steps()) {
    values.push_back({.learning_rate = each.learning_rate});
  }
  const floats x = trained_on<by_a_server>(3, values, {35, 33, 6}, floats(74),
                                           [](std::size_t worker, std::size_t step) {
                                             return gradient_in_512ths(74, 3 * step + worker);
                                           });
  ASSERT_EQ(x.size(), parameters_by_dist_ef_sgd.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(x[i], parameters_by_dist_ef_sgd[i], 1e-6) << i;
  }
}

}  // namespace
}  // namespace tutti::test

// Compares power_sgd with the paper's recurrence in double. The test sums payloads by plain
// arithmetic.
#include "tutti/compression/power_sgd.hpp"

#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "compression/low_rank_recurrence.hpp"
#include "compression/placed.hpp"
#include "compression/power_sgd_qr_vectors.hpp"
#include "compression/power_sgd_vectors.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/qsgd.hpp"
#include "tutti/compression/select.hpp"
#include "tutti/compression/sign.hpp"

namespace tutti {
namespace {

using test::norm;
using test::recurrence;
using floats = std::vector<float>;
using doubles = std::vector<double>;

tensor_facts tensor_of(const tensor_shape& shape, std::uint32_t number = 3) {
  return {static_cast<tensor_id>(number), shape.elements(), shape, "w"};
}

floats normal_gradient(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.1f);
  floats made(n);
  std::ranges::generate(made, [&] { return normal(random); });
  return made;
}

double distance(std::span<const float> from, std::span<const double> to) {
  doubles difference(to.size());
  for (std::size_t i = 0; i < to.size(); ++i) {
    difference[i] = double{from[i]} - to[i];
  }
  return norm(difference);
}

/// Ranks that together compress one tensor.
class ranks_of {
 public:
  ranks_of(int count, const tensor_facts& tensor, const compression::power_sgd::options& with)
      : policy(with), tensor_(tensor), all_(static_cast<std::size_t>(count)) {
    for (rank& each : all_) {
      each.residual.resize(tensor.elements);
      each.remembered.resize(policy.remembers(tensor));
      each.scratch.resize(policy.scratch_bytes(tensor) / sizeof(float));
    }
  }

  /// Returns the mean, after a check that all ranks have the same bits.
  floats step(const std::vector<floats>& gradients, int passes = 1) {
    const int count = static_cast<int>(all_.size());
    for (int round = 0; round < 2; ++round) {
      floats sum;
      for (std::size_t i = 0; i < all_.size(); ++i) {
        all_[i].payload.assign(policy.wire_bytes(tensor_, round) / sizeof(float), -1.0f);
        policy.encode(queue, round, gradients[i], wire_of(all_[i].payload), at(i));
        if (i == 0) {
          sum = all_[i].payload;
        } else {
          policy.fold(queue, wire_of(sum), wire_of(all_[i].payload));
        }
      }
      for (std::size_t i = 0; i < all_.size(); ++i) {
        all_[i].payload = sum;
        if (round == 0) {
          policy.between(queue, round, wire_of(all_[i].payload), at(i));
        } else {
          all_[i].mean.assign(tensor_.elements, -1.0f);
          const summed over{count, 1.0f / static_cast<float>(count * passes)};
          policy.decode(queue, wire_of(all_[i].payload), all_[i].mean, at(i), over);
        }
      }
    }
    ++step_;
    for (const rank& each : all_) {
      EXPECT_EQ(each.mean, all_[0].mean);
      EXPECT_EQ(each.remembered, all_[0].remembered) << "what must be equal on all ranks";
    }
    return all_[0].mean;
  }

  bool is_new() const { return step_ == 0; }
  const floats& residual(std::size_t number) const { return all_[number].residual; }
  const floats& remembered() const { return all_[0].remembered; }
  void remember(const floats& q) {
    for (rank& each : all_) {
      each.remembered = q;
    }
  }

  compression::power_sgd policy;
  inline_queue queue;

 private:
  struct rank {
    floats residual{};
    floats remembered{};
    floats scratch{};
    floats payload{};
    floats mean{};
  };
  static wire wire_of(floats& payload) {
    return {reinterpret_cast<std::byte*>(payload.data()), payload.size() * sizeof(float)};
  }
  chunk_context at(std::size_t i) {
    chunk_context where;
    where.memory = all_[i].residual.data();
    where.stride = tensor_.elements;
    where.scratch = std::as_writable_bytes(std::span(all_[i].scratch));
    where.step = step_;
    where.rank = i;
    where.tensor = &tensor_;
    where.remembered = all_[i].remembered.data();
    return where;
  }

  tensor_facts tensor_;
  std::vector<rank> all_;
  std::uint64_t step_ = 0;
};

/// Calls `step(ranks, recurrence, gradients)` for ten steps of random matrices, then `after()`, for
/// every shape, rank and number of ranks.
template <class Step, class After>
void for_ten_steps(const Step& step, const After& after) {
  for (const tensor_shape& shape : {tensor_shape{8, 8}, tensor_shape{16, 10, 2, 2},
                                    tensor_shape{33, 9}, tensor_shape{9, 301}}) {
    for (const std::size_t rank : {1u, 2u, 4u}) {
      for (int count = 1; count <= 5; ++count) {
        const tensor_facts tensor = tensor_of(shape);
        ranks_of ranks(count, tensor, {.rank = rank, .seed = 77});
        recurrence exact(count, shape[0], tensor.elements / shape[0], rank, 77, index(tensor.id));
        for (unsigned number = 0; number < 10; ++number) {
          std::vector<floats> gradients;
          for (int each = 0; each < count; ++each) {
            gradients.push_back(
                normal_gradient(tensor.elements, 100 * number + static_cast<unsigned>(each)));
          }
          step(ranks, exact, gradients);
        }
        after();
      }
    }
  }
}

/// Returns by how much the mean and the residuals differ, relative to the largest norm of a matrix
/// that was compressed.
double off_by(ranks_of& ranks, recurrence& exact, const std::vector<floats>& gradients) {
  const floats mean = ranks.step(gradients);
  const doubles expected = exact.step(gradients);
  double worst = 0;
  for (std::size_t each = 0; each < gradients.size(); ++each) {
    const double length = norm(exact.inputs[each]);
    worst = std::max({worst, distance(mean, expected) / length,
                      distance(ranks.residual(each), exact.residuals[each]) / length});
  }
  return worst;
}

TEST(power_sgd, each_step_is_the_recurrence_in_double) {
  double worst = 0;
  for_ten_steps(
      [&](ranks_of& ranks, recurrence& exact, const std::vector<floats>& gradients) {
        for (std::size_t each = 0; each < gradients.size() && !ranks.is_new(); ++each) {
          exact.go_on_from(each, ranks.residual(each), ranks.remembered());
        }
        worst = std::max(worst, off_by(ranks, exact, gradients));
      },
      [] {});
  EXPECT_LE(worst, 4 * 0x1p-24) << "roundings of what is sent, of the mean and of residuals";
}

/// Where columns of M Q are nearly dependent, the recurrence itself magnifies what payloads lose as
/// floats. By how much is chance, so the bound is on all matrices together and not on each.
TEST(power_sgd, ten_steps_stay_with_the_recurrence_in_double) {
  double worst = 0;
  doubles all;
  for_ten_steps(
      [&](ranks_of& ranks, recurrence& exact, const std::vector<floats>& gradients) {
        worst = std::max(worst, off_by(ranks, exact, gradients));
      },
      [&] { all.push_back(std::exchange(worst, 0)); });
  std::ranges::sort(all);
  EXPECT_LE(all[all.size() / 2], 1e-6);
  EXPECT_LE(all[all.size() * 9 / 10], 1e-5);
  EXPECT_LE(all.back(), 1e-3);
}

using by_rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Subspace iteration by Eigen's Householder reflections, which share no arithmetic with
/// Gram-Schmidt. The bases differ in signs, but the projections on them do not.
class projection {
 public:
  projection(std::size_t count, Eigen::MatrixXd first)
      : q_(std::move(first)), residuals(count, by_rows::Zero(0, 0)) {}

  by_rows step(const std::vector<by_rows>& gradients) {
    by_rows sum = by_rows::Zero(gradients[0].rows(), gradients[0].cols());
    for (std::size_t rank = 0; rank < gradients.size(); ++rank) {
      residuals[rank] = residuals[rank].size() == 0 ? gradients[rank]
                                                    : by_rows(residuals[rank] + gradients[rank]);
      sum += residuals[rank];
    }
    const Eigen::MatrixXd image = sum * q_;
    const Eigen::HouseholderQR<Eigen::MatrixXd> reflections(image);
    const Eigen::MatrixXd basis =
        reflections.householderQ() * Eigen::MatrixXd::Identity(image.rows(), image.cols());
    q_ = sum.transpose() * basis / static_cast<double>(gradients.size());
    const by_rows mean = basis * q_.transpose();
    for (by_rows& each : residuals) {
      each -= mean;
    }
    return mean;
  }

 private:
  Eigen::MatrixXd q_;

 public:
  std::vector<by_rows> residuals;  ///< of each rank; in a step, what it compresses
};

TEST(power_sgd, projects_on_the_span_that_reflections_find) {
  for (const tensor_shape& shape : {tensor_shape{8, 8}, tensor_shape{16, 10, 2, 2},
                                    tensor_shape{33, 9}, tensor_shape{9, 301}}) {
    for (const std::size_t rank : {1u, 3u, 8u}) {
      for (const int count : {1, 2, 5}) {
        const tensor_facts tensor = tensor_of(shape);
        const auto rows = static_cast<Eigen::Index>(shape[0]);
        const auto columns = static_cast<Eigen::Index>(tensor.elements / shape[0]);
        ranks_of ranks(count, tensor, {.rank = rank});
        const floats first = normal_gradient(rank * tensor.elements / shape[0], 5);
        ranks.remember(first);
        projection exact(static_cast<std::size_t>(count),
                         Eigen::Map<const Eigen::MatrixXf>(first.data(), columns,
                                                           static_cast<Eigen::Index>(rank))
                             .cast<double>());
        for (unsigned step = 0; step < 6; ++step) {
          std::vector<floats> gradients;
          std::vector<by_rows> given;
          for (unsigned each = 0; each < static_cast<unsigned>(count); ++each) {
            gradients.push_back(normal_gradient(tensor.elements, 100 * step + each));
            given.push_back(
                Eigen::Map<
                    const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
                    gradients.back().data(), rows, columns)
                    .cast<double>());
          }
          const floats mean = ranks.step(gradients);
          const by_rows expected = exact.step(given);
          const auto near = [&](const floats& from, const by_rows& to) {
            return distance(from, {to.data(), static_cast<std::size_t>(to.size())}) <=
                   1e-5 * (1 + to.norm());
          };
          ASSERT_TRUE(near(mean, expected))
              << count << " ranks, rank " << rank << ", " << rows << " x " << columns;
          for (std::size_t each = 0; each < gradients.size(); ++each) {
            ASSERT_TRUE(near(ranks.residual(each), exact.residuals[each])) << each;
          }
        }
      }
    }
  }
}

/// Compares steps that begin from the hook's Q, because the hook draws its first Q otherwise.
/// Floats are added in another order. QR may flip a column's sign in both P and Q, which leaves
/// their product unchanged.
void is_as_the_hook(const test::hook_run& run) {
  const std::size_t elements = run.matrix.elements();
  const int first_known = 5 - static_cast<int>(run.means.size());
  ranks_of ranks(2, tensor_of(run.matrix), {.rank = run.rank});
  ranks.remember(run.first_q);
  for (int step = 2; step < 5; ++step) {
    const floats mean = ranks.step(
        {test::gradient_of_hook(elements, 0, step), test::gradient_of_hook(elements, 1, step)});
    if (step < first_known) {
      continue;
    }
    for (std::size_t i = 0; i < elements; ++i) {
      ASSERT_NEAR(mean[i], run.means[static_cast<std::size_t>(step - first_known)][i], 2e-6)
          << "rank " << run.rank << ", step " << step << ", element " << i;
    }
  }
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::size_t i = 0; i < elements; ++i) {
      ASSERT_NEAR(ranks.residual(rank)[i], run.residuals[rank][i], 4e-6) << i;
    }
  }
}

TEST(power_sgd, is_pytorchs_hook) {
  for (const auto& runs : {test::hook_runs_of_low_rank(), test::hook_runs_by_qr()}) {
    for (const test::hook_run& run : runs) {
      is_as_the_hook(run);
    }
  }
}

/// What is contributed equals what is applied plus the residuals, over all ranks, up to one
/// rounding of each.
TEST(power_sgd, loses_nothing) {
  const tensor_facts tensor = tensor_of({20, 31});
  ranks_of ranks(3, tensor, {.rank = 2});
  doubles contributed(tensor.elements);
  doubles applied(tensor.elements);
  for (unsigned step = 0; step < 30; ++step) {
    std::vector<floats> gradients;
    for (unsigned rank = 0; rank < 3; ++rank) {
      gradients.push_back(normal_gradient(tensor.elements, 3 * step + rank));
    }
    const floats mean = ranks.step(gradients);
    for (std::size_t i = 0; i < tensor.elements; ++i) {
      for (const floats& each : gradients) {
        contributed[i] += each[i];
      }
      applied[i] += 3 * double{mean[i]};
    }
  }
  for (std::size_t i = 0; i < tensor.elements; ++i) {
    double kept = 0;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      kept += ranks.residual(rank)[i];
    }
    ASSERT_NEAR(applied[i] + kept, contributed[i], 30 * 3 * 1e-7);
  }
}

TEST(power_sgd, of_full_rank_sends_everything) {
  for (const tensor_shape& shape : {tensor_shape{6, 4}, tensor_shape{3, 50}, tensor_shape{1, 1},
                                    tensor_shape{1, 9}, tensor_shape{9, 1}, tensor_shape{5}}) {
    const tensor_facts tensor = tensor_of(shape);
    ranks_of ranks(2, tensor, {.rank = 8});
    for (unsigned step = 0; step < 3; ++step) {
      const floats gradient = normal_gradient(tensor.elements, step);
      const floats mean = ranks.step({gradient, gradient}, 3);
      for (std::size_t i = 0; i < tensor.elements; ++i) {
        ASSERT_NEAR(mean[i], gradient[i] / 3, 1e-6) << "the average is also over three passes";
        ASSERT_NEAR(ranks.residual(1)[i], 0, 1e-6) << "the residual is not";
      }
    }
  }
}

TEST(power_sgd, goes_on_after_gradients_of_zero_or_of_less_rank) {
  const tensor_facts tensor = tensor_of({12, 10});
  ranks_of ranks(2, tensor, {.rank = 3});
  const floats zeros(tensor.elements);
  EXPECT_EQ(ranks.step({zeros, zeros}), zeros);
  EXPECT_EQ(ranks.remembered(), floats(ranks.remembered().size())) << "and begins again";
  floats product(tensor.elements);
  for (std::size_t i = 0; i < product.size(); ++i) {
    product[i] = static_cast<float>(i / 10 + 1) * (static_cast<float>(i % 10) - 4.5f);
  }
  const auto exact = [&](const floats& gradient) {
    const doubles wanted(gradient.begin(), gradient.end());
    const floats mean = ranks.step({gradient, gradient});
    EXPECT_LE(distance(mean, wanted), 1e-5 * norm(wanted));
  };
  exact(product);  // of rank 1
  for (std::size_t i = 0; i < product.size(); ++i) {
    product[i] += i / 10 % 2 ? 20.0f : -7.0f;
    product[i] += static_cast<float>((i / 10 % 5) * (i % 10 % 3));
  }
  for (int step = 0; step < 5; ++step) {
    ranks.step({product, product});  // of rank 3: columns that were unused are used again
  }
  doubles rest(ranks.residual(0).begin(), ranks.residual(0).end());
  EXPECT_LE(norm(rest), 1e-3 * norm(doubles(product.begin(), product.end())));
}

TEST(power_sgd, has_lengths_that_follow_from_the_shape) {
  const compression::power_sgd policy({.rank = 4});
  const auto bytes = [&](const tensor_facts& tensor) {
    return std::vector<std::size_t>{policy.wire_bytes(tensor, 0), policy.wire_bytes(tensor, 1),
                                    policy.remembers(tensor), policy.scratch_bytes(tensor)};
  };
  using sizes = std::vector<std::size_t>;
  EXPECT_EQ(bytes(tensor_of({64, 32, 3, 3})),
            (sizes{4 * 64 * 4, 4 * 288 * 4, 4 * 288, 4 * 64 * 4}));
  EXPECT_EQ(bytes(tensor_of({2, 5})), (sizes{2 * 2 * 4, 2 * 5 * 4, 2 * 5, 2 * 2 * 4}));
  EXPECT_EQ(bytes(tensor_of({7})), (sizes{7 * 4, 4, 1, 7 * 4}));
  EXPECT_EQ(bytes(tensor_of({0, 5})), (sizes{0, 0, 0, 0}));
  tensor_facts without{};
  without.elements = 7;
  EXPECT_EQ(bytes(without), (sizes{7 * 4, 4, 1, 7 * 4}));
  EXPECT_THROW(compression::power_sgd({.rank = 0}), usage_error);
}

// ---- select

TEST(select, asks_a_tensors_shape_size_or_name) {
  using by_shape = compression::select<matrices, compression::power_sgd, compression::none>;
  const by_shape policy({.chosen = {.rank = 2}});
  EXPECT_TRUE(policy.chooses(tensor_of({8, 8})));
  EXPECT_TRUE(policy.chooses(tensor_of({8, 1, 3})));
  for (const tensor_shape& vector : {tensor_shape{}, {8}, {8, 1, 1}, {1, 8}}) {
    EXPECT_FALSE(policy.chooses(tensor_of(vector)));
  }
  const tensor_facts matrix = tensor_of({8, 8});
  EXPECT_EQ(policy.visit(true,
                         [&](const auto& chosen) -> std::size_t {
                           if constexpr (requires { chosen.wire_bytes(matrix, 0); }) {
                             return chosen.wire_bytes(matrix, 0);
                           }
                           return 0;
                         }),
            8 * 2 * 4u);
  const compression::select<at_least, compression::sign, compression::none> by_size(
      {.rule = {.elements = 64}});
  EXPECT_TRUE(by_size.chooses(tensor_of({8, 8})));
  EXPECT_FALSE(by_size.chooses(tensor_of({7, 9})));
  const compression::select<named<"*.bias">, compression::none, compression::sign> by_name;
  EXPECT_TRUE(by_name.chooses({{}, 4, {}, "conv1.bias"}));
  EXPECT_FALSE(by_name.chooses({{}, 4, {}, "conv1.weight"}));
  const compression::select<both<matrices, at_least>, compression::power_sgd, compression::none>
      large({.rule = {.second = {.elements = 65}}});
  EXPECT_FALSE(large.chooses(tensor_of({8, 8})));
  EXPECT_FALSE(large.chooses(tensor_of({80})));
  EXPECT_TRUE(large.chooses(tensor_of({8, 9})));
}

TEST(select, knows_names_by_their_ends) {
  const auto is = [](auto rule, const char* name) {
    const tensor_facts tensor{{}, 4, {}, name};
    return rule(tensor);
  };
  EXPECT_TRUE(is(named<"head">{}, "head"));
  EXPECT_FALSE(is(named<"head">{}, "head.bias"));
  EXPECT_FALSE(is(named<"">{}, "head"));
  EXPECT_TRUE(is(named<"layer1.*">{}, "layer1.0.weight"));
  EXPECT_FALSE(is(named<"layer1.*">{}, "layer10.weight"));
  EXPECT_TRUE(is(named<"*.bias">{}, "fc.bias"));
  EXPECT_FALSE(is(named<"*.bias">{}, "fc.bias2"));
  EXPECT_TRUE(is(named<"*norm*">{}, "layer.norm1.weight"));
  EXPECT_FALSE(is(named<"*norm*">{}, "layer.weight"));
  EXPECT_TRUE(is(named<"*">{}, "anything"));
  EXPECT_TRUE(is(every_tensor{}, ""));
}

TEST(tensor_shape, has_at_most_eight_dimensions) {
  EXPECT_EQ((tensor_shape{2, 3, 4}.elements()), 24u);
  EXPECT_EQ(tensor_shape{}.dimensions(), 0u);
  EXPECT_NE((tensor_shape{2, 3}), (tensor_shape{3, 2}));
  EXPECT_THROW((tensor_shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), usage_error);
}

// ---- types that are no compressors

/// Adds floats behind their largest, where a collective would cut the payload anywhere.
struct with_a_header : compression::none {
  static constexpr std::size_t wire_bytes(std::size_t elements) { return 4 + 4 * elements; }
};
/// Says that its payloads add, although only the encoder knows their length.
struct sums_what_varies : compression::qsgd {
  static constexpr bool summable = true;
};
static_assert(!compression_policy<with_a_header>);
static_assert(!compression_policy<sums_what_varies>);

TEST(compression_policy, is_measured_where_it_is_used) {
  EXPECT_TRUE(facts::variable_length<compression::qsgd>);
  EXPECT_FALSE(facts::variable_length<compression::none>);
  EXPECT_EQ(capacity(compression::none{}, 10), 40u);
  EXPECT_EQ(expected(compression::none{}, 10), 40u);
  EXPECT_EQ(facts::rounds<compression::power_sgd>, 2);
  EXPECT_EQ(facts::rounds<compression::none>, 1);
}

}  // namespace
}  // namespace tutti

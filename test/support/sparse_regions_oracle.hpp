#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

/// Reference for Ok-Topk in plain loops over all ranks: algorithms 1 and 2 of Li and Hoefler, PPoPP
/// 2022, and the adjustments of a kept magnitude in their VGG/allreducer.py.
namespace tutti::test {

/// The result in integers, or in floats that are added in rank order.
template <class T>
struct regional_selections {
  std::vector<std::vector<T>> sums{};       ///< [step][element]: what all ranks apply, not averaged
  std::vector<std::vector<T>> residuals{};  ///< [rank][element]
  std::vector<std::uint64_t> bytes{};       ///< that each rank sends in all steps together
  bool operator==(const regional_selections&) const = default;
};

struct regional_rule {
  std::size_t k{1};
  std::size_t estimate_every{1};
  std::size_t divide_every{1};
  std::size_t balance_above{0};
  int raises{0};
  double own_correction{1};
  double sum_correction{1};
};

/// Returns the k-th largest magnitude, or 0 if fewer than k are above 0. Zeros are never selected.
template <class T>
T kth_magnitude(const std::vector<T>& of, std::size_t k) {
  if (of.empty()) {
    return T{};
  }
  std::vector<T> all(of.size());
  std::ranges::transform(of, all.begin(), [](T each) { return std::abs(each); });
  const auto its = all.begin() + static_cast<std::ptrdiff_t>(std::min(k, all.size()) - 1);
  std::nth_element(all.begin(), its, all.end(), std::greater<>());
  return *its;
}

/// Trains on `gradient(rank, step, element)`.
template <class Gradient>
auto selected_in_regions(const regional_rule& rule, std::size_t ranks, std::size_t n,
                         std::size_t steps, Gradient gradient) {
  using number = decltype(gradient(ranks, steps, n));
  using numbers = std::vector<number>;
  regional_selections<number> all{
      {}, std::vector<numbers>(ranks, numbers(n)), std::vector<std::uint64_t>(ranks)};
  std::vector<float> own(ranks);
  float of_sums = 0;
  std::vector<std::size_t> ends(ranks, n);
  const auto reaches = [](number value, float magnitude) {
    return value != 0 && static_cast<float>(std::abs(value)) >= magnitude;
  };
  const auto all_in = [&](const numbers& values, float magnitude) {
    return std::ranges::count_if(values, [&](number each) { return reaches(each, magnitude); });
  };
  const auto times = [](float magnitude, double by) {
    return static_cast<float>(static_cast<double>(magnitude) * by);
  };
  const auto corrected = [&](float magnitude, auto reached, double most, double by) {
    const auto count = static_cast<double>(reached);
    const auto k = static_cast<double>(rule.k);
    const double factor = count < 2 * k / 3 ? 1 / by : count > most ? by : 1;
    return times(magnitude, factor);
  };
  const auto pairs_in = [&](const numbers& values, float magnitude, std::size_t region) {
    std::uint64_t count = 0;
    for (std::size_t i = region == 0 ? 0 : ends[region - 1]; i < ends[region]; ++i) {
      count += reaches(values[i], magnitude) ? 1 : 0;
    }
    return 4 + 8 * count;
  };
  for (std::size_t step = 0; step < steps; ++step) {
    const bool estimates = step % rule.estimate_every == 0;
    std::vector<std::size_t> wishes(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      numbers& residual = all.residuals[rank];
      std::vector<std::size_t> picked;
      for (std::size_t i = 0; i < n; ++i) {
        residual[i] += gradient(rank, step, i);
      }
      own[rank] = estimates ? static_cast<float>(kth_magnitude(residual, rule.k)) : own[rank];
      for (int raised = 0; !estimates && raised < rule.raises; ++raised) {
        const auto most = static_cast<std::ptrdiff_t>(4 * rule.k / 3);
        own[rank] = all_in(residual, own[rank]) > most ? times(own[rank], 1.03) : own[rank];
      }
      for (std::size_t i = 0; i < n; ++i) {
        if (reaches(residual[i], own[rank])) {
          picked.push_back(i);
        }
      }
      for (std::size_t i = 1; i < ranks; ++i) {
        wishes[i] += picked.empty() ? n / ranks * i + std::min(i, n % ranks)
                                    : picked[i * picked.size() / ranks];
      }
    }
    if (step % rule.divide_every == 0 && ranks > 1) {
      for (std::size_t i = 1; i < ranks; ++i) {
        ends[i - 1] = wishes[i] / ranks;
      }
      for (std::uint64_t& sent : all.bytes) {
        sent += n == 0 ? 0 : 4 * (ranks - 1) * (ranks - 1);
      }
    }
    numbers sums(n);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (std::size_t i = 0; i < n; ++i) {
        const number value = all.residuals[rank][i];
        sums[i] += reaches(value, own[rank]) ? value : 0;
      }
      for (std::size_t owner = 0; owner < ranks && n > 0; ++owner) {
        all.bytes[rank] += owner == rank ? 0 : pairs_in(all.residuals[rank], own[rank], owner);
      }
    }
    of_sums = estimates ? static_cast<float>(kth_magnitude(sums, rule.k)) : of_sums;
    std::vector<std::size_t> owners;  // the owner of each sum that is kept
    std::size_t most = 0;
    for (std::size_t owner = 0; owner < ranks; ++owner) {
      const std::size_t count = (pairs_in(sums, of_sums, owner) - 4) / 8;
      owners.resize(owners.size() + count, owner);
      most = std::max(most, count);
    }
    const bool may_balance = !estimates && rule.balance_above > 0 && n > 0;
    const bool balances = may_balance && most * ranks > rule.balance_above * owners.size();
    for (std::size_t rank = 0; rank < ranks && n > 0; ++rank) {
      all.bytes[rank] += may_balance ? 4 * (ranks - 1) : 0;
      all.bytes[rank] += balances ? 0 : (ranks - 1) * pairs_in(sums, estimates ? 0 : of_sums, rank);
    }
    for (std::size_t rank = 0, i = 0; rank < ranks && balances; ++rank) {
      const std::size_t part = owners.size() / ranks + (rank < owners.size() % ranks ? 1 : 0);
      all.bytes[rank] += (ranks - 1) * (4 + 8 * part);
      for (const std::size_t end = i + part; i < end; ++i) {
        all.bytes[owners[i]] += owners[i] == rank ? 0 : 8;
      }
    }
    const float reached = of_sums;
    const auto k = static_cast<double>(rule.k);
    if (!estimates) {
      of_sums = corrected(of_sums, all_in(sums, of_sums), 4 * k / 3, rule.sum_correction);
    }
    for (std::size_t i = 0; i < n; ++i) {
      sums[i] = reaches(sums[i], reached) ? sums[i] : 0;
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      numbers& left = all.residuals[rank];
      const auto sent = all_in(left, own[rank]);
      for (std::size_t i = 0; i < n; ++i) {
        left[i] = sums[i] != 0 && reaches(left[i], own[rank]) ? 0 : left[i];
      }
      own[rank] = corrected(own[rank], sent, 5 * k / 4, rule.own_correction);
    }
    all.sums.push_back(sums);
  }
  return all;
}

}  // namespace tutti::test

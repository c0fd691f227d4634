#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "tutti/architecture/sparse_tree.hpp"

/// Reference for gTopK in plain loops over all ranks.
namespace tutti::test {

/// The result in integers, or in floats that are added in the order in which ranks merge.
template <class T>
struct selections {
  std::vector<std::vector<T>> sums;       ///< [step][element]: what all ranks apply, not averaged
  std::vector<std::vector<T>> residuals;  ///< [rank][element]
  bool operator==(const selections&) const = default;
};

template <class T>
using selected = std::map<std::size_t, T>;

template <class T>
selected<T> largest(const selected<T>& of, std::size_t k) {
  using pair = std::pair<std::size_t, T>;
  std::vector<pair> all(of.begin(), of.end());
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(std::min(k, all.size()));
  std::nth_element(all.begin(), end, all.end(), [](const pair& a, const pair& b) {
    const T left = std::abs(a.second);
    const T right = std::abs(b.second);
    return left > right || (left == right && a.first < b.first);
  });
  return {all.begin(), end};
}

/// Trains on `gradient(rank, step, element)`.
template <class Gradient>
auto selected_by_a_tree(architecture::give_back rule, std::size_t ranks, std::size_t n,
                        std::size_t k, std::size_t steps, Gradient gradient) {
  using architecture::give_back;
  using number = decltype(gradient(ranks, steps, n));
  selections<number> all{{}, std::vector<std::vector<number>>(ranks, std::vector<number>(n))};
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<selected<number>> own(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::vector<number>& residual = all.residuals[rank];
      selected<number> whole;
      for (std::size_t i = 0; i < n; ++i) {
        whole.emplace_hint(whole.end(), i, residual[i] += gradient(rank, step, i));
      }
      own[rank] = largest(whole, k);
      for (const auto& [i, value] : own[rank]) {
        residual[i] = 0;
      }
    }
    std::vector<selected<number>> held = own;
    for (std::size_t distance = 1; distance < ranks; distance *= 2) {
      for (std::size_t rank = 0; rank + distance < ranks; rank += 2 * distance) {
        selected<number> both = held[rank];
        for (const auto& [i, value] : held[rank + distance]) {
          both[i] += value;
        }
        held[rank] = largest(both, k);
        for (const auto& [i, value] : both) {
          if (rule == give_back::exact && !held[rank].contains(i)) {
            all.residuals[rank][i] += value;
          }
        }
      }
    }
    for (std::size_t rank = 0; rule == give_back::compatible && rank < ranks; ++rank) {
      for (const auto& [i, value] : own[rank]) {
        all.residuals[rank][i] += held[0].contains(i) ? 0 : value;
      }
    }
    all.sums.emplace_back(n);
    for (const auto& [i, value] : held[0]) {
      all.sums.back()[i] = value;
    }
  }
  return all;
}

}  // namespace tutti::test

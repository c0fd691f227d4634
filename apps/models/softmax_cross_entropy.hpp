#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace models {

/// The result of classifying a batch or a whole data set.
struct score {
  double loss{};  ///< summed over the images
  std::size_t correct{};
  std::size_t images{};

  score& operator+=(const score& other) {
    loss += other.loss;
    correct += other.correct;
    images += other.images;
    return *this;
  }
  double mean_loss() const { return loss / static_cast<double>(images); }
  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(images); }
};

/// Scores `labels.size()` rows of `logits`. Rows beyond the labels pad a short batch and are
/// ignored.
inline score softmax_cross_entropy(std::span<const float> logits,
                                   std::span<const std::uint8_t> labels, std::size_t classes) {
  score total{.images = labels.size()};
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto row = logits.subspan(i * classes, classes);
    const auto top = std::max_element(row.begin(), row.end());
    float sum = 0;
    for (const float logit : row) {
      sum += std::exp(logit - *top);
    }
    total.loss += static_cast<double>(std::log(sum) - (row[labels[i]] - *top));
    total.correct += static_cast<std::size_t>(top - row.begin() == labels[i]);
  }
  return total;
}

/// Writes the gradient of the mean loss over the labels by the logits. Rows beyond the labels get
/// zeros and so have no effect.
inline void softmax_cross_entropy_gradient(std::span<const float> logits,
                                           std::span<const std::uint8_t> labels,
                                           std::size_t classes, std::span<float> gradient) {
  const float share = 1.0F / static_cast<float>(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto row = logits.subspan(i * classes, classes);
    const auto out = gradient.subspan(i * classes, classes);
    const float top = *std::max_element(row.begin(), row.end());
    float sum = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      out[c] = std::exp(row[c] - top);
      sum += out[c];
    }
    for (std::size_t c = 0; c < classes; ++c) {
      out[c] = (out[c] / sum - (c == labels[i] ? 1.0F : 0.0F)) * share;
    }
  }
  std::ranges::fill(gradient.subspan(labels.size() * classes), 0.0F);
}

}  // namespace models

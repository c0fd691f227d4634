#pragma once

#include <cstddef>

#include "models/replayed/layers.hpp"

namespace models {

/// Tokens of a sequence. Pre-training in the measurements that are replayed is on short ones.
constexpr std::size_t bert_positions = 64;

struct encoder {
  std::size_t layers{};
  std::size_t hidden{};
  std::size_t vocabulary{};
};

/// From the embeddings to the pooler, without a task on top; names as in Hugging Face's
/// transformers. After: Devlin et al., "BERT", 2019.
layer_list bert(const encoder& of);

}  // namespace models

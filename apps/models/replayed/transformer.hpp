#pragma once

#include <cstddef>

#include "models/replayed/layers.hpp"

namespace models {

/// The tokens of a sequence. The measurements that are replayed pre-train on short sequences.
constexpr std::size_t bert_positions = 64;

struct encoder {
  std::size_t layers{};
  std::size_t hidden{};
  std::size_t vocabulary{};
};

/// Lists BERT's tensors from the embeddings to the pooler, without a task's head. Names are those
/// of Hugging Face's transformers. After: Devlin et al., "BERT", 2019.
layer_list bert(const encoder& of);

}  // namespace models

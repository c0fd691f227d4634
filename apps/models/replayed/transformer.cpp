#include "models/replayed/transformer.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "models/replayed/networks.hpp"
#include "models/replayed/torch_layers.hpp"

namespace models {
namespace {

void encoder_layer(layer_list& to, const std::string& at, std::size_t hidden) {
  const auto linear = [&](const std::string& name, std::size_t inputs, std::size_t outputs) {
    torch::linear(to, at + name, inputs, outputs, bert_positions);
  };
  const data::shape activation{hidden, bert_positions, 1};
  for (const auto* name : {"query", "key", "value"}) {
    linear(std::string(".attention.self.") + name, hidden, hidden);
  }
  linear(".attention.output.dense", hidden, hidden);
  torch::normalise(to, at + ".attention.output.LayerNorm", activation);
  linear(".intermediate.dense", hidden, 4 * hidden);
  linear(".output.dense", 4 * hidden, hidden);
  torch::normalise(to, at + ".output.LayerNorm", activation);
}

/// BERT with the two tasks of pre-training. The matrix of the word embeddings multiplies a second
/// time here, but is listed with the look-up, where it must be current first and where its gradient
/// is final last. The time of the product is therefore counted for the bias, the only other tensor
/// of the product.
std::vector<counted_tensor> pre_training(const encoder& of) {
  layer_list to = bert(of);
  const data::shape words{of.vocabulary, bert_positions, 1};
  to.add({"cls.predictions.bias", of.vocabulary,
          static_cast<double>(words.size()) * static_cast<double>(1 + 2 * of.hidden)});
  torch::linear(to, "cls.predictions.transform.dense", of.hidden, of.hidden, bert_positions);
  torch::normalise(to, "cls.predictions.transform.LayerNorm", {of.hidden, bert_positions, 1});
  torch::linear(to, "cls.seq_relationship", of.hidden, 2);
  return std::move(to).take();
}

// Google's vocabulary of 30,522 words, padded to a multiple of 64.
constexpr std::size_t padded_vocabulary = 30528;

}  // namespace

layer_list bert(const encoder& of) {
  layer_list to;
  const std::string embeddings = "bert.embeddings.";
  to.look_up(embeddings + "word_embeddings.weight", of.vocabulary, of.hidden, bert_positions);
  to.look_up(embeddings + "position_embeddings.weight", 512, of.hidden, bert_positions);
  to.look_up(embeddings + "token_type_embeddings.weight", 2, of.hidden, bert_positions);
  torch::normalise(to, embeddings + "LayerNorm", {of.hidden, bert_positions, 1});
  for (std::size_t layer = 0; layer < of.layers; ++layer) {
    encoder_layer(to, "bert.encoder.layer." + std::to_string(layer), of.hidden);
  }
  torch::linear(to, "bert.pooler.dense", of.hidden, of.hidden);
  return to;
}

namespace counted {

std::vector<counted_tensor> bert_base() {
  return pre_training({.layers = 12, .hidden = 768, .vocabulary = padded_vocabulary});
}
std::vector<counted_tensor> bert_large() {
  return pre_training({.layers = 24, .hidden = 1024, .vocabulary = padded_vocabulary});
}

}  // namespace counted
}  // namespace models

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tutti/base/tensor.hpp"

namespace models {

/// A tensor that is communicated, and the seconds of forward and of backward that are its own.
struct replayed_tensor {
  std::string name{};
  std::size_t elements{};
  double forward_seconds{};
  double backward_seconds{};
  tutti::tensor_shape shape{};  ///< of a tensor from a file, where the file says
};

/// A network as communication sees it, for a simulator to replay: nothing is computed. Tensors in
/// forward order; times are of one iteration of `batch` samples on `device`, which says where they
/// come from.
///
/// A built-in network's totals were measured by others, forward taken to be a third of them. Within
/// each pass a tensor's share of the time is its share of the floating-point operations that one
/// sample's forward pass spends on it, taken to be the same backward:
///   weights of a convolution or a matrix: two for each multiplication with an input;
///   bias, scale and offset of a normalisation: one for each element of the activation they touch;
///   an embedding: one for each element that is looked up. Where its matrix multiplies again at the
///   output (BERT's words), that product is the output bias's: it is first backward, and the
///   matrix's gradient is final only after the look-up's.
/// What belongs to no tensor (rectifiers, pooling, the products within attention) counts nowhere.
/// So normalisation is dearer than here where memory, not arithmetic, is the limit.
struct replayed {
  std::string name{};
  std::size_t batch{};
  std::string device{};
  std::vector<replayed_tensor> tensors{};

  double forward() const;   ///< seconds
  double backward() const;  ///< seconds
  std::size_t elements() const;
};

/// The built-in networks.
std::vector<std::string> replayed_names();

/// A built-in network, or the user's own if `name` ends in `.csv`. Such a file begins with the line
/// `name,elements,forward_us,backward_us` and has a line for each tensor, in forward order; a fifth
/// column `shape`, as 64x3x7x7, may follow, and a field of it be empty; blank lines and lines that
/// begin with `#` count for nothing, but `# batch 64` says of how many samples the times are (1
/// otherwise). Throws tutti::usage_error that names the culprit and the fix: the nearest name, or
/// the file's line.
replayed replay(const std::string& name);

/// The network where a pass takes longer or shorter: every tensor keeps its share of it.
/// Throws tutti::usage_error where a total is no time, or there are no shares to keep.
replayed with_totals(replayed network, double forward_seconds, double backward_seconds);

}  // namespace models

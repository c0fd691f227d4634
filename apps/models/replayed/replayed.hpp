#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tutti/base/tensor.hpp"

namespace models {

/// A tensor that is communicated, and its shares of the forward and the backward pass in seconds.
struct replayed_tensor {
  std::string name{};
  std::size_t elements{};
  double forward_seconds{};
  double backward_seconds{};
  tutti::tensor_shape shape{};  ///< empty for a tensor from a file that does not state it
};

/// A network as a list of tensors and times, for a simulator to replay; nothing is computed.
/// Tensors are in forward order. Times are those of one iteration of `batch` samples on `device`,
/// which also says where they come from.
///
/// The total times of built-in networks were measured by others; the forward pass is taken to be a
/// third of them. Within each pass, a tensor's share of the time is its share of the floating-point
/// operations that one sample's forward pass spends on it. The backward pass is taken to have the
/// same shares. Operations are counted as follows:
/// - weights of a convolution or a matrix: two for each multiplication with an input;
/// - bias, and scale and offset of a normalisation: one for each element of the activation;
/// - an embedding: one for each element that is looked up. If its matrix is used again in the
///   output layer (BERT's words), that product is counted for the output bias: it comes first in
///   the backward pass, but the matrix's gradient is final only after the look-up's.
///
/// What belongs to no tensor (rectifiers, pooling, the products within attention) is not counted.
/// Normalisation therefore takes longer than stated here where memory limits it, and not
/// arithmetic.
struct replayed {
  std::string name{};
  std::size_t batch{};
  std::string device{};
  std::vector<replayed_tensor> tensors{};

  double forward() const;   ///< seconds
  double backward() const;  ///< seconds
  std::size_t elements() const;
};

/// Returns the names of the built-in networks.
std::vector<std::string> replayed_names();

/// Returns a built-in network, or the user's own if `name` ends in `.csv`. Such a file begins with
/// the line `name,elements,forward_us,backward_us` and has a line for each tensor, in forward
/// order. A fifth column `shape`, as 64x3x7x7, may follow, whose fields may be empty. Blank lines
/// and lines that begin with `#` are ignored, except that `# batch 64` states for how many samples
/// the times are (otherwise 1). Throws tutti::usage_error that names the fault and the fix: the
/// nearest name, or the file's line.
replayed replay(const std::string& name);

/// Returns the network with other total times; every tensor keeps its share of each pass. Throws
/// tutti::usage_error if a total is not a finite time of 0 or more, or if the network has no times
/// to take shares from.
replayed with_totals(replayed network, double forward_seconds, double backward_seconds);

}  // namespace models

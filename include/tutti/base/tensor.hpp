#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/line_vector.hpp"
#include "tutti/base/units.hpp"

namespace tutti {

/// A parameter tensor's place in the forward pass; 0 is nearest the input.
enum class tensor_id : std::uint32_t {};

constexpr std::size_t index(tensor_id id) { return static_cast<std::size_t>(id); }

/// The lengths of a tensor's dimensions in memory order, the slowest first. A shape without
/// dimensions is not declared, and its tensor is treated as a vector.
class tensor_shape {
 public:
  static constexpr std::size_t most_dimensions = 8;

  constexpr tensor_shape() = default;
  /// Throws usage_error above `most_dimensions`.
  constexpr tensor_shape(std::initializer_list<std::size_t> lengths)
      : tensor_shape(std::span<const std::size_t>(lengths.begin(), lengths.size())) {}
  explicit constexpr tensor_shape(std::span<const std::size_t> lengths)
      : dimensions_(lengths.size()) {
    if (lengths.size() > most_dimensions) {
      throw usage_error(
          "a tensor's shape may have at most 8 dimensions. Fix: merge the innermost ones");
    }
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      lengths_[i] = lengths[i];
    }
  }

  constexpr std::size_t dimensions() const { return dimensions_; }
  constexpr std::size_t operator[](std::size_t dimension) const { return lengths_[dimension]; }
  /// The product of the lengths.
  constexpr std::size_t elements() const {
    std::size_t product = 1;
    for (std::size_t i = 0; i < dimensions_; ++i) {
      product *= lengths_[i];
    }
    return product;
  }
  friend constexpr bool operator==(const tensor_shape&, const tensor_shape&) = default;

 private:
  std::array<std::size_t, most_dimensions> lengths_{};
  std::size_t dimensions_{};
};

/// The format of a gradient's elements: IEEE binary32, IEEE binary16 or bfloat16.
enum class element_type : std::uint8_t { fp32, fp16, bf16 };

/// One parameter tensor as its model declares it. The memory belongs to the model and must outlive
/// the engine. A tensor without memory (all spans empty, `elements` set) is a phantom: the
/// simulator sends messages of its length, but no values. An engine refuses a tensor whose spans
/// are not `elements` long. Only the gradients' spans may be empty, those of all tensors, for a
/// strategy that lends gradients their memory (`engine::gradient`).
///
/// Parameters are floats. A gradient may have 16 bits an element: the engine widens it to floats
/// when it takes it, and makes sums and means in floats. Only a mean that is left to the model,
/// where there is no optimizer, is rounded back to 16 bits (to nearest, ties to even). Cost of a
/// 16-bit gradient: a buffer of floats, and a pass over it.
struct tensor {
  std::string name{};
  std::size_t elements{};
  std::span<float> parameter{};
  std::span<float> gradient{};                 ///< if it is fp32
  std::span<std::uint16_t> narrow_gradient{};  ///< if it is fp16 or bf16; `gradient` is then empty
  element_type gradient_type{element_type::fp32};
  tensor_shape shape{};  ///< only compressors that work on whole tensors need it

  tensor() = default;
  tensor(std::string its_name, std::span<float> its_parameter, std::span<float> its_gradient,
         const tensor_shape& its_shape = {})
      : name(std::move(its_name)),
        elements(its_gradient.size()),
        parameter(its_parameter),
        gradient(its_gradient),
        shape(its_shape) {}
  tensor(std::string its_name, std::span<float> its_parameter,
         std::span<std::uint16_t> its_gradient, element_type its_type,
         const tensor_shape& its_shape = {})
      : name(std::move(its_name)),
        elements(its_gradient.size()),
        parameter(its_parameter),
        narrow_gradient(its_gradient),
        gradient_type(its_type),
        shape(its_shape) {}
  /// A tensor whose gradient lies in memory that the engine lends, as floats.
  static tensor without_gradient(std::string its_name, std::span<float> its_parameter,
                                 const tensor_shape& its_shape = {}) {
    tensor made;
    made.name = std::move(its_name);
    made.elements = its_parameter.size();
    made.parameter = its_parameter;
    made.shape = its_shape;
    return made;
  }
  static tensor phantom(std::string its_name, std::size_t its_elements,
                        const tensor_shape& its_shape = {}) {
    tensor made;
    made.name = std::move(its_name);
    made.elements = its_elements;
    made.shape = its_shape;
    return made;
  }
};

/// What a policy may know of a tensor.
struct tensor_facts {
  tensor_id id{};
  std::size_t elements{};
  tensor_shape shape{};
  std::string name{};
};

/// Selects an arena that has memory for parameters only.
struct without_gradients {};

/// Memory for a model's parameters and gradients, laid out in backward order, so that the tensors
/// of a bucket are adjacent: the bucket is then a view and nothing is copied. Cost: 8 bytes an
/// element, or 4 without gradients, allocated once.
template <class Memory>
class arena_of {
 public:
  struct declaration {
    std::string name;
    std::size_t elements;
    tensor_shape shape{};
  };

  /// `forward` lists the tensors in the order of the forward pass.
  explicit arena_of(std::span<const declaration> forward) : arena_of(forward, 1, own) {}
  template <std::invocable<std::size_t> Lend>
  arena_of(std::span<const declaration> forward, Lend lend) : arena_of(forward, 1, own, lend) {}

  /// For a strategy that lends gradients their memory (`engine::gradient`).
  arena_of(std::span<const declaration> forward, without_gradients)
      : arena_of(forward, 1, own, [](std::size_t) { return std::span<float>(); }) {}

  /// Takes its memory from `allocate(elements)`. Each tensor begins at a multiple of `alignment`
  /// elements. A tensor whose length is no such multiple is therefore not adjacent to the next.
  template <class Allocate>
  arena_of(std::span<const declaration> forward, std::size_t alignment, Allocate allocate)
      : arena_of(forward, alignment, allocate, [&](std::size_t elements) {
          own_gradients_ = allocate(elements);
          return std::span<float>(own_gradients_.data(), own_gradients_.size());
        }) {}

  /// Places the gradients in the span that `lend(elements)` returns, which must outlive the arena:
  /// for example memory that other processes can reach (transport::mpi's `allocate_shared`).
  template <class Allocate, class Lend>
  arena_of(std::span<const declaration> forward, std::size_t alignment, Allocate allocate,
           Lend lend)
      : tensors_(forward.size()) {
    std::size_t total = 0;
    for (std::size_t i = forward.size(); i-- > 0;) {
      total = round_up(total, alignment) + forward[i].elements;
    }
    parameters_ = allocate(total);
    gradients_ = lend(total);
    std::size_t offset = 0;
    for (std::size_t i = forward.size(); i-- > 0;) {
      const std::size_t n = forward[i].elements;
      offset = round_up(offset, alignment);
      const std::span<float> parameter = parameters().subspan(offset, n);
      tensors_[i] = gradients_.empty()
                        ? tensor::without_gradient(forward[i].name, parameter, forward[i].shape)
                        : tensor(forward[i].name, parameter, gradients().subspan(offset, n),
                                 forward[i].shape);
      offset += n;
    }
  }
  arena_of(arena_of&&) = default;
  arena_of& operator=(arena_of&&) = default;
  arena_of(const arena_of&) = delete;
  arena_of& operator=(const arena_of&) = delete;

  /// In forward order; the spans stay valid when the arena is moved.
  const std::vector<tensor>& tensors() const { return tensors_; }
  std::span<float> parameters() { return {parameters_.data(), parameters_.size()}; }
  std::span<float> gradients() { return gradients_; }

 private:
  static Memory own(std::size_t elements) { return Memory(elements); }

  Memory parameters_;
  Memory own_gradients_;  // empty where the gradients' memory is lent
  std::span<float> gradients_;
  std::vector<tensor> tensors_;
};

/// An arena in host memory.
using arena = arena_of<line_vector<float>>;

}  // namespace tutti

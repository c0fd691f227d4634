#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/partition.hpp"

namespace tutti::partition {

/// What the size of a piece means.
enum class cut {
  fixed,         ///< pieces of exactly that size, the remainder last
  even,          ///< as few pieces as that size allows, equal to within one element
  rest_in_last,  ///< pieces of exactly that size, the last one longer by the remainder
};

/// Returns the enumerators' names, in their order.
constexpr std::array<std::string_view, 3> names(cut) { return {"fixed", "even", "rest_in_last"}; }

/// Cuts a bucket into pieces of a given size, so that an urgent tensor need not wait for a long
/// one.
/// Plan: neighbouring pieces, in order, each of which travels by itself.
/// Cost: one latency more for each cut; nothing is copied.
/// After: BytePS (4,096,000 bytes), ByteScheduler (elements), KungFu (even parts of a MiB),
/// tf_cnn_benchmarks and tensorpack (a given number of pieces, `rest_in_last`; tensorpack's have
/// `least` 1024 elements).
class into {
 public:
  using role = tutti::role::partition;

  struct options {
    std::size_t bytes{4'096'000};
    std::size_t elements{0};
    partition::cut cut{partition::cut::fixed};
    std::size_t pieces{0};
    std::size_t least{0};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("bytes", self.bytes, "cut a bucket into pieces of this many bytes");
      visit("elements", self.elements, "size of a piece in elements; 0: set by bytes");
      visit("cut", self.cut,
            "fixed: the last piece is the remainder; even: pieces of one size; rest_in_last: the "
            "last is longer");
      visit("pieces", self.pieces,
            "cut a bucket into this many pieces, even unless rest_in_last; 0: by their size");
      visit("least", self.least,
            "a bucket stays whole if even pieces would have fewer elements than this");
    }
  };

  constexpr into() = default;
  /// Throws usage_error if a piece would hold no element.
  explicit constexpr into(const options& values) : options_(values) {
    if (piece() == 0) {
      throw usage_error(
          "partition::into: a piece must hold at least one element. Fix: bytes of at least 4, or "
          "partition::none to leave buckets whole");
    }
  }

  std::vector<std::size_t> piece_ends(std::size_t elements) const {
    const std::size_t wanted = std::max<std::size_t>(1, count(elements));
    const std::size_t pieces = elements / wanted < options_.least ? 1 : wanted;
    std::vector<std::size_t> ends(pieces);
    for (std::size_t i = 0; i < pieces; ++i) {
      ends[i] = options_.cut == cut::rest_in_last
                    ? (i + 1) * (options_.pieces != 0 ? elements / pieces : piece())
                : options_.pieces != 0 || options_.cut == cut::even
                    ? part_begin(elements, pieces, i + 1)
                    : (i + 1) * piece();
    }
    ends.back() = elements;
    return ends;
  }

 private:
  constexpr std::size_t count(std::size_t elements) const {
    if (options_.pieces != 0) {
      return std::min(elements, options_.pieces);
    }
    const bool another = elements % piece() != 0 && options_.cut != cut::rest_in_last;
    return elements / piece() + (another ? 1 : 0);
  }
  constexpr std::size_t piece() const {
    return options_.elements != 0 ? options_.elements : options_.bytes / sizeof(float);
  }

  options options_{};
};
static_assert(partition_policy<into>);

}  // namespace tutti::partition

#pragma once

#include "tutti/compression/none.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Compresses what ranks contribute. A sum that goes back to the ranks travels as floats if the
/// architecture would encode it again: from servers, or from the owners of a reduce-scatter.
/// Wire: as the decorated compressor, and four bytes an element back.
/// Cost: none of its own; on a network the way back is not shortened.
/// After: MXNet's kvstore, whose workers push compressed gradients and pull full precision.
template <encodes_once C>
class push_only : public C {
 public:
  using C::C;
  constexpr none relay() const { return {}; }
};

}  // namespace tutti::compression

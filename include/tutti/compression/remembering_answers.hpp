#pragma once

#include <type_traits>

#include "tutti/compression/error_feedback.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Compresses what ranks contribute, and forgets what that loses. It remembers what is lost of the
/// sums or parameters that go back to the ranks, and adds it to what goes back next. It is for
/// parameters that their owners round, so that no small update is forgotten.
/// Wire: as the decorated compressor, both ways. Cost: a float of memory an element, only on its
/// owner.
/// After: Wang et al., "ZeRO++", 2023, whose owners keep parameters in full.
template <encodes_once C>
class remembering_answers : public C {
 public:
  using C::C;

  /// A relay that sends floats loses nothing, and needs no residual.
  constexpr auto relay() const {
    using answers = std::remove_cvref_t<decltype(tutti::relay<C>(*this))>;
    if constexpr (facts::identity<answers>) {
      return tutti::relay<C>(*this);
    } else {
      return error_feedback<answers>(tutti::relay<C>(*this));
    }
  }
};

}  // namespace tutti::compression

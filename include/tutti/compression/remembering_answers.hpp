#pragma once

#include <type_traits>

#include "tutti/compression/error_feedback.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Compresses what a rank contributes and forgets what is lost of that; of what goes back to the
/// ranks it remembers what is lost: parameters that their owners round, so that no small update is
/// forgotten.
/// Wire: as the compressor that it decorates, both ways. Cost: a float of memory an element, on its
/// owner alone. After: Wang et al., "ZeRO++", 2023, whose owners keep parameters in full.
template <encodes_once C>
class remembering_answers : public C {
 public:
  using C::C;

  /// What goes back as floats loses nothing.
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

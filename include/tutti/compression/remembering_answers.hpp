#pragma once

#include "tutti/base/options.hpp"
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
  using options = options_of<C>;

  constexpr remembering_answers() = default;
  explicit constexpr remembering_answers(const options& values)
      : C(make_policy<C>(values)), values_(values) {}

  constexpr error_feedback<C> relay() const { return make_policy<error_feedback<C>>(values_); }

 private:
  options values_{};
};

}  // namespace tutti::compression

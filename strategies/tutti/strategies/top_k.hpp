#pragma once

#include <string_view>

#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/selecting_all_gather.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/fusion/all.hpp"

namespace tutti::strategies {

/// All-gathers the largest 0.1 % of the whole model's gradient, and remembers the rest.
struct TopK {
  static constexpr std::string_view name = "TopK";
  static constexpr std::string_view after =
      "Shi et al., \"gTop-k S-SGD\", ICDCS 2019, its TopK-SGD";
  static constexpr std::string_view deviations =
      "The density does not start higher in the first epoch, as the original's does.";
  using strategy = compose<fusion::all, compression::error_feedback<compression::top_k>,
                           architecture::all_gather>;
};

/// TopK, but of the sum only as many elements are applied as one rank sends: `topk2` of that
/// paper's code.
struct TopK2 {
  static constexpr std::string_view name = "TopK2";
  static constexpr std::string_view after = "Shi et al., \"gTop-k S-SGD\", ICDCS 2019, its `topk2`";
  static constexpr std::string_view deviations =
      "The density does not start higher in the first epoch, as the original's does.";
  using strategy = compose<fusion::all, compression::error_feedback<compression::top_k>,
                           architecture::selecting_all_gather>;
};

}  // namespace tutti::strategies

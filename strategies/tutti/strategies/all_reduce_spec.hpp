#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/base/error.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/strategies/tf_reduction.hpp"

namespace tutti::strategies {

namespace detail {

/// Returns a number of at least 1 that `text` spells in digits and, if `suffixes`, one of k, K, M,
/// G and T, each 1024 times the one before; nothing if it spells none.
inline std::optional<std::uint64_t> whole_number(std::string_view text, bool suffixes) {
  std::uint64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view rest = text.substr(static_cast<std::size_t>(end - text.data()));
  if (status != std::errc{} || number == 0 || rest.size() > 1 || (!suffixes && !rest.empty())) {
    return {};
  }
  if (rest.empty()) {
    return number;
  }
  const std::size_t power = std::string_view("KMGT").find(rest == "k" ? 'K' : rest[0]);
  const bool fits = power != std::string_view::npos &&
                    number <= std::numeric_limits<std::uint64_t>::max() >> (10 * (power + 1));
  return fits ? std::optional(number << (10 * (power + 1))) : std::nullopt;
}

}  // namespace detail

/// Returns the options of TFReplicated that a value of tf_cnn_benchmarks' `--all_reduce_spec`
/// stands for: an algorithm, or several with limits between them. `pscpu:2k:pscpu#2:64k:xring` is
/// `pscpu` up to 2048 elements, `pscpu#2` up to 65,536, and `xring` above. `#2` is the number of
/// shards; as in tf_cnn_benchmarks, nccl, nccl/rechd, nccl/pscpu and pscpu/pscpu ignore it. Throws
/// usage_error for text that is no such value, also where the original finds out only when it
/// builds its graph, or never: limits that do not ascend, and numbers below 1. More than 16
/// algorithms, which the original takes, are refused, too.
inline tf_reduction::options of_all_reduce_spec(std::string_view spec) {
  const auto refuse = [spec](std::string_view why, std::string_view culprit, std::string_view fix) {
    throw usage_error(
        sentence({"all_reduce_spec '", spec, "': '", culprit, "' ", why, ". Fix: ", fix}));
  };
  constexpr std::uint64_t any = std::numeric_limits<std::uint64_t>::max();
  const auto known = names(tf_algorithm());
  tf_reduction::options made;
  std::size_t count = 0;
  std::size_t limit = 0;
  for (std::string_view left = spec;; ++count) {
    const std::string_view word = left.substr(0, left.find(':'));
    const std::string_view name = word.substr(0, word.find('#'));
    const auto found = loops::find(known, name);
    if (found == known.end()) {
      std::string choice;
      for (const std::string_view each : known) {
        choice.append(choice.empty() ? "" : each == known.back() ? " or " : ", ").append(each);
      }
      refuse("is not an algorithm", name, choice);
    }
    if (count == tf_reduction::most_ranges) {
      refuse("is one algorithm too many", word,
             sentence({"at most ", tf_reduction::most_ranges, " algorithms"}));
    }
    auto& range = made.ranges[count];
    range.algorithm = static_cast<tf_algorithm>(found - known.begin());
    if (name.size() < word.size()) {
      const auto shards = detail::whole_number(word.substr(name.size() + 1), false);
      const std::uint64_t most = range.algorithm == tf_algorithm::nccl_xring   ? 1
                                 : range.algorithm == tf_algorithm::collective ? 2
                                                                               : any;
      if (!shards || *shards > most) {
        refuse("has an invalid number of shards", word, sentence({name, most > 1 ? "#2" : ""}));
      }
      range.shards = *shards;
    }
    if (word.size() == left.size()) {
      return made;
    }
    left.remove_prefix(word.size() + 1);
    const std::string_view text = left.substr(0, left.find(':'));
    const auto elements = detail::whole_number(text, true);
    if (!elements) {
      refuse("is not a number of elements", text, "for example 32768, 32k or 1M");
    }
    if (*elements <= limit) {
      refuse("is not above the limit before it", text, "use ascending limits");
    }
    if (text.size() == left.size()) {
      refuse("is a limit that no algorithm follows", text,
             "add an algorithm for larger tensors, as in pscpu:32k:xring");
    }
    limit = range.up_to = *elements;
    left.remove_prefix(text.size() + 1);
  }
}

}  // namespace tutti::strategies

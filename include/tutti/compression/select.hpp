#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tutti/base/error.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/tensor_rule.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/role/compression.hpp"

namespace tutti {

namespace compression {

/// Tensors that a rule chooses are compressed in one way, all others in another; the two kinds
/// never share a launch. A momentum must be sent of both kinds or of neither.
/// From step `start` on chosen tensors have their own compressor. Before it all tensors have that
/// of the others, in the same launches as later: a warm-up, of the whole model with `every_tensor`.
/// Chosen tensors go on with the residuals of the steps before `start`, if there are any. They also
/// do so when `engine.replan` puts the start off, if the other compressor remembers as much;
/// otherwise that is refused. Servers that add know no steps and refuse a start.
/// Plan: the fusion groups each kind as if the other were not there, so that all biases may travel
/// in one launch.
/// Wire: each tensor as its own compressor has it.
/// Cost: tensors that are neighbours in a bucket may not be neighbours in memory, and are then
/// copied; a bucket of a few small tensors is complete late.
/// After: what every published compressor does with biases; the start_powerSGD_iter of PyTorch's
/// hook.
template <tensor_rule Rule, compression_policy C, compression_policy Otherwise>
requires(!selects<C> && !selects<Otherwise>) class select {
  static_assert(
      facts::keeps_momentum<C> == facts::keeps_momentum<Otherwise>,
      "tutti: some tensors would be sent without the momentum that is applied to all others. Fix: "
      "put a momentum on both sides, as in select<Rule, momentum_correction<C>, "
      "momentum_correction<none>>, or use the optimizer's alone.");
  static constexpr auto shared_rows =
      std::min(facts::memory_per_element<C>, facts::memory_per_element<Otherwise>);
  static_assert(
      std::equal(facts::memory_degrees<C>.begin(), facts::memory_degrees<C>.begin() + shared_rows,
                 facts::memory_degrees<Otherwise>.begin()),
      "tutti: both compressors keep something in the same row of memory, but in other units. Fix: "
      "let both state the same memory_degrees for the rows that both have.");

 public:
  using role = tutti::role::compression;
  static constexpr bool summable = facts::summable<C> && facts::summable<Otherwise>;
  static constexpr bool lossless = facts::lossless<C> && facts::lossless<Otherwise>;
  static constexpr tutti::unit unit = std::max(facts::unit_of<C>, facts::unit_of<Otherwise>);
  static constexpr std::size_t memory_per_element =
      std::max(facts::memory_per_element<C>, facts::memory_per_element<Otherwise>);
  static constexpr auto memory_degrees = [] {
    if constexpr (facts::memory_per_element<C> == memory_per_element) {
      return facts::memory_degrees<C>;
    } else {
      return facts::memory_degrees<Otherwise>;
    }
  }();
  using chosen = C;
  using otherwise = Otherwise;

  struct options {
    options_of<Rule> rule{};
    options_of<C> chosen{};
    options_of<Otherwise> otherwise{};
    std::uint64_t start{};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("start", self.start,
            "first step in which chosen tensors are sent by their own compressor");
      options_of<Rule>::describe(self.rule, visit);
      options_of<C>::describe(self.chosen, visit);
      options_of<Otherwise>::describe(self.otherwise, visit);
    }
  };

  constexpr select() = default;
  /// Throws usage_error if what is remembered of the steps before `start` would be taken for
  /// something else after it.
  explicit constexpr select(const options& values)
      : rule_(make_policy<Rule>(values.rule)),
        chosen_(make_policy<C>(values.chosen)),
        otherwise_(make_policy<Otherwise>(values.otherwise)),
        start_(values.start) {
    if (values.start > 0 && !goes_on_with_memory) {
      throw usage_error(
          "compression::select: before start, all tensors are sent by the compressor of those that "
          "are not chosen, and the chosen tensors' own compressor cannot continue from what that "
          "one remembers. Fix: start = 0, or a compressor without memory for tensors that are not "
          "chosen");
    }
  }

  /// Throws usage_error if residuals of chosen tensors would stay unsent until a start that is put
  /// off.
  static void expect_replan(const options& was, const options& wanted, std::uint64_t steps) {
    if (facts::memory_per_element < C >> 0 && facts::memory_per_element<Otherwise> == 0 &&
        steps > was.start && wanted.start > steps) {
      throw usage_error(sentence({"compression::select: a start at step ", wanted.start,
                                  " is still to come, and would hold back what the chosen tensors' "
                                  "compressor has remembered in ",
                                  steps, " steps. Fix: use a start that has passed"}));
    }
  }

  constexpr bool chooses(const tensor_facts& tensor) const { return rule_(tensor); }
  constexpr std::uint64_t start() const { return start_; }
  /// Calls `f` with the compressor for chosen tensors, or with the other one.
  template <class F>
  constexpr decltype(auto) visit(bool is_chosen, F&& f) const {
    return is_chosen ? f(chosen_) : f(otherwise_);
  }

 private:
  /// Whether chosen tensors can go on with what the other compressor has remembered of them: with
  /// as many rows of memory, a residual stays a residual and a momentum a momentum.
  static constexpr bool goes_on_with_memory =
      facts::memory_per_element<Otherwise> == 0 ||
      facts::memory_per_element<Otherwise> == facts::memory_per_element<C>;

  Rule rule_{};
  C chosen_{};
  Otherwise otherwise_{};
  std::uint64_t start_{};
};

namespace detail {
template <class C>
struct fed_back {
  using type = C;
};
template <encodes_once C>
requires(!facts::lossless<C>) struct fed_back<C> {
  using type = error_feedback<C>;
};
}  // namespace detail

/// Error feedback around each of a selecting compressor's two that loses something. A compressor of
/// several rounds is left as it is, because it keeps residuals of its own.
template <class Rule, class C, class Otherwise>
class error_feedback<select<Rule, C, Otherwise>>
    : public select<Rule, typename detail::fed_back<C>::type,
                    typename detail::fed_back<Otherwise>::type> {
 public:
  using error_feedback::select::select;
};

}  // namespace compression

}  // namespace tutti

#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "support/one_of.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::test {

/// Sets options with which a compressor has an effect on a few dozen elements.
template <class Options>
void make_small(Options& set) {
  if constexpr (requires { set.density; }) {
    set.density = 0.06;
  }
  if constexpr (requires { set.magnitude; }) {
    set.magnitude = 1.5f;
  }
  if constexpr (requires { set.block; }) {
    set.block = 32;
  }
  if constexpr (requires { set.bytes; }) {
    set.bytes = 220;
  }
  if constexpr (requires { set.keep; }) {
    set.keep = 0.5f;
    set.most = 1.0f;
  }
  if constexpr (requires { set.decorated; }) {
    make_small(set.decorated);
  }
  if constexpr (requires { set.compressed; }) {
    make_small(set.compressed);
  }
  if constexpr (requires { set.selection; }) {
    make_small(set.selection);
    make_small(set.code);
  }
}

/// Returns the compressor with the options of `make_small`.
template <class C>
C small() {
  options_of<C> set;
  make_small(set);
  return make_policy<C>(set);
}

/// Compressors without memory, all with payloads of fixed length or all without, of which an option
/// picks one at run time.
template <class... Compressors>
class one_of_compressors {
  using any = std::variant<Compressors...>;
  static constexpr bool variable = (facts::variable_length<Compressors> && ...);
  static_assert(variable || (!facts::variable_length<Compressors> && ...));
  static_assert(((facts::memory_per_element<Compressors> == 0 &&
                  facts::unit_of<Compressors> <= tutti::unit::block) &&
                 ...));

 public:
  using role = tutti::role::compression;
  using options = which_one;
  using all = std::tuple<Compressors...>;
  static constexpr bool summable = false;
  static constexpr bool decodes_in_scratch = true;
  static constexpr tutti::unit unit = tutti::unit::block;

  explicit one_of_compressors(const options& set = {})
      : its_(made_as<any>(set.which, []<std::size_t Which>(std::in_place_index_t<Which> here) {
          return any(here, small<std::tuple_element_t<Which, all>>());
        })) {}
  explicit one_of_compressors(any its) : its_(std::move(its)) {}

  std::size_t block() const {
    return visit([](const auto& each) -> std::size_t {
      if constexpr (facts::unit_of<std::remove_cvref_t<decltype(each)>> == tutti::unit::block) {
        return each.block();
      } else {
        return 1;
      }
    });
  }
  std::size_t wire_bytes(std::size_t n) const requires(!variable) {
    return visit([n](const auto& each) { return each.wire_bytes(n); });
  }
  std::size_t capacity(std::size_t n) const requires variable {
    return visit([n](const auto& each) { return each.capacity(n); });
  }
  std::size_t expected(std::size_t n) const requires variable {
    return visit([n](const auto& each) { return each.expected(n); });
  }
  std::size_t scratch_bytes(std::size_t n) const {
    return visit([n](const auto& each) { return tutti::scratch_bytes(each, n); });
  }

  template <class Queue>
  requires(!variable) void encode(Queue& queue, std::span<const float> gradient, wire out,
                                  const chunk_context& where) const {
    visit([&](const auto& each) { tutti::encode(each, queue, gradient, out, where); });
  }
  template <class Queue>
  requires variable void encode(Queue& queue, std::span<const float> gradient, wire out,
                                const chunk_context& where, std::size_t* length) const {
    visit([&](const auto& each) { each.encode(queue, gradient, out, where, length); });
  }
  template <class Queue>
  requires(!variable) void encode_with_residual(Queue& queue, std::span<const float> gradient,
                                                std::span<float> residual, wire out,
                                                const chunk_context& where) const {
    visit([&](const auto& each) {
      chunk_context remembers = where;
      remembers.memory = residual.data();
      remembers.stride = 0;
      compression::error_feedback<std::remove_cvref_t<decltype(each)>>(each).encode(queue, gradient,
                                                                                    out, remembers);
    });
  }
  template <class Queue>
  void accumulate(Queue& queue, const_wire in, std::span<float> sum,
                  const chunk_context& where) const {
    visit([&](const auto& each) { tutti::accumulate(each, queue, in, sum, where); });
  }

  one_of_compressors relay() const {
    return one_of_compressors(visit([](const auto& each) { return any(tutti::relay(each)); }));
  }

 private:
  template <class F>
  decltype(auto) visit(F f) const {
    return std::visit(f, its_);
  }

  any its_;
};

}  // namespace tutti::test

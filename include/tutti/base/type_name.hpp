#pragma once

#include <string_view>

namespace tutti {

namespace detail {
template <class T>
constexpr const char* function_of() {
  return __PRETTY_FUNCTION__;
}
}  // namespace detail

/// The name of a type as its compiler spells it. It is for messages, and to compare what one build
/// wrote with what the same build reads.
template <class T>
constexpr std::string_view type_name() {
  constexpr std::string_view before = "T = ";
  constexpr std::string_view whole = detail::function_of<T>();
  constexpr auto begin = whole.find(before) + before.size();
  return {whole.data() + begin, whole.rfind(']') - begin};
}

}  // namespace tutti

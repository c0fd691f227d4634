#pragma once

/// Searches over whole containers and spans, written as plain loops.
///
/// They have the names and meanings of those in std::ranges, without projections. The compiler
/// spends on the concepts of std::ranges a tenth of the time that it takes for a translation unit
/// that trains. The iterator algorithms of std are unrolled at every call.
namespace tutti::loops {

template <class Range, class Predicate>
constexpr auto find_if(Range&& range, Predicate holds) {
  auto at = range.begin();
  while (at != range.end() && !holds(*at)) {
    ++at;
  }
  return at;
}

template <class Range, class Value>
constexpr auto find(Range&& range, const Value& value) {
  return find_if(range, [&value](const auto& each) { return each == value; });
}

template <class Range, class Predicate>
constexpr bool any_of(const Range& range, Predicate holds) {
  for (const auto& each : range) {
    if (holds(each)) {
      return true;
    }
  }
  return false;
}

template <class Range, class Predicate>
constexpr bool all_of(const Range& range, Predicate holds) {
  return !any_of(range, [&holds](const auto& each) { return !holds(each); });
}

}  // namespace tutti::loops

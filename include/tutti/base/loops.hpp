#pragma once

/// Searches of whole containers and spans, as the loops that they are.
///
/// They are std::ranges' by name and meaning, without projections. The compiler spends a tenth of
/// what a unit that trains takes it on the concepts of those, and std's own of iterators are
/// unrolled where they are searched.
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

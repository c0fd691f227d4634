#pragma once

#include <cmath>
#include <limits>

namespace compare {

/// The range of link rates, in bits a second, in which `pays_below` searches.
inline constexpr double slowest_link = 1e6;
inline constexpr double fastest_link = 1e12;

/// Returns a link rate, in bits a second and within a fiftieth, below which
/// `pays(bits_per_second)` holds: 0 if it does not hold on the slowest link, infinity if it holds
/// on the fastest. If `pays` changes more than once, it is some change in the first decade at whose
/// end `pays` does not hold. Calls `pays` once for each decade of the range and a few times more.
template <class Pays>
double pays_below(Pays pays) {
  if (!pays(slowest_link)) {
    return 0;
  }
  double below = slowest_link;
  double above = below;
  do {
    below = above;
    above *= 10;
    if (above > 1.01 * fastest_link) {
      return std::numeric_limits<double>::infinity();
    }
  } while (pays(above));
  while (above > 1.02 * below) {
    const double middle = std::sqrt(below * above);
    (pays(middle) ? below : above) = middle;
  }
  return below;
}

}  // namespace compare

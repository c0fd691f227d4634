#pragma once

#include <cmath>
#include <limits>

namespace compare {

/// Rates of a link, in bits a second, between which the one is looked for from which on something
/// no longer pays.
inline constexpr double slowest_link = 1e6;
inline constexpr double fastest_link = 1e12;

/// The rate below which `pays(bits_per_second)` holds, within a fiftieth: 0 if it does not on the
/// slowest link, infinity if it does on the fastest. Where it turns more than once, the first rate
/// of all.
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

// expect: tutti: both compressors keep something in the same row of memory, but in other units. Fix: let both state the same memory_degrees for the rows that both have.
#include <array>
#include <cstddef>

#include "tutti/base/tensor_rule.hpp"
#include "tutti/compression/select.hpp"
#include "tutti/compression/signum.hpp"
#include "tutti/core/compose.hpp"

#ifdef GOOD
constexpr unsigned degree = 1;
#else
constexpr unsigned degree = 0;
#endif

/// Sends what signum sends, and remembers something else.
struct counting : tutti::compression::signum {
  static constexpr std::array<unsigned, 1> memory_degrees{degree};
};

tutti::compression::select<tutti::matrices, tutti::compression::signum, counting> selected;

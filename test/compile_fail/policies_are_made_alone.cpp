// expect: tutti: this policy has no options, but cannot be made without arguments.
#include "tutti/base/options.hpp"
#include "tutti/compression/none.hpp"

struct made_of_a_number : tutti::compression::none {
#ifdef GOOD
  made_of_a_number() = default;
#endif
  explicit made_of_a_number(int) {}
};

const auto made = tutti::make_policy<made_of_a_number>({});

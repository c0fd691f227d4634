// expect: tutti: this policy has options that own memory, so their defaults are no constants.
#include <string>
#include <string_view>

#include "tutti/compression/top_k.hpp"
#include "tutti/core/engine_options.hpp"

struct labelled : tutti::compression::top_k {
  struct options {
#ifdef GOOD
    std::string_view label = "of a length that no string keeps within itself";
#else
    std::string label = "of a length that no string keeps within itself";
#endif
    template <class Self, class Visitor>
    static void describe(Self&, Visitor&&) {}
  };
  labelled() = default;
  explicit labelled(const options&) {}
};

const tutti::engine_options<tutti::compose<labelled>> made{};

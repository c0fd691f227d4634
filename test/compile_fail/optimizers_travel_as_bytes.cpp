// expect: tutti: an optimizer is sent to servers as bytes when its values change, but this one owns memory or is not trivially copyable. Fix: keep only numbers in it, and a std::array where there are several.
#include <array>
#include <vector>

#include "tutti/tutti.hpp"

#ifdef GOOD
using rates_of_groups = std::array<float, 2>;
#else
using rates_of_groups = std::vector<float>;
#endif

struct grouped {
  using role = tutti::role::optimizer;
  static constexpr bool elementwise = true;

  rates_of_groups rates{0.1f, 0.2f};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("first_rate", self.rates[0], "of the first group");
  }
  static std::size_t memory_per_element() { return 0; }
  template <class Queue>
  void apply(Queue&, std::span<float>, std::span<const float>, const tutti::chunk_context&) const {}
};
static_assert(tutti::optimizer_policy<grouped>);

void train(tutti::engine<tutti::compose<>, tutti::transport::in_process, grouped>& engine) {
  engine.wait();
}

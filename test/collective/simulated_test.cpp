#include "support/collective_laws.hpp"
#include "support/placed_worlds.hpp"

namespace tutti::test {

INSTANTIATE_TYPED_TEST_SUITE_P(Simulated, CollectiveLaw, collectives_on<placed_simulated>);

}  // namespace tutti::test

#include "support/transport_laws.hpp"

namespace tutti::test {

INSTANTIATE_TYPED_TEST_SUITE_P(InProcess, TransportLaw, in_process_world);
INSTANTIATE_TYPED_TEST_SUITE_P(HostStream, TransportLaw, host_stream_world);
INSTANTIATE_TYPED_TEST_SUITE_P(Recording, TransportLaw, recording_world);
INSTANTIATE_TYPED_TEST_SUITE_P(Shaped, TransportLaw, shaped_world);
INSTANTIATE_TYPED_TEST_SUITE_P(AnyTransport, TransportLaw, any_world);
INSTANTIATE_TYPED_TEST_SUITE_P(AnySimulated, TransportLaw, any_simulated_world);

}  // namespace tutti::test

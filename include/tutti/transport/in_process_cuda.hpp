#pragma once

#include "tutti/base/cuda/stream.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/in_process.hpp"

namespace tutti::transport {

/// Ranks are threads that share one GPU. Each has a stream of its own, and they read each other's
/// memory there: the receiver's stream copies or adds a message. The host waits for the device only
/// in `synchronize`.
///
/// The device is the one that is current where the ranks' fabric is made (run_ranks). Gradients and
/// parameters are device memory; whatever is written to them before `make_engine` must be complete
/// by then.
/// Cost of a message: two events recorded and two waited for, besides the cost of in_process.
using in_process_cuda = basic_in_process<cuda::stream, by_mailbox>;

static_assert(transport_policy<in_process_cuda> && !has_addressable_peers<in_process_cuda>);

}  // namespace tutti::transport

#pragma once

#include "tutti/base/cuda/stream.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/in_process.hpp"

namespace tutti::transport {

/// Ranks are threads that share one GPU, each with a stream of its own, and read each other's
/// memory there: a message is a copy or a sum by its receiver's stream. Nothing waits for the
/// device but `synchronize`.
///
/// The device is the one that is current where the ranks' fabric is made (run_ranks). Gradients and
/// parameters are device memory; what is written before `make_engine` must be there already.
/// Cost of a message: two events recorded and two waited for, besides in_process's.
using in_process_cuda = basic_in_process<cuda::stream, by_mailbox>;

static_assert(transport_policy<in_process_cuda> && !has_addressable_peers<in_process_cuda>);

}  // namespace tutti::transport

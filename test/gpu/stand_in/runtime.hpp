#pragma once

#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/host_stream.hpp"

namespace tutti::test {

/// What does a stream's work where there is no device.
host_stream& stood_in_by(cuda::stream& queue);

}  // namespace tutti::test

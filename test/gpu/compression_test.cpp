// The laws of every compressor on a device that tutti has kernels for. A host's compiler compiles
// this, in a third of the time that nvcc takes; the kernels come from tutti::cuda.
#include <gtest/gtest.h>

#include "gpu/compression_laws.hpp"
#include "support/policies.hpp"

namespace tutti::test {

INSTANTIATE_TYPED_TEST_SUITE_P(OfKernels, DeviceCompression, testing_lists::device_compressions);

}  // namespace tutti::test

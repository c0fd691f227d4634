// What nvcc compiles elsewhere, over the stand-in: its loops are read here, as nvcc reads them.
// clang-format off: they come first, or a stream takes this for a host's unit.
#include "gpu/functors_test.cu"

#include "tutti/base/cuda/loops.cuh"

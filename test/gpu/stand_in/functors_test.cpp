// What nvcc compiles elsewhere, over the stand-in: its loops are read here as nvcc reads them.
#include "tutti/base/cuda/loops.cuh"

#include "gpu/functors_test.cu"

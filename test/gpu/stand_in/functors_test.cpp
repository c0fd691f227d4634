// What nvcc compiles elsewhere, over the stand-in.
#include "gpu/functors_test.cu"

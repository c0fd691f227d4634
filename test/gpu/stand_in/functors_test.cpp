// Code that nvcc compiles in other builds, run over the stand-in.
#include "gpu/functors_test.cu"

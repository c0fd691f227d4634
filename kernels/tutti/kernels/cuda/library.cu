// Every kernel for a cuda::stream, compiled: what tutti::cuda links.
#include "tutti/kernels/cuda/arithmetic.cuh"
#include "tutti/kernels/cuda/cast.cuh"
#include "tutti/kernels/cuda/copies.cuh"
#include "tutti/kernels/cuda/descent.cuh"
#include "tutti/kernels/cuda/selection.cuh"
#include "tutti/kernels/cuda/signs.cuh"

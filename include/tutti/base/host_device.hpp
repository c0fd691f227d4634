#pragma once

/// Marks a function or lambda that runs on the host and, where nvcc compiles it, on the device too.
#if defined(__CUDACC__)
#define TUTTI_HD __host__ __device__
#else
#define TUTTI_HD
#endif

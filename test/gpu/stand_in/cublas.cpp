// cuBLAS on a CUDA runtime of host threads: as much of it as the networks call, as plain loops in
// double precision.
#include <cstddef>
#include <cublas_v2.h>

#include "gpu/stand_in/runtime.hpp"

struct cublasContext {
  cudaStream_t stream;
  std::size_t workspace;
};

namespace {

/// Column by column, as its documentation counts.
std::size_t at(cublasOperation_t operation, int row, int column, int leading) {
  return operation == CUBLAS_OP_N
             ? static_cast<std::size_t>(column) * static_cast<std::size_t>(leading) +
                   static_cast<std::size_t>(row)
             : static_cast<std::size_t>(row) * static_cast<std::size_t>(leading) +
                   static_cast<std::size_t>(column);
}

}  // namespace

extern "C" {

const char* cublasGetStatusString(cublasStatus_t) { return "a stand-in's words"; }

cublasStatus_t cublasCreate_v2(cublasHandle_t* made) {
  *made = new cublasContext{};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  *handle = {stream, 0};  // the library's own workspace again
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void*, std::size_t bytes) {
  handle->workspace = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

/// Refuses to work in a workspace that is not the caller's: that would be an allocation in a step.
cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b,
                              int m, int n, int k, const float* alpha, const float* a, int lda,
                              const float* b, int ldb, const float* beta, float* c, int ldc) {
  if (handle->workspace == 0) {
    return CUBLAS_STATUS_ALLOC_FAILED;
  }
  if (lda < (of_a == CUBLAS_OP_N ? m : k) || ldb < (of_b == CUBLAS_OP_N ? k : n) || ldc < m) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  tutti::test::stood_in_by(handle->stream).run([=, alpha = *alpha, beta = *beta] {
    for (int column = 0; column < n; ++column) {
      for (int row = 0; row < m; ++row) {
        double sum = 0;
        for (int i = 0; i < k; ++i) {
          sum += static_cast<double>(a[at(of_a, row, i, lda)]) * b[at(of_b, i, column, ldb)];
        }
        float& out = c[at(CUBLAS_OP_N, row, column, ldc)];
        out = static_cast<float>(alpha * sum + (beta == 0 ? 0 : static_cast<double>(beta) * out));
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

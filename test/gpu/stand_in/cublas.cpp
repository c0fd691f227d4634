// cuBLAS on a CUDA runtime of host threads: the functions that the networks call, as plain loops in
// double precision.
#include <cstddef>
#include <cublas_v2.h>

#include "gpu/stand_in/numbers.hpp"
#include "gpu/stand_in/runtime.hpp"

using tutti::test::loaded;
using tutti::test::number;
using tutti::test::store;

struct cublasContext {
  cudaStream_t stream;
  std::size_t workspace;
};

namespace {

/// Returns an element's index, column by column, as cuBLAS's documentation counts.
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
  *handle = {stream, 0};  // returns to the library's own workspace
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void*, std::size_t bytes) {
  handle->workspace = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

/// Refuses to work without a workspace of the caller's, which would mean an allocation in a step.
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b,
                            int m, int n, int k, const void* alpha, const void* a,
                            cudaDataType a_type, int lda, const void* b, cudaDataType b_type,
                            int ldb, const void* beta, void* c, cudaDataType c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t) {
  if (handle->workspace == 0) {
    return CUBLAS_STATUS_ALLOC_FAILED;
  }
  if (lda < (of_a == CUBLAS_OP_N ? m : k) || ldb < (of_b == CUBLAS_OP_N ? k : n) || ldc < m) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (compute != CUBLAS_COMPUTE_32F || a_type != b_type || a_type != c_type ||
      (c_type != CUDA_R_32F && c_type != CUDA_R_16BF)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const auto type = c_type == CUDA_R_32F ? number::fp32 : number::bf16;
  tutti::test::stood_in_by(handle->stream)
      .run([=, alpha = *static_cast<const float*>(alpha), beta = *static_cast<const float*>(beta)] {
        for (int column = 0; column < n; ++column) {
          for (int row = 0; row < m; ++row) {
            double sum = 0;
            for (int i = 0; i < k; ++i) {
              sum += loaded(type, a, at(of_a, row, i, lda)) *
                     loaded(type, b, at(of_b, i, column, ldb));
            }
            const std::size_t out = at(CUBLAS_OP_N, row, column, ldc);
            store(type, c, out, alpha * sum + (beta == 0 ? 0 : beta * loaded(type, c, out)));
          }
        }
      });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

#pragma once

#include <cstddef>
#include <cublas_v2.h>
#include <cudnn.h>
#include <string_view>

#include "models/cuda/channels_last.hpp"
#include "models/declaration.hpp"
#include "tutti/base/cuda/error.hpp"
#include "tutti/base/cuda/memory.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/source_place.hpp"

// cuDNN and cuBLAS: their errors, handles and descriptors, and what they call the types here.
namespace models::with_cudnn {

using tutti::source_place;
using tutti::cuda::buffer;
using tutti::cuda::pinned_buffer;

[[noreturn]] inline void fail(std::string_view library, const char* words, int code,
                              source_place where) {
  throw tutti::error(tutti::sentence(
      {library, ": ", words, " (", code, " at ", where.file, ":", where.line, ")"}));
}
inline void check(cudnnStatus_t status, source_place where = source_place::current()) {
  if (status != CUDNN_STATUS_SUCCESS) {
    fail("cuDNN", cudnnGetErrorString(status), status, where);
  }
}
inline void check(cublasStatus_t status, source_place where = source_place::current()) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    fail("cuBLAS", cublasGetStatusString(status), status, where);
  }
}

/// A handle or descriptor of either library.
template <class Handle, auto Create, auto Destroy>
class owned {
 public:
  owned() { check(Create(&handle_)); }
  owned(const owned&) = delete;
  owned& operator=(const owned&) = delete;
  ~owned() { static_cast<void>(Destroy(handle_)); }  // a destructor cannot report an error

  operator Handle() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using cudnn_handle = owned<cudnnHandle_t, cudnnCreate, cudnnDestroy>;
using cublas_handle = owned<cublasHandle_t, cublasCreate, cublasDestroy>;
using tensor_layout =
    owned<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;
using filter_layout =
    owned<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor>;
using convolution_form = owned<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor,
                               cudnnDestroyConvolutionDescriptor>;

inline int dim(std::size_t n) { return static_cast<int>(n); }

/// The libraries' names for a type, and the arithmetic that they may use for it: full fp32 (no
/// TF32), or bf16 on tensor cores. Both accumulate in fp32.
template <class T>
struct names;
template <>
struct names<float> {
  static constexpr auto dnn = CUDNN_DATA_FLOAT;
  static constexpr auto blas = CUDA_R_32F;
  static constexpr auto math = CUDNN_FMA_MATH;
};
template <>
struct names<brain> {
  static constexpr auto dnn = CUDNN_DATA_BFLOAT16;
  static constexpr auto blas = CUDA_R_16BF;
  static constexpr auto math = CUDNN_TENSOR_OP_MATH;
};

template <class T>
void describe(const tensor_layout& layout, std::size_t count, const shape& each) {
  check(cudnnSetTensor4dDescriptor(layout, CUDNN_TENSOR_NHWC, names<T>::dnn, dim(count),
                                   dim(each.channels), dim(each.height), dim(each.width)));
}

// The factors by which both libraries scale products and the values that these are added to.
inline constexpr float one = 1;
inline constexpr float zero = 0;

inline const float* share_of_old(gradients mode) {
  return mode == gradients::overwrite ? &zero : &one;
}

/// The stream, handles and workspace of the layers. One workspace serves both libraries and the
/// sums of channels_last, because work of one stream does not overlap.
struct place {
  explicit place(tutti::cuda::stream& queue)
      : stream(tutti::cuda::stream::from_native_handle(queue.native_handle())) {
    check(cudnnSetStream(dnn, stream.native_handle()));
    check(cublasSetStream(blas, stream.native_handle()));
  }

  void make_room() {
    workspace = buffer<std::byte>(wanted);
    check(cublasSetWorkspace(blas, workspace.data(), workspace.size()));
  }
  double* scratch() const { return reinterpret_cast<double*>(workspace.data()); }

  tutti::cuda::stream stream;
  cudnn_handle dnn{};
  cublas_handle blas{};
  // What cuBLAS asks for on Hopper; layers may raise it.
  std::size_t wanted = std::size_t{32} << 20;
  buffer<std::byte> workspace{};
};

}  // namespace models::with_cudnn

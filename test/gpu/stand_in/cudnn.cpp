// cuDNN on a CUDA runtime of host threads: the functions that the networks call, as plain loops in
// double precision, for packed NHWC tensors of floats or bf16. What its documentation forbids is
// refused.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cudnn.h>
#include <span>
#include <vector>

#include "gpu/stand_in/numbers.hpp"
#include "gpu/stand_in/runtime.hpp"

using tutti::test::loaded;
using tutti::test::number;
using tutti::test::store;

struct cudnnContext {
  cudaStream_t stream;
};
struct cudnnTensorStruct {
  number type;
  int n, c, h, w;

  std::size_t size() const {
    return static_cast<std::size_t>(n) * static_cast<std::size_t>(c) * static_cast<std::size_t>(h) *
           static_cast<std::size_t>(w);
  }
  std::size_t at(int in, int ic, int ih, int iw) const {
    return static_cast<std::size_t>(((in * h + ih) * w + iw) * c + ic);
  }
  friend bool operator==(const cudnnTensorStruct&, const cudnnTensorStruct&) = default;
};
struct cudnnFilterStruct : cudnnTensorStruct {};  // its n is k, the filters
struct cudnnConvolutionStruct {
  int pad, stride;
  cudnnMathType_t math;
};

namespace {

using values = std::vector<double>;

values all_of(const cudnnTensorStruct& layout, const void* array) {
  values all(layout.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = loaded(layout.type, array, i);
  }
  return all;
}

/// The meaning of alpha and beta: old values count only if beta is not 0, even if they are NaN.
struct blend {
  blend(const void* its_alpha, const void* its_beta)
      : alpha(*static_cast<const float*>(its_alpha)), beta(*static_cast<const float*>(its_beta)) {}

  void write(const values& made, number type, void* to) const {
    for (std::size_t i = 0; i < made.size(); ++i) {
      store(type, to, i, alpha * made[i] + (beta == 0 ? 0 : beta * loaded(type, to, i)));
    }
  }

  double alpha;
  double beta;
};

template <class F>
cudnnStatus_t run(cudnnHandle_t handle, F f) {
  tutti::test::stood_in_by(handle->stream).run(f);
  return CUDNN_STATUS_SUCCESS;
}

template <class Struct>
cudnnStatus_t make(Struct** made) {
  *made = new Struct{};
  return CUDNN_STATUS_SUCCESS;
}
template <class Struct>
cudnnStatus_t destroy(Struct* gone) {
  delete gone;
  return CUDNN_STATUS_SUCCESS;
}

/// Calls `visit(x, w, y)` with the indices of every product of a convolution, for each `w` in turn.
template <class Visit>
void for_each_product(const cudnnTensorStruct& x, const cudnnFilterStruct& w,
                      const cudnnTensorStruct& y, const cudnnConvolutionStruct& form, Visit visit) {
  for (int n = 0; n < y.n; ++n) {
    for (int k = 0; k < w.n; ++k) {
      for (int c = 0; c < w.c; ++c) {
        for (int r = 0; r < w.h; ++r) {
          for (int s = 0; s < w.w; ++s) {
            const std::size_t weight = w.at(k, c, r, s);
            for (int p = 0; p < y.h; ++p) {
              const int row = p * form.stride + r - form.pad;
              for (int q = 0; row >= 0 && row < x.h && q < y.w; ++q) {
                const int column = q * form.stride + s - form.pad;
                if (column >= 0 && column < x.w) {
                  visit(x.at(n, c, row, column), weight, y.at(n, k, p, q));
                }
              }
            }
          }
        }
      }
    }
  }
}

bool fits(const cudnnTensorStruct& x, const cudnnFilterStruct& w, const cudnnTensorStruct& y,
          const cudnnConvolutionStruct& form) {
  const auto math = x.type == number::fp32 ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH;
  const auto across = [&](int side, int kernel) {
    return (side + 2 * form.pad - kernel) / form.stride + 1;
  };
  return form.math == math && x.type == w.type && y.type == w.type && x.n == y.n && x.c == w.c &&
         y.c == w.n && y.h == across(x.h, w.h) && y.w == across(x.w, w.w);
}

constexpr std::size_t workspace = std::size_t{48} << 20;

/// Returns two algorithms for each question. The first sums in any order, as the fastest often
/// does.
template <class Performance, class Algorithm>
cudnnStatus_t rank(int wanted, int* found, Performance* all, Algorithm any_order,
                   Algorithm fixed_order) {
  *found = std::min(wanted, 2);
  const Performance ranked[] = {{any_order,
                                 CUDNN_STATUS_SUCCESS,
                                 1.0F,
                                 workspace / 2,
                                 CUDNN_NON_DETERMINISTIC,
                                 CUDNN_FMA_MATH,
                                 {}},
                                {fixed_order,
                                 CUDNN_STATUS_SUCCESS,
                                 2.0F,
                                 workspace,
                                 CUDNN_DETERMINISTIC,
                                 CUDNN_FMA_MATH,
                                 {}}};
  std::copy_n(ranked, *found, all);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

const char* cudnnGetErrorString(cudnnStatus_t) { return "a stand-in's words"; }

cudnnStatus_t cudnnCreate(cudnnHandle_t* made) { return make(made); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t gone) { return destroy(gone); }
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* made) { return make(made); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t gone) { return destroy(gone); }
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* made) { return make(made); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t gone) { return destroy(gone); }
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* made) {
  return make(made);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t gone) {
  return destroy(gone);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  *tensor = {type == CUDNN_DATA_FLOAT ? number::fp32 : number::bf16, n, c, h, w};
  return format == CUDNN_TENSOR_NHWC && (type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_BFLOAT16) &&
                 tensor->size() > 0
             ? CUDNN_STATUS_SUCCESS
             : CUDNN_STATUS_BAD_PARAM;
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  return cudnnSetTensor4dDescriptor(filter, format, type, k, c, h, w);
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t form, int pad_h,
                                              int pad_w, int u, int v, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t type) {
  *form = {pad_h, u, CUDNN_DEFAULT_MATH};
  return pad_h == pad_w && u == v && dilation_h == 1 && dilation_w == 1 &&
                 mode == CUDNN_CROSS_CORRELATION && type == CUDNN_DATA_FLOAT
             ? CUDNN_STATUS_SUCCESS
             : CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t form, cudnnMathType_t math) {
  form->math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w,
                                                     const cudnnConvolutionDescriptor_t form,
                                                     const cudnnTensorDescriptor_t y,
                                                     const int wanted, int* found,
                                                     cudnnConvolutionFwdAlgoPerf_t* all) {
  return fits(*x, *w, *y, *form) ? rank(wanted, found, all, CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
                                        CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM)
                                 : CUDNN_STATUS_BAD_PARAM;
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t form, const cudnnTensorDescriptor_t dx, const int wanted,
    int* found, cudnnConvolutionBwdDataAlgoPerf_t* all) {
  return fits(*dx, *w, *dy, *form) ? rank(wanted, found, all, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
                                          CUDNN_CONVOLUTION_BWD_DATA_ALGO_1)
                                   : CUDNN_STATUS_BAD_PARAM;
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t form, const cudnnFilterDescriptor_t dw, const int wanted,
    int* found, cudnnConvolutionBwdFilterAlgoPerf_t* all) {
  return fits(*x, *dw, *dy, *form) ? rank(wanted, found, all, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0,
                                          CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1)
                                   : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
    const cudnnConvolutionDescriptor_t form, const cudnnTensorDescriptor_t y,
    cudnnConvolutionFwdAlgo_t, std::size_t* bytes) {
  *bytes = workspace;
  return fits(*x, *w, *y, *form) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t form, const cudnnTensorDescriptor_t dx,
    cudnnConvolutionBwdDataAlgo_t, std::size_t* bytes) {
  *bytes = workspace;
  return fits(*dx, *w, *dy, *form) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t form, const cudnnFilterDescriptor_t dw,
    cudnnConvolutionBwdFilterAlgo_t, std::size_t* bytes) {
  *bytes = workspace;
  return fits(*x, *dw, *dy, *form) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      const cudnnTensorDescriptor_t x_layout, const void* x,
                                      const cudnnFilterDescriptor_t w_layout, const void* w,
                                      const cudnnConvolutionDescriptor_t form,
                                      cudnnConvolutionFwdAlgo_t chosen, void*, std::size_t room,
                                      const void* beta, const cudnnTensorDescriptor_t y_layout,
                                      void* y) {
  if (!fits(*x_layout, *w_layout, *y_layout, *form) || room < workspace ||
      chosen != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  return run(handle, [=, xs = *x_layout, ws = *w_layout, ys = *y_layout, how = *form,
                      to = blend(alpha, beta)] {
    const auto from = all_of(xs, x);
    const auto by = all_of(ws, w);
    values sums(ys.size());
    for_each_product(xs, ws, ys, how, [&](std::size_t in, std::size_t weight, std::size_t out) {
      sums[out] += from[in] * by[weight];
    });
    to.write(sums, ys.type, y);
  });
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t w_layout, const void* w,
                                           const cudnnTensorDescriptor_t dy_layout, const void* dy,
                                           const cudnnConvolutionDescriptor_t form,
                                           cudnnConvolutionBwdDataAlgo_t chosen, void*,
                                           std::size_t room, const void* beta,
                                           const cudnnTensorDescriptor_t dx_layout, void* dx) {
  if (!fits(*dx_layout, *w_layout, *dy_layout, *form) || room < workspace ||
      chosen != CUDNN_CONVOLUTION_BWD_DATA_ALGO_1) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  return run(handle, [=, xs = *dx_layout, ws = *w_layout, ys = *dy_layout, how = *form,
                      to = blend(alpha, beta)] {
    const auto from = all_of(ys, dy);
    const auto by = all_of(ws, w);
    values sums(xs.size());
    for_each_product(xs, ws, ys, how, [&](std::size_t in, std::size_t weight, std::size_t out) {
      sums[in] += from[out] * by[weight];
    });
    to.write(sums, xs.type, dx);
  });
}
cudnnStatus_t cudnnConvolutionBackwardFilter(
    cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x_layout, const void* x,
    const cudnnTensorDescriptor_t dy_layout, const void* dy,
    const cudnnConvolutionDescriptor_t form, cudnnConvolutionBwdFilterAlgo_t chosen, void*,
    std::size_t room, const void* beta, const cudnnFilterDescriptor_t dw_layout, void* dw) {
  if (!fits(*x_layout, *dw_layout, *dy_layout, *form) || room < workspace ||
      chosen != CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  return run(handle, [=, xs = *x_layout, ws = *dw_layout, ys = *dy_layout, how = *form,
                      to = blend(alpha, beta)] {
    const auto from = all_of(xs, x);
    const auto by = all_of(ys, dy);
    values sums(ws.size());
    for_each_product(xs, ws, ys, how, [&](std::size_t in, std::size_t weight, std::size_t out) {
      sums[weight] += from[in] * by[out];
    });
    to.write(sums, ws.type, dw);
  });
}

cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algorithm,
                                  cudnnSoftmaxMode_t mode, const void* alpha,
                                  const cudnnTensorDescriptor_t x_layout, const void* x,
                                  const void* beta, const cudnnTensorDescriptor_t y_layout,
                                  void* y) {
  if (algorithm != CUDNN_SOFTMAX_ACCURATE || mode != CUDNN_SOFTMAX_MODE_INSTANCE ||
      *x_layout != *y_layout) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  return run(handle, [=, layout = *x_layout, to = blend(alpha, beta)] {
    values made = all_of(layout, x);
    const std::size_t size = made.size();
    const auto images = static_cast<std::size_t>(layout.n);
    for (std::size_t i = 0; i < images; ++i) {
      const auto row = std::span(made).subspan(i * (size / images), size / images);
      const double top = *std::ranges::max_element(row);
      double sum = 0;
      for (double& each : row) {
        each = std::exp(each - top);
        sum += each;
      }
      for (double& each : row) {
        each /= sum;
      }
    }
    to.write(made, layout.type, y);
  });
}

}  // extern "C"

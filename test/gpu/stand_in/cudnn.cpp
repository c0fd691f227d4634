// cuDNN on a CUDA runtime of host threads: as much of it as the networks call, as plain loops in
// double precision, for packed NCHW tensors of floats. What its documentation forbids is refused.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cudnn.h>
#include <span>
#include <vector>

#include "gpu/stand_in/runtime.hpp"

struct cudnnContext {
  cudaStream_t stream;
};
struct cudnnTensorStruct {
  int n, c, h, w;

  std::size_t size() const {
    return static_cast<std::size_t>(n) * static_cast<std::size_t>(c) * static_cast<std::size_t>(h) *
           static_cast<std::size_t>(w);
  }
  std::size_t at(int in, int ic, int ih, int iw) const {
    return static_cast<std::size_t>(((in * c + ic) * h + ih) * w + iw);
  }
  friend bool operator==(const cudnnTensorStruct&, const cudnnTensorStruct&) = default;
};
struct cudnnFilterStruct : cudnnTensorStruct {};  // n is k, the filters
struct cudnnConvolutionStruct {
  int pad;
  cudnnMathType_t math;
};
struct cudnnPoolingStruct {
  int window, stride;
};
struct cudnnActivationStruct {};

namespace {

using values = std::vector<double>;

/// What alpha and beta say: old values count only where beta is not 0, even if they are no numbers.
struct blend {
  blend(const void* its_alpha, const void* its_beta)
      : alpha(*static_cast<const float*>(its_alpha)), beta(*static_cast<const float*>(its_beta)) {}

  void write(const values& made, void* to) const {
    auto* out = static_cast<float*>(to);
    for (std::size_t i = 0; i < made.size(); ++i) {
      out[i] = static_cast<float>(alpha * made[i] + (beta == 0 ? 0 : beta * out[i]));
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

/// Calls `visit(x, w, y)` with the places of every product of a convolution, but `w` for each.
template <class Visit>
void for_each_product(const cudnnTensorStruct& x, const cudnnFilterStruct& w,
                      const cudnnTensorStruct& y, int pad, Visit visit) {
  for (int n = 0; n < y.n; ++n) {
    for (int k = 0; k < w.n; ++k) {
      for (int c = 0; c < w.c; ++c) {
        for (int r = 0; r < w.h; ++r) {
          for (int s = 0; s < w.w; ++s) {
            const std::size_t weight = w.at(k, c, r, s);
            const int first = std::max(0, pad - s);
            const int last = std::min(y.w, x.w + pad - s);
            for (int p = std::max(0, pad - r); p < std::min(y.h, x.h + pad - r); ++p) {
              for (int q = first; q < last; ++q) {
                visit(x.at(n, c, p + r - pad, q + s - pad), weight, y.at(n, k, p, q));
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
  return form.math == CUDNN_FMA_MATH && x.n == y.n && x.c == w.c && y.c == w.n &&
         y.h == x.h + 2 * form.pad - w.h + 1 && y.w == x.w + 2 * form.pad - w.w + 1;
}

constexpr std::size_t workspace = std::size_t{48} << 20;

/// Two algorithms for each question: the first sums in any order, as the fastest often does.
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

/// Where a pooling square's largest value lies; the first of equals.
std::size_t winner(const float* x, const cudnnTensorStruct& in, const cudnnPoolingStruct& form,
                   int n, int c, int p, int q) {
  std::size_t best = in.at(n, c, p * form.stride, q * form.stride);
  for (int r = 0; r < form.window; ++r) {
    for (int s = 0; s < form.window; ++s) {
      const std::size_t here = in.at(n, c, p * form.stride + r, q * form.stride + s);
      best = x[here] > x[best] ? here : best;
    }
  }
  return best;
}

/// Calls `visit(output, n, c, p, q)` for each output of a pooling.
template <class Visit>
void for_each_output(const cudnnTensorStruct& y, Visit visit) {
  for (int n = 0; n < y.n; ++n) {
    for (int c = 0; c < y.c; ++c) {
      for (int p = 0; p < y.h; ++p) {
        for (int q = 0; q < y.w; ++q) {
          visit(y.at(n, c, p, q), n, c, p, q);
        }
      }
    }
  }
}

bool fits(const cudnnTensorStruct& x, const cudnnTensorStruct& y, const cudnnPoolingStruct& form) {
  return x.n == y.n && x.c == y.c && y.h == (x.h - form.window) / form.stride + 1 &&
         y.w == (x.w - form.window) / form.stride + 1;
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
cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t* made) { return make(made); }
cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t gone) { return destroy(gone); }
cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* made) {
  return make(made);
}
cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t gone) {
  return destroy(gone);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  *tensor = {n, c, h, w};
  return format == CUDNN_TENSOR_NCHW && type == CUDNN_DATA_FLOAT && tensor->size() > 0
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
  *form = {pad_h, CUDNN_DEFAULT_MATH};
  return pad_h == pad_w && u == 1 && v == 1 && dilation_h == 1 && dilation_w == 1 &&
                 mode == CUDNN_CROSS_CORRELATION && type == CUDNN_DATA_FLOAT
             ? CUDNN_STATUS_SUCCESS
             : CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t form, cudnnMathType_t math) {
  form->math = math;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t form, cudnnPoolingMode_t mode,
                                          cudnnNanPropagation_t, int window_h, int window_w,
                                          int pad_h, int pad_w, int stride_h, int stride_w) {
  *form = {window_h, stride_h};
  return mode == CUDNN_POOLING_MAX_DETERMINISTIC && window_h == window_w && stride_h == stride_w &&
                 pad_h == 0 && pad_w == 0
             ? CUDNN_STATUS_SUCCESS
             : CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t, double) {
  return mode == CUDNN_ACTIVATION_RELU ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
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
  return run(handle, [=, xs = *x_layout, ws = *w_layout, ys = *y_layout, pad = form->pad,
                      to = blend(alpha, beta), from = static_cast<const float*>(x),
                      by = static_cast<const float*>(w)] {
    values sums(ys.size());
    for_each_product(xs, ws, ys, pad, [&](std::size_t in, std::size_t weight, std::size_t out) {
      sums[out] += static_cast<double>(from[in]) * by[weight];
    });
    to.write(sums, y);
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
  return run(handle, [=, xs = *dx_layout, ws = *w_layout, ys = *dy_layout, pad = form->pad,
                      to = blend(alpha, beta), from = static_cast<const float*>(dy),
                      by = static_cast<const float*>(w)] {
    values sums(xs.size());
    for_each_product(xs, ws, ys, pad, [&](std::size_t in, std::size_t weight, std::size_t out) {
      sums[in] += static_cast<double>(from[out]) * by[weight];
    });
    to.write(sums, dx);
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
  return run(handle, [=, xs = *x_layout, ws = *dw_layout, ys = *dy_layout, pad = form->pad,
                      to = blend(alpha, beta), from = static_cast<const float*>(x),
                      by = static_cast<const float*>(dy)] {
    values sums(ws.size());
    for_each_product(xs, ws, ys, pad, [&](std::size_t in, std::size_t weight, std::size_t out) {
      sums[weight] += static_cast<double>(from[in]) * by[out];
    });
    to.write(sums, dw);
  });
}
cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void* alpha,
                                           const cudnnTensorDescriptor_t dy_layout, const void* dy,
                                           const void* beta,
                                           const cudnnTensorDescriptor_t db_layout, void* db) {
  if (*db_layout != cudnnTensorStruct{1, dy_layout->c, 1, 1}) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  return run(handle,
             [=, ys = *dy_layout, to = blend(alpha, beta), from = static_cast<const float*>(dy)] {
               values sums(static_cast<std::size_t>(ys.c));
               for_each_output(ys, [&](std::size_t i, int, int c, int, int) {
                 sums[static_cast<std::size_t>(c)] += from[i];
               });
               to.write(sums, db);
             });
}

/// A dimension of A is C's or 1; then its only element counts for all of C's.
cudnnStatus_t cudnnAddTensor(cudnnHandle_t handle, const void* alpha,
                             const cudnnTensorDescriptor_t a_layout, const void* a,
                             const void* beta, const cudnnTensorDescriptor_t c_layout, void* c) {
  const auto matches = [](int of_a, int of_c) { return of_a == of_c || of_a == 1; };
  if (!matches(a_layout->n, c_layout->n) || !matches(a_layout->c, c_layout->c) ||
      !matches(a_layout->h, c_layout->h) || !matches(a_layout->w, c_layout->w)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  return run(handle, [=, as = *a_layout, cs = *c_layout, to = blend(alpha, beta),
                      from = static_cast<const float*>(a)] {
    values added(cs.size());
    for_each_output(cs, [&](std::size_t out, int n, int k, int p, int q) {
      added[out] = from[as.at(n % as.n, k % as.c, p % as.h, q % as.w)];
    });
    to.write(added, c);
  });
}

cudnnStatus_t cudnnActivationForward(cudnnHandle_t handle, cudnnActivationDescriptor_t,
                                     const void* alpha, const cudnnTensorDescriptor_t x_layout,
                                     const void* x, const void* beta,
                                     const cudnnTensorDescriptor_t y_layout, void* y) {
  if (*x_layout != *y_layout) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  return run(handle, [=, size = x_layout->size(), to = blend(alpha, beta),
                      from = static_cast<const float*>(x)] {
    values made(from, from + size);
    for (double& each : made) {
      each = std::max(each, 0.0);
    }
    to.write(made, y);
  });
}
cudnnStatus_t cudnnActivationBackward(cudnnHandle_t handle, cudnnActivationDescriptor_t,
                                      const void* alpha, const cudnnTensorDescriptor_t y_layout,
                                      const void* y, const cudnnTensorDescriptor_t dy_layout,
                                      const void* dy, const cudnnTensorDescriptor_t x_layout,
                                      const void*, const void* beta,
                                      const cudnnTensorDescriptor_t dx_layout, void* dx) {
  if (*y_layout != *dy_layout || *x_layout != *dx_layout || *x_layout != *y_layout) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  return run(handle, [=, size = y_layout->size(), to = blend(alpha, beta),
                      out = static_cast<const float*>(y), from = static_cast<const float*>(dy)] {
    values made(from, from + size);
    for (std::size_t i = 0; i < size; ++i) {
      made[i] = out[i] > 0 ? made[i] : 0;
    }
    to.write(made, dx);
  });
}

cudnnStatus_t cudnnPoolingForward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t form,
                                  const void* alpha, const cudnnTensorDescriptor_t x_layout,
                                  const void* x, const void* beta,
                                  const cudnnTensorDescriptor_t y_layout, void* y) {
  if (!fits(*x_layout, *y_layout, *form)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  return run(handle, [=, xs = *x_layout, ys = *y_layout, square = *form, to = blend(alpha, beta),
                      from = static_cast<const float*>(x)] {
    values made(ys.size());
    for_each_output(ys, [&](std::size_t out, int n, int c, int p, int q) {
      made[out] = from[winner(from, xs, square, n, c, p, q)];
    });
    to.write(made, y);
  });
}
cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t form,
                                   const void* alpha, const cudnnTensorDescriptor_t y_layout,
                                   const void*, const cudnnTensorDescriptor_t dy_layout,
                                   const void* dy, const cudnnTensorDescriptor_t x_layout,
                                   const void* x, const void* beta,
                                   const cudnnTensorDescriptor_t dx_layout, void* dx) {
  if (*y_layout != *dy_layout || *x_layout != *dx_layout || !fits(*x_layout, *y_layout, *form)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  return run(handle, [=, xs = *x_layout, ys = *y_layout, square = *form, to = blend(alpha, beta),
                      from = static_cast<const float*>(x), slope = static_cast<const float*>(dy)] {
    values made(xs.size());
    for_each_output(ys, [&](std::size_t out, int n, int c, int p, int q) {
      made[winner(from, xs, square, n, c, p, q)] += slope[out];
    });
    to.write(made, dx);
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
  return run(handle, [=, images = static_cast<std::size_t>(x_layout->n), size = x_layout->size(),
                      to = blend(alpha, beta), from = static_cast<const float*>(x)] {
    values made(from, from + size);
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
    to.write(made, y);
  });
}

}  // extern "C"

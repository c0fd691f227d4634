#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "models/cudnn/libraries.hpp"

// The layers of a declaration, each connected to the activations that it reads and writes.
namespace models::with_cudnn {

/// An activation's values and the gradient of the loss by them. The gradient stays empty for the
/// network's input.
template <class T>
struct activation {
  activation(std::size_t its_count, const shape& its_each)
      : count(its_count), each(its_each), value(size()) {
    if (size() > std::size_t{std::numeric_limits<std::int32_t>::max()}) {
      throw tutti::usage_error(tutti::sentence({"a batch of ", count, " images of ", each.size(),
                                                " values is too large for cuDNN. Fix: a smaller "
                                                "--batch-size"}));
    }
    describe<T>(layout, count, each);
  }

  std::size_t size() const { return count * each.size(); }
  extent as_matrix() const { return {count * each.height * each.width, each.channels}; }

  std::size_t count;
  shape each;
  buffer<T> value;
  buffer<T> gradient{};
  tensor_layout layout{};
};

/// The activations, parameters and statistics that a layer works on.
template <class T>
struct wiring {
  placed_facts facts;
  activation<T>* in;
  activation<T>* out;
  activation<T>* added;
  std::span<const tutti::tensor> tensors;
  float* running_means;
  float* running_variances;
};

/// A layer's weights as the libraries read them: in the type in which layers compute, with the
/// weights of each output in the channels-last order of the pixels that they multiply. Where the
/// parameter's own memory has this form already, it is used without a copy.
template <class T>
class placed_weight {
 public:
  placed_weight(const wiring<T>& at, std::size_t cells)
      : plain_(at.tensors[0]),
        outputs_(at.facts.out.channels),
        channels_(at.facts.in.channels),
        cells_(cells) {
    if (!std::is_same_v<T, float> || (channels_ > 1 && cells_ > 1)) {
      value_ = buffer<T>(plain_.elements);
      gradient_ = buffer<T>(plain_.elements);
    }
  }

  /// Converts the parameter's current values. Call it in a step before the other functions.
  void read(place& at) const {
    if (!value_.empty()) {
      channels_last<T>::from_planes(at.stream, plain_.parameter.data(), value_.data(), outputs_,
                                    channels_, cells_);
    }
  }
  const void* value() const {
    return value_.empty() ? static_cast<const void*>(plain_.parameter.data()) : value_.data();
  }
  void* gradient() const {
    return value_.empty() ? static_cast<void*>(plain_.gradient.data()) : gradient_.data();
  }
  void write_gradient(place& at) const {
    if (!value_.empty()) {
      channels_last<T>::to_planes(at.stream, gradient_.data(), plain_.gradient.data(), outputs_,
                                  channels_, cells_);
    }
  }

 private:
  tutti::tensor plain_;
  std::size_t outputs_;
  std::size_t channels_;
  std::size_t cells_;
  buffer<T> value_{};
  buffer<T> gradient_{};
};

/// The bias that a layer adds to each of its outputs, if it has one.
template <class T>
class added_bias {
 public:
  explicit added_bias(const wiring<T>& at) {
    if (at.facts.biases > 0) {
      tensor_ = at.tensors[1];
    }
  }

  void forward(place& at, const activation<T>& out) const {
    if (tensor_) {
      channels_last<T>::add_bias(at.stream, out.value.data(), out.as_matrix(),
                                 tensor_->parameter.data());
    }
  }
  void backward(place& at, const activation<T>& out) const {
    if (tensor_) {
      channels_last<T>::bias_gradient(at.stream, out.gradient.data(), out.as_matrix(),
                                      tensor_->gradient.data(), at.scratch());
    }
  }

 private:
  std::optional<tutti::tensor> tensor_{};
};

template <class T, class Layer>
class placed;

/// Both cuBLAS and this code store matrices contiguously, but cuBLAS takes for a column what is a
/// row here. Each product is therefore called as the transpose of the one that the layer computes.
template <class T>
class placed<T, linear> {
 public:
  placed(const linear&, place&, const wiring<T>& at)
      : at_(at),
        weight_(at, at.facts.in.height * at.facts.in.width),
        bias_(at),
        inputs_(dim(at.facts.in.size())),
        outputs_(dim(at.facts.out.channels)),
        batch_(dim(at.out->count)) {}

  void forward(place& here, pass) const {
    weight_.read(here);
    multiply(here, CUBLAS_OP_T, CUBLAS_OP_N, outputs_, batch_, inputs_, weight_.value(), inputs_,
             at_.in->value.data(), inputs_, &zero, at_.out->value.data(), outputs_);
    bias_.forward(here, *at_.out);
  }
  void backward(place& here) const {
    if (!at_.in->gradient.empty()) {
      multiply(here, CUBLAS_OP_N, CUBLAS_OP_N, inputs_, batch_, outputs_, weight_.value(), inputs_,
               at_.out->gradient.data(), outputs_, share_of_old(at_.facts.of_read),
               at_.in->gradient.data(), inputs_);
    }
    multiply(here, CUBLAS_OP_N, CUBLAS_OP_T, inputs_, outputs_, batch_, at_.in->value.data(),
             inputs_, at_.out->gradient.data(), outputs_, &zero, weight_.gradient(), inputs_);
    weight_.write_gradient(here);
    bias_.backward(here, *at_.out);
  }

 private:
  static void multiply(place& here, cublasOperation_t of_a, cublasOperation_t of_b, int m, int n,
                       int k, const void* a, int lda, const void* b, int ldb, const float* beta,
                       void* c, int ldc) {
    constexpr auto type = names<T>::blas;
    check(cublasGemmEx(here.blas, of_a, of_b, m, n, k, &one, a, type, lda, b, type, ldb, beta, c,
                       type, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }

  wiring<T> at_;
  placed_weight<T> weight_;
  added_bias<T> bias_;
  int inputs_;
  int outputs_;
  int batch_;
};

template <class Algorithm>
struct choice {
  Algorithm algorithm{};
  std::size_t workspace{};  // in bytes
};

/// Returns the fastest algorithm by cuDNN's estimate, which lists the fastest first, that gives the
/// same bits each time and needs at most 2 GiB of workspace. `ask(count, &found, list)` asks cuDNN
/// for the list, and `measure(algorithm, &bytes)` for an algorithm's workspace; it fails for
/// algorithms that do not support the descriptor's arithmetic. Throws tutti::error if there is
/// none.
template <class Performance, class Ask, class Measure>
auto deterministic(const layer_facts& layer, Ask ask, Measure measure) {
  constexpr std::size_t most = std::size_t{2} << 30;
  std::array<Performance, 16> ranked{};
  int found = 0;
  check(ask(dim(ranked.size()), &found, ranked.data()));
  choice<decltype(Performance::algo)> made;
  for (const auto& each : std::span(ranked).first(static_cast<std::size_t>(found))) {
    made.algorithm = each.algo;
    if (each.status == CUDNN_STATUS_SUCCESS && each.determinism == CUDNN_DETERMINISTIC &&
        measure(made.algorithm, &made.workspace) == CUDNN_STATUS_SUCCESS &&
        made.workspace <= most) {
      return made;
    }
  }
  throw tutti::error(tutti::sentence(
      {"cuDNN has no deterministic algorithm for ", layer.name, " in this precision"}));
}

template <class T>
class placed<T, convolution> {
 public:
  placed(const convolution& layer, place& here, const wiring<T>& at)
      : at_(at), weight_(at, layer.kernel * layer.kernel), bias_(at) {
    const int pad = dim(layer.kernel / 2);
    const int stride = dim(layer.stride);
    const auto& x = at.in->layout;
    const auto& y = at.out->layout;
    check(cudnnSetFilter4dDescriptor(filters_, names<T>::dnn, CUDNN_TENSOR_NHWC, dim(layer.filters),
                                     dim(at.facts.in.channels), dim(layer.kernel),
                                     dim(layer.kernel)));
    check(cudnnSetConvolution2dDescriptor(form_, pad, pad, stride, stride, 1, 1,
                                          CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    check(cudnnSetConvolutionMathType(form_, names<T>::math));
    forward_ = deterministic<cudnnConvolutionFwdAlgoPerf_t>(
        at.facts,
        [&](auto... answer) {
          return cudnnGetConvolutionForwardAlgorithm_v7(here.dnn, x, filters_, form_, y, answer...);
        },
        [&](auto... answer) {
          return cudnnGetConvolutionForwardWorkspaceSize(here.dnn, x, filters_, form_, y,
                                                         answer...);
        });
    to_input_ = deterministic<cudnnConvolutionBwdDataAlgoPerf_t>(
        at.facts,
        [&](auto... answer) {
          return cudnnGetConvolutionBackwardDataAlgorithm_v7(here.dnn, filters_, y, form_, x,
                                                             answer...);
        },
        [&](auto... answer) {
          return cudnnGetConvolutionBackwardDataWorkspaceSize(here.dnn, filters_, y, form_, x,
                                                              answer...);
        });
    to_weight_ = deterministic<cudnnConvolutionBwdFilterAlgoPerf_t>(
        at.facts,
        [&](auto... answer) {
          return cudnnGetConvolutionBackwardFilterAlgorithm_v7(here.dnn, x, y, form_, filters_,
                                                               answer...);
        },
        [&](auto... answer) {
          return cudnnGetConvolutionBackwardFilterWorkspaceSize(here.dnn, x, y, form_, filters_,
                                                                answer...);
        });
    here.wanted =
        std::max({here.wanted, forward_.workspace, to_input_.workspace, to_weight_.workspace});
  }

  void forward(place& here, pass) const {
    weight_.read(here);
    check(cudnnConvolutionForward(here.dnn, &one, at_.in->layout, at_.in->value.data(), filters_,
                                  weight_.value(), form_, forward_.algorithm, here.workspace.data(),
                                  here.workspace.size(), &zero, at_.out->layout,
                                  at_.out->value.data()));
    bias_.forward(here, *at_.out);
  }
  void backward(place& here) const {
    if (!at_.in->gradient.empty()) {
      check(cudnnConvolutionBackwardData(
          here.dnn, &one, filters_, weight_.value(), at_.out->layout, at_.out->gradient.data(),
          form_, to_input_.algorithm, here.workspace.data(), here.workspace.size(),
          share_of_old(at_.facts.of_read), at_.in->layout, at_.in->gradient.data()));
    }
    check(cudnnConvolutionBackwardFilter(
        here.dnn, &one, at_.in->layout, at_.in->value.data(), at_.out->layout,
        at_.out->gradient.data(), form_, to_weight_.algorithm, here.workspace.data(),
        here.workspace.size(), &zero, filters_, weight_.gradient()));
    weight_.write_gradient(here);
    bias_.backward(here, *at_.out);
  }

 private:
  wiring<T> at_;
  placed_weight<T> weight_;
  added_bias<T> bias_;
  filter_layout filters_{};
  convolution_form form_{};
  choice<cudnnConvolutionFwdAlgo_t> forward_{};
  choice<cudnnConvolutionBwdDataAlgo_t> to_input_{};
  choice<cudnnConvolutionBwdFilterAlgo_t> to_weight_{};
};

template <class T>
class placed<T, batch_norm> {
 public:
  placed(const batch_norm&, place&, const wiring<T>& at)
      : at_(at), batch_(2 * at.facts.normalised) {
    by_ = {.scale = at.tensors[0].parameter.data(),
           .offset = at.tensors[1].parameter.data(),
           .running_mean = at.running_means,
           .running_variance = at.running_variances,
           .mean = batch_.data(),
           .inverse_deviation = batch_.data() + at.facts.normalised};
  }

  void forward(place& here, pass mode) const {
    const auto* x = at_.in->value.data();
    auto* y = at_.out->value.data();
    if (mode == pass::training) {
      channels_last<T>::normalise(here.stream, x, y, at_.in->as_matrix(), by_, here.scratch());
    } else {
      channels_last<T>::normalise_by_running(here.stream, x, y, at_.in->as_matrix(), by_);
    }
  }
  void backward(place& here) const {
    channels_last<T>::normalise_gradient(
        here.stream, at_.in->value.data(), at_.out->gradient.data(), at_.in->gradient.data(),
        at_.facts.of_read, at_.in->as_matrix(), by_, at_.tensors[0].gradient.data(),
        at_.tensors[1].gradient.data(), here.scratch());
  }

 private:
  wiring<T> at_;
  buffer<float> batch_;
  normalisation by_{};
};

template <class T>
class placed<T, relu> {
 public:
  placed(const relu&, place&, const wiring<T>& at) : out_(at.out) {}

  void forward(place& here, pass) const {
    channels_last<T>::rectify(here.stream, out_->value.data(), out_->size());
  }
  void backward(place& here) const {
    channels_last<T>::rectify_gradient(here.stream, out_->value.data(), out_->gradient.data(),
                                       out_->size());
  }

 private:
  activation<T>* out_;
};

template <class T>
class placed<T, max_pool> {
 public:
  placed(const max_pool& form, place&, const wiring<T>& at)
      : form_(form), at_(at), winners_(at.out->size()) {}

  void forward(place& here, pass) const {
    channels_last<T>::pool(here.stream, form_, at_.in->value.data(), at_.facts.in,
                           at_.out->value.data(), at_.facts.out, winners_.data(), at_.in->count);
  }
  void backward(place& here) const {
    channels_last<T>::pool_gradient(here.stream, form_, at_.in->gradient.data(), at_.facts.in,
                                    at_.facts.of_read, at_.out->gradient.data(), at_.facts.out,
                                    winners_.data(), at_.in->count);
  }

 private:
  max_pool form_;
  wiring<T> at_;
  buffer<std::uint8_t> winners_;
};

template <class T>
class placed<T, average_pool> {
 public:
  placed(const average_pool&, place&, const wiring<T>& at) : at_(at) {}

  void forward(place& here, pass) const {
    channels_last<T>::average(here.stream, at_.in->value.data(), at_.facts.in,
                              at_.out->value.data(), at_.in->count);
  }
  void backward(place& here) const {
    channels_last<T>::average_gradient(here.stream, at_.in->gradient.data(), at_.facts.in,
                                       at_.facts.of_read, at_.out->gradient.data(), at_.in->count);
  }

 private:
  wiring<T> at_;
};

template <class T>
class placed<T, subsample> {
 public:
  placed(const subsample& form, place&, const wiring<T>& at) : stride_(form.stride), at_(at) {}

  void forward(place& here, pass) const {
    channels_last<T>::take_subsample(here.stream, stride_, at_.in->value.data(), at_.facts.in,
                                     at_.out->value.data(), at_.facts.out, at_.in->count);
  }
  void backward(place& here) const {
    channels_last<T>::subsample_gradient(here.stream, stride_, at_.in->gradient.data(),
                                         at_.facts.in, at_.facts.of_read, at_.out->gradient.data(),
                                         at_.facts.out, at_.in->count);
  }

 private:
  std::size_t stride_;
  wiring<T> at_;
};

template <class T>
class placed<T, branch> {
 public:
  placed(const branch&, place&, const wiring<T>&) {}

  void forward(place&, pass) const {}
  void backward(place&) const {}
};

template <class T>
class placed<T, sum> {
 public:
  placed(const sum&, place&, const wiring<T>& at) : at_(at) {}

  void forward(place& here, pass) const {
    channels_last<T>::add(here.stream, at_.out->value.data(), at_.added->value.data(),
                          at_.out->size());
  }
  void backward(place& here) const {
    const auto* slope = at_.out->gradient.data();
    auto* of_added = at_.added->gradient.data();
    if (at_.facts.of_added == gradients::overwrite) {
      here.stream.copy(of_added, slope, at_.out->size() * sizeof(T));
    } else {
      channels_last<T>::add(here.stream, of_added, slope, at_.out->size());
    }
  }

 private:
  wiring<T> at_;
};

template <class T>
class placed<T, concatenate> {
 public:
  placed(const concatenate&, place&, const wiring<T>& at)
      : at_(at), pixels_(at.in->as_matrix().rows), first_(at.added->each.channels) {}

  void forward(place& here, pass) const {
    channels_last<T>::concatenate(here.stream, at_.added->value.data(), first_,
                                  at_.in->value.data(), at_.in->each.channels,
                                  at_.out->value.data(), pixels_);
  }
  void backward(place& here) const {
    give_back(here, *at_.added, at_.facts.of_added, 0);
    give_back(here, *at_.in, at_.facts.of_read, first_);
  }

 private:
  void give_back(place& here, activation<T>& to, gradients mode, std::size_t from) const {
    if (!to.gradient.empty()) {
      channels_last<T>::concatenate_gradient(here.stream, to.gradient.data(), to.each.channels,
                                             mode, at_.out->gradient.data(), at_.out->each.channels,
                                             from, pixels_);
    }
  }

  wiring<T> at_;
  std::size_t pixels_;
  std::size_t first_;
};

template <class T, class AnyLayer>
struct any_placed;
template <class T, class... Layers>
struct any_placed<T, std::variant<Layers...>> {
  using type = std::variant<placed<T, Layers>...>;
};

}  // namespace models::with_cudnn

#include "models/cudnn.hpp"

#include <algorithm>
#include <array>
#include <cublas_v2.h>
#include <cudnn.h>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/base/cuda/error.hpp"
#include "tutti/base/cuda/memory.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/source_place.hpp"

namespace models {
namespace {

using tutti::source_place;
using tutti::cuda::buffer;
using tutti::cuda::pinned_buffer;

[[noreturn]] void fail(std::string_view library, const char* words, int code, source_place where) {
  throw tutti::error(std::string(library) + ": " + words + " (" + std::to_string(code) + " at " +
                     where.file + ":" + std::to_string(where.line) + ")");
}
void check(cudnnStatus_t status, source_place where = source_place::current()) {
  if (status != CUDNN_STATUS_SUCCESS) {
    fail("cuDNN", cudnnGetErrorString(status), status, where);
  }
}
void check(cublasStatus_t status, source_place where = source_place::current()) {
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
  ~owned() { static_cast<void>(Destroy(handle_)); }  // nobody is left to tell

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
using pooling_form =
    owned<cudnnPoolingDescriptor_t, cudnnCreatePoolingDescriptor, cudnnDestroyPoolingDescriptor>;
using activation_form = owned<cudnnActivationDescriptor_t, cudnnCreateActivationDescriptor,
                              cudnnDestroyActivationDescriptor>;

int dim(std::size_t n) { return static_cast<int>(n); }

void describe(const tensor_layout& layout, std::size_t count, const shape& each) {
  check(cudnnSetTensor4dDescriptor(layout, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, dim(count),
                                   dim(each.channels), dim(each.height), dim(each.width)));
}

// What both libraries scale products and old values by.
constexpr float one = 1;
constexpr float zero = 0;

/// Where the layers run. The workspace is one for both libraries: a stream's work takes turns.
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

  tutti::cuda::stream stream;
  cudnn_handle dnn{};
  cublas_handle blas{};
  std::size_t wanted = std::size_t{32} << 20;  // what cuBLAS asks for on Hopper; convolutions add
  buffer<std::byte> workspace{};
};

/// Values and the loss's gradient by them; the gradient stays empty for the network's input.
struct activation {
  activation(std::size_t count, const shape& each) : size(count * each.size()), value(size) {
    describe(layout, count, each);
  }

  std::size_t size;
  buffer<float> value;
  buffer<float> gradient{};
  tensor_layout layout{};
};

/// What a layer with parameters adds to each of its outputs.
struct added_bias {
  added_bias(const layer_facts& facts, const tutti::tensor& its_tensor) : tensor(its_tensor) {
    describe(layout, 1, {facts.biases, 1, 1});
  }

  void forward(const place& at, const activation& out) const {
    check(cudnnAddTensor(at.dnn, &one, layout, tensor.parameter.data(), &one, out.layout,
                         out.value.data()));
  }
  void backward(const place& at, const activation& out) const {
    check(cudnnConvolutionBackwardBias(at.dnn, &one, out.layout, out.gradient.data(), &zero, layout,
                                       tensor.gradient.data()));
  }

  tutti::tensor tensor;
  tensor_layout layout{};
};

/// Both libraries' matrices lie row by row as ours do, but cuBLAS names a row what we name a
/// column: each product here is the transpose of the one that the layer means.
class placed_linear {
 public:
  placed_linear(const linear&, place&, const layer_facts& facts, activation& in, activation& out,
                std::span<const tutti::tensor> tensors)
      : in_(&in),
        out_(&out),
        weight_(tensors[0]),
        bias_(facts, tensors[1]),
        inputs_(dim(facts.in.size())),
        outputs_(dim(facts.biases)),
        batch_(dim(out.size / facts.biases)) {}

  void forward(const place& at) const {
    check(cublasSgemm(at.blas, CUBLAS_OP_T, CUBLAS_OP_N, outputs_, batch_, inputs_, &one,
                      weight_.parameter.data(), inputs_, in_->value.data(), inputs_, &zero,
                      out_->value.data(), outputs_));
    bias_.forward(at, *out_);
  }
  void backward(const place& at) const {
    if (!in_->gradient.empty()) {
      check(cublasSgemm(at.blas, CUBLAS_OP_N, CUBLAS_OP_N, inputs_, batch_, outputs_, &one,
                        weight_.parameter.data(), inputs_, out_->gradient.data(), outputs_, &zero,
                        in_->gradient.data(), inputs_));
    }
    check(cublasSgemm(at.blas, CUBLAS_OP_N, CUBLAS_OP_T, inputs_, outputs_, batch_, &one,
                      in_->value.data(), inputs_, out_->gradient.data(), outputs_, &zero,
                      weight_.gradient.data(), inputs_));
    bias_.backward(at, *out_);
  }

 private:
  activation* in_;
  activation* out_;
  tutti::tensor weight_;
  added_bias bias_;
  int inputs_;
  int outputs_;
  int batch_;
};

template <class Algorithm>
struct choice {
  Algorithm algorithm{};
  std::size_t workspace{};  // bytes
};

/// The fastest that gives the same bits each time, as cuDNN estimates; it lists the fastest first.
/// `ask(count, &found, list)` and `measure(algorithm, &bytes)` are its questions; the second
/// refuses what cannot do with the descriptor's arithmetic.
template <class Performance, class Ask, class Measure>
auto deterministic(Ask ask, Measure measure) {
  std::array<Performance, 16> ranked{};
  int found = 0;
  check(ask(dim(ranked.size()), &found, ranked.data()));
  choice<decltype(Performance::algo)> made;
  for (const auto& each : std::span(ranked).first(static_cast<std::size_t>(found))) {
    made.algorithm = each.algo;
    if (each.status == CUDNN_STATUS_SUCCESS && each.determinism == CUDNN_DETERMINISTIC &&
        measure(made.algorithm, &made.workspace) == CUDNN_STATUS_SUCCESS) {
      return made;
    }
  }
  throw tutti::error("cuDNN has no deterministic fp32 algorithm for a convolution of this model");
}

class placed_convolution {
 public:
  placed_convolution(const convolution& layer, place& at, const layer_facts& facts, activation& in,
                     activation& out, std::span<const tutti::tensor> tensors)
      : in_(&in), out_(&out), weight_(tensors[0]), bias_(facts, tensors[1]) {
    const int pad = dim(layer.kernel / 2);
    check(cudnnSetFilter4dDescriptor(filters_, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW,
                                     dim(layer.filters), dim(facts.in.channels), dim(layer.kernel),
                                     dim(layer.kernel)));
    check(cudnnSetConvolution2dDescriptor(form_, pad, pad, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                          CUDNN_DATA_FLOAT));
    check(cudnnSetConvolutionMathType(form_, CUDNN_FMA_MATH));
    forward_ = deterministic<cudnnConvolutionFwdAlgoPerf_t>(
        [&](auto... answer) {
          return cudnnGetConvolutionForwardAlgorithm_v7(at.dnn, in.layout, filters_, form_,
                                                        out.layout, answer...);
        },
        [&](auto... answer) {
          return cudnnGetConvolutionForwardWorkspaceSize(at.dnn, in.layout, filters_, form_,
                                                         out.layout, answer...);
        });
    to_input_ = deterministic<cudnnConvolutionBwdDataAlgoPerf_t>(
        [&](auto... answer) {
          return cudnnGetConvolutionBackwardDataAlgorithm_v7(at.dnn, filters_, out.layout, form_,
                                                             in.layout, answer...);
        },
        [&](auto... answer) {
          return cudnnGetConvolutionBackwardDataWorkspaceSize(at.dnn, filters_, out.layout, form_,
                                                              in.layout, answer...);
        });
    to_weight_ = deterministic<cudnnConvolutionBwdFilterAlgoPerf_t>(
        [&](auto... answer) {
          return cudnnGetConvolutionBackwardFilterAlgorithm_v7(at.dnn, in.layout, out.layout, form_,
                                                               filters_, answer...);
        },
        [&](auto... answer) {
          return cudnnGetConvolutionBackwardFilterWorkspaceSize(at.dnn, in.layout, out.layout,
                                                                form_, filters_, answer...);
        });
    at.wanted =
        std::max({at.wanted, forward_.workspace, to_input_.workspace, to_weight_.workspace});
  }

  void forward(const place& at) const {
    check(cudnnConvolutionForward(at.dnn, &one, in_->layout, in_->value.data(), filters_,
                                  weight_.parameter.data(), form_, forward_.algorithm,
                                  at.workspace.data(), at.workspace.size(), &zero, out_->layout,
                                  out_->value.data()));
    bias_.forward(at, *out_);
  }
  void backward(const place& at) const {
    if (!in_->gradient.empty()) {
      check(cudnnConvolutionBackwardData(
          at.dnn, &one, filters_, weight_.parameter.data(), out_->layout, out_->gradient.data(),
          form_, to_input_.algorithm, at.workspace.data(), at.workspace.size(), &zero, in_->layout,
          in_->gradient.data()));
    }
    check(cudnnConvolutionBackwardFilter(at.dnn, &one, in_->layout, in_->value.data(), out_->layout,
                                         out_->gradient.data(), form_, to_weight_.algorithm,
                                         at.workspace.data(), at.workspace.size(), &zero, filters_,
                                         weight_.gradient.data()));
    bias_.backward(at, *out_);
  }

 private:
  activation* in_;
  activation* out_;
  tutti::tensor weight_;
  added_bias bias_;
  filter_layout filters_{};
  convolution_form form_{};
  choice<cudnnConvolutionFwdAlgo_t> forward_{};
  choice<cudnnConvolutionBwdDataAlgo_t> to_input_{};
  choice<cudnnConvolutionBwdFilterAlgo_t> to_weight_{};
};

class placed_relu {
 public:
  placed_relu(const relu&, place&, const layer_facts&, activation&, activation& out,
              std::span<const tutti::tensor>)
      : out_(&out) {
    check(cudnnSetActivationDescriptor(form_, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
  }

  void forward(const place& at) const {
    check(cudnnActivationForward(at.dnn, form_, &one, out_->layout, out_->value.data(), &zero,
                                 out_->layout, out_->value.data()));
  }
  void backward(const place& at) const {
    check(cudnnActivationBackward(at.dnn, form_, &one, out_->layout, out_->value.data(),
                                  out_->layout, out_->gradient.data(), out_->layout,
                                  out_->value.data(), &zero, out_->layout, out_->gradient.data()));
  }

 private:
  activation* out_;
  activation_form form_{};
};

class placed_max_pool {
 public:
  placed_max_pool(const max_pool&, place&, const layer_facts&, activation& in, activation& out,
                  std::span<const tutti::tensor>)
      : in_(&in), out_(&out) {
    check(cudnnSetPooling2dDescriptor(form_, CUDNN_POOLING_MAX_DETERMINISTIC, CUDNN_PROPAGATE_NAN,
                                      2, 2, 0, 0, 2, 2));
  }

  void forward(const place& at) const {
    check(cudnnPoolingForward(at.dnn, form_, &one, in_->layout, in_->value.data(), &zero,
                              out_->layout, out_->value.data()));
  }
  void backward(const place& at) const {
    check(cudnnPoolingBackward(at.dnn, form_, &one, out_->layout, out_->value.data(), out_->layout,
                               out_->gradient.data(), in_->layout, in_->value.data(), &zero,
                               in_->layout, in_->gradient.data()));
  }

 private:
  activation* in_;
  activation* out_;
  pooling_form form_{};
};

placed_linear placed(const linear&);
placed_convolution placed(const convolution&);
placed_relu placed(const relu&);
placed_max_pool placed(const max_pool&);

using any_placed = std::variant<placed_linear, placed_convolution, placed_relu, placed_max_pool>;

}  // namespace

struct cudnn::program {
  place at;
  std::size_t batch;
  std::size_t classes{};
  std::deque<activation> activations{};  // layers point into it, and keep descriptors in place
  std::deque<any_placed> layers{};
  pinned_buffer<float> input;
  pinned_buffer<float> logits{};
  pinned_buffer<float> labels_sent{};
  buffer<float> labels{};
  tensor_layout compared{};  // as many rows of logits as there are labels

  program(const declaration& of, std::size_t batch_size, std::span<const tutti::tensor> tensors,
          tutti::cuda::stream& queue)
      : at(queue), batch(batch_size), input(batch * of.input.size()) {
    activations.emplace_back(batch, of.input);
    const auto all = models::facts(of);
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::visit([&](const auto& layer) { add(layer, all[i], tensors); }, of.layers[i]);
    }
    at.make_room();
    classes = all.back().out.size();
    const std::size_t scores = batch * classes;
    logits = pinned_buffer<float>(scores);
    labels_sent = pinned_buffer<float>(scores);
    labels = buffer<float>(scores);
  }

  template <class Layer>
  void add(const Layer& layer, const layer_facts& facts, std::span<const tutti::tensor>& tensors) {
    activation& in = activations.back();
    if constexpr (!std::is_same_v<Layer, relu>) {
      auto& out = activations.emplace_back(batch, facts.out);
      out.gradient = buffer<float>(out.size);
    }
    layers.emplace_back(std::in_place_type<decltype(placed(layer))>, layer, at, facts, in,
                        activations.back(), tensors);
    tensors = tensors.subspan(facts.weights > 0 ? 2 : 0);
  }

  void forward(std::size_t layer) {
    if (layer == 0) {
      at.stream.copy(activations.front().value.data(), input.data(), input.size() * sizeof(float));
    }
    std::visit([this](const auto& each) { each.forward(at); }, layers[layer]);
    if (layer + 1 == layers.size()) {
      at.stream.copy(logits.data(), activations.back().value.data(), logits.size() * sizeof(float));
    }
  }

  void backward(std::size_t layer) {
    std::visit([this](const auto& each) { each.backward(at); }, layers[layer]);
  }

  /// Softmax minus one at each label, by the share that an image has in the mean.
  void compare(std::span<const std::uint8_t> wanted) {
    const auto& scores = activations.back();
    const float share = 1.0F / static_cast<float>(wanted.size());
    const std::size_t rows = wanted.size() * classes;
    std::ranges::fill(labels_sent.span(), 0.0F);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      labels_sent.data()[i * classes + wanted[i]] = -share;
    }
    at.stream.copy(labels.data(), labels_sent.data(), rows * sizeof(float));
    describe(compared, wanted.size(), {classes, 1, 1});
    check(cudnnSoftmaxForward(at.dnn, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE, &share,
                              compared, scores.value.data(), &zero, compared,
                              scores.gradient.data()));
    check(cudnnAddTensor(at.dnn, &one, compared, labels.data(), &one, compared,
                         scores.gradient.data()));
    at.stream.clear(scores.gradient.data() + rows, (scores.size - rows) * sizeof(float));
  }
};

cudnn::cudnn(const declaration& of, std::size_t batch_size, std::span<const tutti::tensor> tensors,
             queue_type& queue) {
  const tutti::cuda::on_device here(queue.device());
  program_ = std::make_unique<program>(of, batch_size, tensors, queue);
}
cudnn::cudnn(cudnn&&) noexcept = default;
cudnn& cudnn::operator=(cudnn&&) noexcept = default;
cudnn::~cudnn() = default;

std::span<float> cudnn::input() { return program_->input.span(); }
std::span<const float> cudnn::logits() { return program_->logits.span(); }
void cudnn::forward(std::size_t layer) {
  const tutti::cuda::on_device here(program_->at.stream.device());
  program_->forward(layer);
}
void cudnn::compare(std::span<const std::uint8_t> labels) {
  const tutti::cuda::on_device here(program_->at.stream.device());
  program_->compare(labels);
}
void cudnn::backward(std::size_t layer) {
  const tutti::cuda::on_device here(program_->at.stream.device());
  program_->backward(layer);
}

}  // namespace models

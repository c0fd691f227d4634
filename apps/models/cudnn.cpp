#include "models/cudnn.hpp"

#include <algorithm>
#include <array>
#include <cublas_v2.h>
#include <cudnn.h>
#include <deque>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "models/cuda/channels_last.hpp"
#include "tutti/base/cuda/error.hpp"
#include "tutti/base/cuda/memory.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/source_place.hpp"
#include "tutti/kernels/arithmetic.hpp"

namespace models {
namespace {

using tutti::source_place;
using tutti::cuda::buffer;
using tutti::cuda::pinned_buffer;

[[noreturn]] void fail(std::string_view library, const char* words, int code, source_place where) {
  throw tutti::error(tutti::sentence(
      {library, ": ", words, " (", code, " at ", where.file, ":", where.line, ")"}));
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

int dim(std::size_t n) { return static_cast<int>(n); }

/// What the libraries call a type, and the arithmetic that they may do with it: fp32 without
/// shortcuts (no TF32), bf16 on tensor cores. Both add in fp32.
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

// What both libraries scale products and old values by.
constexpr float one = 1;
constexpr float zero = 0;

const float* share_of_old(gradients mode) { return mode == gradients::overwrite ? &zero : &one; }

/// Where the layers run. The workspace is one for both libraries and our own sums: a stream's work
/// takes turns.
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
  std::size_t wanted = std::size_t{32} << 20;  // what cuBLAS asks for on Hopper; layers add
  buffer<std::byte> workspace{};
};

/// Values and the loss's gradient by them; the gradient stays empty for the network's input.
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

/// What a layer is given.
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

/// A layer's weights as the libraries read them: in the layers' type, each output's in the order of
/// the pixels that it reads. Our own memory serves where that is what it holds.
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

  /// Only after this may the others be called.
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

/// What a layer adds to each of its outputs, if it has a bias.
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

/// Both libraries' matrices lie row by row as ours do, but cuBLAS names a row what we name a
/// column: each product here is the transpose of the one that the layer means.
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
  std::size_t workspace{};  // bytes
};

/// The fastest that gives the same bits each time, as cuDNN estimates; it lists the fastest first.
/// `ask(count, &found, list)` and `measure(algorithm, &bytes)` are its questions; the second
/// refuses what cannot do with the descriptor's arithmetic.
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

template <class T, class AnyLayer>
struct any_placed;
template <class T, class... Layers>
struct any_placed<T, std::variant<Layers...>> {
  using type = std::variant<placed<T, Layers>...>;
};

}  // namespace

/// What does not depend on the layers' type.
struct cudnn::program {
  program(const declaration& of, std::size_t batch_size, std::size_t its_classes,
          tutti::cuda::stream& queue)
      : at(queue),
        classes(its_classes),
        input(batch_size * of.input.size()),
        planes(input.size()),
        logits(batch_size * classes),
        scores(logits.size()),
        slopes(logits.size()),
        labels_sent(logits.size()),
        labels(logits.size()) {}
  virtual ~program() = default;

  virtual void load() = 0;
  virtual void forward(std::size_t layer, pass mode) = 0;
  virtual void backward(std::size_t layer) = 0;
  virtual void send_slopes() = 0;  // to where the last layer reads them

  /// Softmax minus one at each label, by the share that an image has in the mean.
  void compare(std::span<const std::uint8_t> wanted) {
    const float share = 1.0F / static_cast<float>(wanted.size());
    const std::size_t rows = wanted.size() * classes;
    std::ranges::fill(labels_sent.span(), 0.0F);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      labels_sent.data()[i * classes + wanted[i]] = -share;
    }
    at.stream.copy(labels.data(), labels_sent.data(), rows * sizeof(float));
    describe<float>(compared, wanted.size(), {classes, 1, 1});
    check(cudnnSoftmaxForward(at.dnn, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE, &share,
                              compared, scores.data(), &zero, compared, slopes.data()));
    tutti::kernels::add(at.stream, slopes.span().first(rows), labels.span().first(rows));
    at.stream.clear(slopes.data() + rows, (slopes.size() - rows) * sizeof(float));
    send_slopes();
  }

  place at;
  std::size_t classes;
  pinned_buffer<float> input;
  buffer<float> planes;  // the input's copy
  pinned_buffer<float> logits;
  buffer<float> scores;  // the logits before they travel
  buffer<float> slopes;  // the loss's gradient by them
  pinned_buffer<float> labels_sent;
  buffer<float> labels;
  tensor_layout compared{};  // as many rows of logits as there are labels
};

namespace {

template <class T>
struct program_in final : cudnn::program {
  program_in(const declaration& of, std::size_t batch_size, std::span<const tutti::tensor> tensors,
             std::span<float> statistics, tutti::cuda::stream& queue)
      : program_in(of, models::facts(of), batch_size, tensors, statistics, queue) {}

  program_in(const declaration& of, const std::vector<placed_facts>& all, std::size_t batch_size,
             std::span<const tutti::tensor> tensors, std::span<float> statistics,
             tutti::cuda::stream& queue)
      : program(of, batch_size, all.back().out.size(), queue) {
    activations.emplace_back(batch_size, of.input);
    auto means = statistics.first(statistics.size() / 2);
    auto variances = statistics.last(statistics.size() / 2);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& facts = all[i];
      at.wanted = std::max(at.wanted, channels_last<T>::room(facts.out.channels) * sizeof(double));
      if (facts.writes == activations.size()) {
        auto& out = activations.emplace_back(batch_size, facts.out);
        out.gradient = buffer<T>(out.size());
      }
      const wiring<T> wired{.facts = facts,
                            .in = &activations[facts.reads],
                            .out = &activations[facts.writes],
                            .added = &activations[facts.adds],
                            .tensors = tensors.first(facts.parameters()),
                            .running_means = means.data(),
                            .running_variances = variances.data()};
      std::visit(
          [&]<class Layer>(const Layer& layer) {
            layers.emplace_back(std::in_place_type<placed<T, Layer>>, layer, at, wired);
          },
          of.layers[i]);
      tensors = tensors.subspan(facts.parameters());
      means = means.subspan(facts.normalised);
      variances = variances.subspan(facts.normalised);
    }
    at.make_room();
  }

  void load() override {
    auto& first = activations.front();
    at.stream.copy(planes.data(), input.data(), input.size() * sizeof(float));
    channels_last<T>::from_planes(at.stream, planes.data(), first.value.data(), first.count,
                                  first.each.channels, first.each.height * first.each.width);
  }

  void forward(std::size_t layer, pass mode) override {
    std::visit([&](const auto& each) { each.forward(at, mode); }, layers[layer]);
    if (layer + 1 == layers.size()) {
      const auto& last = activations.back();
      channels_last<T>::to_planes(at.stream, last.value.data(), scores.data(), last.count, classes,
                                  1);
      at.stream.copy(logits.data(), scores.data(), logits.size() * sizeof(float));
    }
  }

  void backward(std::size_t layer) override {
    std::visit([&](const auto& each) { each.backward(at); }, layers[layer]);
  }

  void send_slopes() override {
    const auto& last = activations.back();
    channels_last<T>::from_planes(at.stream, slopes.data(), last.gradient.data(), last.count,
                                  classes, 1);
  }

  std::deque<activation<T>> activations{};  // layers point into it, and keep descriptors in place
  std::deque<typename any_placed<T, any_layer>::type> layers{};
};

}  // namespace

cudnn::cudnn(const declaration& of, std::size_t batch_size, std::span<const tutti::tensor> tensors,
             std::span<float> statistics, queue_type& queue) {
  const tutti::cuda::on_device here(queue.device());
  if (of.precision == precision::bf16) {
    program_ = std::make_unique<program_in<brain>>(of, batch_size, tensors, statistics, queue);
  } else {
    program_ = std::make_unique<program_in<float>>(of, batch_size, tensors, statistics, queue);
  }
}
cudnn::cudnn(cudnn&&) noexcept = default;
cudnn& cudnn::operator=(cudnn&&) noexcept = default;
cudnn::~cudnn() = default;

std::span<float> cudnn::input() { return program_->input.span(); }
std::span<const float> cudnn::logits() { return program_->logits.span(); }
void cudnn::load() {
  const tutti::cuda::on_device here(program_->at.stream.device());
  program_->load();
}
void cudnn::forward(std::size_t layer, pass mode) {
  const tutti::cuda::on_device here(program_->at.stream.device());
  program_->forward(layer, mode);
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

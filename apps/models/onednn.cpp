#include "models/onednn.hpp"

#include <algorithm>
#include <dlfcn.h>
#include <dnnl.hpp>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "models/softmax_cross_entropy.hpp"

namespace models {
namespace {

using dnnl::memory;
using dnnl::prop_kind;
using tag = memory::format_tag;

memory::dim dim(std::size_t n) { return static_cast<memory::dim>(n); }
memory::desc describe(const memory::dims& dims, tag layout) {
  return {dims, memory::data_type::f32, layout};
}
tag plain(const memory::dims& dims) { return dims.size() == 4 ? tag::abcd : tag::ab; }

/// Holds the calling thread to one OpenMP thread: a rank is a thread, and N ranks shall not become
/// N times N. oneDNN takes the number from the calling thread, when it creates a primitive and when
/// it runs one. Looked up by name because only oneDNN knows which OpenMP it was built with, if any.
class one_thread {
 public:
  one_thread() {
    if (omp().set != nullptr) {
      before_ = omp().get();
      omp().set(1);
    }
  }
  ~one_thread() {
    if (omp().set != nullptr) {
      omp().set(before_);
    }
  }
  one_thread(const one_thread&) = delete;
  one_thread& operator=(const one_thread&) = delete;

 private:
  struct functions {
    int (*get)();
    void (*set)(int);
  };
  static const functions& omp() {
    static const functions found{
        reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads")),
        reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))};
    return found;
  }
  int before_{};
};

struct operation {
  dnnl::primitive primitive;
  std::unordered_map<int, memory> arguments;
};
using operations = std::vector<operation>;

}  // namespace

struct onednn::program {
  dnnl::engine cpu{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{cpu};
  std::span<const tutti::tensor> unclaimed;  // tensors of layers that are not added yet
  std::vector<operations> forward{};
  std::vector<operations> backward{};
  memory input{};
  memory value{};     // what the layers so far yield
  memory gradient{};  // of the loss by `value`; empty for the input, which needs none

  program(const declaration& of, std::size_t batch, std::span<const tutti::tensor> tensors)
      : unclaimed(tensors) {
    const one_thread here;
    const memory::dims dims{dim(batch), dim(of.input.channels), dim(of.input.height),
                            dim(of.input.width)};
    input = value = memory(describe(dims, tag::nchw), cpu);
    for (const auto& each : of.layers) {
      forward.emplace_back();
      backward.emplace_back();
      std::visit([&](const auto& layer) { add(layer); }, each);
    }
  }

  void run(const operations& all) {
    const one_thread here;
    for (const auto& each : all) {
      each.primitive.execute(stream, each.arguments);
    }
    stream.wait();
  }

  memory reordered(operations& to, memory from, const memory::desc& layout) {
    if (from.get_desc() == layout) {
      return from;
    }
    memory made(layout, cpu);
    to.push_back({dnnl::reorder(from, made), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, made}}});
    return made;
  }

  /// `target` itself, if the primitive that writes it likes its layout, else memory that it likes;
  /// `settle` then brings the result over.
  memory staged(const memory& target, const memory::desc& layout) {
    return target.get_desc() == layout ? target : memory(layout, cpu);
  }
  void settle(operations& to, const memory& from, const memory& target) {
    if (from.get() != target.get()) {
      to.push_back({dnnl::reorder(from, target), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, target}}});
    }
  }

  struct parameters {
    memory weights, weights_gradient, bias, bias_gradient;
  };
  parameters claim(const memory::dims& weights, memory::dim outputs) {
    const auto over = [&](const memory::dims& dims, tag layout, std::span<float> data) {
      return memory(describe(dims, layout), cpu, data.data());
    };
    const auto& first = unclaimed[0];
    const auto& second = unclaimed[1];
    unclaimed = unclaimed.subspan(2);
    return {over(weights, plain(weights), first.parameter),
            over(weights, plain(weights), first.gradient),
            over({outputs}, tag::a, second.parameter), over({outputs}, tag::a, second.gradient)};
  }

  // The data gradient comes before the parameters' gradients in every layer, but either would do:
  // a layer's parameters may change only after all of it has run.

  void add(const linear& layer) {
    const auto out = dim(layer.outputs);
    const memory::dims in_dims = value.get_desc().dims();
    memory::dims weights_dims = in_dims;
    weights_dims[0] = out;
    const parameters p = claim(weights_dims, out);
    // Plain layouts throughout: what they cost the product is less than reordering large weights.
    const auto x_desc = describe(in_dims, plain(in_dims));
    const auto w_desc = p.weights.get_desc();
    const auto b_desc = p.bias.get_desc();
    const auto y_desc = describe({in_dims[0], out}, tag::ab);

    const dnnl::inner_product_forward::primitive_desc ahead(
        {prop_kind::forward_training, x_desc, w_desc, b_desc, y_desc}, cpu);
    const memory x = reordered(forward.back(), value, x_desc);
    const memory y(y_desc, cpu);
    const memory y_gradient(y_desc, cpu);
    forward.back().push_back({dnnl::inner_product_forward(ahead),
                              {{DNNL_ARG_SRC, x},
                               {DNNL_ARG_WEIGHTS, p.weights},
                               {DNNL_ARG_BIAS, p.bias},
                               {DNNL_ARG_DST, y}}});
    if (gradient) {
      const dnnl::inner_product_backward_data::primitive_desc back({x_desc, w_desc, y_desc}, cpu,
                                                                   ahead);
      const memory x_gradient = staged(gradient, x_desc);
      backward.back().push_back({dnnl::inner_product_backward_data(back),
                                 {{DNNL_ARG_DIFF_DST, y_gradient},
                                  {DNNL_ARG_WEIGHTS, p.weights},
                                  {DNNL_ARG_DIFF_SRC, x_gradient}}});
      settle(backward.back(), x_gradient, gradient);
    }
    const dnnl::inner_product_backward_weights::primitive_desc back(
        {x_desc, w_desc, b_desc, y_desc}, cpu, ahead);
    backward.back().push_back({dnnl::inner_product_backward_weights(back),
                               {{DNNL_ARG_SRC, x},
                                {DNNL_ARG_DIFF_DST, y_gradient},
                                {DNNL_ARG_DIFF_WEIGHTS, p.weights_gradient},
                                {DNNL_ARG_DIFF_BIAS, p.bias_gradient}}});
    value = y;
    gradient = y_gradient;
  }

  void add(const convolution& layer) {
    const auto out = dim(layer.filters);
    const auto side = dim(layer.kernel);
    const memory::dims in_dims = value.get_desc().dims();
    const memory::dims weights_dims{out, in_dims[1], side, side};
    const memory::dims stride{1, 1};
    const memory::dims pad{side / 2, side / 2};
    const parameters p = claim(weights_dims, out);
    const auto x_desc = describe(in_dims, tag::any);
    const auto w_desc = describe(weights_dims, tag::any);
    const auto b_desc = p.bias.get_desc();
    const auto y_desc = describe({in_dims[0], out, in_dims[2], in_dims[3]}, tag::any);
    const auto direct = dnnl::algorithm::convolution_direct;

    const dnnl::convolution_forward::primitive_desc ahead(
        {prop_kind::forward_training, direct, x_desc, w_desc, b_desc, y_desc, stride, pad, pad},
        cpu);
    const memory y(ahead.dst_desc(), cpu);
    const memory y_gradient(ahead.dst_desc(), cpu);
    {
      auto& to = forward.back();
      const memory x = reordered(to, value, ahead.src_desc());
      const memory w = reordered(to, p.weights, ahead.weights_desc());
      to.push_back(
          {dnnl::convolution_forward(ahead),
           {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_BIAS, p.bias}, {DNNL_ARG_DST, y}}});
    }
    auto& to = backward.back();
    if (gradient) {
      const dnnl::convolution_backward_data::primitive_desc back(
          {direct, x_desc, w_desc, y_desc, stride, pad, pad}, cpu, ahead);
      const memory dy = reordered(to, y_gradient, back.diff_dst_desc());
      const memory w = reordered(to, p.weights, back.weights_desc());
      const memory dx = staged(gradient, back.diff_src_desc());
      to.push_back({dnnl::convolution_backward_data(back),
                    {{DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DIFF_SRC, dx}}});
      settle(to, dx, gradient);
    }
    const dnnl::convolution_backward_weights::primitive_desc back(
        {direct, x_desc, w_desc, b_desc, y_desc, stride, pad, pad}, cpu, ahead);
    const memory x = reordered(to, value, back.src_desc());
    const memory dy = reordered(to, y_gradient, back.diff_dst_desc());
    const memory dw = staged(p.weights_gradient, back.diff_weights_desc());
    to.push_back({dnnl::convolution_backward_weights(back),
                  {{DNNL_ARG_SRC, x},
                   {DNNL_ARG_DIFF_DST, dy},
                   {DNNL_ARG_DIFF_WEIGHTS, dw},
                   {DNNL_ARG_DIFF_BIAS, p.bias_gradient}}});
    settle(to, dw, p.weights_gradient);
    value = y;
    gradient = y_gradient;
  }

  void add(const relu&) {
    const auto desc = value.get_desc();
    const dnnl::eltwise_forward::primitive_desc ahead(
        {prop_kind::forward_training, dnnl::algorithm::eltwise_relu, desc, 0.0F}, cpu);
    forward.back().push_back(
        {dnnl::eltwise_forward(ahead), {{DNNL_ARG_SRC, value}, {DNNL_ARG_DST, value}}});
    const dnnl::eltwise_backward::primitive_desc back(
        {dnnl::algorithm::eltwise_relu_use_dst_for_bwd, desc, desc, 0.0F}, cpu, ahead);
    backward.back().push_back(
        {dnnl::eltwise_backward(back),
         {{DNNL_ARG_DST, value}, {DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_DIFF_SRC, gradient}}});
  }

  void add(const max_pool&) {
    const auto x_desc = value.get_desc();
    const auto in_dims = x_desc.dims();
    const auto y_desc =
        describe({in_dims[0], in_dims[1], in_dims[2] / 2, in_dims[3] / 2}, tag::any);
    const memory::dims two{2, 2};
    const memory::dims none{0, 0};
    const dnnl::pooling_forward::primitive_desc ahead(
        {prop_kind::forward_training, dnnl::algorithm::pooling_max, x_desc, y_desc, two, two, none,
         none},
        cpu);
    const memory y(ahead.dst_desc(), cpu);
    const memory y_gradient(ahead.dst_desc(), cpu);
    const memory winners(ahead.workspace_desc(), cpu);
    forward.back().push_back(
        {dnnl::pooling_forward(ahead),
         {{DNNL_ARG_SRC, value}, {DNNL_ARG_DST, y}, {DNNL_ARG_WORKSPACE, winners}}});
    const dnnl::pooling_backward::primitive_desc back(
        {dnnl::algorithm::pooling_max, x_desc, ahead.dst_desc(), two, two, none, none}, cpu, ahead);
    backward.back().push_back({dnnl::pooling_backward(back),
                               {{DNNL_ARG_DIFF_DST, y_gradient},
                                {DNNL_ARG_DIFF_SRC, gradient},
                                {DNNL_ARG_WORKSPACE, winners}}});
    value = y;
    gradient = y_gradient;
  }
};

namespace {

std::span<float> floats(const memory& of) {
  return {static_cast<float*>(of.get_data_handle()), of.get_desc().get_size() / sizeof(float)};
}

}  // namespace

onednn::onednn(const declaration& of, std::size_t batch_size,
               std::span<const tutti::tensor> tensors, queue_type&)
    : program_(std::make_unique<program>(of, batch_size, tensors)) {}
onednn::onednn(onednn&&) noexcept = default;
onednn& onednn::operator=(onednn&&) noexcept = default;
onednn::~onednn() = default;

std::span<float> onednn::input() { return floats(program_->input); }
std::span<const float> onednn::logits() { return floats(program_->value); }
void onednn::compare(std::span<const std::uint8_t> labels) {
  const auto classes = static_cast<std::size_t>(program_->value.get_desc().dims().back());
  softmax_cross_entropy_gradient(logits(), labels, classes, floats(program_->gradient));
}
void onednn::forward(std::size_t layer) { program_->run(program_->forward[layer]); }
void onednn::backward(std::size_t layer) { program_->run(program_->backward[layer]); }

}  // namespace models

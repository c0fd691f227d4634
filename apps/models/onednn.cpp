#include "models/onednn.hpp"

#include <algorithm>
#include <dlfcn.h>
#include <dnnl.hpp>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "models/running_statistics.hpp"
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
tag plain(const memory::dims& dims) {
  return dims.size() == 4 ? tag::abcd : dims.size() == 2 ? tag::ab : tag::a;
}

/// Restricts the calling thread to one OpenMP thread while it exists, because each rank is a thread
/// and N ranks must not start N times N threads. oneDNN takes the number from the calling thread,
/// both when it creates a primitive and when it runs one. The OpenMP functions are looked up by
/// name, because only oneDNN knows which OpenMP it was built with, if any.
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

/// An activation or a parameter: its values and the gradient of the loss by them, which is empty
/// where nobody needs it.
struct variable {
  memory value{};
  memory gradient{};
};

/// The primitives that a layer runs.
struct work {
  operations training{};
  operations inference{};  // empty if the same as in training
  operations backward{};
  // Of batch_norm: the statistics that a training pass updates, those of its batch, and the values
  // of a channel.
  moments running{};
  moments batch{};
  std::size_t count{};
};

std::span<float> floats(const memory& of) {
  return {static_cast<float*>(of.get_data_handle()), of.get_desc().get_size() / sizeof(float)};
}

}  // namespace

struct onednn::program {
  dnnl::engine cpu{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{cpu};
  std::span<const tutti::tensor> unclaimed;  // tensors of layers that are not added yet
  std::span<float> statistics;
  std::size_t normalised{};  // channels of the batch_norm layers added so far
  std::vector<variable> activations{};
  std::vector<work> layers{};
  std::size_t last{};  // the activation that holds the logits

  program(const declaration& of, std::size_t batch, std::span<const tutti::tensor> tensors,
          std::span<float> running)
      : unclaimed(tensors), statistics(running) {
    expect_fp32(of, "oneDNN");
    const one_thread here;
    const memory::dims dims{dim(batch), dim(of.input.channels), dim(of.input.height),
                            dim(of.input.width)};
    activations.reserve(of.layers.size() + 1);  // layers refer to its elements while they are added
    activations.push_back({.value = memory(describe(dims, tag::nchw), cpu)});
    for (const auto& facts : models::facts(of)) {
      const auto& each = of.layers[layers.size()];
      layers.emplace_back();
      std::visit([&](const auto& layer) { add(layer, facts); }, each);
      last = facts.writes;
    }
  }

  void run(const operations& all) {
    const one_thread here;
    for (const auto& each : all) {
      each.primitive.execute(stream, each.arguments);
    }
    stream.wait();
  }

  operations& training() { return layers.back().training; }
  operations& backward() { return layers.back().backward; }

  /// Appends an activation for a layer's output.
  const variable& yield(const memory::desc& desc) {
    return activations.emplace_back(variable{memory(desc, cpu), memory(desc, cpu)});
  }
  memory::dims batch_of(const shape& each) const {
    return {activations.front().value.get_desc().dims()[0], dim(each.channels), dim(each.height),
            dim(each.width)};
  }

  memory reordered(operations& to, memory from, const memory::desc& layout) {
    if (from.get_desc() == layout) {
      return from;
    }
    memory made(layout, cpu);
    to.push_back({dnnl::reorder(from, made), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, made}}});
    return made;
  }

  void add_up(operations& to, const memory& from, const memory& target) {
    const auto desc = target.get_desc();
    const dnnl::binary::primitive_desc add({dnnl::algorithm::binary_add, desc, desc, desc}, cpu);
    to.push_back({dnnl::binary(add),
                  {{DNNL_ARG_SRC_0, target},
                   {DNNL_ARG_SRC_1, reordered(to, from, desc)},
                   {DNNL_ARG_DST, target}}});
  }

  /// Returns the memory that a primitive writes a result for `target` to: `target` itself if it has
  /// the layout that the primitive wants and may be overwritten, otherwise new memory, whose
  /// contents `settle` then copies or adds to `target`.
  memory staged(const memory& target, const memory::desc& layout,
                gradients mode = gradients::overwrite) {
    const bool as_it_is = target && mode == gradients::overwrite && target.get_desc() == layout;
    return as_it_is ? target : memory(layout, cpu);
  }
  void settle(operations& to, const memory& from, const memory& target,
              gradients mode = gradients::overwrite) {
    if (mode == gradients::accumulate) {
      add_up(to, from, target);
    } else if (target && from.get() != target.get()) {
      to.push_back({dnnl::reorder(from, target), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, target}}});
    }
  }

  variable claim(const memory::dims& dims) {
    const auto desc = describe(dims, plain(dims));
    const auto& first = unclaimed.front();
    unclaimed = unclaimed.subspan(1);
    return {memory(desc, cpu, first.parameter.data()), memory(desc, cpu, first.gradient.data())};
  }

  // Every layer computes the gradient by its input before those by its parameters. The other order
  // would do as well, because a layer's parameters change only after all of the layer's backward
  // pass has run.

  void add(const linear& layer, const placed_facts& at) {
    const variable& in = activations[at.reads];
    const auto out = dim(layer.outputs);
    const memory::dims in_dims = in.value.get_desc().dims();
    memory::dims weights_dims = in_dims;
    weights_dims[0] = out;
    const variable weights = claim(weights_dims);
    const variable bias = claim({out});
    // All layouts are plain, because reordering large weights would cost more than the product
    // saves.
    const auto x_desc = describe(in_dims, plain(in_dims));
    const auto w_desc = weights.value.get_desc();
    const auto b_desc = bias.value.get_desc();
    const auto y_desc = describe({in_dims[0], out}, tag::ab);

    const dnnl::inner_product_forward::primitive_desc ahead(
        {prop_kind::forward_training, x_desc, w_desc, b_desc, y_desc}, cpu);
    const memory x = reordered(training(), in.value, x_desc);
    const variable& made = yield(y_desc);
    training().push_back({dnnl::inner_product_forward(ahead),
                          {{DNNL_ARG_SRC, x},
                           {DNNL_ARG_WEIGHTS, weights.value},
                           {DNNL_ARG_BIAS, bias.value},
                           {DNNL_ARG_DST, made.value}}});
    if (in.gradient) {
      const dnnl::inner_product_backward_data::primitive_desc back({x_desc, w_desc, y_desc}, cpu,
                                                                   ahead);
      const memory x_gradient = staged(in.gradient, x_desc, at.of_read);
      backward().push_back({dnnl::inner_product_backward_data(back),
                            {{DNNL_ARG_DIFF_DST, made.gradient},
                             {DNNL_ARG_WEIGHTS, weights.value},
                             {DNNL_ARG_DIFF_SRC, x_gradient}}});
      settle(backward(), x_gradient, in.gradient, at.of_read);
    }
    const dnnl::inner_product_backward_weights::primitive_desc back(
        {x_desc, w_desc, b_desc, y_desc}, cpu, ahead);
    backward().push_back({dnnl::inner_product_backward_weights(back),
                          {{DNNL_ARG_SRC, x},
                           {DNNL_ARG_DIFF_DST, made.gradient},
                           {DNNL_ARG_DIFF_WEIGHTS, weights.gradient},
                           {DNNL_ARG_DIFF_BIAS, bias.gradient}}});
  }

  void add(const convolution& layer, const placed_facts& at) {
    const auto filters = dim(layer.filters);
    const auto side = dim(layer.kernel);
    const variable weights = claim({filters, dim(at.in.channels), side, side});
    const variable bias = at.biases > 0 ? claim({filters}) : variable{};
    convolve(at, weights, bias, dim(layer.stride), side / 2);
  }

  /// Adds a subsampling as a convolution whose weights are constant ones and zeros, so that
  /// activations stay in the layouts that convolutions want.
  void add(const subsample& layer, const placed_facts& at) {
    const memory::dims dims{dim(at.out.channels), dim(at.in.channels), 1, 1};
    const memory keep(describe(dims, plain(dims)), cpu);
    std::ranges::fill(floats(keep), 0.0F);
    for (std::size_t c = 0; c < std::min(at.in.channels, at.out.channels); ++c) {
      floats(keep)[c * at.in.channels + c] = 1.0F;
    }
    convolve(at, {.value = keep}, {}, dim(layer.stride), 0);
  }

  void convolve(const placed_facts& at, const variable& weights, const variable& bias,
                memory::dim step, memory::dim padding) {
    const variable& in = activations[at.reads];
    const memory::dims stride{step, step};
    const memory::dims pad{padding, padding};
    const auto x_desc = describe(in.value.get_desc().dims(), tag::any);
    const auto w_desc = describe(weights.value.get_desc().dims(), tag::any);
    const auto b_desc = bias.value ? bias.value.get_desc() : memory::desc();
    const auto y_desc = describe(batch_of(at.out), tag::any);
    const auto direct = dnnl::algorithm::convolution_direct;

    const dnnl::convolution_forward::primitive_desc ahead(
        {prop_kind::forward_training, direct, x_desc, w_desc, b_desc, y_desc, stride, pad, pad},
        cpu);
    const variable& made = yield(ahead.dst_desc());
    {
      auto& to = training();
      const memory x = reordered(to, in.value, ahead.src_desc());
      const memory w = reordered(to, weights.value, ahead.weights_desc());
      to.push_back({dnnl::convolution_forward(ahead),
                    {{DNNL_ARG_SRC, x},
                     {DNNL_ARG_WEIGHTS, w},
                     {DNNL_ARG_BIAS, bias.value},
                     {DNNL_ARG_DST, made.value}}});
    }
    auto& to = backward();
    if (in.gradient) {
      const dnnl::convolution_backward_data::primitive_desc back(
          {direct, x_desc, w_desc, y_desc, stride, pad, pad}, cpu, ahead);
      const memory dy = reordered(to, made.gradient, back.diff_dst_desc());
      const memory w = reordered(to, weights.value, back.weights_desc());
      const memory dx = staged(in.gradient, back.diff_src_desc(), at.of_read);
      to.push_back({dnnl::convolution_backward_data(back),
                    {{DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DIFF_SRC, dx}}});
      settle(to, dx, in.gradient, at.of_read);
    }
    if (!weights.gradient) {
      return;
    }
    const dnnl::convolution_backward_weights::primitive_desc back(
        {direct, x_desc, w_desc, b_desc, y_desc, stride, pad, pad}, cpu, ahead);
    const memory x = reordered(to, in.value, back.src_desc());
    const memory dy = reordered(to, made.gradient, back.diff_dst_desc());
    const memory dw = staged(weights.gradient, back.diff_weights_desc());
    to.push_back({dnnl::convolution_backward_weights(back),
                  {{DNNL_ARG_SRC, x},
                   {DNNL_ARG_DIFF_DST, dy},
                   {DNNL_ARG_DIFF_WEIGHTS, dw},
                   {DNNL_ARG_DIFF_BIAS, bias.gradient}}});
    settle(to, dw, weights.gradient);
  }

  void add(const batch_norm&, const placed_facts& at) {
    const variable& in = activations[at.reads];
    const memory::dims channels{dim(at.in.channels)};
    const variable scale = claim(channels);
    const variable shift = claim(channels);
    const auto over = [&](std::span<float> data) {
      return memory(describe(channels, tag::a), cpu, data.data());
    };
    const memory mean(describe(channels, tag::a), cpu);
    const memory variance(describe(channels, tag::a), cpu);
    auto& to = layers.back();
    to.running = running_part(statistics, normalised, at.normalised);
    to.batch = {floats(mean), floats(variance)};
    to.count = static_cast<std::size_t>(batch_of(at.in)[0]) * at.in.height * at.in.width;
    normalised += at.normalised;

    using dnnl::normalization_flags;
    const auto affine = normalization_flags::use_scale | normalization_flags::use_shift;
    const auto desc = in.value.get_desc();
    constexpr auto epsilon = static_cast<float>(batch_norm::epsilon);
    const dnnl::batch_normalization_forward::primitive_desc ahead(
        {prop_kind::forward_training, desc, epsilon, affine}, cpu);
    const variable& made = yield(desc);
    to.training.push_back({dnnl::batch_normalization_forward(ahead),
                           {{DNNL_ARG_SRC, in.value},
                            {DNNL_ARG_MEAN, mean},
                            {DNNL_ARG_VARIANCE, variance},
                            {DNNL_ARG_SCALE, scale.value},
                            {DNNL_ARG_SHIFT, shift.value},
                            {DNNL_ARG_DST, made.value}}});
    const dnnl::batch_normalization_forward::primitive_desc by_running(
        {prop_kind::forward_inference, desc, epsilon,
         affine | normalization_flags::use_global_stats},
        cpu);
    to.inference.push_back({dnnl::batch_normalization_forward(by_running),
                            {{DNNL_ARG_SRC, in.value},
                             {DNNL_ARG_MEAN, over(to.running.mean)},
                             {DNNL_ARG_VARIANCE, over(to.running.variance)},
                             {DNNL_ARG_SCALE, scale.value},
                             {DNNL_ARG_SHIFT, shift.value},
                             {DNNL_ARG_DST, made.value}}});
    const dnnl::batch_normalization_backward::primitive_desc back(
        {prop_kind::backward, desc, desc, epsilon, affine}, cpu, ahead);
    const memory x_gradient = staged(in.gradient, desc, at.of_read);
    to.backward.push_back({dnnl::batch_normalization_backward(back),
                           {{DNNL_ARG_SRC, in.value},
                            {DNNL_ARG_MEAN, mean},
                            {DNNL_ARG_VARIANCE, variance},
                            {DNNL_ARG_SCALE, scale.value},
                            {DNNL_ARG_SHIFT, shift.value},
                            {DNNL_ARG_DIFF_DST, made.gradient},
                            {DNNL_ARG_DIFF_SCALE, scale.gradient},
                            {DNNL_ARG_DIFF_SHIFT, shift.gradient},
                            {DNNL_ARG_DIFF_SRC, x_gradient}}});
    settle(to.backward, x_gradient, in.gradient, at.of_read);
  }

  void add(const relu&, const placed_facts& at) {
    const variable& here = activations[at.writes];
    const auto desc = here.value.get_desc();
    const dnnl::eltwise_forward::primitive_desc ahead(
        {prop_kind::forward_training, dnnl::algorithm::eltwise_relu, desc, 0.0F}, cpu);
    training().push_back(
        {dnnl::eltwise_forward(ahead), {{DNNL_ARG_SRC, here.value}, {DNNL_ARG_DST, here.value}}});
    if (here.gradient) {
      const dnnl::eltwise_backward::primitive_desc back(
          {dnnl::algorithm::eltwise_relu_use_dst_for_bwd, desc, desc, 0.0F}, cpu, ahead);
      backward().push_back({dnnl::eltwise_backward(back),
                            {{DNNL_ARG_DST, here.value},
                             {DNNL_ARG_DIFF_DST, here.gradient},
                             {DNNL_ARG_DIFF_SRC, here.gradient}}});
    }
  }

  void add(const max_pool& layer, const placed_facts& at) {
    const auto both = [](std::size_t n) { return memory::dims{dim(n), dim(n)}; };
    pool(at, dnnl::algorithm::pooling_max, both(layer.kernel), both(layer.stride),
         both(layer.padding));
  }
  void add(const average_pool&, const placed_facts& at) {
    const memory::dims all{dim(at.in.height), dim(at.in.width)};
    pool(at, dnnl::algorithm::pooling_avg_exclude_padding, all, all, {0, 0});
  }
  void pool(const placed_facts& at, dnnl::algorithm how, const memory::dims& kernel,
            const memory::dims& stride, const memory::dims& pad) {
    const variable& in = activations[at.reads];
    const auto x_desc = in.value.get_desc();
    const auto y_desc = describe(batch_of(at.out), tag::any);
    const dnnl::pooling_forward::primitive_desc ahead(
        {prop_kind::forward_training, how, x_desc, y_desc, stride, kernel, pad, pad}, cpu);
    const variable& made = yield(ahead.dst_desc());
    const memory winners(ahead.workspace_desc(), cpu);
    training().push_back(
        {dnnl::pooling_forward(ahead),
         {{DNNL_ARG_SRC, in.value}, {DNNL_ARG_DST, made.value}, {DNNL_ARG_WORKSPACE, winners}}});
    if (in.gradient) {
      const dnnl::pooling_backward::primitive_desc back(
          {how, x_desc, ahead.dst_desc(), stride, kernel, pad, pad}, cpu, ahead);
      const memory x_gradient = staged(in.gradient, x_desc, at.of_read);
      backward().push_back({dnnl::pooling_backward(back),
                            {{DNNL_ARG_DIFF_DST, made.gradient},
                             {DNNL_ARG_DIFF_SRC, x_gradient},
                             {DNNL_ARG_WORKSPACE, winners}}});
      settle(backward(), x_gradient, in.gradient, at.of_read);
    }
  }

  void add(const branch&, const placed_facts&) {}

  void add(const sum&, const placed_facts& at) {
    const variable& here = activations[at.writes];
    const variable& other = activations[at.adds];
    add_up(training(), other.value, here.value);
    settle(backward(), here.gradient, other.gradient, at.of_added);
  }

  void add(const concatenate&, const placed_facts& at) {
    const variable& second = activations[at.reads];
    const variable& first = activations[at.adds];
    const std::vector<memory::desc> parts{first.value.get_desc(), second.value.get_desc()};
    const dnnl::concat::primitive_desc ahead(1, parts, cpu);
    const variable& made = yield(ahead.dst_desc());
    training().push_back({dnnl::concat(ahead),
                          {{DNNL_ARG_MULTIPLE_SRC, first.value},
                           {DNNL_ARG_MULTIPLE_SRC + 1, second.value},
                           {DNNL_ARG_DST, made.value}}});
    const auto channels = dim(at.out.channels - at.in.channels);
    give_back(made.gradient, first.gradient, 0, at.of_added);
    give_back(made.gradient, second.gradient, channels, at.of_read);
  }
  /// Writes or adds to `part`, a gradient, the channels of `whole` from `first` on.
  void give_back(const memory& whole, const memory& part, memory::dim first, gradients mode) {
    if (!part) {
      return;
    }
    const auto dims = part.get_desc().dims();
    const auto plain_whole = describe(whole.get_desc().dims(), tag::abcd);
    const memory from = reordered(backward(), whole, plain_whole);
    memory of_part(describe(dims, tag::abcd), cpu);
    const auto view = plain_whole.submemory_desc(dims, {0, first, 0, 0});
    backward().push_back({dnnl::reorder({cpu, view, cpu, of_part.get_desc()}),
                          {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, of_part}}});
    settle(backward(), of_part, part, mode);
  }
};

onednn::onednn(const declaration& of, std::size_t batch_size,
               std::span<const tutti::tensor> tensors, std::span<float> statistics, queue_type&)
    : program_(std::make_unique<program>(of, batch_size, tensors, statistics)) {}
onednn::onednn(onednn&&) noexcept = default;
onednn& onednn::operator=(onednn&&) noexcept = default;
onednn::~onednn() = default;

std::span<float> onednn::input() { return floats(program_->activations.front().value); }
std::span<const float> onednn::logits() {
  return floats(program_->activations[program_->last].value);
}
void onednn::compare(std::span<const std::uint8_t> labels) {
  const variable& last = program_->activations[program_->last];
  const auto classes = static_cast<std::size_t>(last.value.get_desc().dims().back());
  softmax_cross_entropy_gradient(logits(), labels, classes, floats(last.gradient));
}
void onednn::forward(std::size_t layer, pass mode) {
  const work& all = program_->layers[layer];
  const bool as_in_training = mode == pass::training || all.inference.empty();
  program_->run(as_in_training ? all.training : all.inference);
  if (mode == pass::training) {
    move_by(all.running, all.batch, all.count);
  }
}
void onednn::backward(std::size_t layer) { program_->run(program_->layers[layer].backward); }

}  // namespace models

#pragma once

#include <ATen/ATen.h>
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/adapter/side_channel.hpp"
#include "tutti/adapter/torch_broadcast.hpp"
#include "tutti/adapter/torch_infinities.hpp"
#include "tutti/adapter/torch_memory.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/engine_types.hpp"
#include "tutti/core/rules.hpp"
#include "tutti/core/startup.hpp"
#include "tutti/monitor/none.hpp"
#include "tutti/optimizer/none.hpp"
#include "tutti/optimizer/scaled_elsewhere.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/chunk_context.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/optimizer.hpp"
#include "tutti/role/transport.hpp"

/// Doors to other people's trainers.
namespace tutti::adapter {

/// A parameter of a LibTorch model, as `named_parameters()` lists it.
struct named_parameter {
  std::string name;
  at::Tensor value;
};

/// What becomes of the gradients of a forward pass that begins.
enum class gradients {
  averaged,  ///< when `backward()` returns they are the mean over the workers
  added_up,  ///< each rank keeps adding its own, for a later pass that is averaged
};

/// Gradients without a fellow: what a rank does where its pass has none for a parameter.
enum class unused_parameters {
  as_zeros,    ///< the mean of the others' gradients and of zeros
  left_alone,  ///< a parameter that no rank has used keeps its `.grad`, and what compression has
               ///< left out of it waits until one does; costs a message a pass, for which a rank
               ///< waits before it hands in what it has not used itself
};

namespace detail {

/// What an engine remembers of one step for the next.
template <class Types>
struct residuals {
  static constexpr bool exist = facts::memory_per_element<typename Types::compression> +
                                    facts::memory_per_element<typename Types::relay> >
                                0;
  using taking_back = optimizer::scaled_elsewhere;
  /// They can be taken back where a step is skipped.
  static constexpr bool go_back =
      exist && rule::all_gradients_are_seen<typename Types::architecture, taking_back>::holds &&
      rule::norms_are_added_on_the_host<taking_back, typename Types::transport>::holds;
};

template <class Transport>
struct told_beside {
  using type = Transport;
};
template <class Transport>
requires requires { typename Transport::carrier_type; }
struct told_beside<Transport> {
  using type = typename Transport::carrier_type;
};

}  // namespace detail

/// What an engine has in place of an optimizer of the user's, who may skip steps.
template <class Strategy, class Transport>
using left_to_the_user = std::conditional_t<
    detail::residuals<engine_types<Strategy, Transport, optimizer::none, monitor::none>>::go_back,
    optimizer::scaled_elsewhere, optimizer::none>;

/// What carries words beside `Transport`'s gradients: the like of it, or its carrier's.
template <class Transport>
using told_beside = typename detail::told_beside<Transport>::type;

/// A LibTorch model trained by all workers of `Strategy`: as soon as autograd has written a
/// gradient it is on its way, and when `backward()` returns each `.grad` is the mean, as PyTorch's
/// DistributedDataParallel promises, so that no line of a training loop changes. One file although
/// it is long: what autograd and the user may call, in any order, is one state machine.
///
/// Gradients lie in one arena per element type, in backward order; each `.grad` is a view of it
/// with the strides of its parameter, also after it was reset to nothing: whoever has kept the
/// last one then gets memory for it. An optimizer of the user's follows.
///
/// Where a compressor remembers, or its payloads do not add, and some rank's gradient is not
/// finite, every `.grad` on every rank becomes infinite, so that whoever skips such a step does so
/// on all of them, and nothing of an infinity is remembered. From the first time on that
/// `scaled_by` is told what the loss is multiplied by, as whoever has a GradScaler does, so it is
/// where a mean is not finite, and what is remembered is what it was before the step. Where a step
/// has the mean of the step before (architecture::delayed), skipping one would lose a mean that was
/// finite: there such a gradient ends training on every rank, and a loss that is scaled is refused.
///
/// With an `Optimizer` of ours training crosses the iteration's end instead: `backward()` returns
/// when every gradient is on its way, each parameter is updated when its own mean has arrived, and
/// whoever reads one calls `wait` for it first. After: Peng et al., "ByteScheduler", SOSP 2019.
///
/// Both transports are this model's own: one for gradients, and `Beside`, of the host's memory, for
/// what is told beside them.
///
/// Where `Transport` moves a device's memory, the model lies there, all of it, and
/// adapter/torch_cuda.hpp is included. Gradients depart behind what torch's current stream has done
/// by then, and that stream sees means and parameters behind the last of them: the host waits for
/// its peers, and for the device where a pass begins, until the means of the one before are there,
/// whose errors it hears of then. No residual is taken back there where a step is skipped, so that
/// a compressor that remembers is refused a loss that is scaled.
/// test/torch/cuda_stand_in.cpp trains by threads of the host in its place.
///
/// Errors: usage_error and communication_error, out of `backward()` and of the verbs below.
/// Cost: a copy of each gradient that autograd has not written to the arena itself, which it does
/// while `.grad` stays defined; with an `Optimizer` of ours, of every gradient. `broadcast` takes a
/// device's tensors through the host's memory, which waits for the device.
/// After: Li et al., "PyTorch Distributed", VLDB 2020.
template <class Strategy, class Transport,
          optimizer_policy Optimizer = left_to_the_user<Strategy, Transport>,
          class Beside = told_beside<Transport>>
requires(!has_virtual_time<Transport> &&  // autograd waits
         !has_own_memory<typename Beside::queue_type>) class data_parallel {
  using engine_type = engine<Strategy, Transport, Optimizer>;
  using types = engine_types<Strategy, Transport, Optimizer, monitor::none>;
  using queue_type = typename Transport::queue_type;
  static constexpr bool on_device = has_own_memory<queue_type>;

 public:
  using options = engine_options<Strategy>;
  /// Parameters are updated here, across the iteration's end.
  static constexpr bool updates = !facts::leaves_means<Optimizer>;
  /// What is remembered is taken back where a step is skipped.
  static constexpr bool takes_back = std::is_same_v<Optimizer, optimizer::scaled_elsewhere>;
  /// What an engine has in place of a user's optimizer until `scaled_by` is called: nobody skips
  /// steps, so that nothing need be kept for going back, unless the compressor itself makes an
  /// infinity of a number.
  static Optimizer until_scaled() {
    Optimizer values;
    if constexpr (takes_back && !facts::overflows<typename engine_type::compression>) {
      values.skipped_step = optimizer::after_skipping::residuals_stay;
    }
    return values;
  }
  /// Payloads that do not add may hide what is not finite, or not encode it.
  static constexpr bool means_show_infinities = facts::summable<typename engine_type::compression>;
  /// Means are those of the step before.
  static constexpr bool a_step_late =
      facts::delay<typename engine_type::architecture> > 0 &&
      facts::carries_of<typename engine_type::architecture> == carries::gradient;

  /// `parameters` as the forward pass uses them; rank 0's become everybody's. What does not require
  /// a gradient is broadcast and then left alone. Every rank makes it with the same model.
  data_parallel(Transport& world, Beside& beside, std::vector<named_parameter> parameters,
                options set = {}, unused_parameters unused = {}, Optimizer values = until_scaled())
      : unused_(unused), all_(std::move(parameters)), memory_(world.queue()) {
    lay_out();
    if constexpr (updates) {
      expect_zeros_where_unused();
    }
    if ((updates || on_device) && set.run.progress == progress::automatic) {
      // Nobody calls the engine between two layers, or while the host waits for a device.
      set.run.progress = progress::by_thread;
    }
    world.queue().wait(memory_.current().record());  // torch may still write the parameters
    engine_ = std::make_unique<engine_type>(world, tensors(), values, set);
    for (entry& each : trained_) {
      if (each.wide.defined()) {
        const at::NoGradGuard no_graph;
        each.parameter.copy_(each.wide);
      }
    }
    beside_ = std::make_unique<detail::side_channel<Beside>>(beside, engine_->workers(),
                                                             set.run.deadline);
    if (!serves()) {
      hides_infinities_ = !updates && !takes_back &&
                          (!means_show_infinities || engine_->average(has_memory() ? 1 : 0) > 0);
      std::vector<at::Tensor> frozen;
      for (const named_parameter& each : all_) {
        if (!each.value.requires_grad()) {
          frozen.push_back(each.value);
        }
      }
      broadcast(frozen);
    }
  }
  data_parallel(const data_parallel&) = delete;
  data_parallel& operator=(const data_parallel&) = delete;
  ~data_parallel() {
    for (const auto& [node, hook] : hooked_) {
      node->del_post_hook(hook);
    }
  }

  // ---- a pass

  /// A forward pass begins. Whoever has called it once does so for each: a gradient that comes
  /// without is another model's, which has the parameter, too, and stays as it is. Throws
  /// usage_error where the model is no longer the one that was given.
  void forward(gradients what) {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      expect_unchanged(all_[i], known_[i]);
    }
    expect_between_passes();
    averages_ = what == gradients::averaged;
    forwarded_ = averages_;
    is_told_ = true;
    if constexpr (updates) {
      for (std::size_t i = 0; i < trained_.size(); ++i) {
        if (passes_ == 0) {
          trained_[i].awaited = false;  // whoever waited for a state has taught nothing
        }
        if (trained_[i].read_by_others) {
          wait(i);
        }
      }
    }
  }

  /// Losses are multiplied by this from the next backward pass on, on every rank alike.
  void scaled_by(float scale) {
    if constexpr (takes_back) {
      Optimizer values = engine_->values();
      if (values.scale != scale ||
          values.skipped_step != optimizer::after_skipping::residuals_go_back) {
        values.scale = scale;
        values.skipped_step = optimizer::after_skipping::residuals_go_back;
        engine_->change(values);
      }
    } else if (a_step_late && scale != 1) {
      throw usage_error(
          "under this architecture means arrive a step late, when the loss may be scaled "
          "otherwise, and steps cannot be skipped. Fix: train without a scaler, or with "
          "architecture::replicated");
    } else if (on_device && detail::residuals<types>::exist && scale != 1) {
      throw usage_error(
          "on a device no residual follows the loss's scale, or is taken back where a step is "
          "skipped. Fix: train without a scaler, or with a compressor that remembers nothing");
    }
  }
  /// Other options from the next pass on, on every rank alike and between the same two steps: a
  /// share of elements that grows smaller from epoch to epoch, say. What is remembered is kept. See
  /// engine::replan.
  void replan(const options& set) {
    expect_between_passes();
    engine_->replan(set);
  }

  float scale() const {
    if constexpr (takes_back) {
      return engine_->values().scale;
    } else {
      return 1;
    }
  }

  /// The backward pass begins, on the thread that does: its end waits for the means. Where nobody
  /// calls it the first gradient does, but one of a part that is checkpointed comes in a pass
  /// within the pass, whose end is too early. A pass for named tensors alone, as
  /// torch.autograd.grad's, may reach no parameter, and begins with the first that it does.
  void begin() {
    if (is_to_begin()) {
      begin_pass();
    }
  }
  /// `begin` would begin a pass now.
  bool is_to_begin() const {
    const auto* const named = ::torch::autograd::get_current_graph_task_exec_info();
    return averages_ && !begun_ && (named == nullptr || named->empty());
  }

  /// Autograd has added this pass's gradient to `.grad` of parameter `which`, counted among those
  /// that require one.
  void ready(std::size_t which) {
    if (is_of_another()) {
      return;
    }
    entry& its = trained_[which];
    its.used = true;
    if constexpr (updates) {
      expect_awaited(its);
    }
    if (!averages_) {
      return;
    }
    begin_pass();
    if (its.handed_in) {
      throw usage_error(
          its.name +
          " gets a second gradient in one backward pass, and its first is on its way. Fix: "
          "checkpoint with use_reentrant=False, or let one checkpointed part use the parameter");
    }
    hand_in(its);
  }

  /// Calls `ready` from autograd's own nodes, for a program without Python: nothing else is needed
  /// but `backward()`.
  void listen() {
    for (std::size_t i = 0; i < trained_.size(); ++i) {
      auto node = ::torch::autograd::impl::grad_accumulator(trained_[i].parameter);
      const auto hook = node->add_post_hook(std::make_unique<accumulated>(*this, i));
      hooked_.emplace_back(std::move(node), hook);
    }
  }

  /// A step that this rank has no batch for: it takes part with zeros.
  void take_part() {
    prepare_pass();
    if constexpr (updates) {
      take_values();
    }
    begun_ = true;
    for (entry& each : trained_) {
      absent(each);
    }
    finish();
  }

  // ---- across the iteration's end

  /// Parameter `which` is about to be read: returns when its last update is done.
  void wait(std::size_t which) requires updates {
    let_torch_see(trained_[which]);
    trained_[which].awaited = true;
  }
  /// Every parameter is about to be read: returns when all last updates are done.
  void wait() {
    engine_->wait();
    for (entry& each : trained_) {
      each.awaited = true;
    }
  }
  /// Returns when all last updates are done, for whoever reads parameters beside forward passes.
  /// Unlike `wait` it does not stand for a forward pass's own wait: the first pass must still show
  /// which parameters are read outside their modules.
  void finish_updates() { engine_->wait(); }
  /// The optimizer's values from the backward pass on that begins next, on every rank alike.
  void change(const Optimizer& values) { next_ = values; }
  /// Averaged passes so far: each is an update.
  std::uint64_t passes() const { return passes_; }
  /// What `.grad` of parameter `which` is from its gradient's departure to `end_step`, which by
  /// default is nothing.
  void show_on_its_way(std::size_t which, at::Tensor what) {
    trained_[which].on_its_way = std::move(what);
  }
  /// From here on each `.grad` is nothing, as after it was reset.
  void end_step() {
    for (entry& each : trained_) {
      each.parameter.mutable_grad() = at::Tensor();
    }
  }

  // ---- beside the gradients; every worker calls these

  /// Values of rank `root` become everybody's.
  void broadcast(std::vector<at::Tensor> values, int root = 0) {
    detail::broadcast(*beside_, memory_, std::move(values), rank(), root);
  }

  /// Each flag becomes the largest of any worker's.
  void largest(std::span<std::uint8_t> flags) { beside_->largest(std::as_writable_bytes(flags)); }

  // ---- who and what

  int rank() const { return engine_->worker(); }
  int workers() const { return engine_->workers(); }
  /// This rank does not train: call `serve`, which returns when the workers have ended.
  bool serves() const { return engine_->serves(); }
  void serve() { engine_->serve(); }
  /// This rank cannot go on: every wait on every rank ends with its words.
  void fail(std::exception_ptr why) { engine_->fail(std::move(why)); }
  engine_type& trained_by() { return *engine_; }

 private:
  struct entry {
    std::string name;
    at::Tensor parameter;
    at::Tensor view{};            ///< of the arena, with the parameter's strides
    at::Tensor wide{};            ///< the parameter as floats, where it has 16 bits an element
    bool handed_in = false;       ///< in this backward pass
    bool used = false;            ///< in this pass, or an earlier one that was only added up;
                                  ///< where unused ones are left alone, at its end by any rank
    bool used_before = false;     ///< in the pass before, of which the mean comes with this one
    at::Tensor on_its_way{};      ///< what `.grad` is meanwhile
    bool awaited = false;         ///< since its last gradient departed
    bool read_by_others = false;  ///< than a module that waits for it
  };
  struct known {
    const void* memory;
    bool requires_grad;
  };

  /// What autograd calls behind its node that adds to `.grad`.
  class accumulated : public ::torch::autograd::FunctionPostHook {
   public:
    accumulated(data_parallel& of, std::size_t which) : of_(&of), which_(which) {}
    ::torch::autograd::variable_list operator()(const ::torch::autograd::variable_list& outputs,
                                                const ::torch::autograd::variable_list&) override {
      of_->ready(which_);
      return outputs;
    }

   private:
    data_parallel* of_;
    std::size_t which_;
  };

  // ---- the model as the engine sees it

  void expect_trainable(const named_parameter& its) const {
    memory_.expect(its.value, its.name);
    const auto type = its.value.scalar_type();
    if (type != at::kFloat && type != at::kHalf && type != at::kBFloat16) {
      throw usage_error(sentence({its.name, " is of ", at::toString(type),
                                  ", and gradients travel as float, half or bfloat16. Fix: "
                                  "model.float(), or freeze it"}));
    }
    if (updates && type != at::kFloat) {
      throw usage_error(its.name +
                        " has 16 bits an element, and optimizers of tutti's update floats. Fix: "
                        "model.float(), or an optimizer of your own");
    }
    if (!its.value.is_non_overlapping_and_dense()) {
      throw usage_error(its.name +
                        " has elements that share memory, or gaps between them. Fix: make the "
                        "parameter of tensor.contiguous()");
    }
    if (type != at::kFloat &&
        facts::carries_of<typename engine_type::architecture> == carries::parameters) {
      throw usage_error(its.name +
                        " has 16 bits an element, and this architecture sends parameters, which "
                        "are floats. Fix: model.float(), or an architecture that sends gradients");
    }
  }

  void expect_between_passes() const {
    if (begun_) {
      throw usage_error(
          "the last backward pass ended with an exception, and this rank's gradients of it are "
          "incomplete. Fix: end the job, and resume from a checkpoint");
    }
  }
  void expect_zeros_where_unused() const {
    if (unused_ == unused_parameters::left_alone) {
      throw usage_error(
          "an optimizer of tutti's updates every parameter at every step, and unused ones were to "
          "be left alone. Fix: find_unused_parameters=False, which counts them as zeros");
    }
  }
  /// A gradient that comes now is of no pass of this model's.
  bool is_of_another() const { return !updates && averages_ && is_told_ && !forwarded_ && !begun_; }
  void expect_forwarded() const {
    if (!forwarded_) {
      throw usage_error(
          "a backward pass begins without a forward pass of its own, and parameters may have "
          "changed since the last one. Fix: call the model, not model.module, and add up losses "
          "for one backward()");
    }
  }
  /// In the first pass nothing is on its way yet, and who reads what is learned.
  void expect_awaited(entry& its) const {
    if (its.awaited) {
      return;
    }
    if (passes_ != 0) {
      throw usage_error(its.name +
                        " has a gradient, and no module that has it was called in this forward "
                        "pass: it may have been read before its last update. Fix: call the module, "
                        "or wait() before the parameter is read");
    }
    its.read_by_others = true;
  }
  void take_values() {
    if (next_) {
      engine_->change(*std::exchange(next_, std::nullopt));
    }
  }

  void lay_out() {
    std::map<at::ScalarType, std::int64_t> lengths;
    for (const named_parameter& each : all_) {
      known_.push_back({each.value.data_ptr(), each.value.requires_grad()});
      if (each.value.requires_grad()) {
        expect_trainable(each);
        trained_.push_back({.name = each.name, .parameter = each.value});
        lengths[each.value.scalar_type()] += each.value.numel();
      }
    }
    if (trained_.empty()) {
      throw usage_error("no parameter of this model requires a gradient. Fix: unfreeze one");
    }
    std::map<at::ScalarType, std::int64_t> offsets;
    for (const auto& [type, length] : lengths) {
      arenas_[type] =
          detail::zeros<queue_type>(length, trained_.front().parameter.options().dtype(type));
    }
    for (std::size_t i = trained_.size(); i-- > 0;) {  // in backward order
      entry& its = trained_[i];
      const auto type = its.parameter.scalar_type();
      auto& offset = offsets[type];
      its.view = arenas_[type].as_strided(its.parameter.sizes(), its.parameter.strides(), offset);
      offset += its.parameter.numel();
      if (type != at::kFloat) {
        const at::NoGradGuard no_graph;
        its.wide = at::empty_strided(its.parameter.sizes(), its.parameter.strides(),
                                     its.parameter.options().dtype(at::kFloat));
        its.wide.copy_(its.parameter);
      }
    }
    infinities_.expect_of(trained_.size(), trained_.front().parameter);
  }

  static std::size_t elements(const entry& its) {
    return static_cast<std::size_t>(its.parameter.numel());
  }

  std::vector<tensor> tensors() {
    std::vector<tensor> forward;
    for (entry& each : trained_) {
      const std::size_t n = elements(each);
      const tensor_shape shape = detail::shape_of(each.parameter);
      if (!each.wide.defined()) {
        forward.emplace_back(each.name, std::span(each.parameter.template data_ptr<float>(), n),
                             std::span(each.view.template data_ptr<float>(), n), shape);
      } else {
        const auto type =
            each.parameter.scalar_type() == at::kHalf ? element_type::fp16 : element_type::bf16;
        forward.emplace_back(each.name, std::span(each.wide.template data_ptr<float>(), n),
                             std::span(static_cast<std::uint16_t*>(each.view.data_ptr()), n), type,
                             shape);
      }
    }
    return forward;
  }

  static void expect_unchanged(const named_parameter& its, const known& before) {
    if (its.value.requires_grad() != before.requires_grad) {
      throw usage_error(sentence(
          {its.name, before.requires_grad ? " no longer requires" : " now requires",
           " a gradient, and the plan was made otherwise. Fix: wrap the model anew after changing "
           "requires_grad"}));
    }
    if (its.value.data_ptr() != before.memory) {
      throw usage_error(its.name +
                        " lies elsewhere than when the model was wrapped. Fix: move and convert "
                        "the model first, and write to parameters in place");
    }
  }

  bool has_memory() {
    return loops::any_of(engine_->memories(), [](auto each) { return !each.empty(); });
  }

  // ---- gradients

  tensor_id id_of(const entry& its) const {
    return tensor_id(static_cast<std::uint32_t>(&its - trained_.data()));
  }

  /// The gradient is the arena's, `.grad` a view of it, and on its way.
  void hand_in(entry& its) {
    const at::NoGradGuard no_graph;
    at::Tensor& gradient = its.parameter.mutable_grad();
    if (!gradient.defined()) {
      throw usage_error(its.name +
                        " had a gradient that a hook has taken away before its mean was there. "
                        "Fix: reset gradients after backward()");
    }
    if (gradient.layout() != at::kStrided) {
      throw usage_error(its.name +
                        " has a sparse gradient, and dense ones travel here. Fix: sparse=False");
    }
    if (gradient.requires_grad()) {
      throw usage_error(
          its.name +
          " has a gradient that can be differentiated again, and a mean of several ranks cannot. "
          "Fix: backward without create_graph, or torch.autograd.grad");
    }
    await_departed(its);
    if (!gradient.is_same(its.view)) {
      let_go(its);
      its.view.copy_(gradient);  // where it lies autograd may still read it, under another name
      gradient = its.view;
    }
    if (hides_infinities_) {
      infinities_.hide(index(id_of(its)), its.view);
    }
    if constexpr (updates) {
      gradient = its.on_its_way;
      // What autograd still has to read of the parameter would be the next step's: it refuses.
      ::torch::autograd::impl::bump_version(its.parameter);
    }
    its.handed_in = true;
    its.awaited = false;
    engine_->ready(id_of(its), memory_.current());
  }
  void absent(entry& its) {
    await_departed(its);
    let_go(its);
    its.handed_in = true;
    its.awaited = false;
    let_the_engine_see();
    engine_->absent(id_of(its));
  }
  /// Whoever has kept the last `.grad` when it was reset keeps its values, in other memory.
  /// Python's object of a tensor may count as an owner, and goes with the last of this side: a weak
  /// reference tells whether anybody else is left.
  static void let_go(entry& its) {
    if (its.view.use_count() > 1) {
      const at::NoGradGuard no_graph;
      const c10::weak_intrusive_ptr shown(its.view.getIntrusivePtr());
      its.view = its.view.detach();
      if (auto kept = shown.lock()) {
        const at::Tensor theirs(std::move(kept));
        theirs.set_data(theirs.clone());
      }
    }
  }
  /// The arena may still hold the last gradient of a parameter that no forward pass has read.
  void await_departed(const entry& its) {
    if constexpr (updates) {
      let_torch_see(its);
    }
  }

  // ---- torch's work on the memory, and the engine's

  /// Whatever this thread has torch do from now on finds the tensor as the engine leaves it.
  void let_torch_see(const entry& its) { engine_->wait(id_of(its), memory_.current()); }
  void let_torch_see_means() {
    if constexpr (on_device) {
      for (const entry& each : trained_) {
        let_torch_see(each);
      }
    } else {
      engine_->wait();
    }
  }
  /// And the engine finds what this thread has had torch do.
  void let_the_engine_see() { engine_->world().queue().wait(memory_.current().record()); }
  /// Nothing of a pass departs before. The host is ahead of the device by one pass at most: whoever
  /// is silent meanwhile, and what its work refuses, is heard of by then.
  void prepare_pass() {
    if constexpr (on_device) {
      engine_->wait();
    }
    if constexpr (takes_back) {
      skipped_ = engine_->values().skipped;
    }
  }

  void begin_pass() {
    if (averages_ && !begun_.exchange(true)) {
      try {
        prepare_pass();
        if constexpr (updates) {
          expect_forwarded();
          take_values();
        }
        forwarded_ = false;
      } catch (...) {
        begun_ = false;  // nothing is on its way
        throw;
      }
      ::torch::autograd::Engine::get_default_engine().queue_callback([this] { finish(); });
    }
  }

  /// The end of a backward pass.
  void finish() {
    if (unused_ == unused_parameters::left_alone) {
      leave_alone();
    }
    for (entry& each : trained_) {
      if (!each.handed_in) {
        is_used(each) && each.parameter.grad().defined() ? hand_in(each) : absent(each);
      }
    }
    if constexpr (updates) {
      for (entry& each : trained_) {
        each.used = false;
        each.handed_in = false;
      }
      ++passes_;
    } else {
      let_torch_see_means();
      const bool skips = is_to_be_skipped();
      if (!skips || !goes_back()) {
        remember_unseen();
      }
      if (skips) {
        for (auto& [type, arena] : arenas_) {
          arena.fill_(std::numeric_limits<float>::infinity());
        }
      }
      show_means();
    }
    begun_ = false;
  }

  /// What a compressor remembers must not take in an infinity, which would stay there: zeros have
  /// travelled in its place. Now every rank sees one, so that all of them skip the step.
  bool is_to_be_skipped() {
    if constexpr (takes_back) {
      return engine_->values().skipped != skipped_;
    } else {
      const bool skips = hides_infinities_ && engine_->average(infinities_.any() ? 1 : 0) > 0;
      if (skips && a_step_late) {
        throw usage_error(
            "a rank has a gradient that is not finite, and under this architecture the step that "
            "would be skipped has the mean of the one before. Fix: architecture::replicated, or "
            "gradients that are clipped before they are handed in");
      }
      return skips;
    }
  }

  /// What compressors remember is by then what it was before a step that is skipped.
  bool goes_back() const {
    if constexpr (takes_back) {
      return engine_->values().goes_back();
    } else {
      return false;
    }
  }

  bool is_used(const entry& its) const {
    return unused_ == unused_parameters::as_zeros || its.used;
  }
  bool shows_mean(const entry& its) const {
    return is_used(its) || (a_step_late && its.used_before);
  }
  /// Of what no rank has used zeros travel, through its part of the arena: a `.grad` moves out.
  void leave_alone() {
    std::vector<std::uint8_t> used(trained_.size());
    std::transform(trained_.begin(), trained_.end(), used.begin(),
                   [](const entry& its) { return its.used; });
    largest(used);
    for (std::size_t i = 0; i < trained_.size(); ++i) {
      entry& its = trained_[i];
      its.used = used[i] != 0;
      at::Tensor& gradient = its.parameter.mutable_grad();
      if (!its.used && gradient.defined() && gradient.is_alias_of(its.view)) {
        gradient = gradient.clone();
      }
    }
  }

  /// A mean that nobody sees is of what an earlier pass has left out: it is left out again.
  void remember_unseen() {
    using compression = typename engine_type::compression;
    constexpr std::size_t rows = facts::memory_per_element<compression>;
    if constexpr (rows != 0) {
      if (std::ranges::all_of(trained_, [this](const entry& its) { return shows_mean(its); })) {
        return;
      }
      engine_->drain();  // where means are late, this pass's gradients may be on their way
      const auto policy = make_policy<compression>(options_of<compression>());
      const plan& made = engine_->planned();
      const std::span<float> all = engine_->memories().front();
      for (const entry& its : trained_) {
        if (!shows_mean(its) && detail::is_finite<queue_type>(its.view)) {
          const std::size_t position = made.position(id_of(its));
          const bucket& group = made.buckets[made.bucket_of[position]];
          chunk_context where{};
          where.memory = all.data() + made.first_element[position];
          where.stride = made.elements();
          with_compressor(policy, made.chunks[group.first_chunk].chosen, [&](const auto& each) {
            add_mean(its, left_out(each, where, elements(its)));
          });
        }
      }
      let_the_engine_see();
    }
  }
  /// The part of its memory that a compressor sends with the next gradient.
  template <class C>
  static std::span<float> left_out(const C& compression, const chunk_context& where,
                                   std::size_t n) {
    if constexpr (facts::in_rounds<C>) {
      return where.row(0, n);
    } else {
      return residual_of(compression, where, n);
    }
  }
  static void add_mean(const entry& its, std::span<float> residual) {
    if (!residual.empty()) {
      const at::NoGradGuard no_graph;
      detail::floats_as(its.parameter, residual.data()).add_(its.view);
    }
  }

  void show_means() {
    for (entry& its : trained_) {
      if (shows_mean(its)) {
        its.parameter.mutable_grad() = its.view;
      }
      its.used_before = its.used;
      its.used = false;
      its.handed_in = false;
    }
  }

  unused_parameters unused_;
  std::vector<named_parameter> all_;
  std::vector<known> known_;    ///< of each of them, when it was given
  std::vector<entry> trained_;  ///< those that require a gradient
  torch_memory<queue_type> memory_;
  detail::hidden_infinities<queue_type> infinities_{};
  std::map<at::ScalarType, at::Tensor> arenas_;
  std::vector<std::pair<std::shared_ptr<::torch::autograd::Node>, std::uintptr_t>> hooked_;
  std::unique_ptr<engine_type> engine_;
  std::unique_ptr<detail::side_channel<Beside>> beside_;
  bool hides_infinities_ = false;  ///< some rank would keep one, or no mean may show it
  std::uint32_t skipped_ = 0;      ///< steps before this pass, as the engine has counted them
  bool averages_ = true;
  bool is_told_ = false;                ///< somebody calls `forward` before each pass
  std::atomic<bool> forwarded_{false};  ///< an averaged pass that has no backward pass yet
  std::optional<Optimizer> next_{};
  std::uint64_t passes_ = 0;
  std::atomic<bool> begun_{false};
};

}  // namespace tutti::adapter

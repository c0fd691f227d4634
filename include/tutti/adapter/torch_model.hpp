#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/adapter/torch_broadcast.hpp"
#include "tutti/adapter/torch_infinities.hpp"
#include "tutti/adapter/torch_memory.hpp"
#include "tutti/adapter/trainer.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/tensor.hpp"

namespace tutti::adapter {

/// A parameter of a LibTorch model, as `named_parameters()` lists it.
struct named_parameter {
  std::string name;
  at::Tensor value;
};

/// What becomes of the gradients of the pass that a forward pass begins.
enum class gradients {
  averaged,  ///< when `backward()` returns, they are the mean over the workers
  added_up,  ///< each rank adds up its own, for a later pass that is averaged
};

/// What a rank does with a parameter for which its pass has no gradient.
enum class unused_parameters {
  as_zeros,    ///< its gradient counts as zeros in the mean
  left_alone,  ///< if no rank has used the parameter, it keeps its `.grad`, and its residual
               ///< waits until a rank uses it; costs a message per pass, for which a rank waits
               ///< before it hands in the parameters that it has not used itself
};

/// A LibTorch model that a trainer trains, whatever its strategy. adapter::data_parallel tells what
/// it promises. `Queue` works on the memory where the model lies. One file although it is long:
/// what autograd and the user may call, in any order, is one state machine.
template <class Queue>
class torch_model {
  static constexpr bool on_device = has_own_memory<Queue>;

 public:
  /// What trains it, on torch's streams.
  using trainer_type =
      trainer<Queue,
              std::remove_reference_t<decltype(std::declval<torch_memory<Queue>&>().current())>>;

  /// `parameters` are in the order in which the forward pass uses them. One that is listed again,
  /// because modules share it, counts once. Those of rank 0 are copied to every rank; a parameter
  /// that requires no gradient is then left alone. Every rank must construct this with the same
  /// model. `trained_by` must not have been started.
  torch_model(std::unique_ptr<trainer_type> trained_by, std::vector<named_parameter> parameters,
              unused_parameters unused = {})
      : strategy_(trained_by->properties()),
        unused_(unused),
        all_(std::move(parameters)),
        memory_(trained_by->queue()),
        trainer_(std::move(trained_by)) {
    std::set<const void*> listed;
    std::erase_if(all_, [&](const named_parameter& each) {
      return !listed.insert(each.value.getIntrusivePtr().get()).second;
    });
    try {
      lay_out();
      if (strategy_.updates) {
        expect_zeros_where_unused();
      }
      let_the_engine_see();  // torch may still be writing the parameters
      trainer_->start(tensors());
    } catch (...) {
      trainer_->fail(std::current_exception());
      throw;
    }
    for (entry& each : trained_) {
      if (each.wide.defined()) {
        const at::NoGradGuard no_graph;
        each.parameter.copy_(each.wide);
      }
    }
    if (!serves()) {
      if (!is_same_on_all(static_cast<std::uint64_t>(unused_))) {
        throw usage_error(
            "ranks differ in find_unused_parameters. Fix: pass the same on every rank");
      }
      hides_infinities_ = !strategy_.updates && !strategy_.restores_residuals &&
                          (!strategy_.means_show_infinities ||
                           trainer_->average(trainer_->remembers() ? 1 : 0) > 0);
      std::vector<at::Tensor> frozen;
      for (const named_parameter& each : all_) {
        if (!each.value.requires_grad()) {
          frozen.push_back(each.value);
        }
      }
      expect_alike(frozen);
      broadcast(frozen);
    }
  }
  torch_model(const torch_model&) = delete;
  torch_model& operator=(const torch_model&) = delete;
  ~torch_model() {
    for (const auto& [node, hook] : hooked_) {
      node->del_post_hook(hook);
    }
  }

  // ---- a pass

  /// Announces a forward pass. A program that has called this once must call it before each pass: a
  /// gradient that comes without it belongs to another model that shares the parameter, and is left
  /// as it is. Throws usage_error if the model is no longer the one that was given.
  void forward(gradients what) {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      expect_unchanged(all_[i], known_[i]);
    }
    expect_between_passes();
    averages_ = what == gradients::averaged;
    forwarded_ = forwarded_ || averages_;
    is_told_ = true;
    if (strategy_.updates) {
      for (std::size_t i = 0; i < trained_.size(); ++i) {
        if (passes_ == 0) {
          trained_[i].awaited = false;  // a wait before the first pass is no module's
        }
        if (trained_[i].read_by_others) {
          wait(i);
        }
      }
    }
  }

  /// Announces that losses are multiplied by `scale` from the next backward pass on. Every rank
  /// must call it with the same value. Throws usage_error for a scale other than 1 if means arrive
  /// a step late, or on a device if the compressor keeps residuals.
  void scaled_by(float scale) {
    if (strategy_.restores_residuals) {
      trainer_->scaled_by(scale);
    } else if (strategy_.means_a_step_late && scale != 1) {
      throw usage_error(
          "under this architecture means arrive a step late, when the scale of the loss may have "
          "changed, and steps cannot be skipped. Fix: train without a scaler, or with "
          "architecture::replicated");
    } else if (on_device && strategy_.keeps_residuals && scale != 1) {
      throw usage_error(
          "on a GPU residuals are neither rescaled with the loss nor restored after a skipped "
          "step. Fix: train without a scaler, or with a compressor that keeps no residuals");
    }
  }
  float scale() const { return trainer_->scale(); }

  /// Announces the backward pass, on the thread that runs it, so that the end of the pass waits for
  /// the means. If it is not called, the first gradient announces the pass. With checkpointed parts
  /// it must be called: there the first gradient may come from a nested backward pass, whose end is
  /// too early. A pass for named tensors only, such as torch.autograd.grad's, may reach no
  /// parameter, and begins with the first that it does reach. It averages gradients if any forward
  /// pass since the last one announced that, also if a later one announced the opposite.
  void begin() {
    if (is_to_begin()) {
      begin_pass();
    }
  }
  /// Returns whether `begin` would begin a pass now.
  bool is_to_begin() const {
    const auto* const named = ::torch::autograd::get_current_graph_task_exec_info();
    return (averages_ || forwarded_) && !begun_ && (named == nullptr || named->empty());
  }

  /// Throws usage_error if the last backward pass ended with an exception.
  void expect_between_passes() const {
    if (begun_) {
      throw usage_error(
          "the last backward pass ended with an exception, so this rank's gradients are "
          "incomplete. Fix: end the job, and resume from a checkpoint");
    }
  }

  /// Reports that autograd has added this pass's gradient to the `.grad` of parameter `which`,
  /// counted among those that require a gradient.
  void ready(std::size_t which) {
    if (is_of_another()) {
      return;
    }
    entry& its = trained_[which];
    its.used = true;
    if (strategy_.updates) {
      expect_awaited(its);
    }
    if (!averages_ && !begun_) {
      return;
    }
    begin_pass();
    if (its.handed_in) {
      throw usage_error(
          its.name +
          " gets a second gradient in one backward pass, but its first is already on its way. Fix: "
          "checkpoint with use_reentrant=False, or let one checkpointed part use the parameter");
    }
    hand_in(its);
  }

  /// Has autograd's own nodes call `ready`, for a program without Python, which then needs nothing
  /// else but `backward()`. Further calls do nothing.
  void listen() {
    for (std::size_t i = hooked_.size(); i < trained_.size(); ++i) {
      auto node = ::torch::autograd::impl::grad_accumulator(trained_[i].parameter);
      const auto hook = node->add_post_hook(std::make_unique<accumulated>(*this, i));
      hooked_.emplace_back(std::move(node), hook);
    }
  }

  /// Takes part in a step with zeros, because this rank has no batch for it.
  void take_part() {
    prepare_pass();
    if (strategy_.updates) {
      trainer_->take_values();
    }
    begun_ = ++last_number_;
    for (entry& each : trained_) {
      absent(each);
    }
    finish();
  }

  // ---- across the iteration's end

  /// Waits until the last update of parameter `which` is done; on a device, torch's current stream
  /// waits for it. To be called before the parameter is read.
  void wait(std::size_t which) {
    let_torch_see(trained_[which]);
    trained_[which].awaited = true;
  }
  /// Returns when the last updates of all parameters are done. To be called before they are read.
  void wait() {
    trainer_->wait();
    for (entry& each : trained_) {
      each.awaited = true;
    }
  }
  /// Returns when the last updates of all parameters are done, for code that reads them outside
  /// forward passes. Unlike `wait` it does not count as a wait of the modules: the first pass must
  /// still show which parameters are read outside their modules.
  void finish_updates() { trainer_->wait(); }
  /// The number of averaged passes so far, each of which is an update by tutti.
  std::uint64_t passes() const { return passes_; }
  /// Sets what `.grad` of parameter `which` is from the time when its gradient is sent until
  /// `end_step`. By default it is undefined.
  void show_on_its_way(std::size_t which, at::Tensor what) {
    trained_[which].on_its_way = std::move(what);
  }
  /// Makes each `.grad` undefined, as a reset does.
  void end_step() {
    for (entry& each : trained_) {
      each.parameter.mutable_grad() = at::Tensor();
    }
  }

  // ---- messages beside the gradients; every worker must call these

  bool is_same_on_all(std::uint64_t value) { return detail::is_same_on_all(*trainer_, value); }
  /// Throws usage_error on every rank unless all ranks have buffers of the same types and sizes.
  void expect_alike(const std::vector<at::Tensor>& buffers) {
    detail::expect_alike(*trainer_, buffers);
  }
  /// Copies the values of rank `root` to every rank.
  void broadcast(std::vector<at::Tensor> values, int root = 0) {
    detail::broadcast(*trainer_, memory_, values, root);
  }

  /// Sets each flag to the largest of any worker's.
  void largest(std::span<std::uint8_t> flags) { trainer_->largest(std::as_writable_bytes(flags)); }

  // ---- who and what

  int rank() const { return trainer_->rank(); }
  int workers() const { return trainer_->workers(); }
  /// Returns whether this rank is a server and does not train. Such a rank calls `serve`, which
  /// returns when the workers have ended.
  bool serves() const { return trainer_->serves(); }
  void serve() { trainer_->serve(); }
  /// Reports that this rank cannot go on. Every wait on every rank then ends with the message of
  /// `why`.
  void fail(std::exception_ptr why) { trainer_->fail(std::move(why)); }
  trainer_type& trained_by() { return *trainer_; }

 private:
  struct entry {
    std::string name;
    at::Tensor parameter;
    at::Tensor view{};            ///< its gradient in the arena, with the parameter's strides
    at::Tensor wide{};            ///< the parameter as floats, where it has 16 bits an element
    bool handed_in = false;       ///< in this backward pass
    bool used = false;            ///< in this pass, or an earlier one that was only added up;
                                  ///< under left_alone, from the pass's end on, by any rank
    bool used_before = false;     ///< in the pass before, whose mean may arrive in this one
    at::Tensor on_its_way{};      ///< what `.grad` is while the gradient is on its way
    bool awaited = false;         ///< since its last gradient was sent
    bool read_by_others = false;  ///< not only by modules that wait for it
  };
  struct known {
    const void* memory;
    bool requires_grad;
  };

  /// The hook that autograd calls after its node that adds to `.grad`.
  class accumulated : public ::torch::autograd::FunctionPostHook {
   public:
    accumulated(torch_model& of, std::size_t which) : of_(&of), which_(which) {}
    ::torch::autograd::variable_list operator()(const ::torch::autograd::variable_list& outputs,
                                                const ::torch::autograd::variable_list&) override {
      of_->ready(which_);
      return outputs;
    }

   private:
    torch_model* of_;
    std::size_t which_;
  };

  // ---- the model as the engine sees it

  void expect_trainable(const named_parameter& its) const {
    memory_.expect(its.value, its.name);
    const auto type = its.value.scalar_type();
    if (type != at::kFloat && type != at::kHalf && type != at::kBFloat16) {
      throw usage_error(sentence({its.name, " has type ", at::toString(type),
                                  ", but gradients are sent as float, half or bfloat16. Fix: "
                                  "model.float(), or freeze it"}));
    }
    if (strategy_.updates && type != at::kFloat) {
      throw usage_error(its.name +
                        " has 16-bit elements, but tutti's optimizers update 32-bit floats. Fix: "
                        "model.float(), or an optimizer of your own");
    }
    if (!its.value.is_non_overlapping_and_dense()) {
      throw usage_error(its.name +
                        " has elements that share memory, or gaps between them. Fix: make the "
                        "parameter from tensor.contiguous()");
    }
    if (type != at::kFloat && strategy_.sends_parameters) {
      throw usage_error(its.name +
                        " has 16-bit elements, but this architecture sends parameters as 32-bit "
                        "floats. Fix: model.float(), or an architecture that sends gradients");
    }
  }

  void expect_zeros_where_unused() const {
    if (unused_ == unused_parameters::left_alone) {
      throw usage_error(
          "tutti's optimizer updates every parameter at every step, but find_unused_parameters "
          "leaves unused ones alone. Fix: find_unused_parameters=False, which counts them as "
          "zeros");
    }
  }
  /// Whether a gradient that autograd writes now is of another model's pass.
  bool is_of_another() const {
    return !strategy_.updates && averages_ && is_told_ && !forwarded_ && !begun_;
  }
  void expect_forwarded() const {
    if (!forwarded_) {
      throw usage_error(
          "a backward pass begins without a forward pass of its own, so parameters may have "
          "changed since the last one. Fix: call the model, not model.module (in C++, its "
          "forward()), and add up losses for one backward()");
    }
  }
  /// Throws usage_error if the parameter was used without a wait. In the first pass no update is on
  /// its way yet, so that this only shows which parameters are read outside their modules.
  void expect_awaited(entry& its) const {
    if (its.awaited) {
      return;
    }
    if (passes_ != 0) {
      throw usage_error(
          its.name +
          " has a gradient, but no module that owns it was called in this forward "
          "pass, so it may have been read before its last update. Fix: call the module, "
          "or wait() before the parameter is read");
    }
    its.read_by_others = true;
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
          detail::zeros<Queue>(length, trained_.front().parameter.options().dtype(type));
    }
    for (std::size_t i = trained_.size(); i-- > 0;) {  // in backward order
      entry& its = trained_[i];
      const auto type = its.parameter.scalar_type();
      auto& offset = offsets[type];
      // Detached, because LibTorch's zero_grad() detaches `.grad` in place, which no view allows.
      its.view =
          arenas_[type].as_strided(its.parameter.sizes(), its.parameter.strides(), offset).detach();
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
           " a gradient, unlike when the plan was made. Fix: wrap the model again after changing "
           "requires_grad"}));
    }
    if (its.value.data_ptr() != before.memory) {
      throw usage_error(its.name +
                        " has moved in memory since the model was wrapped. Fix: move and convert "
                        "the model first, and write to parameters in place");
    }
  }

  // ---- gradients

  tensor_id id_of(const entry& its) const {
    return tensor_id(static_cast<std::uint32_t>(&its - trained_.data()));
  }

  /// Sends a gradient. It is copied to the arena unless it lies there, and `.grad` becomes a view
  /// of the arena.
  void hand_in(entry& its) {
    const at::NoGradGuard no_graph;
    at::Tensor& gradient = its.parameter.mutable_grad();
    if (!gradient.defined()) {
      throw usage_error(its.name +
                        " had a gradient that a hook removed before its mean arrived. "
                        "Fix: reset gradients after backward()");
    }
    if (gradient.layout() != at::kStrided) {
      throw usage_error(
          its.name + " has a sparse gradient, but only dense ones can be sent. Fix: sparse=False");
    }
    if (gradient.requires_grad()) {
      throw usage_error(
          its.name +
          " has a gradient that can be differentiated again, but a mean of several ranks cannot. "
          "Fix: backward without create_graph, or torch.autograd.grad");
    }
    await_departed(its);
    if (!gradient.is_same(its.view)) {
      let_go(its);
      // A copy: autograd may still read the tensor in its old memory, under another name.
      its.view.copy_(gradient);
      gradient = its.view;
    }
    if (hides_infinities_) {
      infinities_.hide(index(id_of(its)), its.view);
    }
    if (strategy_.updates) {
      gradient = its.on_its_way;
      // The parameter may be updated before autograd reads it again in this pass. Because of its
      // new version autograd then refuses.
      ::torch::autograd::impl::bump_version(its.parameter);
    }
    its.handed_in = true;
    its.awaited = false;
    trainer_->ready(id_of(its), memory_.current());
  }
  void absent(entry& its) {
    await_departed(its);
    let_go(its);
    its.handed_in = true;
    its.awaited = false;
    trainer_->absent(id_of(its), memory_.current());
  }
  /// If other code still holds the last `.grad` after a reset, moves that tensor's values to other
  /// memory, so that the arena can be written. The tensor's Python object may count as an owner,
  /// and it goes with the last owner in C++, so only a weak reference tells whether anybody else is
  /// left.
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
  /// Waits until the parameter's last gradient has left the arena. If no forward pass has read the
  /// parameter, it may still be there.
  void await_departed(const entry& its) {
    if (strategy_.updates) {
      let_torch_see(its);
    }
  }

  // ---- torch's work on the memory, and the engine's

  /// Makes what this thread has torch do from now on see the tensor as the engine leaves it.
  void let_torch_see(const entry& its) { trainer_->wait(id_of(its), memory_.current()); }
  void let_torch_see_means() {
    if constexpr (on_device) {
      for (const entry& each : trained_) {
        let_torch_see(each);
      }
    } else {
      trainer_->wait();
    }
  }
  /// Makes the engine's later work see what this thread has had torch do.
  void let_the_engine_see() { trainer_->queue().wait(memory_.current().record()); }
  /// Is called before any gradient of a pass is sent. On a device it waits for the pass before. The
  /// host is therefore at most one pass ahead of the device, and learns here of silent ranks and of
  /// what the device's work has refused.
  void prepare_pass() {
    if constexpr (on_device) {
      trainer_->wait();
    }
    skipped_ = trainer_->skipped();
  }

  void begin_pass() {
    const std::uint64_t pass = ++last_number_;
    std::uint64_t begun = 0;
    if (begun_.compare_exchange_strong(begun, pass)) {
      try {
        prepare_pass();
        if (strategy_.updates) {
          expect_forwarded();
          trainer_->take_values();
        }
        // Autograd deletes the callback when the pass ends, also if an exception has ended it.
        const std::shared_ptr<void> at_its_end(nullptr,
                                               [pass, last = last_ended_](void*) { *last = pass; });
        ::torch::autograd::Engine::get_default_engine().queue_callback(
            [this, at_its_end] { finish(); });
        forwarded_ = false;
      } catch (...) {
        begun_ = 0;  // no gradient was sent
        throw;
      }
    } else if (begun == *last_ended_) {
      expect_between_passes();
    }
  }

  /// Ends a backward pass: hands in the parameters that had no gradient and, unless tutti updates,
  /// waits for the means.
  void finish() {
    if (unused_ == unused_parameters::left_alone) {
      leave_alone();
    }
    for (entry& each : trained_) {
      if (!each.handed_in) {
        is_used(each) && each.parameter.grad().defined() ? hand_in(each) : absent(each);
      }
    }
    if (strategy_.updates) {
      for (entry& each : trained_) {
        each.used = false;
        each.handed_in = false;
      }
      ++passes_;
    } else {
      let_torch_see_means();
      const bool skips = is_to_be_skipped();
      if (!skips || !trainer_->is_restoring()) {
        remember_unseen();
      }
      if (skips) {
        for (auto& [type, arena] : arenas_) {
          arena.fill_(std::numeric_limits<float>::infinity());
        }
      }
      show_means();
    }
    begun_ = 0;
  }

  /// Returns whether the step must be skipped because some gradient was not finite. Zeros were sent
  /// in its place, because an infinity would stay in the residuals. Every rank is now shown an
  /// infinity, so that all of them skip the step.
  bool is_to_be_skipped() {
    if (strategy_.restores_residuals) {
      return trainer_->skipped() != skipped_;
    }
    const bool skips = hides_infinities_ && trainer_->average(infinities_.any() ? 1 : 0) > 0;
    if (skips && strategy_.means_a_step_late) {
      throw usage_error(
          "a rank has a gradient that is not finite, but under this architecture skipping the "
          "step would lose the mean of the one before. Fix: architecture::replicated, or clip "
          "gradients before they are handed in");
    }
    return skips;
  }

  bool is_used(const entry& its) const {
    return unused_ == unused_parameters::as_zeros || its.used;
  }
  bool shows_mean(const entry& its) const {
    return is_used(its) || (strategy_.means_a_step_late && its.used_before);
  }
  /// Finds out which parameters any rank has used. Zeros are sent of all others, from their parts
  /// of the arena, so that a `.grad` which lies there moves to other memory.
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

  /// Adds each mean that no `.grad` shows to the residual of its parameter. Such a mean is made of
  /// what earlier passes have left out, and is thereby left out again.
  void remember_unseen() {
    if (!strategy_.keeps_residuals ||
        std::ranges::all_of(trained_, [this](const entry& its) { return shows_mean(its); })) {
      return;
    }
    trainer_->drain();  // where means are a step late, this pass's gradients may be on their way
    for (const entry& its : trained_) {
      if (!shows_mean(its) && detail::is_finite<Queue>(its.view)) {
        if (const std::span<float> residual = trainer_->left_out(id_of(its)); !residual.empty()) {
          const at::NoGradGuard no_graph;
          detail::floats_as(its.parameter, residual.data()).add_(its.view);
        }
      }
    }
    let_the_engine_see();
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

  strategy_properties strategy_;
  unused_parameters unused_;
  std::vector<named_parameter> all_;
  std::vector<known> known_;    ///< what each of them was when it was given
  std::vector<entry> trained_;  ///< those that require a gradient
  torch_memory<Queue> memory_;
  detail::hidden_infinities<Queue> infinities_{};
  std::map<at::ScalarType, at::Tensor> arenas_;
  std::vector<std::pair<std::shared_ptr<::torch::autograd::Node>, std::uintptr_t>> hooked_;
  std::unique_ptr<trainer_type> trainer_;
  bool hides_infinities_ = false;  ///< a residual would keep one, or a mean may not show it
  std::uint32_t skipped_ = 0;      ///< the trainer's count of skipped steps before this pass
  bool averages_ = true;
  bool is_told_ = false;                ///< `forward` is called before each pass
  std::atomic<bool> forwarded_{false};  ///< an averaged pass has had no backward pass yet
  std::uint64_t passes_ = 0;
  /// Numbers passes. Some numbers are left out, because every thread that would begin a pass takes
  /// one, and only the first of them begins it.
  std::atomic<std::uint64_t> last_number_{0};
  std::atomic<std::uint64_t> begun_{0};  ///< the pass that has not come to its end, or 0
  /// The last pass that autograd has ended.
  std::shared_ptr<std::atomic<std::uint64_t>> last_ended_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);
};

}  // namespace tutti::adapter

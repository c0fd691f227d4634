#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tutti/adapter/torch_model.hpp"
#include "tutti/adapter/trainer_of.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/role/optimizer.hpp"

/// Adapters for the training loops of other frameworks.
namespace tutti::adapter {

/// Trains a LibTorch model with all workers of `Strategy`. Each gradient is sent as soon as
/// autograd has written it, and when `backward()` returns each `.grad` is the mean, as PyTorch's
/// DistributedDataParallel promises, so that no line of a training loop changes.
///
/// Gradients lie in one arena per element type, in backward order. Each `.grad` is a view of it
/// with the strides of its parameter, even after the user has reset `.grad` to none. Code that has
/// kept the previous `.grad` then gets other memory for it, with its values. The update itself is
/// left to an optimizer of the user's.
///
/// Where a compressor keeps residuals, or its payloads do not add, and some rank's gradient is not
/// finite, every `.grad` on every rank becomes infinite. A loop that skips such a step then skips
/// it on all ranks, and no infinity enters the residuals. From the first call of `scaled_by` on,
/// which a loop with a GradScaler makes, a mean that is not finite has the same effect, and the
/// residuals are restored to what they were before the step. Under architecture::delayed a step has
/// the mean of the step before, so that skipping it would lose a mean that was finite. There such a
/// gradient ends training on every rank, and a scaled loss is refused.
///
/// If `Optimizer` is one of tutti's that updates parameters, training crosses the iteration's end:
/// `backward()` returns when every gradient is on its way, and each parameter is updated when its
/// own mean has arrived. The loop calls `forward` before each forward pass, and code that reads a
/// parameter elsewhere calls `wait` for it first. After: Peng et al., "ByteScheduler", SOSP 2019.
///
/// Both transports are for this model only: one for gradients, and `Beside`, in host memory, for
/// all other messages.
///
/// If `Transport` sends device memory, the whole model must lie on that device, and
/// adapter/torch_cuda.hpp must be included. A gradient is sent once the work that torch's current
/// stream has by then is done, and later work of that stream sees the means and parameters. The
/// host waits for its peers. At the beginning of a pass it also waits for the device to have the
/// previous pass's means, and throws that pass's errors. On a device, residuals are not restored
/// when a step is skipped, so that a scaled loss is refused with a compressor that keeps residuals.
/// test/torch/cuda_stand_in.cpp trains with host threads in place of a device.
///
/// Errors: usage_error and communication_error, thrown by `backward()` and by the functions below.
/// Cost: a copy of each gradient that autograd has not written to the arena itself, which it does
/// while `.grad` stays defined; if tutti updates the parameters, a copy of every gradient.
/// `broadcast` copies a device's tensors through host memory, which waits for the device.
/// After: Li et al., "PyTorch Distributed", VLDB 2020.
template <class Strategy, class Transport,
          optimizer_policy Optimizer = left_to_the_user<Strategy, Transport>,
          class Beside = side_transport<Transport>>
class data_parallel : public torch_model<typename Transport::queue_type> {
  using model = torch_model<typename Transport::queue_type>;
  using trainer_type =
      trainer_of<Strategy, Transport, Optimizer, Beside, typename model::trainer_type>;

 public:
  using options = engine_options<Strategy>;

  /// `parameters` are in the order in which the forward pass uses them. One that is listed again,
  /// because modules share it, counts once. Those of rank 0 are copied to every rank; a parameter
  /// that requires no gradient is then left alone. Every rank must construct this with the same
  /// model and options. Throws usage_error if a step has several passes (run.accumulation).
  data_parallel(Transport& world, Beside& beside, std::vector<named_parameter> parameters,
                options set = {}, unused_parameters unused = {},
                Optimizer values = trainer_type::until_scaled())
      : model(std::make_unique<trainer_type>(world, beside, std::move(set), values),
              std::move(parameters), unused) {}

  /// Changes the options from the next pass on, for example to a density that falls from epoch to
  /// epoch. Every rank must call it between the same two steps, with the same options. What
  /// policies remember is kept. See engine::replan.
  void replan(const options& set) {
    model::expect_between_passes();
    detail::expect_one_pass(set.run);
    trained_by().replan(set);
  }
  /// Changes the optimizer's values from the next backward pass on. Every rank must set the same
  /// values.
  void change(const Optimizer& values) { its_trainer().ask_for(values); }

  auto& trained_by() { return its_trainer().engine(); }

 private:
  trainer_type& its_trainer() { return static_cast<trainer_type&>(model::trained_by()); }
};

}  // namespace tutti::adapter

#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/adapter/side_channel.hpp"
#include "tutti/adapter/trainer.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/engine_types.hpp"
#include "tutti/core/failure.hpp"
#include "tutti/core/plan_for.hpp"
#include "tutti/core/remote_memories.hpp"
#include "tutti/core/resumed_memories.hpp"
#include "tutti/core/rules.hpp"
#include "tutti/monitor/none.hpp"
#include "tutti/optimizer/none.hpp"
#include "tutti/optimizer/scaled_elsewhere.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/chunk_context.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/optimizer.hpp"
#include "tutti/role/transport.hpp"

namespace tutti::adapter {

namespace detail {

/// The residuals that an engine keeps from one step to the next.
template <class Types>
struct residuals {
  static constexpr bool exist = facts::memory_per_element<typename Types::compression> +
                                    facts::memory_per_element<typename Types::relay> >
                                0;
  using restoring = optimizer::scaled_elsewhere;
  /// Whether they can be restored when a step is skipped.
  static constexpr bool are_restored =
      exist && rule::all_gradients_are_seen<typename Types::architecture, restoring>::holds &&
      rule::norms_are_added_on_the_host<restoring, typename Types::transport>::holds;
};

template <class Transport>
struct side_transport {
  using type = Transport;
};
template <class Transport>
requires requires { typename Transport::carrier_type; }
struct side_transport<Transport> {
  using type = typename Transport::carrier_type;
};

/// Throws usage_error if a step has several passes: the first ones would leave this rank's own
/// gradients where a mean is promised.
inline void expect_one_pass(const run_options& run) {
  if (run.accumulation > 1) {
    throw usage_error(sentence(
        {"run.accumulation = ", run.accumulation,
         ", but here every pass that is averaged is a step. Fix: run.accumulation = 1, and "
         "forward(gradients::added_up) for the passes before"}));
  }
}

}  // namespace detail

/// The engine's optimizer policy if the user's own optimizer updates the parameters, and may skip
/// steps.
template <class Strategy, class Transport>
using left_to_the_user =
    std::conditional_t<detail::residuals<engine_types<Strategy, Transport, optimizer::none,
                                                      monitor::none>>::are_restored,
                       optimizer::scaled_elsewhere, optimizer::none>;

/// The type of the transport for messages beside gradients: `Transport` itself, or its carrier if
/// it has one.
template <class Transport>
using side_transport = typename detail::side_transport<Transport>::type;

/// Trains with an engine of `Strategy`. `Interface` is what an adapter sees: trainer, or
/// one that adds functions to it, for a class derived from this one to define.
/// Both transports are for this model only: one for gradients, and `Beside`, in host memory, for
/// all other messages. They must outlive this object.
template <class Strategy, class Transport, optimizer_policy Optimizer, class Beside,
          class Interface = trainer<typename Transport::queue_type>>
requires(!has_virtual_time<Transport> &&  // because autograd waits
         !has_own_memory<typename Beside::queue_type>) class trainer_of : public Interface {
  using types = engine_types<Strategy, Transport, Optimizer, monitor::none>;
  using compression = typename types::compression;
  using architecture = typename types::architecture;
  using queue_type = typename Transport::queue_type;
  using stream_type = typename Interface::stream_type;
  static constexpr bool on_device = has_own_memory<queue_type>;
  static constexpr bool updates = !facts::leaves_means<Optimizer>;
  static constexpr bool restores = std::is_same_v<Optimizer, optimizer::scaled_elsewhere>;

 public:
  using engine_type = tutti::engine<Strategy, Transport, Optimizer>;
  using options = engine_options<Strategy>;

  /// The values of `Optimizer` until `scaled_by` is called. Until then nobody skips steps, so no
  /// copy of the residuals is kept to restore them, unless the compressor itself makes an infinity
  /// of a finite number.
  static Optimizer until_scaled() {
    Optimizer values;
    if constexpr (restores && !facts::overflows<compression>) {
      values.skipped_step = optimizer::after_skipping::residuals_stay;
    }
    return values;
  }

  trainer_of(Transport& world, Beside& beside, options set, Optimizer values)
      : world_(&world), beside_(&beside), set_(std::move(set)), values_(std::move(values)) {
    if constexpr (updates || on_device) {
      // Between two layers, while the host waits for a device, or while this rank waits for a
      // message beside the gradients, nobody calls the engine.
      if (set_.run.progress == progress::by_caller) {
        throw usage_error(
            "a thread has to drive communication if tutti updates parameters, or if they are on a "
            "device. Fix: leave run.progress out");
      }
      set_.run.progress = progress::by_thread;
    }
  }

  strategy_properties properties() const final {
    return {.updates = updates,
            .restores_residuals = restores,
            .keeps_residuals = detail::residuals<types>::exist,
            .means_show_infinities = facts::summable<compression>,
            .means_a_step_late = facts::delay<architecture> > 0 &&
                                 facts::carries_of<architecture> == carries::gradient,
            .sends_parameters = facts::carries_of<architecture> == carries::parameters};
  }
  queue_type& queue() final { return world_->queue(); }
  void start(std::vector<tensor> forward) final {
    detail::expect_one_pass(set_.run);
    engine_.emplace(*world_, std::move(forward), values_, set_);
    messages_.emplace(*beside_, engine_->workers(), set_.run.deadline);
  }
  /// The engine, once `start` has been called.
  engine_type& engine() { return *engine_; }

  int rank() const final { return engine_->worker(); }
  int workers() const final { return engine_->workers(); }
  bool serves() const final { return engine_->serves(); }
  void serve() final { engine_->serve(); }
  void fail(std::exception_ptr why) final {
    if (messages_) {
      messages_->fail(why);
    }
    if (engine_) {
      engine_->fail(std::move(why));
      return;
    }
    try {
      std::rethrow_exception(std::move(why));
    } catch (...) {
      tutti::detail::tell_of_failed_start(*world_);
    }
  }

  void ready(tensor_id id, stream_type& stream) final { engine_->ready(id, stream); }
  void absent(tensor_id id, stream_type& stream) final { engine_->absent(id, stream); }
  void wait() final { engine_->wait(); }
  void wait(tensor_id id, stream_type& stream) final { engine_->wait(id, stream); }
  void drain() final { engine_->drain(); }

  bool remembers() final {
    return loops::any_of(engine_->memories(), [](auto each) { return !each.empty(); });
  }
  std::span<float> left_out(tensor_id id) final {
    std::span<float> found;
    if constexpr (facts::memory_per_element<compression> != 0) {
      const auto policy = make_policy<compression>(engine_->asked().compression);
      const plan& made = engine_->planned();
      const std::size_t position = made.position(id);
      const bucket& group = made.buckets[made.bucket_of[position]];
      const std::size_t n = made.first_element[position + 1] - made.first_element[position];
      chunk_context where{};
      where.memory = engine_->memories().front().data() + made.first_element[position];
      where.stride = made.elements();
      with_compressor(policy, made.chunks[group.first_chunk].chosen, [&](const auto& each) {
        if constexpr (facts::in_rounds<std::remove_cvref_t<decltype(each)>>) {
          found = where.row(0, n);
        } else {
          found = residual_of(each, where, n);
        }
      });
    }
    return found;
  }

  /// Returns what an engine with the options `was` remembered after so many steps, `saved`, as the
  /// memories of this one, as `load` does (core/checkpoint.hpp). Throws usage_error where `load`
  /// does. Nothing may be on its way.
  memories_of_rank memories_under(const options& was, std::uint64_t steps,
                                  const memories_of_rank& saved) {
    const plan before = plan_for<types>(
        engine_->tensors(), was, make_policy<compression>(was.compression), world_->size(), {});
    expect_same_places(*engine_, hash_of_order(before), hash_of_owners(before));
    expect_goes_on<architecture, compression>(was, engine_->asked(), steps);
    return as_memories_of(*engine_, saved, was.run);
  }

  /// Changes the optimizer's values when `take_values` is next called.
  void ask_for(const Optimizer& values) { asked_ = values; }
  void take_values() final {
    if (asked_) {
      engine_->change(*std::exchange(asked_, std::nullopt));
    }
  }
  float scale() const final {
    if constexpr (restores) {
      return engine_->values().scale;
    } else {
      return 1;
    }
  }
  void scaled_by(float scale) final {
    if constexpr (restores) {
      Optimizer values = engine_->values();
      if (values.scale != scale || !values.restores_residuals()) {
        values.scale = scale;
        values.skipped_step = optimizer::after_skipping::residuals_are_restored;
        engine_->change(values);
      }
    }
  }
  std::uint32_t skipped() const final {
    if constexpr (restores) {
      return engine_->values().skipped;
    } else {
      return 0;
    }
  }
  bool is_restoring() const final {
    if constexpr (restores) {
      return engine_->values().restores_residuals();
    } else {
      return false;
    }
  }

  double average(double value) final { return engine_->average(value); }
  void broadcast(int root, std::span<std::byte> bytes) final { messages_->broadcast(root, bytes); }
  void largest(std::span<std::byte> bytes) final { messages_->largest(bytes); }

 private:
  Transport* world_;
  Beside* beside_;
  options set_;
  Optimizer values_;
  std::optional<engine_type> engine_{};
  std::optional<detail::side_channel<Beside>> messages_{};
  std::optional<Optimizer> asked_{};
};

}  // namespace tutti::adapter

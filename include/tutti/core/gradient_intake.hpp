#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/core/model_memory.hpp"
#include "tutti/core/tensor_state.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/schedule.hpp"

namespace tutti {

namespace detail {

[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_to_be_ready_again(
    const std::string& name) {
  throw usage_error(name +
                    " is ready again before its last gradient arrived. Fix: call wait(id) first");
}
[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_tensor(tensor_id id, std::size_t count) {
  throw usage_error(sentence({"tensor ", index(id), " does not exist in a model of ", count,
                              " tensors. Fix: count ids from 0"}));
}

}  // namespace detail

/// Hands gradients in to the engine, called by the model's threads: checks them, knows where their
/// memory lies or lends it, and counts the passes that make one gradient. All functions are for any
/// thread. A gradient that is handed in goes to the loop by way of the post box.
template <class Types, class Core>
class gradient_intake {
  using transport = typename Types::transport;
  using queue_type = typename transport::queue_type;
  using queue_event = typename queue_type::event;
  using options = typename Types::options;
  using architecture = typename Types::architecture;
  using pass = typename model_memory<queue_type>::pass;
  static constexpr bool gives_back = facts::gives_gradients_back<architecture>;

 public:
  // ---- the verbs

  static void ready(Core& its, tensor_id id, queue_event when) {
    auto& mine = expect_arrived(its, id);
    if constexpr (gives_back) {
      if (its.model_.lacks_gradient(its.plan_.position(id))) {
        throw usage_error(name(its, id) +
                          " is ready, but its gradient has no memory yet. Fix: in every pass, "
                          "write it where gradient(id) says");
      }
    }
    mine.written = when;
    const unsigned passes = mine.accumulated.load(std::memory_order_relaxed) + 1;
    if (passes < its.set_.run.accumulation) {
      mine.accumulated.store(passes, std::memory_order_relaxed);
      gradient_is_there(its, id, pass::any);
      its.waits_.nudge();  // so that questions of other ranks are answered meanwhile
      return;
    }
    mine.accumulated.store(0, std::memory_order_relaxed);
    mine.readied.store(mine.readied.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    gradient_is_there(its, id, pass::last);
    its.posts_.post(static_cast<std::uint32_t>(its.plan_.position(id)));
    its.waits_.nudge();
  }

  /// Like `ready`, for a gradient that lies in `memory`.
  static void ready_in(Core& its, tensor_id id, const gradient_memory& memory, queue_event when) {
    auto& mine = expect_arrived(its, id);
    const tensor& declared = its.model_.forward()[index(id)];
    if (its.model_.lends()) {
      throw usage_error(declared.name +
                        " is ready, but its values are not in the memory that was lent for them. "
                        "Fix: write them where gradient(id) says, then call ready(id)");
    }
    its.model_.expect_gradient(declared, memory);
    const bool stays = memory.wide.data() == declared.gradient.data() &&
                       memory.narrow.data() == declared.narrow_gradient.data();
    if (!stays) {
      expect_reachable(its, declared, memory.wide.data());
      expect_reachable(its, declared, memory.narrow.data());
    }
    mine.moved = stays ? gradient_memory() : memory;
    ready(its, id, when);
  }

  /// Writes the zeros on `queue`, if this is the step's first pass.
  template <class Queue>
  static void absent(Core& its, tensor_id id, Queue& queue) {
    const auto& mine = expect_arrived(its, id);
    const bool is_first = mine.accumulated.load(std::memory_order_relaxed) == 0;
    const tensor& declared = its.model_.forward()[index(id)];
    if (its.model_.lends()) {
      const auto [memory, after] = lend(its, id);
      queue.wait(after);
      if (is_first) {
        queue.clear(memory.data(), memory.size_bytes());
      }
    } else if (is_first) {
      if (declared.gradient_type == element_type::fp32) {
        queue.clear(declared.gradient.data(), declared.gradient.size_bytes());
      } else {
        queue.clear(declared.narrow_gradient.data(), declared.narrow_gradient.size_bytes());
      }
    }
    if (!is_first) {
      queue.wait(mine.written);  // the earlier passes may have been written on another queue
    }
    ready(its, id, queue.record());
  }

  /// Lends memory for a gradient. Returns it with the event after which it may be written.
  static std::pair<std::span<float>, queue_event> lend(Core& its, tensor_id id) {
    expect_arrived(its, id);
    if (!its.model_.lends()) {
      throw usage_error(name(its, id) +
                        " has its own memory for its gradient, or is a phantom, so it is lent "
                        "none. Fix: declare it by tensor::without_gradient");
    }
    const std::size_t position = its.plan_.position(id);
    if constexpr (!Types::virtual_time) {
      // After a join the loop itself hands in zeros, and it must not block.
      if (in_real_time(*its.world_)) {
        its.wait_until(
            [&its, position] { return its.joining_.joined() || its.model_.has_room(position); },
            static_cast<std::uint32_t>(index(id)));
      }
    }
    return its.model_.lend(its.world_->queue(), position);
  }

  // ---- what is required of a model and its options

  /// Throws usage_error if the tensor lies where the device's kernels cannot reach it, in memory of
  /// the host's alone.
  static void expect_reachable(Core& its, const tensor& declared) {
    expect_reachable(its, declared, declared.parameter.data());
    expect_reachable(its, declared, declared.gradient.data());
    expect_reachable(its, declared, declared.narrow_gradient.data());
  }

  /// Throws usage_error if the model needs its gradients lent and the strategy does not lend them,
  /// or might not get them back.
  [[gnu::cold]] static void expect_gradients_come_back(Core& its, const options& set,
                                                       const plan& made) {
    if constexpr (!gives_back) {
      if (its.model_.lends()) {
        throw usage_error(
            "the model's gradients have no memory, and this strategy lends none. Fix: declare "
            "tensor(name, parameter, gradient), or use architecture::sharded<..., "
            "gradients::given_back>");
      }
    } else if (its.model_.lends() && most_lent(set) != 0) {
      expect_buckets_come_back(its, made);
    }
  }

  /// Bytes of gradients that may be lent at once; 0 for no limit.
  static std::size_t most_lent(const options& set) {
    if constexpr (requires { set.architecture.lent_bytes; }) {
      return set.architecture.lent_bytes;
    } else {
      return 0;
    }
  }

  // ---- passes

  /// Returns the number of steps of which some tensor has had a pass. Tensors whose gradients have
  /// arrived fewer times are in the middle of a step.
  [[gnu::cold]] static std::uint64_t steps_begun(Core& its) {
    std::uint64_t most = 0;
    for (std::size_t position = 0; position < its.plan_.backward.size(); ++position) {
      const auto& each = its.flow_->at(position);
      most = std::max(most, each.arrived + (each.accumulated != 0 ? 1 : 0));
    }
    return most;
  }
  [[gnu::cold]] static bool is_in_a_step(Core& its) {
    const std::uint64_t begun = steps_begun(its);
    for (std::size_t position = 0; position < its.plan_.backward.size(); ++position) {
      if (its.flow_->at(position).arrived < begun) {
        return true;
      }
    }
    return false;
  }
  /// Gradients that `ready` has taken so far, counting every pass. Summed up only when asked for.
  [[gnu::cold]] static std::uint64_t handed_in(Core& its) {
    std::uint64_t sum = 0;
    for (std::size_t position = 0; its.flow_ && position < its.plan_.backward.size(); ++position) {
      const auto& each = its.flow_->at(position);
      sum += each.readied.load(std::memory_order_relaxed) * its.set_.run.accumulation +
             each.accumulated.load(std::memory_order_relaxed);
    }
    return sum;
  }

 private:
  static const std::string& name(Core& its, tensor_id id) {
    return its.model_.forward()[index(id)].name;
  }

  /// Throws usage_error if the tensor's last gradient is still on its way.
  static tensor_state<queue_event>& expect_arrived(Core& its, tensor_id id) {
    auto& mine = its.at(id);
    if (!mine.is_current()) {
      detail::refuse_to_be_ready_again(name(its, id));
    }
    return mine;
  }

  static void gradient_is_there(Core& its, tensor_id id, pass which) {
    if constexpr (gives_back) {
      its.model_.gradient_is_there(its.plan_.position(id), which);
    }
  }

  static void expect_reachable(Core& its, const tensor& declared, const void* memory) {
    if constexpr (requires { its.world_->queue().reaches(nullptr); }) {
      if (memory != nullptr && !its.world_->queue().reaches(memory)) {
        throw usage_error(declared.name +
                          " is not in the memory of this transport's device. Fix: allocate it on "
                          "the device, or train over transport::in_process");
      }
    }
  }

  /// Throws usage_error unless a full bucket always gives its memory back. Otherwise a thread that
  /// waits for memory might wait for gradients that it has to write itself.
  [[gnu::cold]] static void expect_buckets_come_back(Core& its, const plan& made) {
    if (facts::holds_back<typename Types::schedule>) {
      throw usage_error(
          "architecture.lent_bytes needs every bucket to be sent as soon as it is full, but this "
          "schedule may hold it back. Fix: use schedule::as_ready, or lent_bytes = 0");
    }
    for (const chunk& each : made.chunks) {
      if (each.elements != 0 && its.around_.parameters(each).empty()) {
        throw usage_error(
            sentence({"architecture.lent_bytes needs a bucket's parameters to be contiguous in "
                      "memory, but those of bucket ",
                      each.bucket, " are not. Fix: use an arena, or lent_bytes = 0"}));
      }
    }
  }
};

}  // namespace tutti

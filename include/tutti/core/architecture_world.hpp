#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/task.hpp"
#include "tutti/core/detached_tasks.hpp"
#include "tutti/core/model_memory.hpp"
#include "tutti/core/state_memory.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/norms.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/optimizer.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// All that an architecture's state may know and do (`World` in role/architecture.hpp): its rank
/// among the ranks, the plan, the parameters, and the optimizer. A state leaves memory to the
/// helpers here, which touch none if the model is a phantom. `Types` are exchange_types.
template <class Types>
class architecture_world {
 public:
  using transport = typename Types::transport;
  using queue_type = typename transport::queue_type;
  using compression = typename Types::compression;
  using relay_type = typename Types::relay;
  using optimizer = typename Types::optimizer;
  using endpoint = tutti::endpoint<transport>;
  using launch = tutti::launch<compression>;
  using message = tutti::message<
      decltype(std::declval<transport&>().receive_any(channel::service).await_resume())>;
  template <class T>
  using memory = memory_of<T, queue_type>;
  static constexpr bool splits_phases = Types::splits_phases;
  static constexpr bool overflows = facts::overflows<compression>;
  /// Whether a worker looks for infinities and NaN in its own gradient before encoding it. It must
  /// do so where the optimizer may skip steps, if a compressor remembers something, which a skipped
  /// step restores, or if payloads do not add, so that the mean may not show an infinity.
  static constexpr bool undoes_steps =
      facts::needs_all_gradients<optimizer> &&
      (facts::memory_per_element<compression> + facts::memory_per_element<relay_type> > 0 ||
       !facts::summable<compression>);

  /// `failed(context, why)` receives the exceptions of tasks that `beside` has started.
  [[gnu::cold]] architecture_world(transport& world, const plan& made,
                                   model_memory<queue_type>& model, const compression& compressor,
                                   const optimizer& values, int workers, unsigned accumulation,
                                   void (*failed)(void*, std::exception_ptr), void* context)
      : world_(&world),
        plan_(&made),
        model_(&model),
        compressor_(&compressor),
        optimizer_(&values),
        workers_(workers),
        accumulation_(accumulation),
        momenta_per_element_(values.memory_per_element()),
        momenta_(world.queue(), keeps_momenta(world.rank(), workers) ? momenta_per_element_ : 0,
                 model.remembered()),
        widened_(allocate<float>(most_narrow(model))),
        overflowed_(allocate<std::uint64_t>(overflows ? 1 : 0)),
        beside_(world.ready_coroutines(), failed, context) {}
  architecture_world(const architecture_world&) = delete;
  architecture_world& operator=(const architecture_world&) = delete;
  [[gnu::cold]] ~architecture_world() = default;

  int rank() const { return world_->rank(); }
  int size() const { return world_->size(); }
  /// The number of ranks that train, which are the first ones.
  int workers() const { return workers_; }
  bool trains() const { return rank() < workers_; }
  /// The number of backward passes in a step.
  unsigned accumulation() const { return accumulation_; }
  /// The factor by which gradients are multiplied where a rank encodes its own: the loss scale,
  /// times the number of passes, which are summed. Where gradients are divided before they are
  /// encoded, only the ranks' share is left of it.
  float encoded_scale() const {
    const float scale = scale_of(values());
    if constexpr (facts::carries_of<typename Types::architecture> != carries::gradient ||
                  facts::exchanges_momenta<typename Types::architecture>) {
      return scale;
    } else if constexpr (facts::divides_first<typename Types::architecture>) {
      return scale / static_cast<float>(workers_);
    } else {
      return scale * static_cast<float>(accumulation_);
    }
  }
  void accumulate(unsigned passes) { accumulation_ = passes; }
  const plan& planned() const { return *plan_; }
  /// The tensor that a chunk is, if its compressor works on whole tensors; else the first tensor of
  /// the chunk's bucket.
  const tensor_facts& tensor_of(const chunk& piece) const {
    return plan_->backward[plan_->buckets[piece.bucket].first_tensor];
  }
  bool phantom() const { return model_->phantom(); }
  const compression& compressor() const { return *compressor_; }
  const optimizer& values() const { return *optimizer_; }
  queue_type& queue() const { return world_->queue(); }
  /// The endpoint on which exchanges of chunk `number` travel, and answers about it.
  endpoint endpoint_of(std::uint32_t number) const {
    return endpoint(*world_, tag{channel::data, number, 0});
  }

  // ---- memory

  /// Allocates memory of `elements` zeros for the queue's work; none for a phantom.
  template <class T>
  memory<T> allocate(std::size_t elements) const {
    return allocate_zeros<T>(queue(), phantom() ? 0 : elements);
  }
  /// Allocates a float an element, parallel to the parameters in the flat index space; none for a
  /// phantom.
  memory<float> allocate_parallel() const { return allocate<float>(plan_->elements()); }

  void copy(std::span<float> to, std::span<const float> from) const {
    if (!phantom()) {
      queue().copy(to.data(), from.data(), to.size_bytes());
    }
  }
  /// values[i] -= less[i].
  void subtract(std::span<float> values, std::span<const float> less) const {
    blend(values, less, 1.0f, -1.0f);
  }
  /// values[i] += more[i].
  void add(std::span<float> values, std::span<const float> more) const {
    if (!phantom()) {
      kernels::add(queue(), values, more);
    }
  }
  /// values[i] = keep * values[i] + take * with[i].
  void blend(std::span<float> values, std::span<const float> with, float keep, float take) const {
    if (!phantom()) {
      kernels::blend(queue(), values, with, keep, take);
    }
  }
  /// The part of a chunk in memory that is parallel to the parameters.
  std::span<float> part_of(std::span<float> parallel, const chunk& piece) const {
    return phantom() ? std::span<float>() : parallel.subspan(piece.first_element, piece.elements);
  }

  // ---- parameters of a chunk, which may lie in several runs of memory

  void read_parameters(const chunk& piece, std::span<float> into) const {
    for_each_run(piece, [&](std::span<float> parameters, std::size_t in_chunk) {
      queue().copy(into.data() + in_chunk, parameters.data(), parameters.size_bytes());
    });
  }
  void write_parameters(const chunk& piece, std::span<const float> from) const {
    for_each_run(piece, [&](std::span<float> parameters, std::size_t in_chunk) {
      queue().copy(parameters.data(), from.data() + in_chunk, parameters.size_bytes());
    });
  }
  /// The parameters of a chunk themselves, if they are neighbours in memory; otherwise, and for a
  /// phantom, empty.
  std::span<float> parameters(const chunk& piece) const { return model_->parameters(piece); }
  /// Replaces each parameter x by (1 - share) * x + share * y, where y is from `with`.
  void mix_parameters(const chunk& piece, std::span<const float> with, float share) const {
    for_each_run(piece, [&](std::span<float> parameters, std::size_t in_chunk) {
      kernels::blend(queue(), parameters, with.subspan(in_chunk, parameters.size()), 1.0f - share,
                     share);
    });
  }

  /// Multiplies the parameters of a tensor by `factor`. `position` is in the backward order.
  void scale_parameters(std::size_t position, float factor) const {
    if (!phantom() && factor != 1.0f) {
      kernels::scale(queue(), model_->at(position).parameter, factor);
    }
  }

  /// Copies a chunk's gradients as the model gave them, converted to float.
  void read_gradients(const chunk& piece, std::span<float> into) const {
    if (!phantom()) {
      model_->for_each_run(piece, [&](std::size_t position, std::size_t offset, std::size_t count,
                                      std::size_t in_chunk) {
        model_->widen(queue(), position, offset, into.subspan(in_chunk, count));
      });
    }
  }
  /// Calls `take(gradient, place in the chunk)` for each run of a chunk's gradients, where the
  /// model has them. Gradients that are not of floats are first converted into `room`, which is as
  /// long as the chunk.
  template <class Take>
  void for_each_gradient(const chunk& piece, std::span<float> room, Take take) const {
    if (!phantom()) {
      model_->for_each_run(piece, [&](std::size_t position, std::size_t offset, std::size_t count,
                                      std::size_t in_chunk) {
        const tensor& from = model_->at(position);
        if (from.gradient_type == element_type::fp32) {
          take(std::span<const float>(from.gradient.subspan(offset, count)), in_chunk);
        } else {
          const std::span<float> widened = room.subspan(in_chunk, count);
          model_->widen(queue(), position, offset, widened);
          take(std::span<const float>(widened), in_chunk);
        }
      });
    }
  }

  /// Says that a chunk's gradients are not needed any more, so that memory which the engine has
  /// lent for them can go to another bucket. To be called once for each launch.
  void give_back(const chunk& piece) { model_->give_back(queue(), piece); }

  /// Calls `visit(number)` for each chunk that holds an element of the tensor at `position`.
  template <class Visit>
  void for_each_chunk(std::size_t position, Visit visit) const {
    const bucket& group = plan_->buckets[plan_->bucket_of[position]];
    for (std::uint32_t i = 0; i < group.chunks; ++i) {
      if (plan_->holds_some(plan_->chunks[group.first_chunk + i], position)) {
        visit(group.first_chunk + i);
      }
    }
  }

  // ---- updates of the tensor at a position of the backward order

  /// Applies the optimizer to the mean of the tensor's gradients. Without an optimizer, leaves the
  /// mean where the model had its gradient.
  void update(std::size_t position, std::uint64_t step, std::span<const float> mean) {
    if (phantom()) {
      return;
    }
    if constexpr (facts::leaves_means<optimizer>) {
      model_->leave(queue(), position, mean);
    } else {
      optimizer_->apply(queue(), model_->at(position).parameter, mean,
                        momenta_.at(plan_->first_element[position], {}, step));
    }
  }

  /// Updates from the mean that the tensor's launches have left in its bucket. Not under a fusion
  /// that gathers at run time.
  void update_by_launches(std::size_t position, std::uint64_t step) {
    update(position, step, model_->data(position));
  }

  /// Updates from the mean that has come back into the first row of the optimizer's memory.
  void update_by_momentum(std::size_t position, std::uint64_t step) {
    update(position, step,
           momenta_.at(plan_->first_element[position], {}, step)
               .row(0, model_->at(position).elements));
  }

  /// Applies the optimizer to this rank's own gradient, as the mean over the passes of a step.
  void update_alone(std::size_t position, std::uint64_t step) {
    if (phantom()) {
      return;
    }
    const tensor& to = model_->at(position);
    std::span<float> gradient = to.gradient;
    if (to.gradient_type != element_type::fp32) {
      gradient = span_of(widened_).first(to.elements);
      model_->widen(queue(), position, 0, gradient);
    }
    if (accumulation_ != 1) {
      kernels::scale(queue(), gradient, 1.0f / static_cast<float>(accumulation_));
    }
    optimizer_->apply(queue(), to.parameter, std::span<const float>(gradient),
                      momenta_.at(plan_->first_element[position], {}, step));
  }

  /// Applies the optimizer to some elements only. `mean` is as long as they are, and `where` is
  /// what is remembered of them.
  void update_piece(const chunk& some, std::span<const float> mean,
                    const chunk_context& where) const {
    for_each_run(some, [&](std::span<float> parameters, std::size_t in_chunk) {
      optimizer_->apply(queue(), parameters, mean.subspan(in_chunk, parameters.size()),
                        where.from(in_chunk));
    });
  }

  /// The number of floats that the optimizer remembers of each element.
  std::size_t momenta_per_element() const { return momenta_per_element_; }
  /// What the optimizer remembers on a rank that trains; empty if the architecture has owners of
  /// parameters, who remember it.
  std::span<float> momenta() { return momenta_.floats(); }
  std::span<const float> momenta() const { return momenta_.floats(); }
  /// One row of it, for one chunk; for a phantom, a span of that length without memory.
  std::span<float> momenta_of(const chunk& piece, std::size_t row) {
    return phantom()
               ? std::span<float>(static_cast<float*>(nullptr), piece.elements)
               : momenta().subspan(row * plan_->elements() + piece.first_element, piece.elements);
  }

  // ---- infinities that a compressor has made

  /// Counts infinities and NaN in what has come back, if the compressor may have made any.
  void count_overflow([[maybe_unused]] std::span<const float> came) {
    if constexpr (overflows) {
      if (!phantom()) {
        kernels::count_nonfinite(queue(), came, overflowed_.data());
      }
    }
  }
  /// The infinities and NaN counted so far. On a stream the host waits for it.
  [[gnu::cold]] std::uint64_t overflowed() const {
    if (!overflows || phantom()) {
      return 0;
    } else if constexpr (has_own_memory<queue_type>) {
      return host_view(queue(), std::span<const std::uint64_t>(span_of(overflowed_)))[0];
    } else {
      return std::atomic_ref(*overflowed_.data()).load(std::memory_order_relaxed);
    }
  }

  // ---- time, for architectures that model it

  seconds now() const { return world_->now(); }
  auto sleep(seconds duration) const { return world_->sleep(duration); }

  // ---- tasks beside

  /// Starts a task that nobody awaits. If it fails, every rank's part ends.
  void beside(task work) { beside_.start(std::move(work)); }
  /// Returns whether all tasks of `beside` have ended.
  bool at_rest() const { return beside_.at_rest(); }
  /// Ends when all tasks of `beside` that run now have ended.
  task finish() { return beside_.finish(); }

 private:
  static constexpr bool keeps_momenta(int rank, int workers) {
    return rank < workers && !facts::owns_parameters<typename Types::architecture>;
  }

  static std::size_t most_narrow(const model_memory<queue_type>& model) {
    std::size_t most = 0;
    for (const tensor& each : model.forward()) {
      most = std::max(most, each.narrow_gradient.size());
    }
    return most;
  }

  template <class Run>
  void for_each_run(const chunk& piece, Run run) const {
    if (!phantom()) {
      model_->for_each_run(piece, [&](std::size_t position, std::size_t offset, std::size_t count,
                                      std::size_t in_chunk) {
        run(model_->at(position).parameter.subspan(offset, count), in_chunk);
      });
    }
  }

  transport* world_;
  const plan* plan_;
  model_memory<queue_type>* model_;
  const compression* compressor_;
  const optimizer* optimizer_;
  int workers_;
  unsigned accumulation_;
  std::size_t momenta_per_element_;
  state_memory<queue_type> momenta_;
  memory<float> widened_;  ///< room for the largest gradient that is not of floats
  memory<std::uint64_t> overflowed_;
  detached_tasks beside_;
};

}  // namespace tutti

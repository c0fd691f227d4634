#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/base/gate.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/task.hpp"
#include "tutti/core/architecture_world.hpp"
#include "tutti/core/control.hpp"
#include "tutti/core/fusion_buffers.hpp"
#include "tutti/core/model_memory.hpp"
#include "tutti/core/state_memory.hpp"
#include "tutti/kernels/workspace.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/optimizer.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// The state of one chunk on one rank, from launch to launch.
template <class Queue, bool Splits>
struct chunk_record {
  chunk_state state{chunk_state::finished};
  std::uint64_t steps{};
  /// The number of its last start among all starts of this rank, from 1; 0 before any.
  std::uint64_t started{};
  typename Queue::event moved{};  ///< passes once a stream has moved the chunk
  bool released{};
  memory_of<std::byte, Queue> workspace{};
  memory_of<std::byte, Queue> scratch{};
  memory_of<float, Queue> remembered{};  ///< of the tensor, by a compressor of rounds
  memory_of<float, Queue> kept{};        ///< a copy of `remembered`, for undoing a step
  task running{};
  std::conditional_t<Splits, std::optional<gate>, std::monostate> second_half{};
  task before{};  ///< the previous launch, where the next may begin before it has ended

  bool at_rest() const { return running.done() && before.done(); }
};

/// The records of a rank's chunks. Compiled once for all strategies.
template <class Queue, bool Splits>
class chunk_list {
 public:
  using record = chunk_record<Queue, Splits>;

  explicit chunk_list(std::size_t chunks) : records_(chunks) {}

  record& operator[](std::uint32_t number) { return records_[number]; }
  const record& operator[](std::uint32_t number) const { return records_[number]; }
  auto begin() { return records_.begin(); }
  auto end() { return records_.end(); }
  auto begin() const { return records_.begin(); }
  auto end() const { return records_.end(); }
  std::size_t size() const { return records_.size(); }
  std::uint32_t number_of(const record& its) const {
    return static_cast<std::uint32_t>(&its - records_.data());
  }

  bool at_rest() const {
    return loops::all_of(records_, [](const record& each) { return each.at_rest(); });
  }
  /// The chunk of the earliest step among those that have started or, if none has, among those that
  /// are ready; null if there is none.
  [[gnu::cold]] const record* first_begun() const {
    // A chunk that is merely ready may be waiting for credit that started ones hold, so these come
    // first.
    const record* first = nullptr;
    for (const record& each : records_) {
      if (each.state != chunk_state::started && each.state != chunk_state::ready) {
        continue;
      }
      if (first == nullptr || (each.state == first->state ? each.steps < first->steps
                                                          : each.state == chunk_state::started)) {
        first = &each;
      }
    }
    return first;
  }
  /// The chunk that was started first among those that the stream has not yet completed; null if
  /// there is none.
  [[gnu::cold]] const record* first_on_stream() const {
    const record* first = nullptr;
    for (const record& each : records_) {
      const bool earlier = first == nullptr || each.started < first->started;
      if (each.started != 0 && earlier && !Queue::passed(each.moved)) {
        first = &each;
      }
    }
    return first;
  }

 protected:
  std::vector<record> records_;
};

/// Whose memory holds a chunk while it travels: its own or, under a fusion that gathers at run
/// time, that of its launch.
enum class chunk_memory { of_chunks, of_launches };

/// The records of a rank's chunks, together with the memory that their launches work in and that
/// their compressors remember in. `Types` are exchange_types.
template <class Types>
class chunk_records : public chunk_list<typename Types::transport::queue_type,
                                        architecture_world<Types>::splits_phases> {
  using transport = typename Types::transport;
  using queue_type = typename transport::queue_type;
  using compression = typename Types::compression;
  using world_type = architecture_world<Types>;
  using state_type = typename Types::architecture::template state<world_type>;
  static constexpr bool splits = world_type::splits_phases;
  using list = chunk_list<queue_type, splits>;
  using list::records_;
  static constexpr bool delays = facts::delay<typename Types::architecture> > 0;
  static constexpr bool undoes = world_type::undoes_steps;
  static constexpr std::size_t owner_rows = facts::encodes_means<typename Types::architecture>
                                                ? facts::memory_per_element<typename Types::relay>
                                                : 0;

 public:
  using typename list::record;
  using buffers = fusion_buffers<queue_type>;

  /// Allocates no workspace for chunks that travel in the memory of their launches.
  [[gnu::cold]] chunk_records(transport& world, const plan& made,
                              const model_memory<queue_type>& model, const world_type& around,
                              const state_type& state, chunk_memory travels_in)
      : list(made.chunks.size()),
        world_(&world),
        plan_(&made),
        model_(&model),
        around_(&around),
        state_(&state),
        worker_memory_(world.queue(), facts::memory_per_element<compression>, model.remembered()),
        owner_memory_(world.queue(), owner_rows, model.remembered()),
        worker_kept_(world.queue(), undoes ? facts::memory_per_element<compression> : 0,
                     model.remembered()),
        owner_kept_(world.queue(), undoes ? owner_rows : 0, model.remembered()) {
    std::size_t largest = 0;
    for (std::size_t number = 0; number < records_.size(); ++number) {
      const chunk& piece = made.chunks[number];
      if (!model.phantom() && (travels_in == chunk_memory::of_chunks || is_alone(piece))) {
        largest = std::max(largest, piece.elements);
        records_[number].workspace = allocate<std::byte>(world.queue(), workspace_of(state, piece));
        with_compressor(around.compressor(), piece.chosen,
                        [&](const auto& its) { set_up(its, records_[number], piece); });
      }
      if constexpr (splits) {
        records_[number].second_half.emplace(world.ready_coroutines());
      }
    }
    reserve_for(largest);
  }
  chunk_records(const chunk_records&) = delete;
  chunk_records& operator=(const chunk_records&) = delete;
  [[gnu::cold]] ~chunk_records() = default;

  /// Returns whether the chunk's compressor works on whole tensors. The chunk is then one tensor
  /// and always a launch by itself.
  bool is_alone(const chunk& piece) const {
    return with_compressor(around_->compressor(), piece.chosen, [](const auto& its) {
      return facts::works_on_tensors<std::remove_cvref_t<decltype(its)>>;
    });
  }

  /// Makes the buffers of a fusion that gathers at run time, each for a launch of up to `most`
  /// elements.
  [[gnu::cold]] void make_buffers(std::optional<buffers>& made, std::size_t most) {
    reserve_for(most);
    made.emplace(
        world_->queue(), *plan_, *model_, most,
        [this](std::size_t elements) { return room_of(elements); },
        remembered_rows{worker_memory_.floats(), facts::memory_per_element<compression>},
        remembered_rows{owner_memory_.floats(), owner_rows}, shares());
  }

  /// Returns the workspace and scratch that a launch of so many elements needs, of either class of
  /// tensors, except of a class whose chunks are launches by themselves. The shares that a rank
  /// owns in many small chunks may be longer than its share of one chunk of the same total length,
  /// hence the additional elements.
  [[gnu::cold]] typename buffers::room room_of(std::size_t elements) const {
    typename buffers::room its;
    for (const bool chosen : {false, true}) {
      chunk largest{};
      largest.elements = elements + (shares() - 1) * plan_->chunks.size();
      largest.chosen = chosen;
      if (is_alone(largest)) {
        continue;
      }
      its.workspace_bytes = std::max(its.workspace_bytes, workspace_of(*state_, largest));
      with_compressor(around_->compressor(), chosen, [&](const auto& compressor) {
        if constexpr (!facts::in_rounds<std::remove_cvref_t<decltype(compressor)>>) {
          its.scratch_bytes = std::max({its.scratch_bytes, scratch_bytes(compressor, elements),
                                        scratch_bytes(relay(compressor), elements)});
        }
      });
    }
    return its;
  }

  /// The contexts of the chunk's worker compressor, which encodes gradients, and of its owner's,
  /// which encodes means: what each remembers of the chunk's elements.
  chunk_context worker_context(std::uint32_t number) {
    chunk_context where = context_in(worker_memory_, number);
    where.scale = around_->encoded_scale();
    return where;
  }
  chunk_context owner_context(std::uint32_t number) { return context_in(owner_memory_, number); }

  /// Multiplies by `factor` whatever compressors remember in units of the optimizer's step.
  [[gnu::cold]] void rescale(float factor) {
    for (std::uint32_t number = 0; number < records_.size(); ++number) {
      const chunk& piece = plan_->chunks[number];
      const std::uint64_t step = records_[number].steps;  // of the next launch
      with_compressor(around_->compressor(), piece.chosen, step, [&](const auto& its) {
        rescale(its, worker_memory_, number, factor);
        // Owners of parameters remember residuals of parameters, whose unit is independent of the
        // rate.
        if constexpr (!facts::in_rounds<std::remove_cvref_t<decltype(its)>> &&
                      !facts::owns_parameters<typename Types::architecture>) {
          rescale(relay(its), owner_memory_, number, factor);
        }
      });
    }
  }

  // ---- a step that turns out to update nothing

  /// Copies what compressors remember of the chunk; `undo_step` restores the copies.
  void keep(std::uint32_t number) requires undoes {
    const chunk& piece = plan_->chunks[number];
    worker_kept_.copy(world_->queue(), worker_memory_, piece.first_element, piece.elements);
    owner_kept_.copy(world_->queue(), owner_memory_, piece.first_element, piece.elements);
    copy(records_[number].kept, records_[number].remembered);
  }
  [[gnu::cold]] void undo_step() requires undoes {
    worker_memory_.copy(world_->queue(), worker_kept_, 0, model_->remembered());
    owner_memory_.copy(world_->queue(), owner_kept_, 0, model_->remembered());
    for (record& each : records_) {
      copy(each.remembered, each.kept);
    }
  }
  /// Multiplies what is remembered of gradients by `factor`, because gradients are scaled by it
  /// from now on. What is remembered of whole tensors (low-rank factors) stays: only its directions
  /// count.
  [[gnu::cold]] void scale(float factor) requires undoes {
    follow_gradients<compression>(world_->queue(), worker_memory_.floats(), factor);
    follow_gradients<typename Types::relay>(world_->queue(), owner_memory_.floats(), factor);
  }

  /// What compressors remember from step to step: first of the elements that this rank sends,
  /// second of the means that it encodes, and then of each chunk whose compressor works in rounds.
  [[gnu::cold]] std::vector<std::span<float>> memories() {
    std::vector<std::span<float>> all{worker_memory_.floats(), owner_memory_.floats()};
    for (record& each : records_) {
      if (each.remembered.size() != 0) {
        all.push_back(span_of(each.remembered));
      }
    }
    return all;
  }

  /// The first chunk that has started or, if none has, is ready, with the step that it is in.
  [[gnu::cold]] std::optional<chunk_step> first_begun() const {
    const record* first = list::first_begun();
    if (first == nullptr) {
      return std::nullopt;
    }
    // A delayed launch counts its step when it begins.
    const bool counted = delays && first->state == chunk_state::started;
    return chunk_step{this->number_of(*first), first->steps - counted};
  }

  /// The chunk that was started first among those that the stream has not yet completed, with its
  /// step.
  std::optional<chunk_step> first_on_stream() const {
    const record* first = list::first_on_stream();
    if (first == nullptr) {
      return std::nullopt;
    }
    return chunk_step{this->number_of(*first), first->steps - 1};
  }

 private:
  /// Reserves the memory that kernels work in beside a launch's scratch. Twice the elements,
  /// because two payloads that are merged may be as long as their sum.
  void reserve_for(std::size_t elements) { kernels::reserve(world_->queue(), 2 * elements); }

  std::size_t shares() const { return owner_rows == 0 ? 1 : at(world_->size()); }

  /// Allocates what the chunk's compressor works with and remembers.
  template <class C>
  void set_up(const C& its, record& mine, const chunk& piece) {
    const auto scratch = [&](const auto& each) { return scratch_of(each, piece); };
    mine.scratch = allocate<std::byte>(world_->queue(),
                                       most_of_steps(around_->compressor(), piece.chosen, scratch));
    if constexpr (facts::in_rounds<C>) {
      mine.remembered =
          allocate_zeros<float>(world_->queue(), its.remembers(around_->tensor_of(piece)));
      if constexpr (undoes) {
        mine.kept = allocate<float>(world_->queue(), mine.remembered.size());
      }
    }
  }
  template <class C>
  std::size_t scratch_of(const C& its, const chunk& piece) const {
    if constexpr (facts::in_rounds<C>) {
      return its.scratch_bytes(around_->tensor_of(piece));
    } else {
      return std::max(scratch_bytes(its, piece.elements),
                      scratch_bytes(relay(its), piece.elements));
    }
  }

  void copy(memory_of<float, queue_type>& to, const memory_of<float, queue_type>& from) {
    if (from.size() != 0) {
      world_->queue().copy(to.data(), from.data(), from.size() * sizeof(float));
    }
  }

  template <class C>
  void rescale(const C& its, state_memory<queue_type>& memory, std::uint32_t number, float factor) {
    if constexpr (facts::rescales<C>) {
      if (!memory.floats().empty()) {
        its.rescale(world_->queue(), context_in(memory, number), plan_->chunks[number].elements,
                    factor);
      }
    }
  }

  chunk_context context_in(state_memory<queue_type>& memory, std::uint32_t number) {
    record& mine = records_[number];
    const chunk& piece = plan_->chunks[number];
    chunk_context where = memory.at(piece.first_element, span_of(mine.scratch), mine.steps);
    where.rank = static_cast<std::uint64_t>(world_->rank());
    where.ranks = static_cast<std::uint64_t>(around_->workers());
    where.scale = scale_of(around_->values());
    if constexpr (facts::works_on_tensors<compression> || selects<compression>) {
      where.tensor = &around_->tensor_of(piece);
      where.remembered = mine.remembered.size() == 0 ? nullptr : mine.remembered.data();
    }
    return where;
  }

  transport* world_;
  const plan* plan_;
  const model_memory<queue_type>* model_;
  const world_type* around_;
  const state_type* state_;
  state_memory<queue_type> worker_memory_;
  state_memory<queue_type> owner_memory_;
  state_memory<queue_type> worker_kept_;
  state_memory<queue_type> owner_kept_;
};

}  // namespace tutti

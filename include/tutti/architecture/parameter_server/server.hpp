#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tutti/architecture/mean.hpp"
#include "tutti/architecture/parameter_server/answers.hpp"
#include "tutti/architecture/parameter_server/delay.hpp"
#include "tutti/architecture/parameter_server/rounds.hpp"
#include "tutti/architecture/parameter_server/timed_engine.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/push_counts.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/collective.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/optimizer.hpp"
#include "tutti/role/transport.hpp"

namespace tutti::architecture {

/// A server's half of a parameter server: it takes pushes of the chunks placed on it, adds them up,
/// updates, and answers. A chunk's memory is made when its first push comes. One file, because
/// taking, adding, updating, answering and remembering are steps of one push.
template <class Architecture, class World>
class parameter_server_server {
  using compression = typename World::compression;
  using relay_type = typename World::relay_type;
  using endpoint = typename World::endpoint;
  using floats = typename World::template memory<float>;
  using bytes = typename World::template memory<std::byte>;
  using consistency_type = typename Architecture::consistency;
  using consistency_options = typename consistency_type::options;
  static constexpr bool plain = facts::identity<compression>;
  /// Whether each worker is answered by itself, once its consistency's machine lets it read.
  static constexpr bool one_by_one = Architecture::stale;
  static constexpr bool drops = Architecture::drops_gradients;
  static constexpr bool compensates = consistency::compensates<consistency_type>;
  static constexpr bool keeps_parameters = Architecture::keeps_parameters;
  static constexpr bool steps_by_push = Architecture::steps_by_push;
  static constexpr bool runs_optimizer = Architecture::owns_parameters;
  static constexpr mean average_of_pushes =
      one_by_one || steps_by_push ? mean::none : Architecture::mean_rule;
  static constexpr bool adds_payloads = !encodes_once<compression>;
  static constexpr bool encodes_means = !plain && !keeps_parameters && !adds_payloads;
  static constexpr bool undoes_steps = encodes_means && World::undoes_steps;
  /// Whether the sum itself is the answer. Then there are two sums, because a slow worker may still
  /// read one while the next begins.
  static constexpr bool answers_sums = (plain && !keeps_parameters) || adds_payloads;

 public:
  parameter_server_server(World& world, const typename Architecture::options& set)
      : world_(&world),
        set_(set.consistency),
        chunks_(world.trains() ? 0 : world.planned().chunks.size()),
        left_(at(world.workers())),
        engine_(world, *this, one_by_one ? 0 : set.engine_threads, set.engine_order) {}
  parameter_server_server(const parameter_server_server&) = delete;
  parameter_server_server& operator=(const parameter_server_server&) = delete;

  /// Takes a worker's push of a chunk. Throws communication_error unless it is as long as expected.
  task serve(endpoint self, typename World::message push) {
    const std::uint32_t number = push.number();
    const chunk& piece = world_->planned().chunks[number];
    served_chunk& mine = served(number);
    expect_length(mine, piece, push);
    if constexpr (one_by_one) {
      take(mine, piece, push);
      mine.answers.due(push.peer());
      co_await mine.answers.send(*world_, self, piece, span_of(mine.parameters));
      if (mine.answers.is_due(push.peer())) {
        counts_.hold();
      }
    } else {
      if (engine_.is_there()) {
        engine_.push(number, bytes_of_taking(mine, piece));
      }
      ++mine.pushes;
      if (take_in_rank_order(mine, piece, push)) {
        const task& before = mine.answered;
        co_await before;
        mine.pushes = 0;
        if constexpr (steps_by_push) {
          step_by_push(mine, piece);
        } else if constexpr (!adds_payloads) {
          update(mine, piece, mine.steps);
        }
        if (engine_.is_there()) {
          engine_.close(number, adds_payloads || steps_by_push ? 0 : bytes_of_updating(piece));
        } else {
          answer(number);
        }
      }
    }
  }

  /// Answers all workers, once the chunk's sum is made and has been applied or encoded.
  void answer(std::uint32_t number) {
    served_chunk& mine = chunks_[number];
    const chunk& piece = world_->planned().chunks[number];
    const endpoint self = world_->endpoint_of(number);
    mine.answered = answer_all(self, mine, piece);
    self.start(mine.answered);
    ++mine.sums_made;
    if (++mine.round == rounds_of(world_->compressor(), piece)) {
      mine.round = 0;
      ++mine.steps;
    }
  }

  /// Records that a worker pushes no more, and answers the workers that waited for it.
  task worker_left(int worker) requires one_by_one {
    left_[at(worker)] = 1;
    for (std::uint32_t number = 0; number < chunks_.size(); ++number) {
      served_chunk& mine = chunks_[number];
      if (mine.is_set_up) {
        const chunk& piece = world_->planned().chunks[number];
        mine.answers.machine.leave(worker);
        update_if_complete(mine, piece);
        const endpoint self = world_->endpoint_of(number);
        co_await mine.answers.send(*world_, self, piece, span_of(mine.parameters));
      }
    }
  }
  /// Whether some worker's answer of the chunk waits for other workers' pushes.
  bool holds_back(std::uint32_t number) const requires one_by_one {
    return number < chunks_.size() && chunks_[number].answers.any_due();
  }
  push_counts counted_pushes() const { return counts_.read(); }

  /// Whether no answer of this server is on its way.
  bool at_rest() const {
    return loops::all_of(chunks_, [](const served_chunk& each) {
      if constexpr (one_by_one) {
        return each.answers.at_rest();
      } else {
        return each.answered.done();
      }
    });
  }

  /// Ends when all answers have been read.
  task finish() {
    for (auto& each : chunks_) {
      if constexpr (one_by_one) {
        co_await each.answers.finish();
      } else {
        const task& answered = each.answered;
        co_await answered;
      }
    }
  }

  /// Goes on from step `step` with the parameters that the model holds now.
  void resume(std::uint64_t step) {
    resumed_ = step;
    for (auto& each : chunks_) {
      each.is_set_up = false;
      each.steps = step;
    }
  }

  /// Returns how many floats the optimizer remembers of the chunks placed here.
  std::size_t optimizer_floats() const {
    std::size_t elements = 0;
    for (const chunk& each : world_->planned().chunks) {
      const bool mine = each.placed_on == world_->rank() && !world_->trains();
      elements += mine ? each.elements : 0;
    }
    return runs_optimizer && !world_->phantom() ? world_->momenta_per_element() * elements : 0;
  }

  void rescale([[maybe_unused]] float factor) {
    if constexpr (encodes_means && facts::rescales<relay_type>) {
      for (std::uint32_t number = 0; number < chunks_.size(); ++number) {
        served_chunk& mine = chunks_[number];
        if (mine.residual.size() != 0) {
          const chunk& piece = world_->planned().chunks[number];
          relay(world_->compressor())
              .rescale(world_->queue(), context_of(mine, piece, mine.residual, mine.steps),
                       piece.elements, factor);
        }
      }
    }
  }

  /// Restores residuals of means to what they were before the last step. Until it has run, no
  /// worker has all that it needs for the next step.
  void undo_step() {
    if constexpr (undoes_steps) {
      for (served_chunk& each : chunks_) {
        world_->copy(span_of(each.residual), span_of(each.kept));
      }
    }
  }

  /// Returns what there is of each chunk placed here: residuals of means, momenta, mean squares,
  /// parameters, the sum that gradients of several of a worker's steps go into, and what each
  /// worker has read.
  std::vector<std::span<float>> memories() {
    std::vector<std::span<float>> all;
    const auto add = [&all](floats& each) {
      if (each.size() != 0) {
        all.push_back(span_of(each));
      }
    };
    for (std::uint32_t number = 0; number < chunks_.size(); ++number) {
      if (world_->planned().chunks[number].placed_on == world_->rank()) {
        served_chunk& mine = served(number);
        for (floats* each : {&mine.residual, &mine.momenta, &mine.mean_square, &mine.parameters}) {
          add(*each);
        }
        if constexpr (drops) {
          if (mine.answers.machine.gathers_across_steps()) {
            add(mine.sums[0]);
          }
        }
        if constexpr (compensates) {
          for (int worker = 0; worker < world_->workers(); ++worker) {
            if (const auto read = mine.answers.read_by(worker); !read.empty()) {
              all.push_back(read);
            }
          }
        }
      }
    }
    return all;
  }

 private:
  static auto answers_of() {
    if constexpr (one_by_one) {
      return separate_answers<typename consistency_type::machine, World>();
    } else {
      return no_separate_answers();
    }
  }
  struct served_chunk {
    bool is_set_up{};
    std::array<floats, 2> sums{};
    floats parameters{};
    floats residual{};
    floats kept{};  ///< the residual before the last step, in case that is undone
    floats momenta{};
    floats mean_square{};
    bytes payload{};
    bytes scratch{};
    std::size_t payload_bytes{};
    std::vector<bytes> early{};  ///< pushes of workers whose turn has not come
    std::vector<std::size_t> early_bytes{};
    std::vector<char> is_here{};
    int turn{};
    int pushes{};  ///< how many have come in this round
    int round{};
    std::uint64_t sums_made{};
    std::uint64_t steps{};
    task answered{};
    decltype(answers_of()) answers{};
  };

  static std::span<float> sum_of(served_chunk& mine) {
    return span_of(mine.sums[answers_sums ? mine.sums_made & 1 : 0]);
  }
  static constexpr std::size_t floats_for(std::size_t bytes) {
    return (bytes + sizeof(float) - 1) / sizeof(float);
  }
  /// Allocates memory the first time. A chunk always asks for as much, so the size never changes.
  template <class Memory>
  void make_room(Memory& memory, std::size_t elements) {
    using element = std::remove_pointer_t<decltype(memory.data())>;
    if (memory.size() != elements) {
      memory = world_->template allocate<element>(elements);
    }
  }

  /// Returns the most bytes of a push in the chunk's current round.
  std::size_t push_capacity(const served_chunk& mine, const chunk& piece) const {
    return tutti::architecture::push_capacity(*world_, piece, mine.round);
  }

  /// Throws communication_error unless a push is as long as expected. This rank would read beyond
  /// the end of a shorter one, which a worker with other options might send.
  void expect_length(const served_chunk& mine, const chunk& piece,
                     const typename World::message& push) const {
    const std::size_t expected = push_capacity(mine, piece);
    const std::size_t came = push.bytes().size();
    if (facts::variable_length<compression> ? came > expected : came != expected) {
      throw communication_error(
          sentence({"rank ", push.peer(), " pushed ", came, " bytes of chunk ", push.number(),
                    " where ", facts::variable_length<compression> ? "at most " : "", expected,
                    " were expected. Fix: give every rank the same compression options"}));
    }
  }

  served_chunk& served(std::uint32_t number) {
    served_chunk& mine = chunks_[number];
    if (std::exchange(mine.is_set_up, true)) {
      return mine;
    }
    const chunk& piece = world_->planned().chunks[number];
    mine.turn = 0;
    mine.pushes = 0;
    mine.round = 0;
    mine.early.resize(at(world_->workers()));
    mine.early_bytes.resize(at(world_->workers()));
    mine.is_here.assign(at(world_->workers()), 0);
    for (std::size_t i = 0; i < (Architecture::updates_first ? 0 : answers_sums ? 2 : 1); ++i) {
      make_room(mine.sums[i],
                adds_payloads ? floats_for(longest_push(*world_, piece)) : piece.elements);
    }
    make_room(mine.scratch, scratch_of(piece.elements));
    if constexpr (encodes_means) {
      make_room(mine.payload, capacity(relay(world_->compressor()), piece.elements));
      mine.payload_bytes = expected(relay(world_->compressor()), piece.elements);
      make_room(mine.residual, facts::memory_per_element<relay_type> * piece.elements);
      make_room(mine.kept, undoes_steps ? mine.residual.size() : 0);
    }
    if constexpr (runs_optimizer) {
      make_room(mine.momenta, world_->momenta_per_element() * piece.elements);
    }
    if constexpr (keeps_parameters) {
      make_room(mine.parameters, piece.elements);
      world_->read_parameters(piece, span_of(mine.parameters));
    }
    if constexpr (one_by_one) {
      set_up_answers(mine, piece);
    }
    return mine;
  }
  void set_up_answers(served_chunk& mine, const chunk& piece) {
    mine.answers.begin({world_->workers(), set_, resumed_}, world_->workers());
    for (int worker = 0; worker < world_->workers(); ++worker) {
      if (left_[at(worker)] != 0) {
        mine.answers.machine.leave(worker);
      }
    }
    if constexpr (compensates) {
      mine.answers.copy_all(*world_, piece, span_of(mine.parameters));
      make_room(mine.mean_square, is_adaptive(set_) ? piece.elements : 0);
    }
  }

  /// Returns the scratch that decoding pushes and encoding their mean takes.
  std::size_t scratch_of(std::size_t elements) const {
    const std::size_t to_decode =
        facts::decodes_in_scratch<compression> ? scratch_bytes(world_->compressor(), elements) : 0;
    return std::max(to_decode, scratch_bytes(relay(world_->compressor()), elements));
  }

  chunk_context context_of(served_chunk& mine, const chunk& piece, floats& rows,
                           std::uint64_t step) const {
    return {.memory = rows.size() == 0 ? nullptr : rows.data(),
            .stride = piece.elements,
            .scratch = span_of(mine.scratch),
            .step = step,
            .first_element = piece.first_element,
            .rank = static_cast<std::uint64_t>(world_->rank()),
            .scale = scale_of(world_->values())};
  }

  /// Lets a push take effect, unless it is dropped: a gradient by the optimizer, a difference by
  /// being added to the parameters.
  void take(served_chunk& mine, const chunk& piece, const typename World::message& push) {
    auto& machine = mine.answers.machine;
    if (!machine.push(push.peer())) {
      counts_.drop();
      return;
    }
    counts_.take(machine.staleness(push.peer()));
    if constexpr (drops) {
      add(mine, sum_of(mine), piece, push.bytes(),
          machine.gathered() == 1 ? sum_begins::here : sum_begins::before);
      update_if_complete(mine, piece);
    } else if constexpr (runs_optimizer) {
      add(mine, sum_of(mine), piece, push.bytes(), sum_begins::here);
      average(mine);
      compensate(mine, piece, push.peer());
      make_answer(mine, piece, machine.updates());
      machine.update();
    } else {
      add(mine, span_of(mine.parameters), piece, push.bytes(), sum_begins::before);
      machine.update();
    }
  }
  /// Updates a chunk if enough gradients of the step have come, or no more will.
  void update_if_complete([[maybe_unused]] served_chunk& mine,
                          [[maybe_unused]] const chunk& piece) {
    if constexpr (drops) {
      if (auto& machine = mine.answers.machine; machine.is_complete()) {
        average(mine, machine.gathered());
        make_answer(mine, piece, machine.updates());
        machine.update();
      }
    }
  }

  /// Corrects the gradient that `worker` has computed on the parameters it was sent last.
  void compensate([[maybe_unused]] served_chunk& mine, [[maybe_unused]] const chunk& piece,
                  [[maybe_unused]] int worker) {
    if constexpr (compensates) {
      compensate_delay(*world_, set_, piece, sum_of(mine), span_of(mine.mean_square),
                       span_of(mine.parameters), mine.answers.read_by(worker));
    }
  }

  /// Adds pushes in rank order, and keeps those that come before their turn. Returns true once all
  /// of a step's pushes have been added; where every push is a step, once all have been kept.
  bool take_in_rank_order(served_chunk& mine, const chunk& piece,
                          const typename World::message& push) {
    const int worker = push.peer();
    if (worker != mine.turn || steps_by_push) {
      if (!world_->phantom()) {
        make_room(mine.early[at(worker)], longest_push(*world_, piece));
        world_->queue().copy(mine.early[at(worker)].data(), push.bytes().data(),
                             push.bytes().size());
      }
      mine.early_bytes[at(worker)] = push.bytes().size();
      mine.is_here[at(worker)] = 1;
      return steps_by_push && mine.pushes == world_->workers();
    }
    add(mine, sum_of(mine), piece, push.bytes(),
        worker == 0 ? sum_begins::here : sum_begins::before);
    for (++mine.turn; mine.turn < world_->workers() && mine.is_here[at(mine.turn)] != 0;
         ++mine.turn) {
      add(mine, sum_of(mine), piece, early_of(mine, mine.turn), sum_begins::before);
      mine.is_here[at(mine.turn)] = 0;
    }
    if (mine.turn < world_->workers()) {
      return false;
    }
    mine.turn = 0;
    return true;
  }

  /// Takes an optimizer step for each worker's push, in rank order. All pushes are here, and no
  /// answer reads the parameters any more.
  void step_by_push(served_chunk& mine, const chunk& piece) {
    for (int worker = 0; worker < world_->workers(); ++worker) {
      add(mine, sum_of(mine), piece, early_of(mine, worker), sum_begins::here);
      const auto pushed = static_cast<std::uint64_t>(worker);
      update(mine, piece, mine.steps * static_cast<std::uint64_t>(world_->workers()) + pushed);
      mine.is_here[at(worker)] = 0;
    }
  }
  static std::span<const std::byte> early_of(const served_chunk& mine, int worker) {
    const std::span<const std::byte> early = span_of(mine.early[at(worker)]);
    return early.first(std::min(early.size(), mine.early_bytes[at(worker)]));
  }

  enum class sum_begins { here, before };

  /// Returns the bytes that adding a push reads and writes.
  std::size_t bytes_of_adding(const served_chunk& mine, const chunk& piece, sum_begins when) const {
    const bool first = when == sum_begins::here;
    if constexpr (adds_payloads) {
      return (first ? 2U : 3U) * push_capacity(mine, piece);
    } else {
      return expected(world_->compressor(), piece.elements) +
             (first ? 1U : 2U) * sizeof(float) * piece.elements;
    }
  }
  /// Returns the bytes that the next push of a round, from whichever worker, makes its thread move.
  std::size_t bytes_of_taking(const served_chunk& mine, const chunk& piece) const {
    if constexpr (steps_by_push) {
      return bytes_of_adding(mine, piece, sum_begins::here) + bytes_of_updating(piece);
    }
    return bytes_of_adding(mine, piece, mine.pushes == 0 ? sum_begins::here : sum_begins::before);
  }
  std::size_t bytes_of_updating(const chunk& piece) const {
    std::size_t moved = 2 * sizeof(float) * piece.elements;
    if constexpr (encodes_means) {
      moved += encoding_bytes<relay_type>(piece.elements) +
               expected(relay(world_->compressor()), piece.elements);
    }
    return moved;
  }

  void add(served_chunk& mine, std::span<float> sum, const chunk& piece,
           std::span<const std::byte> pushed, sum_begins when) {
    auto& queue = world_->queue();
    const bool first = when == sum_begins::here;
    if (!engine_.is_there()) {
      charge(queue, bytes_of_adding(mine, piece, when));
    }
    if (world_->phantom()) {
      return;
    }
    if (first && (plain || adds_payloads)) {
      queue.copy(sum.data(), pushed.data(), pushed.size());
      return;
    }
    if constexpr (adds_payloads) {
      const wire into{reinterpret_cast<std::byte*>(sum.data()), pushed.size()};
      with_compressor(world_->compressor(), piece.chosen, [&](const auto& its) {
        its.fold(queue, into, const_wire(pushed.data(), pushed.size()));
      });
    } else {
      const const_wire payload(pushed.data(), pushed.size());
      chunk_context where;
      where.scratch = span_of(mine.scratch);
      // Worker 0's push is added first, and it has told of a new scale before it pushed.
      where.scale = world_->encoded_scale();
      if (first) {
        tutti::decode(world_->compressor(), queue, payload, sum, where);
      } else {
        tutti::accumulate(world_->compressor(), queue, payload, sum, where);
      }
    }
  }

  /// Makes the answer from the sum of gradients.
  void update(served_chunk& mine, const chunk& piece, std::uint64_t step) {
    average(mine);
    make_answer(mine, piece, step);
  }
  /// Scales the sum as `average_of_pushes` says. Where a step is not of one gradient from each
  /// worker, but of `gradients` gradients, makes the sum the mean of these.
  void average(served_chunk& mine, std::uint64_t gradients = 1) {
    if (world_->phantom()) {
      return;
    }
    const float average =
        (average_of_pushes == mean::before ? 1.0f
                                           : average_of_gradients<average_of_pushes>(*world_)) /
        static_cast<float>(gradients);
    if (average != 1.0f) {
      kernels::scale(world_->queue(), sum_of(mine), average);
    }
  }
  /// Runs the optimizer on the mean, or encodes it for the workers. `step` counts the optimizer's
  /// steps on the chunk before this one.
  void make_answer(served_chunk& mine, const chunk& piece, std::uint64_t step) {
    auto& queue = world_->queue();
    if (!engine_.is_there()) {
      charge(queue, bytes_of_updating(piece));
    }
    if (world_->phantom()) {
      return;
    }
    const std::span<float> sum = sum_of(mine);
    if constexpr (runs_optimizer) {
      world_->values().apply(queue, span_of(mine.parameters), std::span<const float>(sum),
                             context_of(mine, piece, mine.momenta, step));
    } else if constexpr (encodes_means) {
      if constexpr (undoes_steps) {
        if (restores_residuals<typename World::compression>(world_->values())) {
          world_->copy(span_of(mine.kept), span_of(mine.residual));
        }
      }
      encode(relay(world_->compressor()), queue, std::span<const float>(sum),
             wire{mine.payload.data(), mine.payload.size()},
             context_of(mine, piece, mine.residual, step), &mine.payload_bytes);
    }
  }

  task answer_all(endpoint self, served_chunk& mine, const chunk& piece) {
    std::span<const std::byte> answer;
    if constexpr (keeps_parameters) {
      answer = bytes_of_floats(*world_, piece, span_of(mine.parameters));
    } else if constexpr (adds_payloads) {
      const auto* sum = reinterpret_cast<const std::byte*>(sum_of(mine).data());
      answer = {world_->phantom() ? nullptr : sum, push_capacity(mine, piece)};
    } else if constexpr (plain) {
      answer = bytes_of_floats(*world_, piece, sum_of(mine));
    } else {
      answer = {mine.payload.size() == 0 ? nullptr : mine.payload.data(), mine.payload_bytes};
    }
    co_await answer_workers(encodes_means ? carrier_of<relay_type>(self) : self, answer,
                            world_->workers());
  }

  World* world_;
  consistency_options set_;
  std::vector<served_chunk> chunks_;
  std::vector<char> left_;     ///< workers that push no more
  std::uint64_t resumed_ = 0;  ///< the step that all workers went on from
  push_counter counts_{};
  timed_engine<World, parameter_server_server> engine_;
};

}  // namespace tutti::architecture

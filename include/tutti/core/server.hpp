#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/architecture/parameter_server.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/task.hpp"
#include "tutti/core/model_memory.hpp"
#include "tutti/core/state_memory.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/optimizer.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// Sends `bytes_for(worker)` to every worker at once.
template <class Endpoint, class BytesFor>
task answer_workers(Endpoint self, BytesFor bytes_for, int workers, int worker = 0) {
  if (worker == workers) {
    co_return;
  }
  auto mine = self.send(worker, bytes_for(worker));
  std::exception_ptr failure;
  try {
    co_await answer_workers(self, bytes_for, workers, worker + 1);
  } catch (...) {
    failure = std::current_exception();
  }
  co_await mine;
  if (failure) {
    std::rethrow_exception(failure);
  }
}

/// A server's chunks: what was pushed, what it makes of that, and what it answers.
template <class Architecture, class Compression, class Optimizer, class Transport>
class server {
  using relay_type = decltype(relay(std::declval<const Compression&>()));
  using queue_type = typename Transport::queue_type;
  using floats = memory_of<float, queue_type>;
  using bytes = memory_of<std::byte, queue_type>;
  static constexpr bool owns_parameters = facts::owns_parameters<Architecture>;
  static constexpr bool plain = facts::identity<Compression>;
  static constexpr bool at_once = facts::stale<Architecture>;
  /// The sum itself is the answer: a slow worker may still read it while the next step's begins.
  static constexpr bool answers_sums = plain && !owns_parameters;

 public:
  server(Transport& world, const plan& made, const model_memory<queue_type>& model,
         const Compression& compression, const Optimizer& optimizer, int workers,
         unsigned accumulation)
      : world_(&world),
        plan_(&made),
        model_(&model),
        compression_(&compression),
        optimizer_(&optimizer),
        workers_(workers),
        average_(1.0f /
                 (static_cast<float>(at_once ? 1 : workers) * static_cast<float>(accumulation))),
        owner_(world.queue(), facts::memory_per_element<relay_type>, model.remembered()),
        momenta_(world.queue(), owns_parameters ? Optimizer::memory_per_element : 0,
                 model.remembered()),
        shelves_(made.chunks.size()) {}

  /// What this server remembers from step to step, beside parameters.
  static constexpr std::size_t memory_count = 2;
  std::array<std::span<float>, memory_count> memories() {
    return {owner_.floats(), momenta_.floats()};
  }

  /// Goes on from step `steps`, with the parameters that the model holds now.
  void resume(std::uint64_t steps) {
    for (auto& each : shelves_) {
      each.ready = false;
      each.steps = steps;
    }
  }

  /// A worker's push of a chunk; the bytes may be gone when the task ends.
  task take(std::uint32_t number, int worker, std::span<const std::byte> pushed) {
    shelf& mine = shelves_[number];
    set_up(mine, plan_->chunks[number]);
    if constexpr (at_once) {
      add(number, mine, pushed, true);
      update(number, mine);
      ++mine.steps;
      auto& answer = mine.answers[at(worker)];
      co_await answer.sent;
      make_room(answer.parameters, mine.parameters.size());
      world_->queue().copy(answer.parameters.data(), mine.parameters.data(),
                           mine.parameters.size() * sizeof(float));
      answer.sent = send_parameters(number, worker, span_of(answer.parameters));
      endpoint_of(number).start(answer.sent);
    } else {
      co_await take_in_rank_order(number, mine, worker, pushed);
    }
  }

  /// Nothing of this server's is on its way.
  bool at_rest() const {
    return std::ranges::all_of(shelves_, [](const shelf& each) {
      return each.answered.done() &&
             std::ranges::all_of(each.answers, [](const auto& one) { return one.sent.done(); });
    });
  }

  /// Ends when everything that was answered has been read.
  task finish() {
    for (auto& each : shelves_) {
      co_await each.answered;
      for (auto& answer : each.answers) {
        co_await answer.sent;
      }
    }
  }

 private:
  struct outgoing {
    floats parameters{};
    task sent{};
  };
  struct shelf {
    bool ready{};
    std::array<floats, 2> sums{};
    floats parameters{};
    bytes payload{};
    bytes scratch{};
    std::vector<bytes> early{};  ///< pushes of workers whose turn has not come
    std::vector<char> is_here{};
    int turn{};
    std::uint64_t steps{};
    task answered{};
    std::vector<outgoing> answers{};
  };

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  static std::span<float> sum_of(shelf& mine) {
    return span_of(mine.sums[answers_sums ? mine.steps & 1 : 0]);
  }
  /// Pushes of a chunk are all equally long, so this allocates once.
  template <class Memory>
  void make_room(Memory& memory, std::size_t elements) {
    if (memory.size() != elements) {
      memory = allocate<std::remove_pointer_t<decltype(memory.data())>>(world_->queue(), elements);
    }
  }

  endpoint<Transport> endpoint_of(std::uint32_t number) const {
    return endpoint<Transport>(*world_, tag{channel::data, number, 0});
  }

  void set_up(shelf& fresh, const chunk& piece) {
    if (std::exchange(fresh.ready, true)) {
      return;
    }
    fresh.early.resize(at(workers_));
    fresh.is_here.resize(at(workers_));
    fresh.answers.resize(at_once ? at(workers_) : 0);
    if (model_->phantom()) {
      return;
    }
    for (std::size_t i = 0; i < (answers_sums ? 2 : 1); ++i) {
      make_room(fresh.sums[i], piece.elements);
    }
    make_room(fresh.scratch, scratch_bytes(relay(*compression_), piece.elements));
    if constexpr (!plain && !owns_parameters) {
      make_room(fresh.payload, relay(*compression_).wire_bytes(piece.elements));
    }
    if constexpr (owns_parameters) {
      make_room(fresh.parameters, piece.elements);
      model_->for_each_run(piece, [&](std::size_t position, std::size_t offset, std::size_t count,
                                      std::size_t in_chunk) {
        world_->queue().copy(fresh.parameters.data() + in_chunk,
                             model_->at(position).parameter.data() + offset, count * sizeof(float));
      });
    }
  }

  task take_in_rank_order(std::uint32_t number, shelf& mine, int worker,
                          std::span<const std::byte> pushed) {
    if (worker != mine.turn) {
      if (pushed.data() != nullptr) {
        make_room(mine.early[at(worker)], pushed.size());
        world_->queue().copy(mine.early[at(worker)].data(), pushed.data(), pushed.size());
      }
      mine.is_here[at(worker)] = 1;
      co_return;
    }
    add(number, mine, pushed, worker == 0);
    for (++mine.turn; mine.turn < workers_ && mine.is_here[at(mine.turn)] != 0; ++mine.turn) {
      add(number, mine, span_of(mine.early[at(mine.turn)]), false);
      mine.is_here[at(mine.turn)] = 0;
    }
    if (mine.turn == workers_) {
      mine.turn = 0;
      co_await mine.answered;
      update(number, mine);
      mine.answered = answer_all(number, mine);
      endpoint_of(number).start(mine.answered);
      ++mine.steps;
    }
  }

  void add(std::uint32_t number, shelf& mine, std::span<const std::byte> pushed, bool first) {
    auto& queue = world_->queue();
    const std::size_t all = plan_->chunks[number].elements;
    charge(queue, compression_->wire_bytes(all) + (first ? 1 : 2) * sizeof(float) * all);
    if (model_->phantom()) {
      return;
    }
    float* sum = sum_of(mine).data();
    const std::size_t elements = sum_of(mine).size();
    if (first && plain) {
      queue.copy(sum, pushed.data(), pushed.size());
      return;
    }
    if (first) {
      queue.clear(sum, elements * sizeof(float));
    }
    compression_->accumulate(queue, const_wire(pushed.data(), pushed.size()),
                             std::span<float>(sum, elements));
  }

  /// From the sum of gradients to what is answered.
  void update(std::uint32_t number, shelf& mine) {
    auto& queue = world_->queue();
    const chunk& piece = plan_->chunks[number];
    charge(queue, 2 * sizeof(float) * piece.elements);
    if constexpr (!plain && !owns_parameters) {
      charge(queue,
             encoding_bytes<relay_type>(piece.elements) + compression_->wire_bytes(piece.elements));
    }
    if (model_->phantom()) {
      return;
    }
    const std::span<float> mean = sum_of(mine);
    if (average_ != 1.0f) {
      kernels::scale(queue, mean, average_);
    }
    if constexpr (owns_parameters) {
      optimizer_->apply(queue, span_of(mine.parameters), std::span<const float>(mean),
                        momenta_.at(piece.first_element, span_of(mine.scratch), mine.steps));
    } else if constexpr (!plain) {
      encode(relay(*compression_), queue, std::span<const float>(mean),
             wire{mine.payload.data(), mine.payload.size()},
             owner_.at(piece.first_element, span_of(mine.scratch), mine.steps));
    }
  }

  task answer_all(std::uint32_t number, shelf& mine) {
    std::span<const std::byte> answer;
    if constexpr (owns_parameters) {
      answer = as_bytes(number, span_of(mine.parameters));
    } else if constexpr (plain) {
      answer = as_bytes(number, sum_of(mine));
    } else {
      const std::size_t length = compression_->wire_bytes(plan_->chunks[number].elements);
      answer = {mine.payload.empty() ? nullptr : mine.payload.data(), length};
    }
    co_await answer_workers(
        endpoint_of(number), [answer](int) { return answer; }, workers_);
  }

  task send_parameters(std::uint32_t number, int worker, std::span<const float> sent) {
    co_await endpoint_of(number).send(worker, as_bytes(number, sent));
  }

  /// As many bytes as the chunk has, with or without memory behind them.
  std::span<const std::byte> as_bytes(std::uint32_t number, std::span<const float> values) const {
    const std::size_t length = plan_->chunks[number].elements * sizeof(float);
    const auto* data = model_->phantom() ? nullptr : values.data();
    return {reinterpret_cast<const std::byte*>(data), length};
  }

  Transport* world_;
  const plan* plan_;
  const model_memory<queue_type>* model_;
  const Compression* compression_;
  const Optimizer* optimizer_;
  int workers_;
  float average_;
  state_memory<queue_type> owner_;
  state_memory<queue_type> momenta_;
  std::vector<shelf> shelves_;
};

}  // namespace tutti

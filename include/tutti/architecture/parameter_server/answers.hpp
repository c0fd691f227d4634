#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include "tutti/base/loops.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/task.hpp"

namespace tutti::architecture {

/// Returns a chunk's floats as bytes; for a phantom as many bytes, without memory behind them.
template <class World>
std::span<const std::byte> bytes_of_floats(const World& world, const chunk& piece,
                                           std::span<const float> values) {
  const auto* data = world.phantom() ? nullptr : values.data();
  return {reinterpret_cast<const std::byte*>(data), piece.elements * sizeof(float)};
}

/// Sends `bytes` to ranks [worker, workers), all at the same time. It calls itself for the next
/// worker, so that each operation has a coroutine's frame of its own, because operations may not
/// move.
template <class Endpoint>
task answer_workers(Endpoint self, std::span<const std::byte> bytes, int workers, int worker = 0) {
  if (worker == workers) {
    co_return;
  }
  auto mine = self.send(worker, bytes);
  std::exception_ptr failure;
  try {
    co_await answer_workers(self, bytes, workers, worker + 1);
  } catch (...) {
    failure = std::current_exception();
  }
  co_await mine;
  if (failure) {
    std::rethrow_exception(failure);
  }
}

/// A chunk's answers, where each worker has one of its own. An answer goes once `Machine`, of the
/// server's consistency, lets its worker read. It is sent from a copy of the parameters, so that no
/// worker waits for a slower one to have read. Until the worker's next answer, that copy is what
/// the worker has read.
template <class Machine, class World>
class separate_answers {
  using endpoint = typename World::endpoint;
  using floats = typename World::template memory<float>;

 public:
  Machine machine{};

  /// Begins with the machine `its`, and no answer due.
  void begin(Machine its, int workers) {
    machine = std::move(its);
    all_.resize(static_cast<std::size_t>(workers));
    for (answer& each : all_) {
      each.is_due = false;
    }
  }
  /// Sets what every worker has read to `parameters`, where that must be known before its first
  /// answer.
  void copy_all(World& world, const chunk& piece, std::span<const float> parameters) {
    for (answer& each : all_) {
      copy(world, piece, parameters, each);
    }
  }

  /// Records that the worker has pushed and its answer is due.
  void due(int worker) { of(worker).is_due = true; }
  bool is_due(int worker) const { return all_[static_cast<std::size_t>(worker)].is_due; }
  bool any_due() const {
    return loops::any_of(all_, [](const answer& each) { return each.is_due; });
  }
  std::span<float> read_by(int worker) { return span_of(of(worker).parameters); }
  int workers() const { return static_cast<int>(all_.size()); }

  /// Sends every answer that is due and may be read by now.
  task send(World& world, endpoint self, const chunk& piece, std::span<const float> parameters) {
    for (int worker = 0; worker < workers(); ++worker) {
      answer& its = of(worker);
      if (!its.is_due || !machine.may_read(worker)) {
        continue;
      }
      its.is_due = false;
      const task& before = its.sent;  // done: its worker has pushed again since
      co_await before;
      copy(world, piece, parameters, its);
      machine.read_by(worker);
      its.sent = send_copy(self, worker, bytes_of_floats(world, piece, span_of(its.parameters)));
      self.start(its.sent);
    }
  }

  bool at_rest() const {
    return loops::all_of(all_, [](const answer& each) { return each.sent.done(); });
  }
  /// Ends when all answers sent have been read.
  task finish() {
    for (answer& each : all_) {
      const task& sent = each.sent;
      co_await sent;
    }
  }

 private:
  struct answer {
    bool is_due{};
    floats parameters{};
    task sent{};
  };

  answer& of(int worker) { return all_[static_cast<std::size_t>(worker)]; }
  static void copy(World& world, const chunk& piece, std::span<const float> parameters,
                   answer& into) {
    if (into.parameters.size() != piece.elements) {
      into.parameters = world.template allocate<float>(piece.elements);
    }
    world.copy(span_of(into.parameters), parameters);
  }
  static task send_copy(endpoint self, int worker, std::span<const std::byte> copy) {
    co_await self.send(worker, copy);
  }

  std::vector<answer> all_{};
};

/// Takes the place of separate_answers on servers that answer all workers together.
struct no_separate_answers {};

}  // namespace tutti::architecture

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tutti/architecture/parameter_server/answers.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/architecture.hpp"

namespace tutti::architecture {

/// Base class of states that keep copies of chunks for other ranks to average with
/// (bipartite_averaging, elastic_servers). A rank that asks for a chunk sends its own parameters y
/// of it and receives the kept parameters x as they were before, which then become
///   x = (1 - share) x + share y.
/// Requests for the same chunk are answered one after the other, in the order in which they come,
/// because a reply is sent from a copy of x whose memory the next reply needs.
/// Cost: for each chunk kept, its parameters and that copy.
template <class World>
class answers_in_turn {
  using endpoint = typename World::endpoint;
  using message = typename World::message;
  using floats = typename World::template memory<float>;

 public:
  /// Starts the reply to a request, after the earlier replies of its chunk. Throws
  /// communication_error if the chunk is not kept here or the message is not as long as the chunk.
  task serve(endpoint self, message theirs) {
    const std::uint32_t number = theirs.number();
    const std::size_t bytes =
        all_[number].is_kept ? world_->planned().chunks[number].elements * sizeof(float) : 0;
    if (!all_[number].is_kept || theirs.bytes().size() != bytes) {
      throw communication_error(sentence(
          {"rank ", theirs.peer(), " sent ", theirs.bytes().size(), " bytes of chunk ", number,
           ", which has ", bytes, " on the receiver. Fix: give every rank the same options"}));
    }
    task& last = all_[number].answered;
    last = answer(self, std::move(theirs), std::move(last));
    self.start(last);
    co_return;
  }
  bool at_rest() const {
    return loops::all_of(all_, [](const kept& each) { return each.answered.done(); });
  }
  task finish() {
    for (auto& each : all_) {
      const task& answered = each.answered;
      co_await answered;
    }
  }

  /// Sets the kept parameters to those of the model.
  void resume(std::uint64_t) {
    for (std::uint32_t number = 0; number < all_.size(); ++number) {
      if (all_[number].is_kept) {
        world_->read_parameters(world_->planned().chunks[number], kept_of(number));
      }
    }
  }
  /// Returns the kept parameters, chunk by chunk.
  std::vector<std::span<float>> memories() {
    std::vector<std::span<float>> every;
    for (auto& each : all_) {
      if (each.parameters.size() != 0) {
        every.push_back(span_of(each.parameters));
      }
    }
    return every;
  }

 protected:
  /// `keeps(chunk)` says whether this rank keeps the chunk.
  template <class Keeps>
  answers_in_turn(World& world, float share, Keeps keeps)
      : world_(&world), share_(share), all_(world.planned().chunks.size()) {
    for (std::uint32_t number = 0; number < all_.size(); ++number) {
      const chunk& piece = world.planned().chunks[number];
      if (keeps(piece)) {
        all_[number].is_kept = true;
        all_[number].parameters = world.template allocate<float>(piece.elements);
        all_[number].sent = world.template allocate<float>(piece.elements);
      }
    }
  }

  /// Returns how often other ranks have averaged with a chunk that is kept here.
  std::uint64_t times_drawn(std::uint32_t number) const { return all_[number].drawn; }
  /// Returns the kept parameters of a chunk; nothing for a phantom.
  std::span<float> kept_of(std::uint32_t number) { return span_of(all_[number].parameters); }

 private:
  struct kept {
    bool is_kept{};
    floats parameters{};
    floats sent{};    ///< copy of the parameters that the current reply is sent from
    task answered{};  ///< the latest request's reply
    std::uint64_t drawn{};
  };

  task answer(endpoint self, message theirs, task last) {
    {
      // Destroyed as soon as it is done, or all replies would stay in one chain of tasks.
      const task before = std::move(last);
      co_await before;
    }
    const std::uint32_t number = theirs.number();
    const int peer = theirs.peer();
    kept& mine = all_[number];
    {
      const message given = std::move(theirs);  // its destruction lets the sender go on
      const std::span<const float> brought(reinterpret_cast<const float*>(given.bytes().data()),
                                           given.bytes().size() / sizeof(float));
      world_->copy(span_of(mine.sent), span_of(mine.parameters));
      world_->blend(span_of(mine.parameters), brought, 1.0f - share_, share_);
      ++mine.drawn;
    }
    const chunk& piece = world_->planned().chunks[number];
    co_await self.send(peer, bytes_of_floats(*world_, piece, span_of(mine.sent)));
  }

  World* world_;
  float share_;
  std::vector<kept> all_;
};

}  // namespace tutti::architecture

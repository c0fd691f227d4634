#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
/// Requests take effect one after the other, in the order in which they come. Each reply is sent
/// from a copy of x of its own, so that nobody waits until a slower rank has read one.
/// Cost: for each chunk kept, its parameters and as many copies as replies were on their way.
template <class World>
class answers_in_turn {
  using endpoint = typename World::endpoint;
  using message = typename World::message;
  using floats = typename World::template memory<float>;

 public:
  /// Lets a request take effect and starts the reply. Throws communication_error if the chunk is
  /// not kept here or the message is not as long as the chunk.
  task serve(endpoint self, message theirs) {
    const std::uint32_t number = theirs.number();
    const std::size_t bytes =
        all_[number].is_kept ? world_->planned().chunks[number].elements * sizeof(float) : 0;
    if (!all_[number].is_kept || theirs.bytes().size() != bytes) {
      throw communication_error(sentence(
          {"rank ", theirs.peer(), " sent ", theirs.bytes().size(), " bytes of chunk ", number,
           ", which has ", bytes, " on the receiver. Fix: give every rank the same options"}));
    }
    reply& free = free_reply(number);
    free.sending = answer(self, std::move(theirs), span_of(free.copy));
    self.start(free.sending);
    co_return;
  }
  bool at_rest() const {
    return loops::all_of(all_, [](const kept& each) {
      return loops::all_of(each.replies, [](const auto& its) { return its->sending.done(); });
    });
  }
  task finish() {
    for (auto& each : all_) {
      for (std::size_t i = 0; i < each.replies.size(); ++i) {
        const task& sending = each.replies[i]->sending;
        co_await sending;
      }
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
        add_reply(number);
      }
    }
  }

  /// Returns how often other ranks have averaged with a chunk that is kept here.
  std::uint64_t times_drawn(std::uint32_t number) const { return all_[number].drawn; }
  /// Returns the kept parameters of a chunk; nothing for a phantom.
  std::span<float> kept_of(std::uint32_t number) { return span_of(all_[number].parameters); }

 private:
  struct reply {
    floats copy{};  ///< of the parameters, from which it is sent
    task sending{};
  };
  struct kept {
    bool is_kept{};
    floats parameters{};
    std::vector<std::unique_ptr<reply>> replies{};
    std::uint64_t drawn{};
  };

  reply& add_reply(std::uint32_t number) {
    auto fresh = std::make_unique<reply>();
    fresh->copy = world_->template allocate<float>(world_->planned().chunks[number].elements);
    return *all_[number].replies.emplace_back(std::move(fresh));
  }
  /// Returns a reply that has been read, or a new one.
  reply& free_reply(std::uint32_t number) {
    for (const auto& each : all_[number].replies) {
      if (each->sending.done()) {
        each->sending.result();
        each->sending = task();  // the next coroutine reuses the frame's memory
        return *each;
      }
    }
    return add_reply(number);
  }

  task answer(endpoint self, message theirs, std::span<float> copy) {
    const std::uint32_t number = theirs.number();
    const int peer = theirs.peer();
    kept& mine = all_[number];
    {
      const message given = std::move(theirs);  // its destruction lets the sender go on
      const std::span<const float> brought(reinterpret_cast<const float*>(given.bytes().data()),
                                           given.bytes().size() / sizeof(float));
      world_->copy(copy, span_of(mine.parameters));
      world_->blend(span_of(mine.parameters), brought, 1.0f - share_, share_);
      ++mine.drawn;
    }
    const chunk& piece = world_->planned().chunks[number];
    co_await self.send(peer, bytes_of_floats(*world_, piece, copy));
  }

  World* world_;
  float share_;
  std::vector<kept> all_;
};

}  // namespace tutti::architecture

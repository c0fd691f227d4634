#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tutti/base/gate.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// Rank 0's decisions on their way to the others. Each follower has its own stream, so a slow one
/// holds up nobody, and whatever was decided meanwhile travels in one message.
template <class Transport>
class leader {
 public:
  /// Where exchanges end on the host, at most one decision a chunk is ahead of the slowest
  /// follower: it cannot be taken again before all have carried it out. Where they end on a stream,
  /// `has_room` says whether another decision may be taken.
  leader(Transport& world, tag where, std::size_t chunks)
      : world_(&world),
        where_(where),
        log_(std::bit_ceil(chunks + 1)),
        on_their_way_(static_cast<std::size_t>(world.size() - 1)),
        arrived_(on_their_way_.size()) {
    for (int peer = 1; peer < world.size(); ++peer) {
      gates_.push_back(std::make_unique<gate>(world.ready_coroutines()));
      streams_.push_back(stream_to(peer));
    }
    for (auto& each : streams_) {
      each.start(world.ready_coroutines());
    }
  }

  void decide(std::uint32_t chunk) {
    log_[end_++ & (log_.size() - 1)] = chunk;
    wake();
  }

  bool has_room() const {
    return arrived_.empty() || end_ - *std::ranges::min_element(arrived_) < log_.size();
  }

  /// How many decisions have left for every follower: those reach it whatever this rank does next.
  std::size_t told() const {
    return on_their_way_.empty() ? end_ : *std::ranges::min_element(on_their_way_);
  }

  /// No more decisions: the streams end when all have been read.
  void close() {
    closing_ = true;
    wake();
  }
  bool at_rest() const {
    return std::ranges::all_of(streams_, [](const task& each) { return each.done(); });
  }

  /// Ends when every decision has been read.
  task finish() {
    close();
    for (auto& each : streams_) {
      co_await each;
    }
  }

 private:
  void wake() {
    for (auto& each : gates_) {
      each->open();
    }
  }

  task stream_to(int peer) {
    std::size_t sent = 0;
    auto& news = *gates_[static_cast<std::size_t>(peer - 1)];
    while (sent != end_ || !closing_) {  // a failed transport throws out of the send
      if (sent == end_) {
        co_await news;
        continue;
      }
      const std::size_t place = sent & (log_.size() - 1);
      const std::size_t count = std::min(end_ - sent, log_.size() - place);
      const auto batch = std::as_bytes(std::span(log_).subspan(place, count));
      on_their_way_[static_cast<std::size_t>(peer - 1)] = sent + count;
      co_await world_->send(peer, where_, batch);
      sent += count;
      arrived_[static_cast<std::size_t>(peer - 1)] = sent;
    }
  }

  Transport* world_;
  tag where_;
  std::vector<std::uint32_t> log_;
  std::vector<std::size_t> on_their_way_;
  std::vector<std::size_t> arrived_;
  std::size_t end_ = 0;
  bool closing_ = false;
  std::vector<std::unique_ptr<gate>> gates_;
  std::vector<task> streams_;
};

}  // namespace tutti

#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tutti/base/gate.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// Words from this rank to others, each of whom has a stream of its own: a slow one holds up
/// nobody, and whatever was said meanwhile travels in one message. Always whole, as it was said.
/// `Owner::heard_by(peer)` is told when one has read all there was.
template <class Transport, class Owner>
class announcer {
 public:
  /// To the ranks from `first` up to `last`; `room` words may be said before those who listen have
  /// read them, or as many as one says at a time when all has been read.
  [[gnu::cold]] announcer(Transport& world, tag where, int first, int last, std::size_t room,
                          Owner& owner)
      : world_(&world),
        where_(where),
        first_(first),
        owner_(&owner),
        log_(2 * std::bit_ceil(room)),
        on_their_way_(static_cast<std::size_t>(last - first)),
        read_(on_their_way_.size()) {
    for (int peer = first; peer < last; ++peer) {
      gates_.push_back(std::make_unique<gate>(world.ready_coroutines()));
      streams_.push_back(stream_to(peer));
    }
    for (auto& each : streams_) {
      each.start(world.ready_coroutines());
    }
  }

  void say(std::span<const std::uint32_t> words) {
    if (words.size() > places()) {  // nothing is on its way: only who speaks seldom says so much
      log_.assign(2 * std::bit_ceil(words.size()), 0);
    }
    for (const std::uint32_t word : words) {
      const std::size_t place = end_++ & (places() - 1);
      log_[place] = word;
      log_[place + places()] = word;  // so that any batch lies in one piece
    }
    for (auto& each : gates_) {
      each->open();
    }
  }

  /// How many words have left for everybody: those arrive whatever this rank does next.
  std::size_t told() const { return *std::min_element(on_their_way_.begin(), on_their_way_.end()); }
  bool is_read() const { return *std::min_element(read_.begin(), read_.end()) == end_; }

  /// No more words: the streams end when all have been read.
  void close() {
    closing_ = true;
    for (auto& each : gates_) {
      each->open();
    }
  }
  bool at_rest() const {
    return loops::all_of(streams_, [](const task& each) { return each.done(); });
  }
  /// Ends when every word has been read.
  task finish() {
    close();
    for (auto& each : streams_) {
      co_await each;
    }
  }

 private:
  std::size_t places() const { return log_.size() / 2; }

  task stream_to(int peer) {
    const auto which = static_cast<std::size_t>(peer - first_);
    auto& news = *gates_[which];
    while (read_[which] != end_ || !closing_) {  // a failed transport throws out of the send
      if (read_[which] == end_) {
        co_await news;
        continue;
      }
      const std::size_t until = end_;
      const auto batch = std::as_bytes(
          std::span(log_).subspan(read_[which] & (places() - 1), until - read_[which]));
      on_their_way_[which] = until;
      co_await world_->send(peer, where_, batch);
      read_[which] = until;
      if (until == end_) {
        owner_->heard_by(peer);
      }
    }
  }

  Transport* world_;
  tag where_;
  int first_;
  Owner* owner_;
  std::vector<std::uint32_t> log_;
  std::vector<std::size_t> on_their_way_;  ///< words ever sent to each
  std::vector<std::size_t> read_;          ///< words ever read by each
  std::size_t end_ = 0;                    ///< words ever said
  bool closing_ = false;
  std::vector<std::unique_ptr<gate>> gates_;
  std::vector<task> streams_;
};

}  // namespace tutti

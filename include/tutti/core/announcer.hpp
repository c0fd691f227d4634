#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "tutti/base/gate.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// Words from this rank to others, each of whom has a stream of its own: a slow one holds up
/// nobody, and whatever was said meanwhile travels in one message. Always whole, as it was said.
/// `heard(context)` is told when one has read all there was.
template <class Transport>
class announcer {
 public:
  /// To the ranks from `first` up to `last`; `room` words may be said before those who listen have
  /// read them, or as many as one says at a time when all has been read.
  [[gnu::cold]] announcer(Transport& world, tag where, int first, int last, std::size_t room,
                          void (*heard)(void*), void* context)
      : world_(&world),
        where_(where),
        heard_(heard),
        context_(context),
        log_(2 * std::bit_ceil(room)) {
    for (int peer = first; peer < last; ++peer) {
      listener& its = listeners_.emplace_back(world.ready_coroutines());
      its.stream = stream_to(peer, its);
    }
    for (listener& each : listeners_) {
      each.stream.start(world.ready_coroutines());
    }
  }
  announcer(const announcer&) = delete;
  announcer& operator=(const announcer&) = delete;
  [[gnu::cold]] ~announcer() = default;

  void say(std::span<const std::uint32_t> words) {
    if (words.size() > places()) {  // nothing is on its way: only who speaks seldom says so much
      log_ = std::vector<std::uint32_t>(2 * std::bit_ceil(words.size()));
    }
    for (const std::uint32_t word : words) {
      const std::size_t place = end_++ & (places() - 1);
      log_[place] = word;
      log_[place + places()] = word;  // so that any batch lies in one piece
    }
    for (listener& each : listeners_) {
      each.news.open();
    }
  }

  /// How many words have left for everybody: those arrive whatever this rank does next.
  std::size_t told() const {
    std::size_t least = end_;
    for (const listener& each : listeners_) {
      least = std::min(least, each.told);
    }
    return least;
  }
  bool is_read() const {
    return loops::all_of(listeners_, [this](const listener& each) { return each.read == end_; });
  }

  /// No more words: the streams end when all have been read.
  void close() {
    closing_ = true;
    for (listener& each : listeners_) {
      each.news.open();
    }
  }
  bool at_rest() const {
    return loops::all_of(listeners_, [](const listener& each) { return each.stream.done(); });
  }
  /// Ends when every word has been read.
  [[gnu::cold]] task finish() {
    close();
    for (listener& each : listeners_) {
      const task& stream = each.stream;
      co_await stream;
    }
  }

 private:
  /// A rank that is told.
  struct listener {
    explicit listener(run_queue& queue) : news(queue) {}
    gate news;
    std::size_t told = 0;  ///< words ever sent to it
    std::size_t read = 0;  ///< words it has ever read
    task stream{};
  };

  std::size_t places() const { return log_.size() / 2; }

  task stream_to(int peer, listener& its) {
    while (its.read != end_ || !closing_) {  // a failed transport throws out of the send
      if (its.read == end_) {
        gate& news = its.news;
        co_await news;
        continue;
      }
      const std::size_t until = end_;
      const auto batch =
          std::as_bytes(std::span(log_).subspan(its.read & (places() - 1), until - its.read));
      its.told = until;
      co_await world_->send(peer, where_, batch);
      its.read = until;
      if (until == end_) {
        heard_(context_);
      }
    }
  }

  Transport* world_;
  tag where_;
  void (*heard_)(void*);
  void* context_;
  std::vector<std::uint32_t> log_;
  std::size_t end_ = 0;  ///< words ever said
  bool closing_ = false;
  std::list<listener> listeners_{};  // which stay where they are
};

}  // namespace tutti

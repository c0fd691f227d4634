#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include "tutti/base/gate.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// Sends words from this rank to several others. Each receiver has a stream of its own, so that a
/// slow one delays no other, and everything that was said while its last message was under way
/// travels in the next one. What one call of `say` says is never split over two messages. Words to
/// a receiver that has read everything are sent before `say` returns, so that they do not queue in
/// a NIC behind the data of the launches that they decide.
/// `heard(context)` is called whenever a receiver has read everything said so far.
template <class Transport>
class announcer {
 public:
  /// Sends to the ranks in [first, last). Memory is allocated at once for `room` words that a
  /// receiver has not read, and for more of them when they are said.
  [[gnu::cold]] announcer(Transport& world, tag where, int first, int last, std::size_t room,
                          void (*heard)(void*), void* context)
      : world_(&world),
        where_(where),
        heard_(heard),
        context_(context),
        log_(2 * std::bit_ceil(room)),
        room_until_(places()) {
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
    if (end_ + words.size() > room_until_) {
      make_room(words.size());
    }
    for (const std::uint32_t word : words) {
      const std::size_t place = end_++ & (places() - 1);
      log_[place] = word;
      // A second copy, so that any batch is contiguous although the log is circular.
      log_[place + places()] = word;
    }
    for (listener& each : listeners_) {
      each.news.open_at_once();
    }
  }

  /// Returns how many words have been handed to the transport for every receiver. Those arrive even
  /// if this rank blocks from now on.
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

  /// Says that no more words follow. Each stream ends once its receiver has read everything.
  void close() {
    closing_ = true;
    for (listener& each : listeners_) {
      each.news.open();
    }
  }
  bool at_rest() const {
    return loops::all_of(listeners_, [](const listener& each) { return each.stream.done(); });
  }
  /// Closes, and ends when every receiver has read everything.
  [[gnu::cold]] task finish() {
    close();
    for (listener& each : listeners_) {
      const task& stream = each.stream;
      co_await stream;
    }
  }

 private:
  /// One receiver of the words.
  struct listener {
    explicit listener(run_queue& queue) : news(queue) {}
    gate news;
    std::size_t told = 0;  ///< words sent to it so far
    std::size_t read = 0;  ///< words it has read so far
    task stream{};
  };

  std::size_t places() const { return log_.size() / 2; }

  /// Returns how many words every receiver has read.
  std::size_t read_by_all() const {
    std::size_t least = end_;
    for (const listener& each : listeners_) {
      least = std::min(least, each.read);
    }
    return least;
  }

  /// Makes room for so many words more, in place of those that every receiver has read or, where
  /// these are too few, in a larger log.
  void make_room(std::size_t words) {
    const std::size_t read = read_by_all();
    if (end_ - read + words > places()) {
      grow(read, end_ - read + words);
    }
    room_until_ = read + places();
  }
  /// Makes a larger log, with room for so many words after the first `read`. The log before is kept
  /// until all receivers have read everything, because messages under way lie in it.
  [[gnu::cold]] void grow(std::size_t read, std::size_t words) {
    if (is_read()) {
      earlier_.clear();
    }
    std::vector<std::uint32_t> larger(2 * std::bit_ceil(words));
    const std::size_t room = larger.size() / 2;
    for (std::size_t word = read; word != end_; ++word) {
      const std::size_t place = word & (room - 1);
      larger[place] = larger[place + room] = log_[word & (places() - 1)];
    }
    earlier_.push_back(std::exchange(log_, std::move(larger)));
  }

  task stream_to(int peer, listener& its) {
    while (its.read != end_ || !closing_) {  // after a failure the send throws, which ends the loop
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
  std::vector<std::vector<std::uint32_t>> earlier_{};  ///< of which messages may be under way
  std::size_t room_until_;  ///< how many words can be said before `make_room` is called
  std::size_t end_ = 0;     ///< words said so far
  bool closing_ = false;
  std::list<listener> listeners_{};  // a list, because the streams keep references to its elements
};

}  // namespace tutti

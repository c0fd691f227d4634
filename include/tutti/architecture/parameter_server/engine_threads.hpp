#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti::architecture {

/// What a server's thread does next, of the work that waits for it.
enum class engine_order {
  received,     ///< what came first (BytePS's default)
  most_pushed,  ///< of the chunk that most pushes have come of, which lacks least to be answered:
                ///< what BytePS says of BYTEPS_SERVER_ENABLE_SCHEDULE
  byteps,       ///< what BytePS's queue takes under that switch (see `engine_threads`)
};
constexpr std::array<std::string_view, 3> names(engine_order) {
  return {"received", "most_pushed", "byteps"};
}

/// The threads of a server and what waits for each, without a clock: BytePS's engine. A chunk is
/// always the same thread's, by when it first comes of the one with the fewest bytes assigned so
/// far. Work is known by its number, counted from 0 in the order in which it comes.
///
/// `most_pushed` counts the work of a chunk that came since it was last answered, and takes of the
/// chunk with the most; of equals what came first. `byteps` is the queue that BytePS has: its count
/// begins again when a chunk is complete, and it is a binary heap under a comparison that has it
/// take of the chunk with the *fewest*, and that moves nothing when a count changes, so that what
/// comes out also depends on what the heap looked like.
/// After: byteps/server/{server.h,queue.h} at commit f5df52f.
class engine_threads {
 public:
  struct work {
    std::uint64_t number{};
    std::uint32_t chunk{};
    std::size_t bytes{};  ///< that it moves
  };

 private:
  static constexpr auto unassigned = ~std::size_t{0};

  /// Whether the first is to be done after the second, as BytePS compares.
  auto later() const {
    return [this](const work& a, const work& b) {
      return pushed_[a.chunk] == pushed_[b.chunk] ? a.number > b.number
                                                  : pushed_[a.chunk] > pushed_[b.chunk];
    };
  }

 public:
  engine_threads(std::size_t threads, std::size_t chunks, engine_order by)
      : by_(by), load_(threads), thread_(chunks, unassigned), pushed_(chunks), waiting_(threads) {}

  std::size_t size() const { return waiting_.size(); }

  /// The chunk's thread; assigned with so many bytes if it has none.
  std::size_t thread_of(std::uint32_t chunk, std::size_t bytes) {
    if (thread_[chunk] == unassigned) {
      const auto least = std::min_element(load_.begin(), load_.end());
      *least += bytes;
      thread_[chunk] = static_cast<std::size_t>(least - load_.begin());
    }
    return thread_[chunk];
  }

  void push(std::size_t thread, std::uint32_t chunk, std::size_t bytes) {
    auto& mine = waiting_[thread];
    mine.push_back({next_++, chunk, bytes});
    ++pushed_[chunk];
    if (by_ == engine_order::byteps) {
      std::push_heap(mine.begin(), mine.end(), later());
    }
  }
  /// All that comes of the chunk before it is answered has come.
  void complete(std::uint32_t chunk) {
    if (by_ == engine_order::byteps) {
      pushed_[chunk] = 0;
    }
  }
  void answered(std::uint32_t chunk) {
    if (by_ != engine_order::byteps) {
      pushed_[chunk] = 0;
    }
  }

  bool is_idle(std::size_t thread) const { return waiting_[thread].empty(); }
  /// Takes what thread `thread` does next; only where something waits.
  work pop(std::size_t thread) {
    auto& mine = waiting_[thread];
    auto next = mine.begin();
    if (by_ == engine_order::byteps) {
      std::pop_heap(mine.begin(), mine.end(), later());
      next = mine.end() - 1;
    } else if (by_ == engine_order::most_pushed) {
      next = std::max_element(mine.begin(), mine.end(), [this](const work& a, const work& b) {
        return pushed_[a.chunk] < pushed_[b.chunk];  // of equals the first
      });
    }
    const work taken = *next;
    mine.erase(next);
    return taken;
  }

 private:
  engine_order by_;
  std::uint64_t next_ = 0;
  std::vector<std::uint64_t> load_;    ///< bytes assigned to each thread
  std::vector<std::size_t> thread_;    ///< of each chunk
  std::vector<std::uint64_t> pushed_;  ///< of each chunk, as its order counts
  std::vector<std::vector<work>> waiting_;
};

}  // namespace tutti::architecture

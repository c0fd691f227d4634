#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti::architecture {

/// Which of the work that waits for it a server's thread does next.
enum class engine_order {
  received,  ///< what came first (BytePS's default)
  /// Work on the chunk with most pushes, which lacks the fewest until it is answered, as BytePS
  /// describes BYTEPS_SERVER_ENABLE_SCHEDULE.
  most_pushed,
  /// What BytePS's queue in fact yields with BYTEPS_SERVER_ENABLE_SCHEDULE (see `engine_threads`).
  byteps,
};
constexpr std::array<std::string_view, 3> names(engine_order) {
  return {"received", "most_pushed", "byteps"};
}

/// The threads of a BytePS server and the work that waits for each, without a clock. A chunk that
/// comes for the first time is assigned to the thread with the fewest bytes so far, and stays with
/// it. Work is numbered from 0 in the order in which it comes.
///
/// With `most_pushed`, a thread counts each chunk's work since its last answer, and does that of
/// the chunk with the highest count; among equals, what came first. `byteps` is the queue that
/// BytePS has. There a chunk's count begins again when the chunk is complete. The queue is a binary
/// heap whose comparison yields the chunk with the *lowest* count. The heap is not rearranged when
/// a count changes, so that what it yields also depends on its layout at that time.
/// After: byteps/server/{server.h,queue.h} at commit f5df52f.
class engine_threads {
 public:
  struct work {
    std::uint64_t number{};
    std::uint32_t chunk{};
    std::size_t bytes{};  ///< that the work moves
  };

 private:
  static constexpr auto unassigned = ~std::size_t{0};

  /// Returns BytePS's comparison: whether its first argument is to be done after its second.
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

  /// Returns the chunk's thread. If it has none yet, assigns one, which then has so many bytes
  /// more.
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
  /// Records that all work on the chunk before its answer has come.
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
  /// Removes and returns what a thread does next. Some work must wait for it.
  work pop(std::size_t thread) {
    auto& mine = waiting_[thread];
    auto next = mine.begin();
    if (by_ == engine_order::byteps) {
      std::pop_heap(mine.begin(), mine.end(), later());
      next = mine.end() - 1;
    } else if (by_ == engine_order::most_pushed) {
      next = std::max_element(mine.begin(), mine.end(), [this](const work& a, const work& b) {
        return pushed_[a.chunk] < pushed_[b.chunk];  // among equals, the first
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
  std::vector<std::uint64_t> pushed_;  ///< work of each chunk, as `by_` counts it
  std::vector<std::vector<work>> waiting_;
};

}  // namespace tutti::architecture

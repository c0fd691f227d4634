#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/host_stream.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/stream_ordered.hpp"

/// A stream-ordered library that needs no device and is stricter than real ones: a group's send
/// blocks its stream until the peer's stream has reached the matching receive. It buffers nothing,
/// and messages have no tags.
namespace tutti::test {

/// The state that the ranks of one job share.
class unbuffered_job {
 public:
  explicit unbuffered_job(int ranks) : ranks_(static_cast<std::size_t>(ranks)), ends_(ranks_) {
    for (auto& each : ends_) {
      each.sends.resize(ranks_);
      each.receives.resize(ranks_);
    }
  }

  struct message {
    const std::byte* out{};  // exactly one of `out` and `in` is set
    std::byte* in{};
    std::size_t bytes{};
    std::size_t peer{};
    bool done{};
  };

  /// Moves one group of `rank` on its stream. Returns when all of the group has moved, or when the
  /// rank gave up.
  void move(std::size_t rank, std::vector<message>& group) {
    std::unique_lock lock(mutex_);
    for (message& each : group) {
      auto& lane = each.out != nullptr ? ends_[rank].sends : ends_[rank].receives;
      lane[each.peer].push_back(&each);
      if (each.out != nullptr) {
        match(rank, each.peer);
      } else {
        match(each.peer, rank);
      }
    }
    changed_.notify_all();
    changed_.wait(lock, [&] {
      return ends_[rank].given_up ||
             std::ranges::all_of(group, [](const message& each) { return each.done; });
    });
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
      forget(ends_[rank].sends[peer], group);
      forget(ends_[rank].receives[peer], group);
    }
  }

  /// Adds the ranks' data in rank order. Every rank's n-th call belongs to the n-th call of all
  /// others, and the last rank to call adds.
  void add(std::size_t rank, std::span<float> data) {
    std::unique_lock lock(mutex_);
    const std::size_t number = ends_[rank].sums++;
    if (sums_.size() <= number) {
      sums_.resize(number + 1);
    }
    sums_[number].resize(ranks_);
    sums_[number][rank] = data;
    if (std::ranges::all_of(sums_[number],
                            [](const auto& each) { return each.data() != nullptr; })) {
      add_up(sums_[number]);
      added_ = std::max(added_, number + 1);
    }
    changed_.notify_all();
    changed_.wait(lock, [&] { return ends_[rank].given_up || added_ > number; });
    if (added_ <= number) {
      sums_[number][rank] = {};  // the caller may free it now
    }
  }

  void give_up(std::size_t rank) {
    const std::scoped_lock lock(mutex_);
    ends_[rank].given_up = true;
    changed_.notify_all();
  }

  std::string failure() {
    const std::scoped_lock lock(mutex_);
    return mismatch_;
  }

 private:
  using lanes = std::vector<std::deque<message*>>;
  struct end {
    lanes sends{};
    lanes receives{};
    std::size_t sums = 0;
    bool given_up = false;
  };

  void match(std::size_t from, std::size_t to) {
    auto& sends = ends_[from].sends[to];
    auto& receives = ends_[to].receives[from];
    while (!sends.empty() && !receives.empty()) {
      message& out = *sends.front();
      message& in = *receives.front();
      if (out.bytes != in.bytes) {
        mismatch_ = "rank " + std::to_string(from) + " sends " + std::to_string(out.bytes) +
                    " bytes where rank " + std::to_string(to) + " expects " +
                    std::to_string(in.bytes);
        return;
      }
      std::memcpy(in.in, out.out, in.bytes);
      out.done = in.done = true;
      sends.pop_front();
      receives.pop_front();
    }
  }

  static void forget(std::deque<message*>& lane, const std::vector<message>& group) {
    std::erase_if(lane, [&](const message* each) {
      return each >= group.data() && each < group.data() + group.size();
    });
  }

  static void add_up(const std::vector<std::span<float>>& all) {
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      std::ranges::transform(all[0], all[rank], all[0].begin(), std::plus<>());
    }
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      std::ranges::copy(all[0], all[rank].begin());
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t ranks_;
  std::vector<end> ends_;
  std::vector<std::vector<std::span<float>>> sums_;
  std::size_t added_ = 0;
  std::string mismatch_;
};

/// Whether the library honours groups. Without groups, ranks hang, which tests must see.
enum class groups { honoured, ignored };

/// One rank's end of the library.
template <class Queue>
class unbuffered_library_on {
 public:
  using queue_type = Queue;

  unbuffered_library_on(transport::in_process& carrier, unbuffered_job& shared,
                        groups wanted = groups::honoured)
      : shared_(&shared), rank_(static_cast<std::size_t>(carrier.rank())), wanted_(wanted) {}
  unbuffered_library_on(const unbuffered_library_on&) = delete;
  unbuffered_library_on& operator=(const unbuffered_library_on&) = delete;
  ~unbuffered_library_on() { abort(); }

  Queue& queue() { return stream_; }
  void begin_group() {}
  void end_group() { enqueue(); }
  void send(std::span<const std::byte> bytes, int peer) {
    add({bytes.data(), nullptr, bytes.size(), static_cast<std::size_t>(peer), false});
  }
  void receive(std::span<std::byte> bytes, int peer) {
    add({nullptr, bytes.data(), bytes.size(), static_cast<std::size_t>(peer), false});
  }
  void all_reduce(std::span<float> data) {
    stream_.run([shared = shared_, rank = rank_, data] { shared->add(rank, data); });
  }
  std::string failure() { return shared_->failure(); }
  void abort() { shared_->give_up(rank_); }

 private:
  void add(unbuffered_job::message fresh) {
    group_.push_back(fresh);
    if (wanted_ == groups::ignored) {
      enqueue();
    }
  }
  void enqueue() {
    if (!group_.empty()) {
      stream_.run([shared = shared_, rank = rank_, group = std::exchange(group_, {})]() mutable {
        shared->move(rank, group);
      });
    }
  }

  unbuffered_job* shared_;
  std::size_t rank_;
  groups wanted_;
  std::vector<unbuffered_job::message> group_;
  Queue stream_;
};
using unbuffered_library = unbuffered_library_on<host_stream>;
static_assert(transport::stream_library<unbuffered_library>);

using streamed = transport::stream_ordered<unbuffered_library, transport::in_process>;
static_assert(transport_policy<streamed> && is_stream_ordered<streamed> &&
              has_all_reduce<streamed> && !has_addressable_peers<streamed>);

/// Runs `body(world)` on threads that are connected by such a library.
template <class Body>
void run_streamed(int ranks, Body body, groups wanted = groups::honoured,
                  const std::vector<int>& hosts = {}) {
  unbuffered_job shared(ranks);
  const auto rank = [&](transport::in_process& carrier) {
    streamed world(carrier, shared, wanted);
    body(world);
  };
  transport::run_ranks(ranks, rank, hosts);
}

/// Runs ranks for `errors` over the unbuffered library.
struct streams {
  template <class Body>
  static void run(int ranks, Body body) {
    run_streamed(ranks, body);
  }
};

}  // namespace tutti::test

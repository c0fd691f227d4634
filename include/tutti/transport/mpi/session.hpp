#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/transport/hosts.hpp"
#include "tutti/transport/mpi/host_memory.hpp"
#include "tutti/transport/mpi/library.hpp"

namespace tutti::transport::detail {

/// Starts MPI if it is not running; then the last of this process's sessions ends it, unless its
/// job is lost. Throws usage_error if MPI has ended.
class mpi_session {
 public:
  mpi_session() {
    const std::scoped_lock lock(mutex_);
    int running = 0;
    check(MPI_Initialized(&running));
    if (has_ended()) {
      throw usage_error(
          "MPI was finalized in this process and cannot start again: the last transport::mpi "
          "finalizes what the first has started. Fix: call MPI_Init_thread and MPI_Finalize "
          "yourself around all of them, or keep one transport");
    }
    if (running == 0) {
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level_));
      ours_ = is_to_end_ = true;
    } else {
      check(MPI_Query_thread(&level_));
    }
    ++sessions_;
  }
  mpi_session(const mpi_session&) = delete;
  mpi_session& operator=(const mpi_session&) = delete;
  ~mpi_session() {
    const std::scoped_lock lock(mutex_);
    if (--sessions_ == 0 && is_to_end_ && !abandoned_) {
      MPI_Finalize();  // a destructor has no one to tell of an error
    }
  }

  int level() const { return level_; }
  /// Whether this session has started MPI.
  bool ours() const { return ours_; }
  /// How many processes the launcher has started, as far as this MPI knows.
  static int processes() {
    int all = 0;
    check(MPI_Comm_size(MPI_COMM_WORLD, &all));
    return all;
  }
  /// Returns whether MPI has been finalized in this process.
  static bool has_ended() {
    int ended = 0;
    check(MPI_Finalized(&ended));
    return ended != 0;
  }
  /// Leaves MPI running at the end, whichever session is the last, because the job is lost and
  /// ending MPI would wait for dead ranks.
  static void abandon() {
    const std::scoped_lock lock(mutex_);
    abandoned_ = true;
  }

 private:
  inline static std::mutex mutex_;
  inline static int sessions_ = 0;
  inline static bool is_to_end_ = false;
  inline static bool abandoned_ = false;
  int level_ = MPI_THREAD_SINGLE;
  bool ours_ = false;
};

/// A duplicate of the user's communicator, whose errors come back as codes.
class mpi_communicator {
 public:
  explicit mpi_communicator(MPI_Comm like) {
    check(MPI_Comm_dup(like, &handle_));
    check(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN));
  }
  mpi_communicator(const mpi_communicator&) = delete;
  mpi_communicator& operator=(const mpi_communicator&) = delete;
  ~mpi_communicator() {
    if (handle_ != MPI_COMM_NULL) {
      MPI_Comm_free(&handle_);
    }
  }

  MPI_Comm get() const { return handle_; }
  void abandon() { handle_ = MPI_COMM_NULL; }

 private:
  MPI_Comm handle_ = MPI_COMM_NULL;
};

/// The processes of a user's communicator as ranks. It has a communicator for each channel and one
/// for news of failures, and knows which ranks share a host, and what they share there.
class mpi_world {
 public:
  /// Collective. If `hosts` is empty, MPI is asked for them. Throws usage_error, on every rank,
  /// unless it holds one host a rank and is the same on every rank.
  mpi_world(MPI_Comm users, std::vector<int> hosts)
      : channels_{mpi_communicator(users), mpi_communicator(users), mpi_communicator(users),
                  mpi_communicator(users), mpi_communicator(users)},
        failures_(users),
        rank_(rank_in(users)),
        size_(size_of(users)),
        hosts_(agreed(users, std::move(hosts))),
        greatest_tag_(greatest_tag_of(channels_[0].get())),
        memory_(failures_.get(),
                std::count(hosts_.begin(), hosts_.end(), hosts_.front()) == size_) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  int host_of(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }
  const mpi_session& session() const { return session_; }
  std::uint64_t greatest_tag() const { return greatest_tag_; }
  MPI_Comm communicator(channel of) const { return channels_[static_cast<std::size_t>(of)].get(); }
  const std::array<mpi_communicator, channels>& communicators() const { return channels_; }
  MPI_Comm failures() const { return failures_.get(); }
  mpi_host_memory& memory() { return memory_; }
  const mpi_host_memory& memory() const { return memory_; }

  /// Frees nothing at the end and leaves MPI running, because the job is lost and would wait for
  /// dead ranks.
  void abandon() {
    mpi_session::abandon();
    let_go();
  }
  /// Frees nothing at the end.
  void let_go() {
    failures_.abandon();
    memory_.abandon();
    for (auto& each : channels_) {
      each.abandon();
    }
  }

 private:
  static int rank_in(MPI_Comm all) {
    int rank = 0;
    check(MPI_Comm_rank(all, &rank));
    return rank;
  }
  static int size_of(MPI_Comm all) {
    int size = 0;
    check(MPI_Comm_size(all, &size));
    return size;
  }
  /// Returns the host numbers in `given`, or those that MPI knows if it is empty. Compares with
  /// rank 0's list, since a rank with another one would wait for ranks that do not wait for it.
  static std::vector<int> agreed(MPI_Comm all, std::vector<int> given) {
    const int size = size_of(all);
    const auto count = static_cast<int>(given.size());
    // The number of hosts that are given, then the hosts.
    std::vector<int> mine(static_cast<std::size_t>(size) + 1);
    mine.front() = count;
    std::copy_n(given.begin(), std::min(count, size), mine.begin() + 1);
    std::vector<int> first = mine;
    check(MPI_Bcast(first.data(), size + 1, MPI_INT, 0, all));
    const auto differs = std::mismatch(mine.begin(), mine.end(), first.begin());
    const int dissenter = differs.first == mine.end() ? size : rank_in(all);
    int who = size;
    check(MPI_Allreduce(&dissenter, &who, 1, MPI_INT, MPI_MIN, all));
    if (who < size) {
      std::array<int, 2> said{};  // the first place that differs, and this rank's value there
      if (who == dissenter) {
        said = {static_cast<int>(differs.first - mine.begin()), *differs.first};
      }
      check(MPI_Bcast(said.data(), 2, MPI_INT, who, all));
      const int expected = first[static_cast<std::size_t>(said[0])];
      const auto list =
          said[0] == 0
              ? sentence({"rank ", who, " was given the hosts of ", said[1],
                          " ranks, but rank 0 those of ", expected})
              : sentence({"rank ", who, " was told that rank ", said[0] - 1, " is on host ",
                          said[1], ", but rank 0 was told host ", expected});
      throw usage_error(sentence({list, ". Fix: pass the same list on every rank"}));
    }
    return numbered_hosts(size, given.empty() ? hosts_of(all) : given);
  }
  /// Returns the first rank of its host for each rank. Ranks share a host if they can share memory.
  static std::vector<int> hosts_of(MPI_Comm all) {
    MPI_Comm here = MPI_COMM_NULL;
    check(MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here));
    const int rank = rank_in(all);
    int first = 0;
    check(MPI_Allreduce(&rank, &first, 1, MPI_INT, MPI_MIN, here));
    check(MPI_Comm_free(&here));
    std::vector<int> hosts(static_cast<std::size_t>(size_of(all)));
    check(MPI_Allgather(&first, 1, MPI_INT, hosts.data(), 1, MPI_INT, all));
    return hosts;
  }
  static std::uint64_t greatest_tag_of(MPI_Comm own) {
    int* limit = nullptr;
    int known = 0;
    check(MPI_Comm_get_attr(own, MPI_TAG_UB, &limit, &known));
    return known != 0 ? static_cast<std::uint64_t>(*limit) : 32767;
  }

  mpi_session session_;
  std::array<mpi_communicator, channels> channels_;
  mpi_communicator failures_;
  int rank_;
  int size_;
  std::vector<int> hosts_;
  std::uint64_t greatest_tag_;
  mpi_host_memory memory_;
};

}  // namespace tutti::transport::detail

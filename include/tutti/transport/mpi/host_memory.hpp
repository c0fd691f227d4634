#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <sys/statvfs.h>
#include <vector>

#include "tutti/base/line_vector.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/units.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/mpi/library.hpp"
#include "tutti/transport/rendezvous.hpp"

namespace tutti::transport {

namespace detail {

/// Memory from MPI that every process of `here` sees. Each has a part of its own.
class mpi_window {
 public:
  /// Collective; `bytes` may differ. Cost: MPI's, and rounding to a page. Throws mpi_error.
  mpi_window(MPI_Comm here, std::size_t bytes) {
    int ranks = 0;
    int rank = 0;
    check(MPI_Comm_size(here, &ranks));
    check(MPI_Comm_rank(here, &rank));
    const std::size_t room = round_up(bytes, page);
    if (!all_have_room(here, room)) {
      return;
    }
    std::byte* mine = nullptr;
    int granted = MPI_Win_allocate_shared(static_cast<MPI_Aint>(room), 1, MPI_INFO_NULL, here,
                                          &mine, &window_) == MPI_SUCCESS
                      ? 1
                      : 0;
    check(MPI_Allreduce(MPI_IN_PLACE, &granted, 1, MPI_INT, MPI_MIN, here));
    if (granted == 0) {
      return;
    }
    for (int peer = 0; peer < ranks; ++peer) {
      MPI_Aint size = 0;
      int unit = 0;
      std::byte* begin = nullptr;
      check(MPI_Win_shared_query(window_, peer, &size, &unit, &begin));
      parts_.emplace_back(begin, static_cast<std::size_t>(size));
    }
    rank_ = static_cast<std::size_t>(rank);
    std::memset(mine, 0, room);
    check(MPI_Barrier(here));
  }
  mpi_window(const mpi_window&) = delete;
  mpi_window& operator=(const mpi_window&) = delete;
  /// Leaves the memory to the process until its end: freeing it waits for every peer, and one may
  /// have failed, or do something else first.
  ~mpi_window() = default;

  /// Whether MPI had that much memory on every rank.
  bool granted() const { return !parts_.empty(); }
  std::span<std::byte> mine() const { return parts_[rank_]; }
  std::span<std::byte> of(int rank) const { return parts_[static_cast<std::size_t>(rank)]; }

 private:
  static constexpr std::size_t page = 4096;

  /// Whether /dev/shm, where MPI on Linux puts such memory by default, has room for all parts and
  /// what Open MPI wants to spare. This is asked beforehand because, where MPI refuses one rank,
  /// others wait for ever.
  static bool all_have_room(MPI_Comm here, std::size_t mine) {
    std::uint64_t all = mine;
    check(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_UINT64_T, MPI_SUM, here));
    struct statvfs shared_memory {};
    int enough =
        ::statvfs("/dev/shm", &shared_memory) == 0 &&
                shared_memory.f_bavail * shared_memory.f_frsize > all + (all >> 3) + (1 << 20)
            ? 1
            : 0;
    check(MPI_Allreduce(MPI_IN_PLACE, &enough, 1, MPI_INT, MPI_MIN, here));
    return enough != 0;
  }

  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<std::span<std::byte>> parts_{};
  std::size_t rank_ = 0;
};

/// What processes share that all live on one host: lines for rendezvous, and memory that is asked
/// for. Processes on several hosts share nothing.
class mpi_host_memory {
 public:
  /// Collective.
  mpi_host_memory(MPI_Comm all, bool one_host) {
    check(MPI_Comm_size(all, &ranks_));
    MPI_Comm here = MPI_COMM_NULL;
    check(MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here));
    int together = 0;
    check(MPI_Comm_size(here, &together));
    int all_say_so = one_host && together == ranks_ ? 1 : 0;
    check(MPI_Allreduce(MPI_IN_PLACE, &all_say_so, 1, MPI_INT, MPI_MIN, all));
    if (all_say_so == 0 || ranks_ == 1) {
      check(MPI_Comm_free(&here));
      return;
    }
    here_ = here;
    check(MPI_Comm_set_errhandler(here_, MPI_ERRORS_RETURN));
  }
  mpi_host_memory(const mpi_host_memory&) = delete;
  mpi_host_memory& operator=(const mpi_host_memory&) = delete;
  ~mpi_host_memory() {
    if (here_ != MPI_COMM_NULL) {
      MPI_Comm_free(&here_);
    }
  }
  void abandon() { here_ = MPI_COMM_NULL; }

  /// Collective. Returns zeros that live as long as this does. The memory is shared if the
  /// processes share some and there is enough; otherwise it is this process's own.
  std::span<std::byte> allocate(std::size_t bytes) {
    if (here_ != MPI_COMM_NULL && windows_.empty()) {
      make_lines();
    }
    if (lines_ != nullptr) {
      const auto& fresh = windows_.emplace_back(here_, bytes);
      if (fresh.granted()) {
        lends_ = true;
        return fresh.mine().first(bytes);
      }
    }
    return span_of(own_.emplace_back(bytes));
  }

  /// Whether ranks reach each other's memory. This and `may_rendezvous_at` are the same on every
  /// rank.
  bool lends() const { return lends_; }
  bool may_rendezvous_at(tag where) const {
    return lends_ && where.lane == 0 && where.chunk < places;
  }
  rendezvous rendezvous_at(tag where) const {
    return {lines_ + where.chunk * rendezvous::lines(ranks_), ranks_};
  }
  /// Where this rank's bytes lie; block 0 if they are not in shared memory.
  shared_place place_of(std::span<const std::byte> bytes) const {
    for (std::size_t i = 1; i < windows_.size(); ++i) {
      if (windows_[i].granted()) {
        const auto part = windows_[i].mine();
        const auto offset = reinterpret_cast<std::uintptr_t>(bytes.data()) -
                            reinterpret_cast<std::uintptr_t>(part.data());
        if (offset <= part.size() && bytes.size() <= part.size() - offset) {
          return {i, offset};
        }
      }
    }
    return {};
  }
  std::byte* at(int rank, shared_place where) const {
    return windows_[where.block].of(rank).data() + where.offset;
  }

 private:
  /// How many chunks have a rendezvous. Each takes half a kilobyte of memory for every four ranks.
  static constexpr std::size_t places = 4096;

  void make_lines() {
    int rank = 0;
    check(MPI_Comm_rank(here_, &rank));
    const std::size_t lines = rank == 0 ? places * rendezvous::lines(ranks_) : 0;
    const auto& first = windows_.emplace_back(here_, lines * sizeof(rendezvous_line));
    if (first.granted()) {
      lines_ = reinterpret_cast<rendezvous_line*>(first.of(0).data());
    }
  }

  MPI_Comm here_ = MPI_COMM_NULL;
  int ranks_ = 0;
  std::deque<mpi_window> windows_{};  // the first holds the lines for rendezvous
  std::deque<line_vector<std::byte>> own_{};
  rendezvous_line* lines_ = nullptr;
  bool lends_ = false;
};

}  // namespace detail

}  // namespace tutti::transport

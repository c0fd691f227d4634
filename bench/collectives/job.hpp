#pragma once

#include <cstddef>

#include "tutti/strategies/tf_reduction.hpp"

namespace bench {

enum class over_mpi {
  all_reduce,      ///< MPI_Allreduce
  ring,            ///< ours
  in_host_memory,  ///< ours, in memory that the processes share
  spec,            ///< one that an --all_reduce_spec names
};

/// The processes beside this one, where `mpirun` started us: rank 0 asks, the others nap between
/// its questions. Without MPI there are none.
class job {
 public:
  job();
  job(const job&) = delete;
  job& operator=(const job&) = delete;
  ~job();

  /// 1 where nobody is beside us.
  int size() const { return size_; }
  int rank() const { return rank_; }
  /// Whether they run on several hosts.
  bool between_hosts() const;
  /// Every rank but 0: does what rank 0 asks until it ends.
  void serve();
  /// Rank 0: seconds that so many all-reduces of `bytes` take the slowest process.
  double time(over_mpi what, std::size_t bytes, std::size_t calls,
              tutti::strategies::tf_reduction::range way = {});

 private:
  struct processes;
  int size_ = 1;
  int rank_ = 0;
  processes* processes_ = nullptr;
};

}  // namespace bench

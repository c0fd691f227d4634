#pragma once

#include <cstddef>

#include "tutti/strategies/tf_reduction.hpp"

namespace bench {

enum class over_mpi {
  all_reduce,      ///< MPI_Allreduce
  ring,            ///< tutti's
  in_host_memory,  ///< tutti's, in memory that the processes share
  spec,            ///< an algorithm that an --all_reduce_spec names
};

/// The processes of an `mpirun`. Rank 0 tells the others what to run; between two requests they
/// sleep. Without MPI this process is the only one.
class job {
 public:
  job();
  job(const job&) = delete;
  job& operator=(const job&) = delete;
  ~job();

  /// The number of processes; 1 if this is the only one.
  int size() const { return size_; }
  int rank() const { return rank_; }
  /// Whether the processes run on several hosts.
  bool between_hosts() const;
  /// Does what rank 0 requests, until it ends. Every rank but 0 calls it.
  void serve();
  /// Returns the seconds that the slowest process takes for so many all-reduces of `bytes`. Rank 0
  /// calls it.
  double time(over_mpi what, std::size_t bytes, std::size_t calls,
              tutti::strategies::tf_reduction::range way = {});

 private:
  struct processes;
  int size_ = 1;
  int rank_ = 0;
  processes* processes_ = nullptr;
};

}  // namespace bench

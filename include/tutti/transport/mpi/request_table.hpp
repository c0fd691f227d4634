#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "tutti/transport/mpi/library.hpp"

namespace tutti::transport::detail {

/// Requests under way, each with an `Entry` that says what it is for. Memory is never given back,
/// so that nothing is allocated after the first steps.
template <class Entry>
class request_table {
 public:
  request_table() {
    requests_.reserve(1024);
    entries_.reserve(1024);
    completed_.reserve(1024);
  }

  void add(MPI_Request request, const Entry& entry) {
    requests_.push_back(request);
    entries_.push_back(entry);
    if (indices_.size() < requests_.size()) {
      indices_.resize(requests_.capacity());
      statuses_.resize(requests_.capacity());
    }
  }

  /// Calls `complete(entry, status)` for each request that has completed, which is then forgotten;
  /// says whether there was one.
  template <class Complete>
  bool test(Complete complete) {
    int done = 0;
    const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &done,
                                  indices_.data(), statuses_.data());
    if (done == 0 || done == MPI_UNDEFINED) {
      return false;
    }
    completed_.clear();
    for (std::size_t i = 0; i < static_cast<std::size_t>(done); ++i) {
      if (code != MPI_ERR_IN_STATUS) {
        statuses_[i].MPI_ERROR = MPI_SUCCESS;
      }
      completed_.push_back({entries_[static_cast<std::size_t>(indices_[i])], statuses_[i]});
    }
    forget_completed();
    for (const auto& each : completed_) {
      complete(each.entry, each.status);
    }
    return true;
  }

  /// Calls `visit(entry, request)` for each.
  template <class Visit>
  void for_each(Visit visit) {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      visit(entries_[i], requests_[i]);
    }
  }

  /// What they were for, of requests that are never looked at again.
  std::vector<Entry> abandon() {
    requests_.clear();
    return std::exchange(entries_, {});
  }

 private:
  struct completion {
    Entry entry;
    MPI_Status status;
  };

  void forget_completed() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] != MPI_REQUEST_NULL) {
        requests_[kept] = requests_[i];
        entries_[kept++] = entries_[i];
      }
    }
    requests_.resize(kept);
    entries_.resize(kept);
  }

  // One of these for each request.
  std::vector<MPI_Request> requests_;
  std::vector<Entry> entries_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<completion> completed_;
};

}  // namespace tutti::transport::detail

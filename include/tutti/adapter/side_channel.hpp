#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/sentence.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/core/claim.hpp"
#include "tutti/role/transport.hpp"

namespace tutti::adapter::detail {

/// Small messages between a model's workers beside its gradients, on a transport of their own.
/// Every worker takes part in each operation, and the calling thread does all the work.
/// Errors: usage_error if an engine or another model uses the transport; communication_error on
/// every rank if one does not take part within `deadline` seconds. MPI keeps a long message until
/// its receiver polls: if that rank stays silent for as long again, the job ends.
template <class Transport>
class side_channel {
 public:
  side_channel(Transport& world, int workers, seconds deadline)
      : world_(&world),
        claim_(world.ready_coroutines(), world.rank()),
        workers_(workers),
        deadline_(deadline) {}
  side_channel(const side_channel&) = delete;
  side_channel& operator=(const side_channel&) = delete;
  ~side_channel() {
    if (std::uncaught_exceptions() > exceptions_at_birth_) {
      try {
        world_->abort(sentence({"rank ", world_->rank(), " left by an exception"}));
      } catch (...) {
      }  // without memory for the sentence, the others wait for a deadline
    }
  }

  /// Ends every rank's messages with the words of `why`, because this rank cannot go on.
  void fail(std::exception_ptr why) { world_->abort(verdict_of(world_->rank(), why)); }

  /// Copies the bytes of rank `root` to every rank.
  void broadcast(int root, std::span<std::byte> bytes) { run(broadcasting(root, bytes)); }
  /// Sets each byte to the largest of any rank's. Cost: two messages per rank, through rank 0.
  void largest(std::span<std::byte> bytes) { run(combining(bytes)); }

 private:
  static constexpr tag where{channel::host, 0, 0};

  task broadcasting(int root, std::span<std::byte> bytes) {
    if (world_->rank() != root) {
      awaited_ = root;
      co_await world_->receive(root, where, bytes);
      co_return;
    }
    for (int rank = 0; rank < workers_; ++rank) {
      if (rank != root) {
        awaited_ = rank;
        co_await world_->send(rank, where, bytes);
      }
    }
  }

  task combining(std::span<std::byte> bytes) {
    if (world_->rank() == 0) {
      std::vector<std::byte> theirs(bytes.size());
      for (awaited_ = 1; awaited_ < workers_; ++awaited_) {
        co_await world_->receive(awaited_, where, std::span(theirs));
        std::transform(bytes.begin(), bytes.end(), theirs.begin(), bytes.begin(),
                       [](std::byte a, std::byte b) { return std::max(a, b); });
      }
    } else {
      co_await world_->send(0, where, bytes);
    }
    co_await broadcasting(0, bytes);
  }

  void run(task asking) {
    asking.start(world_->ready_coroutines());
    seconds since = world_->now();
    seconds limit = deadline_;
    std::string told;
    for (std::size_t idle = 0; !asking.done();) {
      const bool resumed = world_->ready_coroutines().drain() != 0;
      if (world_->poll() || resumed) {
        idle = 0;
        since = world_->now();
      } else if (world_->now() - since > limit) {
        if (!told.empty()) {
          abandon(*world_, told);
        }
        told = sentence({"rank ", awaited_, " has not begun the pass that rank ", world_->rank(),
                         " is in, after ", std::to_string(deadline_),
                         " s. Fix: give every rank the same number of batches, train inside "
                         "the model's join(), or evaluate model.module if only one rank does"});
        world_->abort(told);
        since = world_->now();
        limit = std::max(settle_time, deadline_);
      } else {
        rest(*world_, ++idle);
      }
    }
    asking.result();
  }

  Transport* world_;
  claim claim_;
  int workers_;
  seconds deadline_;
  int awaited_ = 0;
  int exceptions_at_birth_ = std::uncaught_exceptions();
};

}  // namespace tutti::adapter::detail

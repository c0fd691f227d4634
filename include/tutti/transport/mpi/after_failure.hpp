#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <vector>

#include "tutti/transport/mpi/library.hpp"
#include "tutti/transport/mpi/session.hpp"

namespace tutti::transport::detail {

/// The one sentence that ends every rank's part. It travels on a communicator of its own.
class abort_notice {
 public:
  explicit abort_notice(const mpi_world& world) : world_(&world) { heard_.resize(most_bytes); }
  abort_notice(const abort_notice&) = delete;
  abort_notice& operator=(const abort_notice&) = delete;

  /// Empty while there is none. The first sentence stays.
  const std::string& sentence() const { return sentence_; }

  /// Posts a receive for another rank's sentence; when it completes, call `hear`.
  MPI_Request listen() {
    MPI_Request listening = MPI_REQUEST_NULL;
    check(MPI_Irecv(heard_.data(), most_bytes, MPI_CHAR, MPI_ANY_SOURCE, 0, world_->failures(),
                    &listening));
    return listening;
  }
  void hear(std::size_t bytes) {
    if (sentence_.empty()) {
      sentence_.assign(heard_.data(), bytes);
    }
  }

  void tell_all(const std::string& reason) {
    if (!sentence_.empty()) {
      return;
    }
    sentence_ = reason.substr(0, most_bytes);
    for (int peer = 0; peer < world_->size(); ++peer) {
      MPI_Request sent = MPI_REQUEST_NULL;
      if (peer != world_->rank() &&
          MPI_Isend(sentence_.data(), static_cast<int>(sentence_.size()), MPI_CHAR, peer, 0,
                    world_->failures(), &sent) == MPI_SUCCESS) {
        MPI_Request_free(&sent);  // so short that it has left already; sentence_ does not change
      }
    }
  }

 private:
  static constexpr std::size_t most_bytes = 1024;

  const mpi_world* world_;
  std::string sentence_;
  std::string heard_;
};

/// Messages that no one here wants any more. They are received so that their sends complete.
class dropped_messages {
 public:
  void receive(MPI_Message& message, std::size_t bytes) {
    auto& fresh = under_way_.emplace_back();
    fresh.bytes.resize(bytes);
    const mpi_bytes all(bytes);
    MPI_Imrecv(fresh.bytes.data(), all.count(), all.type(), &message, &fresh.request);
  }
  /// Receives whatever has come on any channel. Returns true if there was anything.
  bool receive_all(const mpi_world& world) {
    bool any = false;
    for (const auto& each : world.communicators()) {
      int found = 1;
      while (found != 0) {
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Status status;
        const int asked =
            MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, each.get(), &found, &message, &status);
        found = asked == MPI_SUCCESS ? found : 0;
        if (found != 0) {
          receive(message, bytes_of(status));
          any = true;
        }
      }
    }
    return any;
  }
  /// Whether all of them have come.
  bool done() {
    under_way_.remove_if([](one& each) {
      int done = 0;
      MPI_Test(&each.request, &done, MPI_STATUS_IGNORE);
      return done != 0;
    });
    return under_way_.empty();
  }

 private:
  struct one {
    std::vector<std::byte> bytes;
    MPI_Request request;
  };

  std::list<one> under_way_;
};

}  // namespace tutti::transport::detail

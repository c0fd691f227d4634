// Calls that MPI refuses while a job runs. This program intercepts the calls from tutti to MPI and
// makes one of them fail.
#include <cstddef>
#include <exception>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "support/mpi_world.hpp"
#include "support/transports.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/transport/mpi.hpp"

namespace {

enum class call { none, probe, look_at_all, look_at_the_notice, look_at_a_send };

/// The call of this process that is refused next.
call refused = call::none;

bool refuses(call which) { return refused == which && std::exchange(refused, call::none) == which; }

}  // namespace

extern "C" {

int MPI_Improbe(int from, int tag, MPI_Comm on, int* found, MPI_Message* message,
                MPI_Status* status) {
  return refuses(call::probe) ? MPI_ERR_OTHER : PMPI_Improbe(from, tag, on, found, message, status);
}

/// The first request is the one for notices of failures.
int MPI_Testsome(int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses) {
  if (refuses(call::look_at_all)) {
    return MPI_ERR_OTHER;
  }
  if (refuses(call::look_at_the_notice)) {
    PMPI_Cancel(&requests[0]);
    PMPI_Wait(&requests[0], &statuses[0]);
    *done = 1;
    indices[0] = 0;
    statuses[0].MPI_ERROR = MPI_ERR_OTHER;
    return MPI_ERR_IN_STATUS;
  }
  return PMPI_Testsome(count, requests, done, indices, statuses);
}

int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  if (refuses(call::look_at_a_send)) {
    PMPI_Wait(request, status);
    return MPI_ERR_OTHER;
  }
  return PMPI_Test(request, done, status);
}
}

namespace tutti::test {
namespace {

constexpr tag first_chunk{channel::data, 0, 0};

/// Both ranks wait for a message that is never sent, until rank 0's MPI refuses a call. Both end
/// with that error.
void both_hear_of(call which) {
  among(2, [which](MPI_Comm some) {
    tutti::transport::mpi world(some);
    std::vector<std::byte> word(8);
    std::string words;
    const auto part = [&](tutti::transport::mpi& on) -> task {
      auto never = on.receive_any(channel::control);
      if (on.rank() == 0) {
        refused = which;
        co_await on.send(1, first_chunk, word);
      } else {
        co_await on.receive(0, first_chunk, word);
      }
      co_await never;
    };
    const auto keep_words = [&words](task its) -> task {
      try {
        co_await its;
      } catch (const std::exception& failed) {
        words = failed.what();
      }
    };
    drive(world, keep_words(part(world)));
    EXPECT_EQ(words, "rank 0 failed: " + tutti::transport::mpi_error::text(MPI_ERR_OTHER));
    EXPECT_EQ(refused, call::none);
    EXPECT_EQ(world.in_flight(), 0U);
  });
}

TEST(RefusedCalls, AProbeEndsBothRanks) { both_hear_of(call::probe); }
TEST(RefusedCalls, ALookAtRequestsEndsBothRanks) { both_hear_of(call::look_at_all); }
TEST(RefusedCalls, ALookAtWhatHearsOfFailuresEndsBothRanks) {
  both_hear_of(call::look_at_the_notice);
}
TEST(RefusedCalls, ALookAtASendEndsBothRanks) { both_hear_of(call::look_at_a_send); }

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) { return tutti::test::run_tests_of_processes(argc, argv); }

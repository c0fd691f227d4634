#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <thread>

#include "collectives/add_floats.hpp"
#include "collectives/job.hpp"
#include "collectives/team.hpp"
#include "tutti/base/line_vector.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/transport/mpi.hpp"

namespace bench {

namespace {

using tutti::transport::check;

struct question {
  over_mpi what;
  std::size_t bytes;
  std::size_t calls;  // 0: the end
};

bool started_by_mpirun() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMI_SIZE") != nullptr;
}

/// Rank 0's, on every rank. The others have no core to spin on while rank 0 measures its threads.
void share(question& asked) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibcast(&asked, sizeof asked, MPI_BYTE, 0, MPI_COMM_WORLD, &request));
  int come = 0;
  for (check(MPI_Test(&request, &come, MPI_STATUS_IGNORE)); come == 0;
       check(MPI_Test(&request, &come, MPI_STATUS_IGNORE))) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

struct job::processes {
  std::optional<tutti::transport::mpi> world{};
  tutti::line_vector<float> values{};

  /// What every rank does with one question: seconds of the slowest, on rank 0.
  double answer(const question& asked) {
    if (values.size() != asked.bytes / sizeof(float)) {
      values.resize(asked.bytes / sizeof(float));
      call(asked.what, 1);  // connections, registrations
    }
    MPI_Barrier(MPI_COMM_WORLD);
    call(asked.what, 1);
    const auto begin = std::chrono::steady_clock::now();
    call(asked.what, asked.calls);
    const double mine = seconds_since(begin);
    double slowest = 0;
    MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return slowest;
  }

  void call(over_mpi what, std::size_t calls) {
    if (what == over_mpi::all_reduce) {
      for (std::size_t i = 0; i < calls; ++i) {
        MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT,
                      MPI_SUM, MPI_COMM_WORLD);
      }
      return;
    }
    const tutti::reduction<add_floats> data{
        reinterpret_cast<std::byte*>(values.data()), values.size(), sizeof(float), {&uncompressed}};
    const tutti::endpoint<tutti::transport::mpi> self(*world,
                                                      tutti::tag{tutti::channel::data, 0, 0});
    drive(*world, repeat<tutti::collective::ring>(self, data, calls));
  }
};

/// One thread a process calls MPI: the level at which the peer is fastest.
job::job() {
  if (!started_by_mpirun()) {
    return;
  }
  int level = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level));
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
  check(MPI_Comm_size(MPI_COMM_WORLD, &size_));
  processes_ = new processes;
  processes_->world.emplace(MPI_COMM_WORLD);
}

job::~job() {
  if (processes_ == nullptr) {
    return;
  }
  if (rank_ == 0) {
    question end{};
    share(end);
  }
  processes_->world.reset();
  MPI_Finalize();
  delete processes_;
}

bool job::between_hosts() const {
  return processes_ != nullptr && ranks_here(*processes_->world) < size_;
}

void job::serve() {
  question asked{};
  for (share(asked); asked.calls != 0; share(asked)) {
    processes_->answer(asked);
  }
}

double job::time(over_mpi what, std::size_t bytes, std::size_t calls) {
  question asked{what, bytes, calls};
  share(asked);
  return processes_->answer(asked);
}

}  // namespace bench

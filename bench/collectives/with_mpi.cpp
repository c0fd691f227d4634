#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "collectives/add_floats.hpp"
#include "collectives/job.hpp"
#include "collectives/team.hpp"
#include "tutti/base/line_vector.hpp"
#include "tutti/collective/in_host_memory.hpp"
#include "tutti/collective/sliced_ring.hpp"
#include "tutti/transport/mpi.hpp"

namespace bench {

namespace {

using tutti::transport::check;

struct question {
  over_mpi what;
  std::size_t bytes;
  std::size_t calls;  // 0: end
  tutti::strategies::tf_reduction::range way;
};

bool started_by_mpirun() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMI_SIZE") != nullptr;
}

/// Sends rank 0's question to every rank. The others sleep while they wait, because rank 0 needs
/// the cores for its threads.
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
  tutti::line_vector<float> own{};
  std::span<float> shared{};
  std::span<float> values{};
  std::vector<std::byte> scratch{};

  /// Answers one question on every rank. Returns the seconds of the slowest, on rank 0.
  double answer(const question& asked) {
    const std::size_t elements = asked.bytes / sizeof(float);
    const bool in_shared = asked.what == over_mpi::in_host_memory;
    if (in_shared && shared.size() < elements) {
      shared = world->allocate_shared(elements);
    } else if (!in_shared && own.size() != elements) {
      own.resize(elements);
    }
    const std::span<float> now = (in_shared ? shared : std::span(own)).first(elements);
    if (now.data() != values.data() || now.size() != values.size()) {
      values = now;
      call(asked, 1);  // sets up connections and registers memory
    }
    MPI_Barrier(MPI_COMM_WORLD);
    call(asked, 1);
    const auto begin = std::chrono::steady_clock::now();
    call(asked, asked.calls);
    const double mine = seconds_since(begin);
    double slowest = 0;
    MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return slowest;
  }

  void call(const question& asked, std::size_t calls) {
    if (asked.what == over_mpi::all_reduce) {
      for (std::size_t i = 0; i < calls; ++i) {
        MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT,
                      MPI_SUM, MPI_COMM_WORLD);
      }
      return;
    }
    tutti::reduction<add_floats> data{
        reinterpret_cast<std::byte*>(values.data()), values.size(), sizeof(float), {&uncompressed}};
    const tutti::endpoint<tutti::transport::mpi> self(*world,
                                                      tutti::tag{tutti::channel::data, 0, 0});
    using ring = tutti::collective::sliced_ring<>;
    if (asked.what == over_mpi::spec) {
      const tutti::strategies::tf_reduction how({.ranges = {{asked.way}}});
      scratch.resize(how.scratch_bytes(values.size(), sizeof(float), world->size()));
      data.scratch = scratch;
      drive(*world, repeat(self, data, calls, how));
      return;
    }
    drive(*world, asked.what == over_mpi::ring
                      ? repeat<ring>(self, data, calls)
                      : repeat<tutti::collective::in_host_memory<ring>>(self, data, calls));
  }
};

/// One thread of a process calls MPI: the thread level at which MPI_Allreduce is fastest.
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

double job::time(over_mpi what, std::size_t bytes, std::size_t calls,
                 tutti::strategies::tf_reduction::range way) {
  question asked{what, bytes, calls, way};
  share(asked);
  return processes_->answer(asked);
}

}  // namespace bench

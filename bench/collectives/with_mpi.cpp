#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>
#include <optional>
#include <semaphore.h>
#include <span>
#include <vector>

#include "collectives/add_floats.hpp"
#include "collectives/job.hpp"
#include "collectives/team.hpp"
#include "tutti/base/line_vector.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/transport/mpi.hpp"

namespace bench {

namespace {

using tutti::transport::check;

constexpr int most_ranks = 64;

/// Memory that all processes of the job see.
struct questions {
  over_mpi what;
  std::size_t bytes;
  std::size_t calls;  // 0: the end
  double times[most_ranks];
  sem_t asked[most_ranks];
};

bool started_by_mpirun() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMI_SIZE") != nullptr;
}

}  // namespace

struct job::processes {
  questions* board = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  std::optional<tutti::transport::mpi> world{};
  tutti::line_vector<float> values{};

  /// What every rank does with one question; its own time goes on the board.
  void answer(int rank) {
    values.resize(board->bytes / sizeof(float));
    call(1);  // connections, registrations
    MPI_Barrier(MPI_COMM_WORLD);
    call(1);
    const auto begin = std::chrono::steady_clock::now();
    call(board->calls);
    board->times[rank] = seconds_since(begin);
    MPI_Barrier(MPI_COMM_WORLD);
  }

  void call(std::size_t calls) {
    if (board->what == over_mpi::all_reduce) {
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
  if (size_ > most_ranks) {
    throw tutti::usage_error("bench-collectives: at most 64 processes");
  }
  processes_ = new processes;
  processes_->world.emplace(MPI_COMM_WORLD);
  void* memory = nullptr;
  check(MPI_Win_allocate_shared(rank_ == 0 ? sizeof(questions) : 0, 1, MPI_INFO_NULL,
                                MPI_COMM_WORLD, &memory, &processes_->window));
  MPI_Aint bytes = 0;
  int unit = 0;
  check(MPI_Win_shared_query(processes_->window, 0, &bytes, &unit, &memory));
  if (rank_ == 0) {
    processes_->board = ::new (memory) questions{};
    for (sem_t& each : processes_->board->asked) {
      sem_init(&each, 1, 0);
    }
  }
  processes_->board = static_cast<questions*>(memory);
  check(MPI_Barrier(MPI_COMM_WORLD));
}

job::~job() {
  if (processes_ == nullptr) {
    return;
  }
  if (rank_ == 0) {
    processes_->board->calls = 0;
    for (int peer = 1; peer < size_; ++peer) {
      sem_post(&processes_->board->asked[peer]);
    }
  }
  processes_->world.reset();
  MPI_Win_free(&processes_->window);
  MPI_Finalize();
  delete processes_;
}

void job::serve() {
  for (;;) {
    while (sem_wait(&processes_->board->asked[rank_]) != 0) {  // interrupted by a signal
    }
    if (processes_->board->calls == 0) {
      return;
    }
    processes_->answer(rank_);
  }
}

double job::time(over_mpi what, std::size_t bytes, std::size_t calls) {
  questions& board = *processes_->board;
  board.what = what;
  board.bytes = bytes;
  board.calls = calls;
  for (int peer = 1; peer < size_; ++peer) {
    sem_post(&board.asked[peer]);
  }
  processes_->answer(rank_);
  return std::ranges::max(std::span(board.times).first(static_cast<std::size_t>(size_)));
}

}  // namespace bench

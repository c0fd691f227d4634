// A job in which rank 1 is lost in the way that the first argument names. Run by lost_rank.sh and
// lost_link.sh.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>

#include "support/training.hpp"
#include "tutti/transport/mpi.hpp"

namespace {

void stop() {
  std::fprintf(stderr, "process %d stops\n", static_cast<int>(getpid()));
  std::raise(SIGSTOP);
}

/// The other ranks lose one of their two transports, and end the other as if nothing had happened.
int lose_one_of_two() {
  try {
    const tutti::transport::mpi another;
    if (another.rank() == 1) {
      stop();
    }
    throw std::runtime_error("rank 1 is lost");
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "tutti: %s\n", failed.what());
    return 1;
  }
}

/// Ends the job while a thread of each rank waits for input.
[[noreturn]] void abort_beside_a_reader(const tutti::transport::mpi& world) {
  int ends[2];
  if (pipe(ends) == 0) {
    std::thread([from = fdopen(ends[0], "r")] { std::fgetc(from); }).detach();
    sleep(1);
  }
  world.abort_job("rank 1 gives up");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  using strategy = tutti::compose<tutti::architecture::all_reduce<>>;
  tutti::transport::mpi world;
  if (how == "leaves_one_of_two") {
    return lose_one_of_two();
  }
  if (how == "aborts_beside_a_reader") {
    abort_beside_a_reader(world);
  }
  try {
    auto memory = tutti::test::model_of(world.rank());
    tutti::engine_options<strategy> options;
    options.run.deadline = 2;
    auto engine =
        tutti::make_engine<strategy>(world, memory.tensors(), tutti::test::optimizer_of(), options);
    for (int step = 0; step < 5; ++step) {
      engine.wait();
      if (step == 2 && world.rank() == 1) {
        if (how == "stops") {
          stop();
        } else if (how == "exits") {
          std::_Exit(0);
        } else if (how == "leaves") {
          return 0;
        } else if (how == "is_cut_off" && std::system("ip link set dev eth0 down") != 0) {
          return 1;
        }
      }
      tutti::test::backward(memory, world.rank(), step);
      for (std::size_t i = memory.tensors().size(); i-- > 0;) {
        engine.ready(tutti::tensor_id(i));
      }
    }
    engine.wait();
  } catch (const std::exception& failed) {
    if (how == "is_cut_off") {  // the other ranks can report before the abort reaches them
      std::fprintf(stderr, "tutti: %s\n", failed.what());
      sleep(2);
    }
    world.abort_job(failed.what());
  }
  return 0;
}

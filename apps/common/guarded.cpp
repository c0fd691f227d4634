#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <thread>

#include "common/job.hpp"
#include "common/launcher.hpp"
#include "tutti/base/error.hpp"
#if __has_include(<mpi.h>)
#include "tutti/transport/mpi.hpp"
#endif

namespace common {

namespace {

/// Ends the whole job with `sentence`, because the command line of this rank, which is not rank 0,
/// is wrong. If rank 0's is wrong as well, rank 0 ends the job with its own message while this
/// process still waits in MPI's initialisation. If the other processes do not arrive within 10
/// seconds, this process prints the sentence and exits on its own.
void end_for_all([[maybe_unused]] const std::string& sentence) {
#if __has_include(<mpi.h>)
  int begun = 0;
  MPI_Initialized(&begun);
  if (begun == 0) {
    std::thread([sentence] {
      std::this_thread::sleep_for(std::chrono::seconds(10));
      std::fprintf(stderr, "%s\n", sentence.c_str());
      std::_Exit(2);
    }).detach();
    const tutti::transport::mpi everybody;
    if (everybody.size() > 1) {
      everybody.abort_job(sentence);
    }
  }
#endif
}

}  // namespace

int guarded(const char* program, const std::function<void()>& run) {
  const auto sentence = [program](const std::exception& failed) {
    return std::string(program) + ": " + failed.what();
  };
  const auto say = [&](const std::exception& failed) {
    std::fprintf(stderr, "%s\n", sentence(failed).c_str());
  };
  try {
    run();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw tutti::usage_error(
          "standard output cannot be written. Fix: free space or another file");
    }
    return 0;
  } catch (const flag_error& wrong) {
    if (launched_as() == 0) {
      say(wrong);
    } else {
      end_for_all("rank " + std::to_string(launched_as()) + ": " + sentence(wrong));
    }
    return 2;
  } catch (const tutti::usage_error& wrong) {
    say(wrong);
    return 2;
  } catch (const std::exception& failed) {
    say(failed);
    return 1;
  }
}

}  // namespace common

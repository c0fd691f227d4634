#pragma once

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <array>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#include <string>
#include <unistd.h>

#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/source_place.hpp"

// Includes MPI, as the only file that does, and wraps its errors and its counts.
namespace tutti::transport {

/// MPI refused a call.
class mpi_error : public communication_error {
 public:
  mpi_error(int code, source_place where)
      : communication_error(
            sentence({text(code), " (MPI error ", code, " at ", where.file, ":", where.line, ")"})),
        code_(code) {}

  int code() const { return code_; }

  /// MPI's own words for `code`.
  static std::string text(int code) {
    std::array<char, MPI_MAX_ERROR_STRING + 1> words{};
    int length = 0;
    MPI_Error_string(code, words.data(), &length);
    return words.data();
  }

 private:
  int code_;
};

inline void check(int code, source_place where = source_place::current()) {
  if (code != MPI_SUCCESS) {
    throw mpi_error(code, where);
  }
}

/// Prints the sentence and ends every process of the job, for when a peer is dead and what was sent
/// to it can never complete.
[[noreturn]] inline void abort_job(const std::string& sentence) {
  // MPI_Abort has been seen to hang on a peer that is being finalised, and flushing waits for a
  // thread that reads a file, such as standard input.
  std::signal(SIGALRM, SIG_DFL);
  alarm(5);
  std::fprintf(stderr, "tutti: %s\n", sentence.c_str());
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

/// How MPI reaches a device's memory: directly, or by way of the host's memory.
enum class device_path { direct, staged };

/// Returns `direct` if MPI says at run time that it takes a device's addresses (CUDA-aware),
/// otherwise `staged`.
inline device_path supported_device_path() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() == 1 ? device_path::direct : device_path::staged;
#else
  return device_path::staged;
#endif
}

namespace detail {

/// A number of bytes as MPI counts them. MPI counts with an int, so more bytes than that are one
/// element of a derived type.
class mpi_bytes {
 public:
  explicit mpi_bytes(std::size_t bytes, std::size_t most = INT_MAX) {
    if (bytes <= most) {
      count_ = static_cast<int>(bytes);
      return;
    }
    MPI_Datatype run = MPI_DATATYPE_NULL;
    check(MPI_Type_contiguous(static_cast<int>(most), MPI_BYTE, &run));
    const std::array<int, 2> counts{static_cast<int>(bytes / most), static_cast<int>(bytes % most)};
    const std::array<MPI_Aint, 2> places{0, static_cast<MPI_Aint>(bytes / most * most)};
    const std::array<MPI_Datatype, 2> types{run, MPI_BYTE};
    check(MPI_Type_create_struct(2, counts.data(), places.data(), types.data(), &type_));
    check(MPI_Type_commit(&type_));
    check(MPI_Type_free(&run));
    count_ = 1;
  }
  mpi_bytes(const mpi_bytes&) = delete;
  mpi_bytes& operator=(const mpi_bytes&) = delete;
  /// Transfers that have begun with the type go on.
  ~mpi_bytes() {
    if (type_ != MPI_BYTE) {
      MPI_Type_free(&type_);
    }
  }

  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  int count_ = 0;
  MPI_Datatype type_ = MPI_BYTE;
};

/// Returns the length of a received message.
inline std::size_t bytes_of(const MPI_Status& status) {
  MPI_Count bytes = 0;
  MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
  return static_cast<std::size_t>(bytes);
}

}  // namespace detail

}  // namespace tutti::transport

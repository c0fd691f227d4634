#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <vector>

#include "tutti/transport/in_process.hpp"

namespace tutti::test {

/// Runs ranks as threads of this process.
template <class Transport>
struct threads {
  template <class Body>
  static void run(int ranks, Body body) {
    transport::run_ranks<Transport>(ranks, body);
  }
};

/// Returns the message of what `body(world)` throws on each rank, empty for a rank that ends well.
template <class Ranks = threads<transport::in_process>, class Body>
std::vector<std::string> errors(int ranks, Body body) {
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  try {
    Ranks::run(ranks, [&](auto& world) {
      try {
        body(world);
      } catch (const std::exception& failed) {
        said[static_cast<std::size_t>(world.rank())] = failed.what();
        throw;
      }
    });
  } catch (const std::exception&) {
  }
  return said;
}

}  // namespace tutti::test

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/job.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/transport/any_transport.hpp"
#include "tutti/transport/network.hpp"
#include "tutti/transport/simulated.hpp"

namespace compare {

/// Calls `run` in each of the processes that a launcher started, or in the only one. What one
/// cannot survive ends all.
void together(const std::function<void()>& run);

/// This process tells what all have found: the first.
bool speaks();

/// Which of these words is the first that is not the same in every process, or their number.
/// Collective.
std::size_t first_unlike(const std::vector<std::uint64_t>& words);

/// What moves an emulation's messages, as rows name it.
const char* emulated_by();

/// Seconds that `run` takes in the first process while the first `ranks` run it, which begin
/// together: the median of some. Collective, and every process has called `run`.
tutti::seconds median_seconds(int ranks, const std::function<void()>& run);

/// A rank's end of a network: simulated, emulated by one thread or by processes, or the one that
/// connects these processes. A strategy is compiled once for all of them.
using any_world = tutti::transport::any_like<tutti::transport::simulated>;

/// What a rank does on a modelled network: a coroutine.
using rank_job = std::function<tutti::task(any_world&)>;

/// Runs all ranks on a virtual clock, as fast as this thread can.
void simulate(const tutti::transport::network& over, tutti::transport::device each,
              const rank_job& job);

/// Runs them in real time: all on this thread, or under a launcher each in a process. Only the
/// first process has their result.
tutti::transport::emulated_run emulate(const tutti::transport::network& over,
                                       tutti::transport::device each, const rank_job& job);

/// Calls `run` in the first `ranks` of the launcher's processes, connected as they are. Kernels run
/// on this CPU, or are slept where `slept` is a device. The other processes nap until these have
/// ended. Throws common::flag_error if there are less.
void carry(int ranks, std::optional<tutti::transport::device> slept,
           const std::function<void(any_world&)>& run);

}  // namespace compare

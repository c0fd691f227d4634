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

/// Calls `run` in each of the processes that a launcher started, or in this one if there is no
/// launcher. An exception other than flag_error ends all processes.
void together(const std::function<void()>& run);

/// Throws common::flag_error if a launcher has started fewer processes than there are ranks.
void expect_processes_for(int ranks);

/// Whether this process prints the results: the first of all.
bool is_first_process();

/// Returns the index of the first of these words that is not the same in every process, or their
/// number if all are. Collective.
std::size_t first_unlike(const std::vector<std::uint64_t>& words);

/// Returns what carries an emulation's messages, as rows name it.
const char* emulated_by();

/// Returns the median of the seconds that the first process takes for `run` while the first `ranks`
/// processes run it. They start together. Collective; every process calls `run`.
tutti::seconds median_seconds(int ranks, const std::function<void()>& run);

/// A rank's end of a network, in any world: simulated, emulated by one thread or by processes, or
/// real. Its type is erased, so that a strategy is compiled once for all worlds.
using any_world = tutti::transport::any_like<tutti::transport::simulated>;

/// What a rank does on a modelled network, as a coroutine.
using rank_job = std::function<tutti::task(any_world&)>;

/// Runs all ranks on a virtual clock, as fast as this thread can.
void simulate(const tutti::transport::network& over, tutti::transport::device each,
              const rank_job& job);

/// Runs all ranks in real time, on this thread or, under a launcher, each in a process. Only the
/// first process receives their result.
tutti::transport::emulated_run emulate(const tutti::transport::network& over,
                                       tutti::transport::device each, const rank_job& job);

/// Calls `run` in the first `ranks` of the launcher's processes, over what connects them. Kernels
/// run on this CPU or, if `slept` is a device, are replaced by sleeping for as long as they take
/// there. The other processes sleep until these have ended. Throws common::flag_error if there are
/// fewer processes.
void carry(int ranks, std::optional<tutti::transport::device> slept,
           const std::function<void(any_world&)>& run);

}  // namespace compare

// NCCL on host threads: the functions that tutti calls, for ranks that are threads. Nothing is
// buffered, groups move together, and a call is often still in progress when it returns.
#include "gpu/stand_in/nccl.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gpu/stand_in/runtime.hpp"
#include "support/unbuffered_library.hpp"
#include "tutti/transport/nccl.hpp"

using tutti::test::stood_in_by;
using tutti::test::unbuffered_job;

struct ncclComm {
  std::shared_ptr<unbuffered_job> job;
  int rank;
  int ranks;
  int questions_until_done;
};

namespace {

constexpr int questions_a_call = 3;

std::mutex jobs_mutex;
std::map<int, std::shared_ptr<unbuffered_job>> jobs;

struct posted {
  ncclComm_t of;
  cudaStream_t stream;
  unbuffered_job::message message;
};
thread_local int depth = 0;
thread_local std::vector<posted> group;

ncclResult_t under_way(ncclComm_t of) {
  of->questions_until_done = questions_a_call;
  return ncclInProgress;
}

ncclResult_t post(const posted& fresh) {
  group.push_back(fresh);
  if (depth == 0) {
    ncclGroupStart();
    return ncclGroupEnd();
  }
  return ncclSuccess;
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(ncclResult_t code) {
  return code == ncclRemoteError ? "remote process exited or there was a network error"
                                 : "no words";
}
ncclResult_t ncclGetVersion(int* version) {
  *version = tutti::test::stood_in_nccl_version;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* made) {
  static int number = 0;
  const std::scoped_lock lock(jobs_mutex);
  ++number;
  std::memcpy(made->internal, &number, sizeof number);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId common, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) {
    return ncclInvalidUsage;  // because a host that blocks could not be ended
  }
  int number = 0;
  std::memcpy(&number, common.internal, sizeof number);
  const std::scoped_lock lock(jobs_mutex);
  auto& job = jobs[number];
  if (job == nullptr) {
    job = std::make_shared<unbuffered_job>(ranks);
  }
  *made = new ncclComm{job, rank, ranks, 0};
  return under_way(*made);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t of, ncclResult_t* found) {
  if (of->questions_until_done > 0) {
    --of->questions_until_done;
    *found = ncclInProgress;
  } else {
    *found = of->job->failure().empty() ? ncclSuccess : ncclRemoteError;
  }
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t of, int* ranks) {
  *ranks = of->ranks;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t of, int* rank) {
  *rank = of->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t of) { return under_way(of); }
ncclResult_t ncclCommDestroy(ncclComm_t of) {
  delete of;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t of) {
  of->job->give_up(static_cast<std::size_t>(of->rank));
  delete of;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--depth > 0 || group.empty()) {
    return ncclSuccess;
  }
  std::vector<unbuffered_job::message> messages;
  for (const posted& each : group) {
    messages.push_back(each.message);
  }
  const posted first = group.front();
  group.clear();
  stood_in_by(first.stream)
      .run([job = first.of->job, rank = static_cast<std::size_t>(first.of->rank),
            messages]() mutable { job->move(rank, messages); });
  return under_way(first.of);
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t, int peer, ncclComm_t of,
                      cudaStream_t stream) {
  return post({of,
               stream,
               {static_cast<const std::byte*>(from), nullptr, count, static_cast<std::size_t>(peer),
                false}});
}
ncclResult_t ncclRecv(void* into, std::size_t count, ncclDataType_t, int peer, ncclComm_t of,
                      cudaStream_t stream) {
  return post(
      {of,
       stream,
       {nullptr, static_cast<std::byte*>(into), count, static_cast<std::size_t>(peer), false}});
}
ncclResult_t ncclAllReduce(const void*, void* data, std::size_t count, ncclDataType_t, ncclRedOp_t,
                           ncclComm_t of, cudaStream_t stream) {
  if (tutti::test::stood_in_nccl_refuses_sums) {
    return ncclRemoteError;
  }
  const std::span<float> sum(static_cast<float*>(data), count);
  stood_in_by(stream).run(
      [job = of->job, rank = static_cast<std::size_t>(of->rank), sum] { job->add(rank, sum); });
  return under_way(of);
}

}  // extern "C"

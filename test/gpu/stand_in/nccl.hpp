#pragma once

namespace tutti::test {

/// What ncclGetVersion returns on this thread.
inline thread_local int stood_in_nccl_version = 22809;

/// Whether ncclAllReduce fails on this thread.
inline thread_local bool stood_in_nccl_refuses_sums = false;

}  // namespace tutti::test

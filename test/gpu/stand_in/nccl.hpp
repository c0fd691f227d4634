#pragma once

namespace tutti::test {

/// What ncclGetVersion returns on this thread.
inline thread_local int stood_in_nccl_version = 22809;

}  // namespace tutti::test

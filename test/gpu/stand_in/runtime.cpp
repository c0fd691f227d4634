// A CUDA runtime of host threads: the functions that tutti calls. A stream is a host_stream that is
// late by random moments, and a device's memory is the host's, poisoned until it is written.
// Streams, transports and whole strategies for a device therefore run where there is none, in
// another order each time.
#include "gpu/stand_in/runtime.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/host_stream.hpp"
#include "tutti/base/units.hpp"

namespace {

using tutti::host_stream;

struct event {
  std::mutex mutex;
  host_stream::event recorded;
};

struct device {
  std::mutex mutex;
  std::set<host_stream*> streams;
  std::map<const void*, std::size_t> memory;
  std::map<const void*, std::size_t> pinned;
};

device& only() {
  static device one;
  return one;
}

host_stream& stream_of(cudaStream_t handle) { return *reinterpret_cast<host_stream*>(handle); }
event& event_of(cudaEvent_t handle) { return *reinterpret_cast<event*>(handle); }

/// Freeing waits for the whole device, as CUDA's does.
void wait_for_all() {
  const std::scoped_lock lock(only().mutex);
  for (host_stream* each : only().streams) {
    each->synchronize();
  }
}

bool lies_in(const std::map<const void*, std::size_t>& blocks, const void* address) {
  const auto* byte = static_cast<const char*>(address);
  return std::ranges::any_of(blocks, [byte](const auto& each) {
    const auto* begin = static_cast<const char*>(each.first);
    return byte >= begin && byte < begin + each.second;
  });
}

std::atomic<long> allocations{0};
std::atomic<long> events{0};
std::atomic<long> synchronizations{0};
std::atomic<bool> full{false};

thread_local cudaError_t last = cudaSuccess;
thread_local int current = 0;

}  // namespace

namespace tutti::test {
host_stream& stood_in_by(cudaStream_t handle) { return stream_of(handle); }
dear_calls dear_calls_so_far() { return {allocations, events, synchronizations}; }
std::size_t streams_alive() {
  const std::scoped_lock lock(only().mutex);
  return only().streams.size();
}
no_memory_left::no_memory_left() { full = true; }
no_memory_left::~no_memory_left() { full = false; }
}  // namespace tutti::test

extern "C" {

const char* cudaGetErrorString(cudaError_t) { return "a stand-in's words"; }
const char* cudaGetErrorName(cudaError_t code) {
  return code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "another error";
}
cudaError_t cudaGetLastError() { return std::exchange(last, cudaSuccess); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  current = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* address, int bytes, int device) {
  std::snprintf(address, static_cast<std::size_t>(bytes), "0000:%02x:00.0", device);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** made, std::size_t bytes) {
  if (full) {
    return last = cudaErrorMemoryAllocation;
  }
  ++allocations;
  *made = std::aligned_alloc(256, tutti::round_up(bytes, 256));
  std::memset(*made, 0xFF, bytes);
  const std::scoped_lock lock(only().mutex);
  only().memory[*made] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (memory != nullptr) {
    wait_for_all();
    const std::scoped_lock lock(only().mutex);
    std::memset(memory, 0xFF, only().memory.at(memory));
    only().memory.erase(memory);
    std::free(memory);
  }
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** made, std::size_t bytes) {
  ++allocations;
  *made = std::malloc(bytes);
  const std::scoped_lock lock(only().mutex);
  only().pinned[*made] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  wait_for_all();
  const std::scoped_lock lock(only().mutex);
  only().pinned.erase(memory);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* memory) {
  const std::scoped_lock lock(only().mutex);
  *found = {};
  found->type = lies_in(only().memory, memory)   ? cudaMemoryTypeDevice
                : lies_in(only().pinned, memory) ? cudaMemoryTypeHost
                                                 : cudaMemoryTypeUnregistered;
  found->devicePointer =
      found->type == cudaMemoryTypeUnregistered ? nullptr : const_cast<void*>(memory);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* made, unsigned, int) {
  auto fresh = std::make_unique<host_stream>();
  const std::scoped_lock lock(only().mutex);
  only().streams.insert(fresh.get());
  *made = reinterpret_cast<cudaStream_t>(fresh.release());
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const std::unique_ptr<host_stream> gone(&stream_of(handle));
  const std::scoped_lock lock(only().mutex);
  only().streams.erase(gone.get());
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  ++synchronizations;
  stream_of(handle).synchronize();
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t handle) {
  stream_of(handle).copy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t handle) {
  stream_of(handle).run([=] { std::memset(at, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned) {
  ++events;
  *made = reinterpret_cast<cudaEvent_t>(new event);  // never destroyed, as the pool's are not
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  const std::scoped_lock lock(event_of(handle).mutex);
  event_of(handle).recorded = stream_of(stream).record();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const std::scoped_lock lock(event_of(handle).mutex);
  return host_stream::passed(event_of(handle).recorded) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned) {
  host_stream::event until;
  {
    const std::scoped_lock lock(event_of(handle).mutex);
    until = event_of(handle).recorded;
  }
  stream_of(stream).wait(until);
  return cudaSuccess;
}

}  // extern "C"

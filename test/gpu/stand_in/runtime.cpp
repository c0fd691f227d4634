// A CUDA runtime of host threads: the functions that tutti calls. A stream is a host_stream that is
// late by random moments, and a device's memory is the host's, poisoned until it is written.
// Streams, transports and whole strategies for a device therefore run where there is none, in
// another order each time. A thread may make any device current. Each device has a default stream,
// and what must not cross from one device to another is refused.
#include "gpu/stand_in/runtime.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
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

thread_local int current = 0;

struct stream {
  int device = current;
  host_stream queue{};
};

struct event {
  int device = current;
  std::mutex mutex{};
  host_stream::event recorded{};
};

/// Memory of a device, or pinned memory of the host.
struct block {
  std::size_t bytes;
  int device;
  cudaMemoryType type;
};

/// What all devices have together.
struct runtime {
  std::mutex mutex;
  std::set<stream*> streams;
  std::map<const void*, block> memory;
};

runtime& all() {
  static runtime one;
  return one;
}

/// Returns the default stream of the calling thread's device.
stream& default_stream() {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<stream>> by_device;
  const std::scoped_lock lock(mutex);
  auto& its = by_device[current];
  if (its == nullptr) {
    its = std::make_unique<stream>();
  }
  return *its;
}

stream& stream_of(cudaStream_t handle) {
  return handle == nullptr ? default_stream() : *reinterpret_cast<stream*>(handle);
}
event& event_of(cudaEvent_t handle) { return *reinterpret_cast<event*>(handle); }

/// Freeing waits for all streams that were created. CUDA's waits for one device only.
void wait_for_all() {
  const std::scoped_lock lock(all().mutex);
  for (stream* each : all().streams) {
    each->queue.synchronize();
  }
}

void* keep(void* made, std::size_t bytes, cudaMemoryType type) {
  const std::scoped_lock lock(all().mutex);
  all().memory[made] = {bytes, current, type};
  return made;
}

std::atomic<long> allocations{0};
std::atomic<long> events{0};
std::atomic<long> synchronizations{0};
std::atomic<bool> full{false};
std::atomic<unsigned> made_current{0};  // a bit for each device

thread_local cudaError_t last = cudaSuccess;

}  // namespace

namespace tutti::test {
host_stream& stood_in_by(cudaStream_t handle) { return stream_of(handle).queue; }
dear_calls dear_calls_so_far() { return {allocations, events, synchronizations}; }
std::size_t streams_alive() {
  const std::scoped_lock lock(all().mutex);
  return all().streams.size();
}
void forget_devices_made_current() { made_current = 0; }
bool was_made_current(int device) { return (made_current >> device & 1) != 0; }
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
  made_current |= 1u << device;
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
  *made = keep(std::aligned_alloc(256, tutti::round_up(bytes, 256)), bytes, cudaMemoryTypeDevice);
  std::memset(*made, 0xFF, bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (memory != nullptr) {
    wait_for_all();
    const std::scoped_lock lock(all().mutex);
    std::memset(memory, 0xFF, all().memory.at(memory).bytes);
    all().memory.erase(memory);
    std::free(memory);
  }
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** made, std::size_t bytes) {
  ++allocations;
  *made = keep(std::malloc(bytes), bytes, cudaMemoryTypeHost);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  wait_for_all();
  const std::scoped_lock lock(all().mutex);
  all().memory.erase(memory);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* memory) {
  *found = {};
  found->type = cudaMemoryTypeUnregistered;
  const std::scoped_lock lock(all().mutex);
  const auto after = all().memory.upper_bound(memory);
  if (after != all().memory.begin()) {
    const auto& [begin, its] = *std::prev(after);
    if (std::less<>()(memory,
                      static_cast<const void*>(static_cast<const char*>(begin) + its.bytes))) {
      found->type = its.type;
      found->device = its.device;
      found->devicePointer = const_cast<void*>(memory);
    }
  }
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* made, unsigned, int) {
  auto fresh = std::make_unique<stream>();
  const std::scoped_lock lock(all().mutex);
  all().streams.insert(fresh.get());
  *made = reinterpret_cast<cudaStream_t>(fresh.release());
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const std::unique_ptr<stream> gone(&stream_of(handle));
  const std::scoped_lock lock(all().mutex);
  all().streams.erase(gone.get());
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  ++synchronizations;
  stream_of(handle).queue.synchronize();
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t handle) {
  stream_of(handle).queue.copy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t handle) {
  if (stream_of(handle).device != current) {  // CUDA promises nothing; it refuses kernels
    return last = cudaErrorInvalidResourceHandle;
  }
  stream_of(handle).queue.run([=] { std::memset(at, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned) {
  ++events;
  *made = reinterpret_cast<cudaEvent_t>(new event);  // never destroyed, like the pool's
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t its) {
  if (stream_of(its).device != event_of(handle).device) {
    return last = cudaErrorInvalidResourceHandle;
  }
  const std::scoped_lock lock(event_of(handle).mutex);
  event_of(handle).recorded = stream_of(its).queue.record();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const std::scoped_lock lock(event_of(handle).mutex);
  return host_stream::passed(event_of(handle).recorded) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t its, cudaEvent_t handle, unsigned) {
  host_stream::event until;
  {
    const std::scoped_lock lock(event_of(handle).mutex);
    until = event_of(handle).recorded;
  }
  stream_of(its).queue.wait(until);
  return cudaSuccess;
}

}  // extern "C"

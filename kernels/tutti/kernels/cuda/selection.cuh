#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cub/block/block_scan.cuh>
#include <span>

#include "tutti/base/assert.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/cuda/launcher.cuh"
#include "tutti/kernels/selection.hpp"
#include "tutti/kernels/selection_steps.hpp"

// The definitions of what selection.hpp declares for a cuda::stream. The steps are those of
// selection_steps.hpp; here is how threads share them.
namespace tutti::kernels {

namespace device {

/// A group of 32 threads, each with its own lane.
struct thread_group {
  std::uint32_t lane;

  /// Its own key.
  struct keys {
    std::uint32_t mine;
    __device__ std::uint32_t operator[](std::uint32_t) const { return mine; }
  };

  template <class F>
  __device__ void load(keys& into, const F& f) const {
    into.mine = f(lane);
  }
  template <class F>
  __device__ std::uint32_t ballot(const F& f) const {
    return __ballot_sync(~0u, f(lane));
  }
  template <class F>
  __device__ void each(const F& f) const {
    f(lane);
  }
};

/// What the steps of one selection leave to the next, in the stream's room.
struct selecting {
  std::uint32_t count[steps::rounds][steps::bins];
  steps::search known[steps::rounds + 1];  // before each round, and at the end
  steps::tally collected;                  // candidates
  steps::tally taken;
};
static_assert(sizeof(selecting) <= cuda::stream_room::bytes);

inline constexpr unsigned threads = 256;
inline constexpr unsigned groups = threads / steps::lanes;
inline constexpr unsigned most_blocks = 2048;

/// Where a step reads from: the input, or what was collected of it.
struct reading {
  steps::source input;
  steps::source room;  // n: its capacity; 0 where candidates are not collected
  std::size_t k;

  __device__ steps::source from(const selecting& state) const {
    return room.n == 0 ? input : steps::chosen(input, room, state.collected.above, k);
  }
};

/// What each tile counted, then what those before it did.
struct tile_tallies {
  std::uint32_t* above;
  std::uint32_t* equal;

  __device__ steps::tally of(std::size_t tile) const { return {above[tile], equal[tile]}; }
  __device__ void put(std::size_t tile, steps::tally counted) const {
    above[tile] = counted.above;
    equal[tile] = counted.equal;
  }
};

static __global__ void begin(selecting* state, std::uint32_t k) {
  for (std::uint32_t i = threadIdx.x; i < steps::rounds * steps::bins; i += blockDim.x) {
    state->count[i / steps::bins][i % steps::bins] = 0;
  }
  if (threadIdx.x == 0) {
    state->known[0] = {0, k};
  }
}

static __global__ void count_keys(reading what, unsigned round, selecting* state) {
  __shared__ std::uint32_t count[steps::bins];
  for (std::uint32_t i = threadIdx.x; i < steps::bins; i += blockDim.x) {
    count[i] = 0;
  }
  __syncthreads();
  const steps::source from = what.from(*state);
  const steps::search known = state->known[round];
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  constexpr unsigned at_once = 4;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < from.n;
       i += at_once * stride) {
    std::uint32_t keys[at_once];
    for (unsigned j = 0; j < at_once; ++j) {
      const std::size_t place = i + j * stride;
      keys[j] = place < from.n ? key_of(from.values[place]) : 0;
    }
    for (unsigned j = 0; j < at_once; ++j) {
      std::uint32_t bin = 0;
      if (i + j * stride < from.n && steps::counts(keys[j], known, round, bin)) {
        atomicAdd(count + bin, 1u);
      }
    }
  }
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < steps::bins; i += blockDim.x) {
    if (count[i] != 0) {
      atomicAdd(&state->count[round][i], count[i]);
    }
  }
}

/// One group.
static __global__ void narrow_search(unsigned round, selecting* state) {
  __shared__ std::uint32_t of_lanes[steps::lanes];
  of_lanes[threadIdx.x] = steps::counted_by(threadIdx.x, state->count[round]);
  __syncwarp();
  if (threadIdx.x == 0) {
    state->known[round + 1] =
        steps::narrowed(state->known[round], round, state->count[round], of_lanes);
  }
}

/// What is collected: candidates, or the selected themselves.
enum class aim { candidates, selected };

static __device__ steps::search limit_of(aim what, const selecting& state) {
  return what == aim::candidates ? steps::floor_of(state.known[1]) : state.known[steps::rounds];
}

static __global__ void count_tiles(aim what, reading source, const selecting* state,
                                   tile_tallies tallies) {
  const thread_group group{threadIdx.x % steps::lanes};
  const steps::source from = what == aim::candidates ? source.input : source.from(*state);
  const steps::search limit = limit_of(what, *state);
  const std::size_t first = blockIdx.x * groups + threadIdx.x / steps::lanes;
  for (std::size_t tile = first; tile < steps::tiles_of(from.n);
       tile += std::size_t{gridDim.x} * groups) {
    const steps::tally found = steps::count_tile(group, from, tile, limit);
    if (group.lane == 0) {
      tallies.put(tile, found);
    }
  }
}

/// Each tile's count becomes the sum of those before it. One block: a thousand tiles are a million
/// elements, and a block adds up a thousand at a time.
static __global__ void add_up_tiles(aim what, reading source, selecting* state,
                                    tile_tallies tallies) {
  using scan = cub::BlockScan<steps::tally, 1024>;
  __shared__ typename scan::TempStorage storage;
  const steps::source from = what == aim::candidates ? source.input : source.from(*state);
  const std::size_t tiles = steps::tiles_of(from.n);
  steps::tally before;
  for (std::size_t begin = 0; begin < tiles; begin += blockDim.x) {
    const std::size_t i = begin + threadIdx.x;
    const steps::tally mine = i < tiles ? tallies.of(i) : steps::tally{};
    steps::tally sum;
    steps::tally all;
    scan(storage).ExclusiveScan(
        mine, sum, steps::tally{}, [](steps::tally a, steps::tally b) { return a + b; }, all);
    if (i < tiles) {
      tallies.put(i, before + sum);
    }
    before = before + all;
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    (what == aim::candidates ? state->collected : state->taken) = before;
  }
}

struct refuse_element {
  unsigned long long* refused;
  unsigned long long first_element;
  __device__ void operator()(std::uint32_t index) const {
    atomicMin(refused, first_element + index);
  }
};

template <class Refuse>
__global__ void write_tiles(aim what, reading source, const selecting* state, tile_tallies tallies,
                            steps::destination out, Refuse refuse) {
  if (what == aim::candidates && !steps::serve(state->collected.above, out.room, source.k)) {
    return;
  }
  const thread_group group{threadIdx.x % steps::lanes};
  const steps::source from = what == aim::candidates ? source.input : source.from(*state);
  const steps::search limit = limit_of(what, *state);
  const std::size_t first = blockIdx.x * groups + threadIdx.x / steps::lanes;
  for (std::size_t tile = first; tile < steps::tiles_of(from.n);
       tile += std::size_t{gridDim.x} * groups) {
    steps::write_tile(group, from, tile, limit, tallies.of(tile), out, refuse);
  }
}

/// One selection's kernels, enqueued in order.
class selection_run {
 public:
  selection_run(cuda::stream& queue, std::span<const float> input, candidates room, std::size_t k)
      : queue_(&queue), state_(reinterpret_cast<selecting*>(queue.room().memory())) {
    const std::size_t tiles = steps::tiles_of(input.size());
    const std::size_t places = std::min(room.values.size(), room.indices.size());
    TUTTI_ASSERT(places > tiles, "a selection's scratch is shorter than selection_candidates");
    // The last places of both arrays hold the tiles' counts.
    capacity_ = places - tiles;
    tallies_ = {reinterpret_cast<std::uint32_t*>(room.values.data() + capacity_),
                room.indices.data() + capacity_};
    what_.input = {input.data(), nullptr, input.size()};
    what_.room = {room.values.data(), room.indices.data(), 0};
    what_.k = k;
    begin<<<1, 1024, 0, stream()>>>(state_, static_cast<std::uint32_t>(k));
  }

  /// Room for all would have all collected.
  bool collects() const { return what_.input.n > capacity_; }

  void round(unsigned number) {
    // Sixteen keys a thread, so that emptying the bins is little of a block's work.
    const std::size_t keys = std::size_t{threads} * 16;
    count_keys<<<blocks((read() + keys - 1) / keys), threads, 0, stream()>>>(what_, number, state_);
    narrow_search<<<1, steps::lanes, 0, stream()>>>(number, state_);
  }

  template <class Refuse>
  void collect(aim what, steps::destination out, Refuse refuse) {
    const std::size_t tiles = steps::tiles_of(what == aim::candidates ? what_.input.n : read());
    const unsigned wanted = blocks((tiles + groups - 1) / groups);
    count_tiles<<<wanted, threads, 0, stream()>>>(what, what_, state_, tallies_);
    add_up_tiles<<<1, 1024, 0, stream()>>>(what, what_, state_, tallies_);
    write_tiles<<<wanted, threads, 0, stream()>>>(what, what_, state_, tallies_, out, refuse);
  }

  void collect_candidates() {
    collect(aim::candidates,
            {const_cast<std::uint32_t*>(what_.room.indices), const_cast<float*>(what_.room.values),
             capacity_},
            steps::refuse_nothing{});
    what_.room.n = capacity_;
  }

 private:
  cudaStream_t stream() const { return queue_->native_handle(); }
  static unsigned blocks(std::size_t wanted) {
    return static_cast<unsigned>(std::clamp<std::size_t>(wanted, 1, most_blocks));
  }
  /// Elements that a step is likely to read; blocks stride where they are more.
  std::size_t read() const { return what_.room.n != 0 ? capacity_ : what_.input.n; }

  cuda::stream* queue_;
  selecting* state_;
  std::size_t capacity_ = 0;
  tile_tallies tallies_{};
  reading what_{};
};

}  // namespace device

[[gnu::used]] inline void select_largest(cuda::stream& queue, std::span<const float> input,
                                         std::uint64_t first_element, selection out,
                                         candidates room) {
  const std::size_t k = out.indices.size();
  if (k == 0) {
    return;
  }
  const cuda::on_device here(queue.device());
  device::selection_run run(queue, input, room, k);
  run.round(0);
  if (run.collects()) {
    run.collect_candidates();
  }
  run.round(1);
  run.round(2);
  run.collect(device::aim::selected, {out.indices.data(), out.values, k},
              device::refuse_element{queue.room().refused(), first_element});
  cuda::check(cudaGetLastError());
}

[[gnu::used]] inline void clear_at(cuda::stream& queue, std::span<float> data,
                                   std::span<const std::uint32_t> indices) {
  device::for_each(queue, indices.size(), element::clear_at{data.data(), indices.data()});
}

[[gnu::used]] inline void scatter_add(cuda::stream& queue, std::span<const std::uint32_t> indices,
                                      const float* values, std::span<float> sum) {
  device::for_each(queue, indices.size(), element::scatter_add{indices.data(), values, sum.data()});
}

}  // namespace tutti::kernels

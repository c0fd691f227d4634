// How near kernels on a GPU come to the rate at which its memory can be copied: bytes that each
// must move, over its time. `of_copy` is that rate beside the copy's of the same run.
//
//   bench-gpu
//   bench-gpu --benchmark_filter='select.*'

#include <benchmark/benchmark.h>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "build_note.hpp"
#include "tutti/base/cuda/error.hpp"
#include "tutti/base/cuda/memory.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/cast.hpp"
#include "tutti/kernels/descent.hpp"
#include "tutti/kernels/selection.hpp"
#include "tutti/kernels/signs.hpp"

namespace bench {

namespace {

namespace cuda = tutti::cuda;
namespace kernels = tutti::kernels;

constexpr std::size_t elements = 25'600'000;  // as many as ResNet-50 has

/// What the kernels work on.
struct gradient {
  cuda::stream queue{};
  cuda::buffer<float> values{elements};
  cuda::buffer<float> other{elements};
  cuda::buffer<std::uint32_t> words{elements};
  cuda::buffer<float> result{1};

  gradient() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> made(elements);
    for (float& each : made) {
      each = normal(random);
    }
    queue.copy(values.data(), made.data(), elements * sizeof(float));
    queue.copy(other.data(), made.data(), elements * sizeof(float));
    queue.synchronize();
  }
};

/// Seconds of one call, from enough of them that the host's part is hidden.
template <class Work>
double seconds_of(gradient& on, const Work& work) {
  constexpr int calls = 20;
  on.queue.synchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) {
    work(on);
  }
  on.queue.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls;
}

void copy_all(gradient& on) {
  on.queue.copy(on.other.data(), on.values.data(), elements * sizeof(float));
}

/// `bytes`: what must be read and written at least.
template <class Work>
void measure(::benchmark::State& state, double bytes, const Work& work) {
  if (cuda::devices() == 0) {
    state.SkipWithError("no CUDA device");
    return;
  }
  gradient on;
  work(on);
  const double copied = 2.0 * sizeof(float) * elements / seconds_of(on, copy_all);
  double total = 0;
  for (auto _ : state) {
    const double each = seconds_of(on, work);
    state.SetIterationTime(each);
    total += each;
  }
  const double rate = bytes * static_cast<double>(state.iterations()) / total;
  state.counters["GB/s"] = rate * 1e-9;
  state.counters["of_copy"] = rate / copied;
}

constexpr double floats = sizeof(float) * static_cast<double>(elements);

void select(::benchmark::State& state) {
  const std::size_t k = elements / static_cast<std::size_t>(state.range(0));
  const std::size_t places = kernels::selection_candidates(elements, k);
  if (cuda::devices() == 0) {
    state.SkipWithError("no CUDA device");
    return;
  }
  const cuda::buffer<float> room(places);
  const cuda::buffer<std::uint32_t> room_of_indices(places);
  const cuda::buffer<std::uint32_t> indices(k);
  const cuda::buffer<float> taken(k);
  measure(state, floats, [&](gradient& on) {
    kernels::select_largest(on.queue, std::span<const float>(on.values.span()), 0,
                            {indices.span(), taken.data()}, {room.span(), room_of_indices.span()});
  });
}

void copy(::benchmark::State& state) { measure(state, 2 * floats, copy_all); }
void add(::benchmark::State& state) {
  measure(state, 3 * floats,
          [](gradient& on) { kernels::add(on.queue, on.other.span(), on.values.span()); });
}
void descend(::benchmark::State& state) {
  measure(state, 3 * floats, [](gradient& on) {
    kernels::descend(on.queue, on.other.span(), on.values.span(), {1e-6f, 0.0f, 1e-4f});
  });
}
void narrow(::benchmark::State& state) {
  measure(state, 1.5 * floats, [](gradient& on) {
    kernels::narrow<kernels::bfloat>(on.queue, on.values.span(),
                                     reinterpret_cast<std::uint16_t*>(on.words.data()));
  });
}
void pack(::benchmark::State& state) {
  measure(state, floats * (1 + 1.0 / 32),
          [](gradient& on) { kernels::pack_signs(on.queue, on.values.span(), on.words.data()); });
}
/// Both passes of scaled_sign under error feedback.
void pack_with_residual(::benchmark::State& state) {
  measure(state, floats * (5 + 1.0 / 32), [](gradient& on) {
    kernels::add_and_mean_magnitude(on.queue, on.other.span(), on.values.span(), on.result.data());
    kernels::pack_signs_and_subtract(on.queue, on.other.span(), on.result.data(), on.words.data());
  });
}

BENCHMARK(copy)->UseManualTime();
BENCHMARK(add)->UseManualTime();
BENCHMARK(descend)->UseManualTime();
BENCHMARK(narrow)->UseManualTime();
BENCHMARK(pack)->UseManualTime();
BENCHMARK(pack_with_residual)->UseManualTime();
BENCHMARK(select)->ArgName("one_in")->Arg(1000)->Arg(100)->UseManualTime();

}  // namespace

}  // namespace bench

int main(int argc, char** argv) {
  bench::note_build();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}

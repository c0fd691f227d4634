// Each kernel on a GPU beside a copy of the device's memory, by CUDA's events, and beside CUB's or
// CUDA's own way where there is one:
//
//   bench-kernels-cuda --benchmark_filter='100MB' --benchmark_min_time=0.2
#include <benchmark/benchmark.h>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cub/device/device_radix_sort.cuh>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cuda/events.hpp"
#include "program.hpp"
#include "tutti/base/cuda/memory.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/cast.hpp"
#include "tutti/kernels/copies.hpp"
#include "tutti/kernels/descent.hpp"
#include "tutti/kernels/selection.hpp"
#include "tutti/kernels/signs.hpp"

namespace {

using bench::enqueued;
using bench::peer;
using tutti::cuda::buffer;
using tutti::cuda::stream;
namespace kernels = tutti::kernels;

/// Arrays of n floats that kernels work on; as large as the model whose gradient they stand for.
struct arrays {
  std::size_t n;
  buffer<float> gradient{n};
  buffer<float> sum{n};
  buffer<float> more{n};
  buffer<std::uint16_t> half{n};
  buffer<std::uint32_t> words{kernels::sign_words(n)};
  buffer<float> scale{1};

  explicit arrays(std::size_t elements) : n(elements) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 1e-3F);
    std::vector<float> values(n);
    for (float& each : values) {
      each = normal(random);
    }
    stream queue;
    for (const auto* each : {&gradient, &sum, &more}) {
      queue.copy(each->data(), values.data(), n * sizeof(float));
    }
    const float one = 1e-3F;
    queue.copy(scale.data(), &one, sizeof one);
    queue.synchronize();
  }
  std::span<const float> input() const { return gradient.span(); }
  double bytes(double an_element) const { return an_element * static_cast<double>(n); }
};

enqueued copy_of(const std::shared_ptr<arrays>& on) {
  return {[on](stream& queue) {
            queue.copy(on->more.data(), on->gradient.data(), on->n * sizeof(float));
          },
          on->bytes(8)};
}

void add(const std::string& name, const std::shared_ptr<arrays>& on, double bytes_an_element,
         std::function<void(stream&)> enqueue, const std::vector<peer>& peers = {}) {
  const std::string full = name + "/" + std::to_string(on->n * sizeof(float) / 1'000'000) + "MB";
  const enqueued kernel{std::move(enqueue), on->bytes(bytes_an_element)};
  benchmark::RegisterBenchmark(
      full.c_str(),
      [=](benchmark::State& state) { bench::compare(state, kernel, copy_of(on), peers); })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

void add_arithmetic(const std::shared_ptr<arrays>& on) {
  add("add", on, 12, [on](stream& queue) { kernels::add(queue, on->sum.span(), on->input()); });
  add("add_scaled", on, 12,
      [on](stream& queue) { kernels::add_scaled(queue, on->sum.span(), on->input(), 0.5F); });
  add("scale", on, 8, [on](stream& queue) { kernels::scale(queue, on->sum.span(), 1.0F); });
  add("descend", on, 12, [on](stream& queue) {
    kernels::descend(queue, on->sum.span(), on->input(), {1e-6F, 0.0F, 1e-4F});
  });
  add("mean_magnitude", on, 4,
      [on](stream& queue) { kernels::mean_magnitude(queue, on->input(), on->scale.data()); });
}

template <class Format>
void add_casts(const std::string& name, const std::shared_ptr<arrays>& on) {
  add("narrow/" + name, on, 6,
      [on](stream& queue) { kernels::narrow<Format>(queue, on->input(), on->half.data()); });
  add("add_widened/" + name, on, 10, [on](stream& queue) {
    kernels::add_widened<Format>(queue, on->half.data(), on->sum.span());
  });
}

void add_signs(const std::shared_ptr<arrays>& on) {
  const auto in_two_steps = [on](stream& queue) {
    kernels::add(queue, on->sum.span(), on->input());
    kernels::pack_signs_and_subtract(queue, on->sum.span(), on->scale.data(), on->words.data());
  };
  add("pack_signs", on, 4.125,
      [on](stream& queue) { kernels::pack_signs(queue, on->input(), on->words.data()); });
  add("add_signs", on, 8.125, [on](stream& queue) {
    kernels::add_signs(queue, on->words.data(), on->scale.data(), on->sum.span());
  });
  add("add_and_pack_signs", on, 12.125,
      [on](stream& queue) {
        kernels::add_and_pack_signs(queue, on->sum.span(), on->input(), on->words.data());
      },
      {{"two_steps", {in_two_steps, 0}}});
}

/// The largest one in a thousand, beside sorting all by CUB.
void add_selection(const std::shared_ptr<arrays>& on) {
  const std::size_t k = on->n / 1000;
  const std::size_t places = kernels::selection_candidates(on->n, k);
  const auto chosen = std::make_shared<buffer<std::uint32_t>>(k);
  const auto values = std::make_shared<buffer<float>>(k);
  const auto room_values = std::make_shared<buffer<float>>(places);
  const auto room_indices = std::make_shared<buffer<std::uint32_t>>(places);
  const auto select = [=](stream& queue) {
    kernels::select_largest(queue, on->input(), 0, {chosen->span(), values->data()},
                            {room_values->span(), room_indices->span()});
  };
  std::size_t bytes = 0;
  const auto n = static_cast<int>(on->n);
  tutti::cuda::check(cub::DeviceRadixSort::SortKeysDescending(nullptr, bytes, on->gradient.data(),
                                                              on->more.data(), n));
  const auto room = std::make_shared<buffer<std::byte>>(bytes);
  const auto sort = [=](stream& queue) {
    std::size_t given = bytes;
    tutti::cuda::check(
        cub::DeviceRadixSort::SortKeysDescending(room->data(), given, on->gradient.data(),
                                                 on->more.data(), n, 0, 32, queue.native_handle()));
  };
  add("select_largest/0.1%", on, 4, select, {{"sorting", {sort, 0}}});
}

/// 161 tensors of very different lengths, as many as ResNet-50 has, beside a copy for each.
void add_copies(const std::shared_ptr<arrays>& on) {
  constexpr std::size_t tensors = 161;
  std::vector<kernels::copy_run> runs;
  std::size_t begin = 0;
  for (std::size_t i = 1; i <= tensors; ++i) {
    const std::size_t end = on->n * i * i * i / (tensors * tensors * tensors);
    runs.push_back({on->gradient.data() + begin, on->sum.data() + begin, end - begin});
    begin = end;
  }
  const auto one_by_one = [runs](stream& queue) {
    for (const auto& each : runs) {
      queue.copy(each.to, each.from, each.elements * sizeof(float));
    }
  };
  add("copy_runs", on, 8, [runs](stream& queue) { kernels::copy_runs(queue, runs); },
      {{"one_by_one", {one_by_one, 0}}});
}

}  // namespace

int main(int argc, char** argv) {
  if (tutti::cuda::devices() == 0) {
    std::printf("bench-kernels-cuda: no CUDA device: nothing is measured\n");
    return 0;
  }
  cudaDeviceProp device{};
  tutti::cuda::check(cudaGetDeviceProperties(&device, 0));
  benchmark::AddCustomContext("device", device.name);
  for (const std::size_t n : {std::size_t{1} << 18, std::size_t{25'600'000}}) {
    const auto on = std::make_shared<arrays>(n);
    add_arithmetic(on);
    add_casts<kernels::half>("fp16", on);
    add_casts<kernels::bfloat>("bf16", on);
    add_signs(on);
    add_selection(on);
    add_copies(on);
  }
  return bench::run(argc, argv);
}

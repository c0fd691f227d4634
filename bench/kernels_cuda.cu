// How near is each kernel on a GPU to a copy of the device's memory? Times are those of CUDA's
// events. Where CUB or CUDA has another way to the same result, it is measured beside the kernel.
//
//   bench-kernels-cuda --benchmark_filter='/102MB' --benchmark_min_time=0.2
#include <benchmark/benchmark.h>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cub/device/device_radix_sort.cuh>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/events.hpp"
#include "kernels/gradients.hpp"
#include "kernels/in_turn.hpp"
#include "kernels/matrices.hpp"
#include "program.hpp"
#include "tutti/base/cuda/memory.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/block_sign.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/fp8.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/cast.hpp"
#include "tutti/kernels/copies.hpp"
#include "tutti/kernels/descent.hpp"
#include "tutti/kernels/index_pairs.hpp"
#include "tutti/kernels/low_rank.hpp"
#include "tutti/kernels/norms.hpp"
#include "tutti/kernels/selection.hpp"
#include "tutti/kernels/signs.hpp"

namespace {

using bench::contender;
using tutti::cuda::buffer;
using tutti::cuda::stream;
namespace kernels = tutti::kernels;

/// The arrays of n floats that kernels work on, as large as the gradient of a model.
struct arrays {
  std::size_t n;
  stream queue{};
  buffer<float> gradient{n};
  buffer<float> sum{n};
  buffer<float> more{n};
  buffer<std::uint16_t> half{n};
  buffer<std::uint32_t> words{kernels::sign_words(n)};
  buffer<float> scale{1};

  explicit arrays(std::size_t elements) : n(elements) {
    const bench::floats values = bench::normal_gradient(n, 1);
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

void add(const std::string& name, const std::shared_ptr<arrays>& on, double bytes_an_element,
         std::function<void()> enqueue, const std::vector<contender>& peers = {}) {
  const std::string full = name + "/" + std::to_string(on->n * sizeof(float) / 1'000'000) + "MB";
  const auto copy = [on] {
    on->queue.copy(on->more.data(), on->gradient.data(), on->n * sizeof(float));
  };
  const bench::comparison compared{
      {name, std::move(enqueue), on->bytes(bytes_an_element)}, {"copy", copy, on->bytes(8)}, peers};
  benchmark::RegisterBenchmark(full.c_str(),
                               [=](benchmark::State& state) {
                                 bench::take_turns(state, compared, bench::stopwatch(on->queue));
                               })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

void add_arithmetic(const std::shared_ptr<arrays>& on) {
  add("add", on, 12, [on] { kernels::add(on->queue, on->sum.span(), on->input()); });
  add("add_scaled", on, 12,
      [on] { kernels::add_scaled(on->queue, on->sum.span(), on->input(), 0.5F); });
  add("scale", on, 8, [on] { kernels::scale(on->queue, on->sum.span(), 1.0F); });
  add("descend", on, 12, [on] {
    kernels::descend(on->queue, on->sum.span(), on->input(), {1e-6F, 0.0F, 1e-4F});
  });
  add("mean_magnitude", on, 4,
      [on] { kernels::mean_magnitude(on->queue, on->input(), on->scale.data()); });
}

template <class Format>
void add_casts(const std::string& name, const std::shared_ptr<arrays>& on) {
  add("narrow/" + name, on, 6,
      [on] { kernels::narrow<Format>(on->queue, on->input(), on->half.data()); });
  add("add_widened/" + name, on, 10,
      [on] { kernels::add_widened<Format>(on->queue, on->half.data(), on->sum.span()); });
}

void add_signs(const std::shared_ptr<arrays>& on) {
  const auto in_two_steps = [on] {
    kernels::add(on->queue, on->sum.span(), on->input());
    kernels::pack_signs_and_subtract(on->queue, on->sum.span(), on->scale.data(), on->words.data());
  };
  add("pack_signs", on, 4.125,
      [on] { kernels::pack_signs(on->queue, on->input(), on->words.data()); });
  add("add_signs", on, 8.125,
      [on] { kernels::add_signs(on->queue, on->words.data(), on->scale.data(), on->sum.span()); });
  add("unpack_signs", on, 4.125, [on] {
    kernels::unpack_signs(on->queue, on->words.data(), on->scale.data(), on->sum.span());
  });
  add("add_and_pack_signs", on, 12.125,
      [on] {
        kernels::add_and_pack_signs(on->queue, on->sum.span(), on->input(), 1.0f, on->words.data());
      },
      {{"two_steps", in_two_steps}});
}

/// Adds the kernels of a compressor of blocks. Its error feedback is measured beside the
/// decorator's general way, in separate steps.
template <class Compression>
void add_blocks(const std::string& name, const std::shared_ptr<arrays>& on) {
  using remembering = tutti::compression::error_feedback<Compression>;
  const std::size_t bytes = Compression{}.wire_bytes(on->n);
  const double payload = static_cast<double>(bytes) / static_cast<double>(on->n);
  const auto memory = std::make_shared<buffer<std::byte>>(bytes);
  const auto out = [=] { return tutti::wire{memory->data(), bytes}; };
  tutti::chunk_context where;
  where.memory = on->sum.data();
  where.stride = on->n;
  add("encode/" + name, on, 4 + payload,
      [=] { Compression{}.encode(on->queue, on->input(), out()); });
  add("accumulate/" + name, on, 8 + payload,
      [=] { Compression{}.accumulate(on->queue, out(), on->sum.span()); });
  add("error_feedback/" + name, on, 12 + payload,
      [=] { remembering{}.encode(on->queue, on->input(), out(), where); },
      {{"in_steps", [=] { remembering{}.encode_in_steps(on->queue, on->input(), out(), where); }}});
}

/// Adds the selection of the largest one in a thousand, beside sorting all elements with CUB.
void add_selection(const std::shared_ptr<arrays>& on) {
  const std::size_t k = on->n / 1000;
  const std::size_t places = kernels::selection_candidates(on->n, k);
  const auto chosen = std::make_shared<buffer<std::uint32_t>>(k);
  const auto values = std::make_shared<buffer<float>>(k);
  const auto room_values = std::make_shared<buffer<float>>(places);
  const auto room_indices = std::make_shared<buffer<std::uint32_t>>(places);
  const auto select = [=] {
    kernels::select_largest(on->queue, on->input(), 0, {chosen->span(), values->data()},
                            {room_values->span(), room_indices->span()});
  };
  std::size_t bytes = 0;
  const auto n = static_cast<int>(on->n);
  tutti::cuda::check(cub::DeviceRadixSort::SortKeysDescending(nullptr, bytes, on->gradient.data(),
                                                              on->more.data(), n));
  const auto room = std::make_shared<buffer<std::byte>>(bytes);
  const auto sort = [=] {
    std::size_t given = bytes;
    tutti::cuda::check(cub::DeviceRadixSort::SortKeysDescending(
        room->data(), given, on->gradient.data(), on->more.data(), n, 0, 32,
        on->queue.native_handle()));
  };
  add("select_largest/0.1%", on, 4, select, {{"sorting", sort}});
  const auto pairs = std::make_shared<buffer<kernels::index_pair>>(k);
  add("select_by_heap/0.1%", on, 4,
      [=] { kernels::select_by_heap(on->queue, on->input(), 0, pairs->span()); });
}

void add_norms(const std::shared_ptr<arrays>& on) {
  const auto sum = std::make_shared<buffer<double>>(1);
  add("sum_of_squares", on, 4,
      [=] { kernels::sum_of_squares(on->queue, on->input(), sum->data()); });
  add("largest_magnitude", on, 4, [=] {
    kernels::largest_magnitude(on->queue, on->input(), reinterpret_cast<float*>(sum->data()));
  });
}

void add_low_rank(const std::shared_ptr<arrays>& on) {
  const kernels::low_rank size = bench::matrix_of(on->n);
  const auto left = std::make_shared<buffer<float>>(size.rows * size.rank);
  const auto right = std::make_shared<buffer<float>>(size.columns * size.rank);
  for (const auto* each : {left.get(), right.get()}) {
    on->queue.copy(each->data(), on->gradient.data(), each->size() * sizeof(float));
  }
  add("matrix_times_thin", on, 4, [=] {
    kernels::matrix_times_thin(on->queue, on->gradient.data(), right->data(), size, left->data());
  });
  add("orthonormalise", on, 8 * static_cast<double>(left->size()) / static_cast<double>(on->n),
      [=] { kernels::orthonormalise(on->queue, left->data(), size.rows, size.rank); });
  add("transposed_times_thin", on, 4, [=] {
    kernels::transposed_times_thin(on->queue, on->gradient.data(), left->data(), size,
                                   right->data());
  });
  add("expand_and_subtract", on, 12, [=] {
    kernels::expand_and_subtract(on->queue, left->data(), right->data(), size, 1, 1,
                                 on->more.span(), on->sum.span());
  });
}

/// Adds the copy of all of a model's tensors in one kernel, beside one copy for each tensor.
void add_copies(const std::shared_ptr<arrays>& on) {
  std::vector<kernels::copy_run> runs;
  std::size_t begin = 0;
  for (const std::size_t end : bench::tensor_ends(on->n)) {
    runs.push_back({on->gradient.data() + begin, on->sum.data() + begin, end - begin});
    begin = end;
  }
  const auto one_by_one = [on, runs] {
    for (const auto& each : runs) {
      on->queue.copy(each.to, each.from, each.elements * sizeof(float));
    }
  };
  add("copy_runs", on, 8, [on, runs] { kernels::copy_runs(on->queue, runs); },
      {{"one_by_one", one_by_one}});
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
    add_blocks<tutti::compression::block_sign>("block_sign", on);
    add_blocks<tutti::compression::block_int8>("block_int8", on);
    add_blocks<tutti::compression::fp8_e4m3>("fp8_e4m3", on);
    add_selection(on);
    add_norms(on);
    add_low_rank(on);
    add_copies(on);
  }
  return bench::run(argc, argv);
}

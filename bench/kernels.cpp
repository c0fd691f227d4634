// How much of the memory's speed does each kernel reach on one core? Every kernel runs at the size
// of ResNet-50's gradient and in the second-level cache, in turn with the machine's limit and, for
// some, with a plain way to the same result. One file, because a row is a kernel's few lines.
//
//   bench-kernels
//   bench-kernels --benchmark_filter='sign|select'

#include <algorithm>
#include <array>
#include <benchmark/benchmark.h>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gradients.hpp"
#include "kernels/in_turn.hpp"
#include "kernels/limits.hpp"
#include "kernels/matrices.hpp"
#include "kernels/on_a_core.hpp"
#include "kernels/rates.hpp"
#include "program.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/benchmark.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/block_sign.hpp"
#include "tutti/compression/byteps_onebit.hpp"
#include "tutti/compression/byteps_randomk.hpp"
#include "tutti/compression/byteps_topk.hpp"
#include "tutti/compression/dithering.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/fp8.hpp"
#include "tutti/compression/natural.hpp"
#include "tutti/compression/power_sgd.hpp"
#include "tutti/compression/random_k.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/compression/threshold.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/kernels/adam.hpp"
#include "tutti/kernels/adaptive_sum.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/block_signs.hpp"
#include "tutti/kernels/cast.hpp"
#include "tutti/kernels/clipping.hpp"
#include "tutti/kernels/compensation.hpp"
#include "tutti/kernels/copies.hpp"
#include "tutti/kernels/low_rank.hpp"
#include "tutti/kernels/momentum.hpp"
#include "tutti/kernels/norms.hpp"
#include "tutti/kernels/selection.hpp"
#include "tutti/kernels/signs.hpp"
#include "tutti/kernels/sparse_pairs.hpp"
#include "tutti/kernels/votes.hpp"
#include "tutti/kernels/xorshift.hpp"

namespace bench {

namespace {

namespace kernels = tutti::kernels;

constexpr std::size_t whole_model = 25'600'000;
constexpr std::size_t in_cache = 1 << 16;

tutti::inline_queue queue;

/// Arrays of one size for all cases. They are freed when another size is asked for, because those
/// of the larger size take 700 MB.
class arrays {
 public:
  explicit arrays(std::size_t elements)
      : n(elements),
        gradient(normal_gradient(n, 1)),
        layered(layered_gradient(n, 2)),
        residual(n),
        sum(n),
        payload(2 * n),
        scratch(2 * n) {}

  static arrays& of(std::size_t elements) {
    static std::unique_ptr<arrays> kept;
    if (kept == nullptr || kept->n != elements) {
      kept.reset();
      kept = std::make_unique<arrays>(elements);
    }
    return *kept;
  }

  /// Clears what the previous case has left.
  void clear() {
    std::ranges::fill(residual, 0.0F);
    std::ranges::fill(sum, 0.0F);
    std::ranges::fill(payload, std::uint16_t{0});
  }

  double bytes(double an_element) const { return an_element * static_cast<double>(n); }
  std::uint32_t* words() { return reinterpret_cast<std::uint32_t*>(payload.data()); }
  template <class Compression>
  tutti::wire wire(const Compression& compression) {
    return {reinterpret_cast<std::byte*>(payload.data()), compression.wire_bytes(n)};
  }
  tutti::wire wire_of(std::size_t bytes) {
    return {reinterpret_cast<std::byte*>(payload.data()), bytes};
  }
  tutti::chunk_context context() {
    tutti::chunk_context where;
    where.memory = residual.data();
    where.stride = n;
    where.scratch = std::as_writable_bytes(std::span(scratch));
    return where;
  }

  contender reading() { return reading(gradient); }
  contender reading(const floats& input) {
    return {"reading", [&input] { benchmark::DoNotOptimize(read_all(input)); }, bytes(4)};
  }
  contender copying() {
    return {"copying", [this] { copy_whole(sum.data(), gradient.data(), n); }, bytes(8)};
  }
  contender adding() {
    return {"adding", [this] { add_all(sum.data(), gradient.data(), n); }, bytes(12)};
  }

  std::size_t n;
  floats gradient;
  floats layered;
  floats residual;
  floats sum;
  tutti::line_vector<std::uint16_t> payload;
  floats scratch;
};

using make = std::function<comparison(arrays&)>;

void add(const std::string& name, const make& compared) {
  for (const std::size_t n : {whole_model, in_cache}) {
    const std::string full = name + "/n:" + std::to_string(n);
    benchmark::RegisterBenchmark(full.c_str(),
                                 [compared, n](benchmark::State& state) {
                                   arrays& on = arrays::of(n);
                                   on.clear();
                                   take_turns_on_a_core(state, compared(on));
                                 })
        ->UseManualTime()
        ->MinTime(0.25)
        ->Unit(benchmark::kMicrosecond);
  }
}

/// Adds a kernel that moves so many bytes an element, beside one of the limits.
template <class Call>
void add(const std::string& name, double bytes, contender (arrays::*limit)(), Call call) {
  add(name, [=](arrays& on) {
    return comparison{{name, [&on, call] { call(on); }, on.bytes(bytes)}, (on.*limit)()};
  });
}

constexpr contender (arrays::*reading)() = &arrays::reading;
constexpr auto copying = &arrays::copying;
constexpr auto adding = &arrays::adding;

void add_arithmetic() {
  add("add", 12, adding, [](arrays& on) { kernels::add(queue, on.sum, on.gradient); });
  add("add_everywhere", 16, adding, [](arrays& on) {
    kernels::add_everywhere(queue, std::array{on.sum.data(), on.residual.data()}, on.n);
  });
  add("scale", 8, adding, [](arrays& on) { kernels::scale(queue, std::span(on.sum), -1); });
  add("add_scaled", 12, adding,
      [](arrays& on) { kernels::add_scaled(queue, std::span(on.sum), on.gradient, 0.5F); });
  add("blend", 12, adding,
      [](arrays& on) { kernels::blend(queue, std::span(on.sum), on.gradient, 0.9F, 0.1F); });
  add("negate", 8, adding, [](arrays& on) { kernels::negate(queue, std::span(on.sum)); });
  add("sum_of_three", 16, adding, [](arrays& on) {
    const std::array<const float*, 3> inputs{on.gradient.data(), on.layered.data(),
                                             on.residual.data()};
    kernels::sum(queue, std::span(on.sum), inputs);
  });
  add("mean_magnitude", 4, reading,
      [](arrays& on) { kernels::mean_magnitude(queue, on.gradient, on.scratch.data()); });
  add("root_mean_square", 4, reading,
      [](arrays& on) { kernels::root_mean_square(queue, on.gradient, on.scratch.data()); });
  add("add_and_mean_magnitude", 12, adding, [](arrays& on) {
    kernels::add_and_mean_magnitude(queue, on.sum, on.gradient, on.scratch.data());
  });
  add("sum_of_squares", 4, reading, [](arrays& on) {
    double total = 0;
    kernels::sum_of_squares(queue, on.gradient, &total);
    benchmark::DoNotOptimize(total);
  });
  add("inner_products", 8, reading, [](arrays& on) {
    kernels::inner_products all;
    kernels::multiply(queue, on.gradient, on.residual, &all);
    benchmark::DoNotOptimize(all);
  });
  static constexpr kernels::inner_products known{3, 2, 4};
  add("add_adaptively", 12, adding, [](arrays& on) {
    kernels::add_adaptively(queue, on.sum, on.gradient, &known, kernels::operand::first);
  });
  add("adam", 28, adding, [](arrays& on) {
    kernels::adam(queue, on.sum, on.residual, std::span(on.scratch).first(on.n), on.gradient,
                  {0.9F, 0.1F, 0.999F, 0.001F, 1e-6F, 1.0F, 1e-8F, 0.0F, 1.0F});
  });
  add("compensate", 16, adding,
      [](arrays& on) { kernels::compensate(queue, on.sum, on.gradient, on.residual, 0.04F); });
  add("add_nesterov", 16, adding,
      [](arrays& on) { kernels::add_nesterov(queue, on.residual, on.sum, on.gradient, 0.9F); });
  add("largest_magnitude", 4, reading,
      [](arrays& on) { kernels::largest_magnitude(queue, on.gradient, on.scratch.data()); });
}

template <class Format>
void add_casts(const std::string& format) {
  add("narrow/" + format, 6, copying,
      [](arrays& on) { kernels::narrow<Format>(queue, on.gradient, on.payload.data()); });
  add("widen/" + format, 6, copying,
      [](arrays& on) { kernels::widen<Format>(queue, on.payload.data(), on.sum); });
  add("add_widened/" + format, 10, adding,
      [](arrays& on) { kernels::add_widened<Format>(queue, on.payload.data(), on.sum); });
  add("add_narrow/" + format, 6, adding, [](arrays& on) {
    kernels::add_narrow<Format>(queue, std::span(on.payload).first(on.n), on.payload.data() + on.n);
  });
}

void pack_bit_by_bit(std::span<const float> input, std::uint32_t* words) {
  std::fill_n(words, kernels::sign_words(input.size()), 0u);
  for (std::size_t i = 0; i < input.size(); ++i) {
    words[i / 32] |= std::uint32_t{input[i] < 0} << (31 - i % 32);
  }
}

void add_signs() {
  add("pack_signs", [](arrays& on) {
    return comparison{
        {"", [&on] { kernels::pack_signs(queue, on.gradient, on.words()); }, on.bytes(4.125)},
        on.reading(),
        {{"bit_by_bit", [&on] { pack_bit_by_bit(on.gradient, on.words()); }}}};
  });
  add("add_signs", 8.125, adding,
      [](arrays& on) { kernels::add_signs(queue, on.words(), 1.0f, on.sum); });
  add("unpack_signs", 4.125, copying,
      [](arrays& on) { kernels::unpack_signs(queue, on.words(), 1.0f, on.sum); });
  add("majority_of_four", 5.0 / 8, reading, [](arrays& on) {
    const std::size_t bytes = on.n / 8;
    kernels::majority(queue, std::span(on.words(), on.n / 32),
                      {reinterpret_cast<const std::byte*>(on.words()) + bytes, bytes, 4, bytes});
  });
}

/// Adds a compressor's encoding and accumulating without a residual.
template <class Compression>
void add_plain(const std::string& name) {
  const double payload =
      static_cast<double>(Compression{}.wire_bytes(whole_model)) / static_cast<double>(whole_model);
  add("encode/" + name, 4 + payload, reading, [](arrays& on) {
    tutti::encode(Compression{}, queue, on.gradient, on.wire(Compression{}), on.context());
  });
  add("accumulate/" + name, 8 + payload, adding,
      [](arrays& on) { Compression{}.accumulate(queue, on.wire(Compression{}), on.sum); });
}

/// Adds error feedback, beside the decorator's general way, in separate steps, and beside `others`.
template <class Compression>
void add_feedback(const std::string& name,
                  const std::vector<std::pair<std::string, void (*)(arrays&)>>& others = {}) {
  using remembering = tutti::compression::error_feedback<Compression>;
  const double payload =
      static_cast<double>(Compression{}.wire_bytes(whole_model)) / static_cast<double>(whole_model);
  add("error_feedback/" + name, [=](arrays& on) {
    const remembering compression;
    const auto fused = [&on, compression] {
      compression.encode(queue, on.gradient, on.wire(compression), on.context());
    };
    const auto in_steps = [&on, compression] {
      compression.encode_in_steps(queue, on.gradient, on.wire(compression), on.context());
    };
    comparison made{{"", fused, on.bytes(12 + payload)}, on.adding(), {{"in_steps", in_steps}}};
    for (const auto& [peer, call] : others) {
      made.peers.push_back({peer, [&on, call = call] { call(on); }});
    }
    return made;
  });
}

/// Two passes: the residual is added and measured, then packed, and what was sent is subtracted.
void two_passes_with_scale(arrays& on) {
  const tutti::compression::error_feedback<tutti::compression::scaled_sign> compression;
  compression.encode(queue, on.gradient, on.wire(compression), on.context());
}

/// Two passes without a scale.
void two_passes(arrays& on) {
  constexpr static float one = 1;
  kernels::add(queue, on.residual, on.gradient);
  kernels::pack_signs_and_subtract(queue, std::span(on.residual), &one, on.words());
}

/// One pass whose payload has another layout, so that memory is read in order: each block holds the
/// signs of 512 neighbours.
void of_neighbours(arrays& on) {
  const std::span<float> into(on.residual);
  const std::span<const float> from(on.gradient);
  std::uint32_t* const words = on.words();
  kernels::widest([=] {
    kernels::detail::for_each_block(
        into.size(), 512, [=](std::size_t, std::size_t begin, std::size_t n) {
          kernels::detail::pack_block<16>(n, words + begin / 32, [=](std::size_t i) {
            return kernels::detail::add_and_vote(into[begin + i], from[begin + i], 1.0f);
          });
        });
  });
}

void add_error_feedback() {
  add_feedback<tutti::compression::sign>(
      "sign", {{"two_passes", two_passes}, {"neighbours", of_neighbours}});
  add_feedback<tutti::compression::scaled_sign>("scaled_sign");
  add_feedback<tutti::compression::norm_scaled_sign>("norm_scaled_sign");
  add_feedback<tutti::compression::block_sign>("block_sign",
                                               {{"two_passes", two_passes_with_scale}});
  add_feedback<tutti::compression::block_int8>("block_int8");
  add_feedback<tutti::compression::fp8_e4m3>("fp8_e4m3");
  add_feedback<tutti::compression::fp8_e5m2>("fp8_e5m2");
  add_feedback<tutti::compression::one_bit>("one_bit");
  add_feedback<tutti::compression::two_bit>("two_bit");
  add_feedback<tutti::compression::byteps_onebit>("onebit");
  add_feedback<tutti::compression::byteps_topk>("topk");
  add_feedback<tutti::compression::byteps_randomk>("randomk");
}

/// Finds a threshold with the standard library: magnitudes are copied and partly sorted.
void find_threshold(std::span<const float> input, floats& magnitudes, std::size_t k) {
  std::ranges::transform(input, magnitudes.begin(), [](float each) { return std::fabs(each); });
  std::nth_element(magnitudes.begin(), magnitudes.begin() + static_cast<std::ptrdiff_t>(k),
                   magnitudes.end(), std::greater<>());
}

void add_selection(const std::string& density, std::size_t one_in) {
  const auto selecting = [one_in](floats arrays::*input) {
    return [one_in, input](arrays& on) {
      const tutti::compression::top_k compression({.density = 1 / static_cast<double>(one_in)});
      return comparison{{"",
                         [&on, input, compression] {
                           compression.encode(queue, on.*input, on.wire(compression), on.context());
                         },
                         on.bytes(4)},
                        on.reading(on.*input),
                        {{"nth_element", [&on, input, one_in] {
                            find_threshold(on.*input, on.sum, on.n / one_in);
                          }}}};
    };
  };
  add("select_largest/" + density + "/layered", selecting(&arrays::layered));
  add("select_largest/" + density + "/normal", selecting(&arrays::gradient));
}

/// Merges two selections, as a rank of a tree does. Half of their indices differ.
void add_merging() {
  add("merge_pairs/0.1%", [](arrays& on) {
    const std::size_t k = std::max<std::size_t>(on.n / 1000, 1);
    std::vector<std::uint32_t> mine(k);
    std::vector<std::uint32_t> theirs(k);
    for (std::size_t i = 0; i < k; ++i) {
      mine[i] = static_cast<std::uint32_t>(1000 * i);
      theirs[i] = static_cast<std::uint32_t>(1000 * i + i % 2);
    }
    std::vector<std::uint32_t> merged(2 * k);
    const auto plainly = [&on, mine, theirs]() mutable {
      std::map<std::uint32_t, float> sums;
      for (std::size_t i = 0; i < mine.size(); ++i) {
        sums[mine[i]] += on.gradient[i];
        sums[theirs[i]] += on.layered[i];
      }
      on.sum[0] = sums.begin()->second;
    };
    return comparison{{"",
                       [&on, mine, theirs, merged]() mutable {
                         kernels::merge_pairs(queue, {mine, on.gradient.data()},
                                              {theirs, on.layered.data()}, {merged, on.sum.data()});
                       },
                       on.bytes(0.032)},
                      on.copying(),
                      {{"map", plainly}}};
  });
}

/// Draws elements at random. Each one reads a cache line.
void add_draws() {
  add("draw/0.1%", [](arrays& on) {
    const tutti::compression::random_k compression({.density = 0.001});
    return comparison{{"",
                       [&on, compression] {
                         compression.encode(queue, on.gradient, on.wire(compression), on.context());
                       },
                       on.bytes(0.064)},
                      on.reading()};
  });
}

/// Writes bits one after the other, as BytePS does: each is pushed into a word, which is stored
/// when it is full.
class one_bit_at_a_time {
 public:
  explicit one_bit_at_a_time(std::uint32_t* words) : words_(words) {}
  void put(std::uint64_t bit) {
    word_ = word_ << 1 | static_cast<std::uint32_t>(bit);
    if (++bits_ % 32 == 0) {
      *words_++ = word_;
    }
  }
  /// Writes the digits of a number, the most significant first.
  void put_digits(std::uint64_t number, int digits) {
    while (digits-- > 0) {
      put(number >> digits & 1);
    }
  }
  void put_delta(std::uint64_t number) {
    const auto digits = static_cast<std::uint64_t>(std::bit_width(number));
    const auto of_digits = static_cast<int>(std::bit_width(digits));
    put_digits(0, of_digits - 1);
    put_digits(digits, of_digits);
    put_digits(number, static_cast<int>(digits) - 1);  // the leading 1 is left out
  }

 private:
  std::uint32_t* words_;
  std::uint32_t word_ = 0;
  std::size_t bits_ = 0;
};

/// Dithers to sixteen linear levels of the largest magnitude as BytePS does: element by element,
/// with its generator, in which each number depends on the one before, and bit by bit. The last,
/// partial word is not written.
void dither_like_byteps(std::span<const float> input, std::uint32_t* words) {
  double largest = 0;
  for (const float each : input) {
    largest = std::max(largest, std::fabs(double{each}));
  }
  kernels::xorshift128_plus random(1);
  one_bit_at_a_time out(words);
  std::size_t before = 0;
  for (std::size_t i = 0; i < input.size(); ++i) {
    const auto share = static_cast<float>(std::fabs(input[i]) / largest * 16);
    const float below = std::floor(share);
    const bool up = static_cast<double>(random()) < double{share - below} * 0x1p64;
    const auto level = static_cast<std::uint64_t>(below) + (up ? 1 : 0);
    if (level != 0) {
      out.put_delta(i + 1 - before);
      out.put(std::signbit(input[i]) ? 1 : 0);
      out.put_delta(level);
      before = i + 1;
    }
  }
}

void add_dithering() {
  add("encode/dithering", [](arrays& on) {
    const tutti::compression::dithering compression;
    return comparison{{"",
                       [&on, compression] {
                         std::size_t length = 0;
                         compression.encode(queue, on.gradient,
                                            on.wire_of(compression.capacity(on.n)), on.context(),
                                            &length);
                         benchmark::DoNotOptimize(length);
                       },
                       on.bytes(4)},
                      on.reading(),
                      {{"byteps", [&on] { dither_like_byteps(on.gradient, on.words()); }}}};
  });
  add("accumulate/dithering", [](arrays& on) {
    const tutti::compression::dithering compression;
    std::size_t length = 0;
    compression.encode(queue, on.gradient, on.wire_of(compression.capacity(on.n)), on.context(),
                       &length);
    return comparison{
        {"",
         [&on, compression, length] { compression.accumulate(queue, on.wire_of(length), on.sum); },
         on.bytes(8)},
        on.adding()};
  });
}

void add_clipping() {
  add("find_clip_factor", [](arrays& on) {
    return comparison{
        {"", [&on] { kernels::find_clip_factor(queue, on.gradient, 1, 1, on.sum.data()); },
         on.bytes(4)},
        on.reading()};
  });
  add("blend_clipped", [](arrays& on) {
    on.sum[0] = 0.5F;
    return comparison{{"",
                       [&on] {
                         kernels::blend_clipped(queue, std::span(on.residual), on.gradient, 0.9F,
                                                on.sum.data());
                       },
                       on.bytes(12)},
                      on.adding()};
  });
}

void add_copies() {
  add("copy_runs", [](arrays& on) {
    std::vector<kernels::copy_run> runs;
    std::size_t begin = 0;
    for (const std::size_t end : tensor_ends(on.n)) {
      runs.push_back({on.gradient.data() + begin, on.sum.data() + begin, end - begin});
      begin = end;
    }
    return comparison{{"", [runs] { kernels::copy_runs(queue, runs); }, on.bytes(8)},
                      on.copying(),
                      {{"copy_by_copy", [runs] {
                          for (const auto& each : runs) {
                            queue.copy(each.to, each.from, each.elements * sizeof(float));
                          }
                        }}}};
  });
}

/// Adds `call(on, left, right)`. The thin matrices are filled first, because other cases write to
/// their memory.
template <class Call>
void add_thin(const std::string& name, double bytes, contender (arrays::*limit)(), Call call) {
  add(name, [=](arrays& on) {
    float* const left = on.scratch.data();
    float* const right = left + matrix_of(on.n).rows * matrix_of(on.n).rank;
    std::ranges::copy(on.layered, left);
    return comparison{{name, [=, &on] { call(on, left, right); }, on.bytes(bytes)}, (on.*limit)()};
  });
}

void add_low_rank() {
  add_thin("matrix_times_thin", 4, reading, [](arrays& on, float* left, const float* right) {
    kernels::matrix_times_thin(queue, on.gradient.data(), right, matrix_of(on.n), left);
  });
  add_thin("transposed_times_thin", 4, reading, [](arrays& on, const float* left, float* right) {
    kernels::transposed_times_thin(queue, on.gradient.data(), left, matrix_of(on.n), right);
  });
  add_thin("expand_and_subtract", 12, adding, [](arrays& on, const float* left, float* right) {
    kernels::expand_and_subtract(queue, left, right, matrix_of(on.n), 1, 1, on.sum, on.residual);
  });
}

/// Adds a step of PowerSGD on consecutive matrices of so many elements: both rounds, in a job of
/// one rank. It reads the gradient and writes the mean. The residual is read and written twice, and
/// read once more. If a matrix stays in a cache, memory sees only one reading and writing of the
/// residual.
void add_power_sgd(const std::string& name, std::size_t elements, double bytes) {
  add("power_sgd/rank:4/" + name, [elements, bytes](arrays& on) {
    const tutti::compression::power_sgd compression({.rank = 4});
    const std::size_t each = std::min(elements, on.n);
    const std::size_t rows = on.n / matrix_of(on.n).columns;
    const std::size_t of_each = elements == whole_model ? rows : 512;
    const tutti::tensor_facts tensor{{}, each, {of_each, each / of_each}, {}};
    std::vector<float> remembered(compression.remembers(tensor));
    std::vector<std::byte> first(compression.wire_bytes(tensor, 0));
    std::vector<std::byte> second(compression.wire_bytes(tensor, 1));
    const auto step = [=, &on]() mutable {
      for (std::size_t begin = 0; begin + each <= on.n; begin += each) {
        tutti::chunk_context where = on.context();
        where.memory += begin;
        where.tensor = &tensor;
        where.remembered = remembered.data();
        const tutti::wire left{first.data(), first.size()};
        const tutti::wire right{second.data(), second.size()};
        const auto gradient = std::span<const float>(on.gradient).subspan(begin, each);
        compression.encode(queue, 0, gradient, left, where);
        compression.between(queue, 0, {first.data(), first.size()}, where);
        compression.encode(queue, 1, gradient, right, where);
        compression.decode(queue, {second.data(), second.size()},
                           std::span<float>(on.sum).subspan(begin, each), where,
                           tutti::summed{1, 1.0F});
      }
    };
    return comparison{{"", step, bytes * static_cast<double>(on.n / each * each)}, on.adding()};
  });
}

void add_everything() {
  add_arithmetic();
  add_casts<kernels::half>("fp16");
  add_casts<kernels::bfloat>("bf16");
  add_signs();
  add_plain<tutti::compression::block_sign>("block_sign");
  add_plain<tutti::compression::two_bit>("two_bit");
  add_plain<tutti::compression::block_int8>("block_int8");
  add_plain<tutti::compression::fp8_e4m3>("fp8_e4m3");
  add_plain<tutti::compression::natural>("natural");
  add_error_feedback();
  add_selection("0.1%", 1000);
  add_selection("1%", 100);
  add_merging();
  add_draws();
  add_clipping();
  add_dithering();
  add_low_rank();
  add_power_sgd("whole", whole_model, 7 * 4);
  add_power_sgd("tensors", 512 * 4608, 4 * 4);
  add_copies();
}

}  // namespace

}  // namespace bench

int main(int argc, char** argv) {
  bench::add_everything();
  bench::add_rates();
  return bench::run(argc, argv);
}

// The kernels of tutti::cuda without nvcc: the same element functions, threads' shares and steps of
// selection, with loops where the device has threads, on the stand-in's streams.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "gpu/stand_in/runtime.hpp"
#include "support/selection_round.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/fixed_sum.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/cast.hpp"
#include "tutti/kernels/copies.hpp"
#include "tutti/kernels/descent.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/selection.hpp"
#include "tutti/kernels/selection_steps.hpp"
#include "tutti/kernels/signs.hpp"

namespace tutti::kernels {

namespace {

template <int Width, class F, class... Arrays>
void share_out(cuda::stream& queue, std::size_t n, const F& f, Arrays... arrays) {
  constexpr std::size_t threads = 96;
  test::stood_in_by(queue.native_handle()).run([=] {
    for (std::size_t thread = 0; thread < threads; ++thread) {
      share_of<Width>(thread, threads, n, f, arrays...);
    }
  });
}

template <class F, class... Arrays>
void each(cuda::stream& queue, std::size_t n, const F& f, Arrays... arrays) {
  constexpr int width = pack_width<Arrays...>();
  if (aligned_for<width>(arrays...)) {
    share_out<width>(queue, n, f, arrays...);
  } else {
    share_out<1>(queue, n, f, arrays...);
  }
}

template <class F>
void for_each(cuda::stream& queue, std::size_t n, const F& f) {
  test::stood_in_by(queue.native_handle()).for_each(n, f);
}

/// One block's part of a sum.
template <class Term>
double folded(const fixed_sum& order, const Term& term, std::size_t segment) {
  std::array<double, fixed_sum::threads> sums;
  for (std::size_t thread = 0; thread < sums.size(); ++thread) {
    sums[thread] = order.of_thread(term, segment, thread);
  }
  for (std::size_t half = sums.size() / 2; half > 0; half /= 2) {
    for (std::size_t thread = 0; thread < sums.size(); ++thread) {
      fixed_sum::fold(sums.data(), thread, half);
    }
  }
  return sums[0];
}

template <class Term>
void mean(cuda::stream& queue, std::size_t n, const Term& term, float* result) {
  auto* partial = reinterpret_cast<double*>(queue.room().memory());
  test::stood_in_by(queue.native_handle()).run([=] {
    const fixed_sum order(n);
    for (std::size_t segment = 0; segment < order.segments(); ++segment) {
      partial[segment] = folded(order, term, segment);
    }
    const auto of_segments = [partial](std::size_t i) { return partial[i]; };
    element::keep_mean{result, n}(folded(fixed_sum(order.segments()), of_segments, 0));
  });
}

// ---- selection

/// `before` has room for the tiles' counts.
template <class Refuse>
steps::tally collect(const steps::source& from, steps::search limit, std::span<float> above,
                     std::span<std::uint32_t> equal, const steps::destination& out,
                     const Refuse& refuse) {
  const std::size_t tiles = steps::tiles_of(from.n);
  auto* above_bits = reinterpret_cast<std::uint32_t*>(above.data());
  steps::tally sum;
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    above_bits[tile] = sum.above;
    equal[tile] = sum.equal;
    sum = sum + steps::count_tile(steps::host_group{}, from, tile, limit);
  }
  for (std::size_t tile = tiles; tile-- > 0;) {
    steps::write_tile(steps::host_group{}, from, tile, limit, {above_bits[tile], equal[tile]}, out,
                      refuse);
  }
  return sum;
}

void select(std::span<const float> input, const selection& out, const candidates& room,
            unsigned long long* refused, std::uint64_t first_element) {
  const std::size_t k = out.indices.size();
  const std::size_t capacity = room.values.size() - steps::tiles_of(input.size());
  const auto above = room.values.subspan(capacity);
  const auto equal = room.indices.subspan(capacity);
  const steps::source whole{input.data(), nullptr, input.size()};
  steps::source from = whole;
  steps::search known{0, static_cast<std::uint32_t>(k)};
  known = test::search_round(from, known, 0);
  if (input.size() > capacity) {
    const auto found =
        collect(whole, steps::floor_of(known), above, equal,
                {room.indices.data(), room.values.data(), capacity}, steps::refuse_nothing{});
    from =
        steps::chosen(whole, {room.values.data(), room.indices.data(), capacity}, found.above, k);
  }
  known = test::search_round(from, known, 1);
  known = test::search_round(from, known, 2);
  collect(from, known, above, equal, {out.indices.data(), out.values, k}, [&](std::uint32_t index) {
    *refused = std::min<unsigned long long>(*refused, first_element + index);
  });
}

}  // namespace

void add(cuda::stream& queue, std::span<float> into, std::span<const float> from) {
  each(queue, into.size(), element::add{}, into.data(), from.data());
}
void scale(cuda::stream& queue, std::span<float> data, float factor) {
  each(queue, data.size(), element::scale{factor}, data.data());
}
void add_scaled(cuda::stream& queue, std::span<float> into, std::span<const float> from,
                float factor) {
  each(queue, into.size(), element::add_scaled{factor}, into.data(), from.data());
}
void blend(cuda::stream& queue, std::span<float> into, std::span<const float> from, float factor) {
  each(queue, into.size(), element::blend{factor}, into.data(), from.data());
}
void negate(cuda::stream& queue, std::span<float> data) {
  each(queue, data.size(), element::negate{}, data.data());
}
void sum(cuda::stream& queue, std::span<float> out, std::span<const float* const> inputs) {
  for (std::size_t first = 0; first == 0 || first < inputs.size();
       first += element::sum_of_some::most) {
    const std::size_t count = std::min(inputs.size() - first, element::sum_of_some::most);
    for_each(queue, out.size(),
             element::sum_of_some(out.data(), inputs.subspan(first, count), first));
  }
}
void mean_magnitude(cuda::stream& queue, std::span<const float> input, float* result) {
  mean(queue, input.size(), element::magnitude{input.data()}, result);
}
void add_and_mean_magnitude(cuda::stream& queue, std::span<float> into, std::span<const float> from,
                            float* result) {
  mean(queue, into.size(), element::magnitude_of_sum{into.data(), from.data()}, result);
}

void copy_runs(cuda::stream& queue, std::span<const copy_run> runs) {
  for (; !runs.empty(); runs = runs.subspan(std::min(runs.size(), element::copy_pieces::most))) {
    const element::copy_pieces all(runs.first(std::min(runs.size(), element::copy_pieces::most)));
    test::stood_in_by(queue.native_handle()).run([all] {
      for (std::size_t piece = 0; piece < all.pieces(); ++piece) {
        for (std::size_t thread = 0; thread < 64; ++thread) {
          all(piece, thread, 64);
        }
      }
    });
  }
}

void descend(cuda::stream& queue, std::span<float> x, std::span<const float> g, descent values) {
  each(queue, x.size(), element::descend{values}, x.data(), g.data());
}
void descend_with_momentum(cuda::stream& queue, std::span<float> x, std::span<float> m,
                           std::span<const float> g, descent values) {
  each(queue, x.size(), element::descend_with_momentum{values}, x.data(), m.data(), g.data());
}

template <class Format>
void narrow(cuda::stream& queue, std::span<const float> input, std::uint16_t* out) {
  each(queue, input.size(), element::narrow<Format>{}, input.data(),
       only_written<std::uint16_t>{out});
}
template <class Format>
void add_widened(cuda::stream& queue, const std::uint16_t* input, std::span<float> sum) {
  each(queue, sum.size(), element::add_widened<Format>{}, input, sum.data());
}
template <class Format>
void add_narrow(cuda::stream& queue, std::span<std::uint16_t> into, const std::uint16_t* from) {
  each(queue, into.size(), element::add_narrow<Format>{}, into.data(), from);
}
template void narrow<half>(cuda::stream&, std::span<const float>, std::uint16_t*);
template void narrow<bfloat>(cuda::stream&, std::span<const float>, std::uint16_t*);
template void add_widened<half>(cuda::stream&, const std::uint16_t*, std::span<float>);
template void add_widened<bfloat>(cuda::stream&, const std::uint16_t*, std::span<float>);
template void add_narrow<half>(cuda::stream&, std::span<std::uint16_t>, const std::uint16_t*);
template void add_narrow<bfloat>(cuda::stream&, std::span<std::uint16_t>, const std::uint16_t*);

void pack_signs(cuda::stream& queue, std::span<const float> input, std::uint32_t* words) {
  const std::size_t count = sign_words(input.size());
  for_each(queue, count, element::pack_word{input.data(), input.size(), count, words});
}
void pack_signs_and_subtract(cuda::stream& queue, std::span<float> input, const float* magnitude,
                             std::uint32_t* words) {
  const std::size_t count = sign_words(input.size());
  for_each(queue, count,
           element::pack_word_and_subtract{input.data(), input.size(), count, magnitude, words});
}
void add_and_pack_signs(cuda::stream& queue, std::span<float> into, std::span<const float> from,
                        std::uint32_t* words) {
  const std::size_t count = sign_words(into.size());
  for_each(queue, count,
           element::add_and_pack_word{into.data(), from.data(), into.size(), count, words});
}
void add_signs(cuda::stream& queue, const std::uint32_t* words, const float* magnitude,
               std::span<float> sum) {
  const std::size_t count = sign_words(sum.size());
  for_each(queue, count, element::add_word{words, magnitude, sum.data(), sum.size(), count});
}
void majority(cuda::stream& queue, std::span<std::uint32_t> out, payload_row ballots) {
  const auto voters = static_cast<std::uint32_t>(ballots.count);
  const auto count = [&](auto planes) {
    for_each(queue, out.size(),
             element::count_word<planes()>{ballots.first, ballots.stride, voters, out.data()});
  };
  if (voters < 16) {
    count(std::integral_constant<unsigned, 4>{});
  } else if (voters < 256) {
    count(std::integral_constant<unsigned, 8>{});
  } else {
    count(std::integral_constant<unsigned, 32>{});
  }
}

void select_largest(cuda::stream& queue, std::span<const float> input, std::uint64_t first_element,
                    selection out, candidates room) {
  if (!out.indices.empty()) {
    test::stood_in_by(queue.native_handle()).run([=, refused = queue.room().refused()] {
      select(input, out, room, refused, first_element);
    });
  }
}
void clear_at(cuda::stream& queue, std::span<float> data, std::span<const std::uint32_t> indices) {
  for_each(queue, indices.size(), element::clear_at{data.data(), indices.data()});
}
void scatter_add(cuda::stream& queue, std::span<const std::uint32_t> indices, const float* values,
                 std::span<float> sum) {
  for_each(queue, indices.size(), element::scatter_add{indices.data(), values, sum.data()});
}

}  // namespace tutti::kernels

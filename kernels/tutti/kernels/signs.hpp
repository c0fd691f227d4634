#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "tutti/base/host_device.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/units.hpp"
#include "tutti/kernels/blocks.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/widest.hpp"

namespace tutti::kernels {

// Signs in one bit an element: 1 if it is below zero. Zeros of either sign and NaN count as
// positive.
//
// n elements, padded with zeros to a multiple of 32, are seen as 32 rows of n / 32 elements. Word i
// takes element i of each row, the first row in its most significant bit. Packing and unpacking are
// then shifts of a whole vector of words, and never shuffle the words of a vector.

/// Returns how many 32-bit words hold the signs of n elements.
constexpr std::size_t sign_words(std::size_t n) { return round_up(n, 32) / 32; }

namespace detail {

// How many words are packed at a time: so few that they stay in the second-level cache while the
// rows pass by, and so many that a processor's prefetchers settle on each run of a row.
inline constexpr std::size_t tile = 65536;

/// Shifts a bit of each of some rows into words[i]: negative(first + i), negative(first +
/// row_length + i), …
template <class Negative, std::size_t... Row>
void pack_rows(std::size_t first, std::size_t row_length, std::size_t columns, std::uint32_t* words,
               const Negative& negative, std::index_sequence<Row...>) {
  constexpr std::size_t rows = sizeof...(Row);
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < columns; ++i) {
    words[i] = words[i] << rows |
               ((std::uint32_t{negative(first + Row * row_length + i)} << (rows - 1 - Row)) | ...);
  }
}

/// Packs signs tile by tile, from word `first_column` on. Calls `negative(element)` once for every
/// element.
///
/// Packs `RowsTogether` rows at a time. More rows are more streams of reads, which use more of the
/// memory's bandwidth as long as a processor can follow them all, and the words are read and
/// written once for all of these rows.
template <std::size_t RowsTogether, class Negative>
void pack(std::size_t elements, std::uint32_t* words, const Negative& negative,
          std::size_t first_column = 0) {
  constexpr auto rows = std::make_index_sequence<RowsTogether>();
  const std::size_t total = sign_words(elements);
  for (std::size_t begin = first_column; begin < total; begin += tile) {
    const std::size_t count = std::min(tile, total - begin);
    std::uint32_t* const packed = words + begin;
    std::fill_n(packed, count, 0u);
    for (std::size_t row = 0; row < 32; row += RowsTogether) {
      const std::size_t first = row * total + begin;
      const std::size_t last = first + (RowsTogether - 1) * total;
      const std::size_t whole = last < elements ? std::min(count, elements - last) : 0;
      pack_rows(first, total, whole, packed, negative, rows);
      for (std::size_t i = whole; i < count; ++i) {  // columns that reach into the padding
        for (std::size_t element = first + i; element <= last + i; element += total) {
          packed[i] = packed[i] << 1 | (element < elements && negative(element) ? 1u : 0u);
        }
      }
    }
  }
}

// How many words of a block are packed together: a constant, so that the compiler knows it, and one
// that divides the words of nearly every block.
inline constexpr std::size_t columns_together = 16;

/// Packs one block, which lies in the first-level cache. Calls `negative(i)` once for every
/// element. Prefetches elements that follow in `arrays`, which begin with this block.
template <std::size_t RowsTogether, class Negative, class... Arrays>
void pack_block(std::size_t elements, std::uint32_t* words, const Negative& negative,
                const Arrays... arrays) {
  const std::size_t total = elements / 32;
  if (elements % (32 * columns_together) != 0) {
    return pack<RowsTogether>(elements, words, negative);
  }
  std::fill_n(words, total, 0u);
  for (std::size_t begin = 0; begin < total; begin += columns_together) {
    for (std::size_t row = 0; row < 32; row += RowsTogether) {
      constexpr std::size_t together = RowsTogether * columns_together;
      prefetch_after(32 * begin + row * columns_together, together, arrays...);
      pack_rows(row * total + begin, total, columns_together, words + begin, negative,
                std::make_index_sequence<RowsTogether>());
    }
  }
}

/// How many elements of a row pack_row_by_row packs together. The words of 32 such rows are sixteen
/// squares of 32 by 32 bits.
inline constexpr std::size_t square = 32 * columns_together;

template <unsigned Apart>
void swap_bits(std::uint32_t* words) {
  constexpr std::uint32_t mask = ~0u / ((1u << Apart) + 1);
  for (std::size_t begin = 0; begin < square; begin += 2 * Apart * columns_together) {
    std::uint32_t* const above = words + begin;
    std::uint32_t* const below = above + Apart * columns_together;
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
    for (std::size_t i = 0; i < Apart * columns_together; ++i) {
      const std::uint32_t swapped = (above[i] ^ (below[i] >> Apart)) & mask;
      above[i] ^= swapped;
      below[i] ^= swapped << Apart;
    }
  }
}

/// Transposes these squares of bits: bit b of row r becomes bit r of row b.
inline void turn_squares(std::uint32_t* words) {
  swap_bits<16>(words);
  swap_bits<8>(words);
  swap_bits<4>(words);
  swap_bits<2>(words);
  swap_bits<1>(words);
}

/// Packs signs while reading row after row, because kernels of two arrays of which one is written
/// are fastest in memory's order. A square's words first hold its rows, each packed as a block, and
/// are transposed once all rows are there. `negative(i)` reads element i of `arrays`.
template <class Negative, class... Arrays>
void pack_row_by_row(std::size_t elements, std::uint32_t* words, const Negative& negative,
                     const Arrays... arrays) {
  const std::size_t total = sign_words(elements);
  const std::size_t squares = elements < 31 * total ? 0 : (elements - 31 * total) / square;
  for (std::size_t row = 0; row < 32; ++row) {
    for (std::size_t number = 0; number < squares; ++number) {
      const std::size_t first = row * total + number * square;
      pack_block<16>(
          square, words + number * square + row * columns_together,
          [=](std::size_t i) { return negative(first + i); }, arrays.subspan(first)...);
    }
  }
  for (std::size_t number = 0; number < squares; ++number) {
    turn_squares(words + number * square);
  }
  pack<4>(elements, words, negative, squares * square);
}

/// Returns `magnitude` with the sign that `row` has in `word`.
TUTTI_HD inline float signed_like(std::uint32_t word, unsigned row, float magnitude) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) ^
                              ((word << row) & 0x8000'0000u));
}

/// Subtracts `magnitude` with the value's sign from `value`, and returns whether the sign is
/// negative. The subtraction is written so that a result of zero is +0.
TUTTI_HD inline bool subtract_sign(float& value, float magnitude) {
  const bool negative = value < 0;
  value = 0 - ((negative ? -magnitude : magnitude) - value);
  return negative;
}

/// Adds `from` to `into`, then subtracts `worth` with the sign of the sum. Returns whether that is
/// negative.
inline bool add_and_vote(float& into, float from, float worth) {
  const float both = into + from;
  into = both - (both < 0 ? -worth : worth);
  return both < 0;
}

/// Decodes a sign by adding its value to what is there.
struct added {
  static constexpr bool reads = true;
  TUTTI_HD float operator()(float before, float value) const { return before + value; }
};
/// Decodes a sign by writing its value over what is there, with the bits of adding it to zero.
struct written {
  static constexpr bool reads = false;
  TUTTI_HD float operator()(float, float value) const { return 0.0f + value; }
};

/// Decodes rows `first`, `first + 1`, … of words[i] into out[i], out[row_length + i], …
template <class How, std::size_t... Row>
void decode_rows(const std::uint32_t* words, std::size_t columns, std::size_t first,
                 std::size_t row_length, float magnitude, float* out, How how,
                 std::index_sequence<Row...>) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < columns; ++i) {
    const std::uint32_t word = words[i] << first;
    ((out[Row * row_length + i] =
          how(out[Row * row_length + i], signed_like(word, Row, magnitude))),
     ...);
  }
}

template <class How>
void decode_signs(const std::uint32_t* words, float magnitude, std::span<float> out, How how) {
  // The number is a literal, because nvcc would misspell a named constant here.
  constexpr auto together = std::make_index_sequence<4>();
  constexpr std::size_t rows = together.size();
  const std::size_t total = sign_words(out.size());
  for (std::size_t begin = 0; begin < total; begin += tile) {
    const std::size_t count = std::min(tile, total - begin);
    for (std::size_t row = 0; row < 32; row += rows) {
      const std::size_t first = row * total + begin;
      const std::size_t last = first + (rows - 1) * total;
      const std::size_t whole = last < out.size() ? std::min(count, out.size() - last) : 0;
      decode_rows(words + begin, whole, row, total, magnitude, out.data() + first, how, together);
      for (std::size_t i = whole; i < count; ++i) {  // columns that reach into the padding
        for (std::size_t each = 0; each < rows; ++each) {
          const std::size_t element = first + each * total + i;
          if (element < out.size()) {
            const auto its_row = static_cast<unsigned>(row + each);
            out[element] = how(out[element], signed_like(words[begin + i], its_row, magnitude));
          }
        }
      }
    }
  }
}

}  // namespace detail

/// Packs the signs of `input` into sign_words(input.size()) words.
template <host_queue Queue>
void pack_signs(Queue& queue, std::span<const float> input, std::uint32_t* words) {
  queue.run([=] {
    widest([=] {
      const auto negative = [=](std::size_t i) { return input[i] < 0; };
      detail::pack<8>(input.size(), words, negative);
    });
  });
}
void pack_signs(cuda::stream& queue, std::span<const float> input, std::uint32_t* words);

/// Packs the signs of `input`, and subtracts what each stands for: input[i] -= ±*magnitude.
template <host_queue Queue>
void pack_signs_and_subtract(Queue& queue, std::span<float> input, const float* magnitude,
                             std::uint32_t* words) {
  queue.run([=] {
    const float positive = *magnitude;
    widest([=] {
      const auto negative = [=](std::size_t i) {
        return detail::subtract_sign(input[i], positive);
      };
      detail::pack<8>(input.size(), words, negative);
    });
  });
}
void pack_signs_and_subtract(cuda::stream& queue, std::span<float> input, const float* magnitude,
                             std::uint32_t* words);

/// into[i] += from[i]; then packs the signs of `into`, one vote an element, and subtracts what each
/// stands for: into[i] -= ±worth. One pass.
template <host_queue Queue>
void add_and_pack_signs(Queue& queue, std::span<float> into, std::span<const float> from,
                        float worth, std::uint32_t* words) {
  queue.run([=] {
    widest([=] {
      const auto negative = [=](std::size_t i) {
        return detail::add_and_vote(into[i], from[i], worth);
      };
      detail::pack_row_by_row(into.size(), words, negative, into, from);
    });
  });
}
void add_and_pack_signs(cuda::stream& queue, std::span<float> into, std::span<const float> from,
                        float worth, std::uint32_t* words);

/// What a sign is worth: a float in memory, read when the queue runs, or a number set beforehand.
struct sign_worth {
  const float* magnitude{};
  float set{};  ///< what it is worth if `magnitude` is null

  constexpr sign_worth(const float* in_memory) : magnitude(in_memory) {}
  constexpr sign_worth(float number) : set(number) {}
  sign_worth(std::nullptr_t) = delete;
  float read() const { return magnitude == nullptr ? set : *magnitude; }
};

/// sum[i] += ±worth.
template <host_queue Queue>
void add_signs(Queue& queue, const std::uint32_t* words, sign_worth worth, std::span<float> sum) {
  queue.run([=] {
    const float positive = worth.read();
    widest([=] { detail::decode_signs(words, positive, sum, detail::added()); });
  });
}
void add_signs(cuda::stream& queue, const std::uint32_t* words, sign_worth worth,
               std::span<float> sum);

/// out[i] = ±worth, with the bits of adding it to zero.
template <host_queue Queue>
void unpack_signs(Queue& queue, const std::uint32_t* words, sign_worth worth,
                  std::span<float> out) {
  queue.run([=] {
    const float positive = worth.read();
    widest([=] { detail::decode_signs(words, positive, out, detail::written()); });
  });
}
void unpack_signs(cuda::stream& queue, const std::uint32_t* words, sign_worth worth,
                  std::span<float> out);

namespace element {

// On a device, a thread packs one word, or `Width` neighbouring words. The words' elements lie in
// 32 rows, and in each row neighbouring threads read neighbouring elements. Several rows are loaded
// before the first is written: memory is far away, and for all that a compiler knows, a write may
// change what is read next.

template <int Width>
using words_of = kernels::detail::pack_of<std::uint32_t, Width>;

/// The elements whose signs are words [Width * i, Width * (i + 1)).
template <int Width>
struct columns {
  std::size_t n;
  std::size_t words;
  std::size_t first;

  TUTTI_HD columns(std::size_t elements, std::size_t i)
      : n(elements), words(sign_words(elements)), first(Width * i) {}
  TUTTI_HD std::size_t element(unsigned row) const { return row * words + first; }
  /// Whether none of these elements is padding.
  TUTTI_HD bool whole() const { return element(31) + Width <= n; }
};

inline constexpr unsigned rows_at_once = 8;

/// The elements of `rows_at_once` rows, from row `begin` on, in registers.
template <class T, int Width>
struct some_rows {
  using row = kernels::detail::pack_of<std::remove_const_t<T>, Width>;

  T* array;
  row held[rows_at_once];

  TUTTI_HD some_rows(const columns<Width>& mine, T* its_array, unsigned begin) : array(its_array) {
    for (unsigned r = 0; r < rows_at_once; ++r) {
      held[r] = *reinterpret_cast<const row*>(array + mine.element(begin + r));
    }
  }
  TUTTI_HD void store(const columns<Width>& mine, unsigned begin) const {
    if constexpr (!std::is_const_v<T>) {
      for (unsigned r = 0; r < rows_at_once; ++r) {
        *reinterpret_cast<row*>(array + mine.element(begin + r)) = held[r];
      }
    }
  }
};

template <int Width, class Negative, class... Rows>
TUTTI_HD void pack_some_rows(const columns<Width>& mine, unsigned begin, words_of<Width>& words,
                             const Negative& negative, Rows... rows) {
  for (unsigned r = 0; r < rows_at_once; ++r) {
    for (int i = 0; i < Width; ++i) {
      words.value[i] = words.value[i] << 1 | (negative(rows.held[r].value[i]...) ? 1u : 0u);
    }
  }
  (rows.store(mine, begin), ...);
}

/// Packs `negative(elements of the arrays...)` into words. `negative` may change elements of arrays
/// that are not const.
template <int Width, class Negative, class... T>
TUTTI_HD void pack_columns(const columns<Width>& mine, std::uint32_t* out, const Negative& negative,
                           T*... arrays) {
  words_of<Width> words{};
  if (mine.whole()) {
    for (unsigned row = 0; row < 32; row += rows_at_once) {
      pack_some_rows(mine, row, words, negative, some_rows<T, Width>(mine, arrays, row)...);
    }
  } else {
    for (std::size_t i = 0; i < Width; ++i) {
      unsigned row = 0;
      for (std::size_t each = mine.first + i; each < mine.n; each += mine.words) {
        words.value[i] |= (negative(arrays[each]...) ? 1u : 0u) << (31 - row++);
      }
    }
  }
  *reinterpret_cast<words_of<Width>*>(out + mine.first) = words;
}

struct pack_words {
  const float* input;
  std::size_t n;
  std::uint32_t* out;

  template <int Width>
  TUTTI_HD void pack(std::size_t i) const {
    pack_columns(
        columns<Width>(n, i), out, [](float value) { return value < 0; }, input);
  }
};

struct pack_words_and_subtract {
  float* input;
  std::size_t n;
  const float* magnitude;
  std::uint32_t* out;

  template <int Width>
  TUTTI_HD void pack(std::size_t i) const {
    const float positive = *magnitude;
    const auto negative = [=](float& value) {
      return kernels::detail::subtract_sign(value, positive);
    };
    pack_columns(columns<Width>(n, i), out, negative, input);
  }
};

struct add_and_pack_words {
  float* into;
  const float* from;
  std::size_t n;
  float worth;
  std::uint32_t* out;

  template <int Width>
  TUTTI_HD void pack(std::size_t i) const {
    const float positive = worth;
    const auto negative = [=](float& sum, float added) {
      sum += added;
      return kernels::detail::subtract_sign(sum, positive);
    };
    pack_columns(columns<Width>(n, i), out, negative, into, from);
  }
};

/// Decodes the signs of blocks. A thread decodes `Width` neighbours of `out`, or fewer at the end,
/// so that neighbouring threads write neighbouring memory. Words are read once for each of their 32
/// rows, from the caches.
template <class How>
struct decode_signs {
  const std::uint32_t* in;  // the words of all blocks, one block after the other
  const float* magnitudes;  // one for each block; null: all are `set`
  float* out;
  std::size_t n;
  std::size_t block;
  float set{1};

  template <int Width>
  TUTTI_HD void pack(std::size_t i) const {
    const std::size_t first = i * Width;
    const std::size_t number = divided(first, block);
    const block_of here(number, block, n);
    const std::size_t words = sign_words(here.n);
    const std::uint32_t* const its = in + here.begin / 32;
    const float positive = magnitudes == nullptr ? set : magnitudes[number];
    std::size_t row = divided(first - here.begin, words);
    std::size_t column = first - here.begin - row * words;
    const auto decode = [&](float& to) {
      to = How()(to,
                 kernels::detail::signed_like(its[column], static_cast<unsigned>(row), positive));
      if (++column == words) {
        column = 0;
        ++row;
      }
    };
    if (first + Width > n) {
      for (std::size_t left = first; left < n; ++left) {
        decode(out[left]);
      }
      return;
    }
    using row_of = kernels::detail::pack_of<float, Width>;
    row_of values{};
    if constexpr (How::reads) {
      values = reinterpret_cast<const row_of*>(out)[i];
    }
    for (float& each : values.value) {
      decode(each);
    }
    reinterpret_cast<row_of*>(out)[i] = values;
  }
};

}  // namespace element

}  // namespace tutti::kernels

#pragma once

#include <cstdint>

/// What machines say to each other, in words of four bytes.
///
/// Rank 0 says launches. The upper half of a launch's first word is a digest of all launches so
/// far, its own included; the lower half is its chunk, or `several | n` before n words, its chunks
/// by ascending number. `acknowledge` asks the others how far they have carried out what was said;
/// `all_joined` says that no rank has a batch left.
///
/// The others begin with one of the kinds below; the word's other bits are its value.
namespace tutti::coordination::words {

inline constexpr std::uint32_t low = 0xffff;
inline constexpr std::uint32_t several = 0x8000;
inline constexpr std::uint32_t all_joined = 0xfffe;
inline constexpr std::uint32_t acknowledge = 0xffff;

/// It says something else than a launch.
constexpr bool is_notice(std::uint32_t lower_half) { return lower_half >= all_joined; }

inline constexpr std::uint32_t value = 0x3fffffff;
inline constexpr std::uint32_t kind = ~value;
inline constexpr std::uint32_t number = 0;                ///< a bucket's, that is ready
inline constexpr std::uint32_t joined = value;            ///< in place of one: no more batches
inline constexpr std::uint32_t bits = 0x40000000;         ///< how many words of bits follow
inline constexpr std::uint32_t carried_out = 0x80000000;  ///< words of rank 0's, modulo 2^30
inline constexpr std::uint32_t name = 0xc0000000;  ///< a bucket's; its bytes and letters follow

}  // namespace tutti::coordination::words

#pragma once

#include <cstdint>

/// The messages that the coordination's machines on different ranks send each other, in words of
/// four bytes.
///
/// Rank 0 sends launches. The upper half of a launch's first word is a digest of all launches so
/// far, including this one. The lower half is the launch's chunk, or `several | n` if n words
/// follow, its chunks by ascending number. In place of a launch, `acknowledge` asks the other ranks
/// how far they have carried out what they were told, and `all_joined` says that no rank has a
/// batch left.
///
/// The other ranks send records. Each begins with a word that has one of the kinds below in its two
/// upper bits, and a value in its other bits.
namespace tutti::coordination::words {

inline constexpr std::uint32_t low = 0xffff;
inline constexpr std::uint32_t several = 0x8000;
inline constexpr std::uint32_t all_joined = 0xfffe;
inline constexpr std::uint32_t acknowledge = 0xffff;

/// Whether a word says something other than a launch.
constexpr bool is_notice(std::uint32_t lower_half) { return lower_half >= all_joined; }

inline constexpr std::uint32_t value = 0x3fffffff;
inline constexpr std::uint32_t kind = ~value;
inline constexpr std::uint32_t number = 0;         ///< of a bucket that is ready
inline constexpr std::uint32_t left = value - 1;   ///< in place of a number: the rank has left
inline constexpr std::uint32_t joined = value;     ///< in place of a number: it has no more batches
inline constexpr std::uint32_t bits = 0x40000000;  ///< a version and so many words of bits follow
inline constexpr std::uint32_t carried_out = 0x80000000;  ///< count of rank 0's words, modulo 2^30
inline constexpr std::uint32_t name = 0xc0000000;  ///< of a bucket; its bytes and letters follow

}  // namespace tutti::coordination::words

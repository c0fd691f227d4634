// The bytes of codes that engines send, for every code of a fixed length, one to five workers, and
// every architecture in the lists of order_laws.hpp that takes payloads which cannot be added.
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <tuple>
#include <type_traits>

#include "support/byte_laws.hpp"
#include "support/published_lengths.hpp"
#include "tutti/base/type_name.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/core/rules.hpp"

namespace tutti::test {
namespace {

using codes = compression::error_feedback<fixed_lengths>;

template <class Architecture, class Compression>
constexpr bool legal = rule::payloads_must_add<Architecture, Compression>::holds&&
    rule::votes_need_a_sign_each<Architecture, Compression>::holds&& rule::payloads_must_merge<
        Architecture, Compression>::holds&& rule::kept_magnitudes_select<Architecture,
                                                                         Compression>::holds&&
        rule::rounded_parameters_are_remembered<Architecture, Compression>::holds&&
            rule::rounded_parameters_are_all_there<Architecture, Compression>::holds&&
                rule::rounded_parameters_have_magnitudes<Architecture, Compression>::holds&&
                    rule::native_adds_floats<Architecture, Compression>::holds&&
                        rule::parameters_travel_whole<Architecture, Compression>::holds&&
                            rule::differences_have_magnitudes<Architecture, Compression>::holds&&
                                rule::kept_gradients_are_undivided<Architecture,
                                                                   Compression>::holds&&
                                    rule::residuals_are_sent<Architecture, Compression>::holds&&
                                        rule::momenta_are_of_all_steps<Architecture,
                                                                       Compression>::holds&&
                                            rule::compression_is_used<Architecture,
                                                                      Compression>::holds;

/// A piece of `n` elements that begins at the model's element `first`, on one of the workers.
struct piece {
  std::size_t rank;
  std::size_t workers;
  std::size_t n;
  std::size_t first;
};

/// Returns the bytes of a payload of so many elements by one of the codes.
struct length_of_code {
  std::size_t which;
  std::uint64_t operator()(std::size_t elements) const { return published_bytes(which, elements); }
};

/// Returns the bytes that a worker sends for a piece.
using bytes_of_codes = std::uint64_t (*)(const piece&, length_of_code);

std::uint64_t to_all(const piece& of, length_of_code length) {
  return (of.workers - 1) * length(of.n);
}
/// Returns the bytes of sending each part to its owner, and each owner's sum, encoded again, to
/// all.
std::uint64_t to_owners(const piece& of, length_of_code length) {
  std::uint64_t sent = 0;
  for (std::size_t owner = 0; owner < of.workers; ++owner) {
    const std::uint64_t bytes = length(dealt(of.first, of.n, owner, of.workers));
    sent += owner == of.rank ? (of.workers - 1) * bytes : bytes;
  }
  return sent;
}
std::uint64_t to_a_server(const piece& of, length_of_code length) { return length(of.n); }
std::uint64_t to_nobody(const piece&, length_of_code) { return 0; }

constexpr std::size_t limit = 128;  ///< elements of a piece, which are whole blocks of every code

/// Servers that keep the parameters answer with floats, and others with a code of the mean. A piece
/// is sent in every step, or once in `period` steps.
template <class Architecture, class Codes = codes>
void sends_codes(bytes_of_codes stated, int first_steps = 1, int period = 1) {
  SCOPED_TRACE(type_name<Architecture>());
  static_assert(legal<Architecture, Codes>);
  using strategy =
      compose<schedule::as_ready, coordination::local, Architecture, Codes, partition::into>;
  constexpr bool keeps_parameters =
      facts::owns_parameters<Architecture> || facts::updates_first<Architecture>;
  engine_options<strategy> options{.partition = {.bytes = 4 * limit}};
  if constexpr (has_servers<strategy>) {
    options.architecture.servers = 2;
  }
  if constexpr (requires { options.architecture.period; }) {
    options.architecture.period = period;
  }
  const auto times = static_cast<std::uint64_t>(counted_steps / period);
  for (std::size_t which = 0; which < fixed_lengths_count; ++which) {
    const length_of_code length{which};
    options.compression.which = which;
    for (std::size_t workers = 1; workers <= 5; ++workers) {
      const auto sent = bytes_of_steps<strategy>(workers, options, first_steps);
      for (std::size_t rank = 0; rank < workers; ++rank) {
        const auto of_piece = [&](std::size_t, std::size_t, std::size_t n, std::size_t first) {
          return stated({rank, workers, n, first}, length);
        };
        EXPECT_EQ(sent[rank], times * bytes_of_pieces(of_piece, rank, workers, limit))
            << which << ", rank " << rank << " of " << workers;
      }
      const auto answer = [&](std::size_t, std::size_t, std::size_t n, std::size_t) {
        return keeps_parameters ? 4 * n : length(n);
      };
      const std::uint64_t answers = bytes_of_pieces(answer, 0, workers, limit);
      EXPECT_EQ(sum_of(std::span(sent).subspan(workers)),
                has_servers<strategy> ? times * workers * answers : 0)
          << which << ", servers of " << workers;
    }
  }
}

using architecture::parameter_server;
using consistency::asynchronous;
using consistency::backup_workers;
using consistency::bounded_staleness;
using consistency::synchronous;

/// The architectures of both lists that take codes.
using sending_codes = std::tuple<
    architecture::all_gather, architecture::reduce_scatter_all_gather,
    architecture::sharded_by_owners, architecture::momentum_exchange, architecture::independent,
    parameter_server<>, parameter_server<synchronous, updated_by::servers>,
    parameter_server<synchronous, updated_by::servers_by_push>, parameter_server<asynchronous>,
    parameter_server<asynchronous, updated_by::servers>, parameter_server<bounded_staleness>>;

template <class Architecture>
constexpr bytes_of_codes stated_of = facts::has_servers<Architecture> ? to_a_server : to_owners;
template <>
constexpr bytes_of_codes stated_of<architecture::all_gather> = to_all;
template <>
constexpr bytes_of_codes stated_of<architecture::independent> = to_nobody;

TEST(CompressedBytes, OfEveryFixedLength) {
  const auto each = []<class Architecture>(const Architecture*) {
    constexpr bool warms_up = facts::exchanges_momenta<Architecture>;
    sends_codes<Architecture>(stated_of<Architecture>, warms_up ? warm_up_steps + 1 : 1);
  };
  [&]<class... All>(const std::tuple<All...>*) {
    (each(static_cast<const All*>(nullptr)), ...);
  }(static_cast<const sending_codes*>(nullptr));
  sends_codes<parameter_server<backup_workers, updated_by::servers>, fixed_lengths>(to_a_server);
  sends_codes<architecture::delayed<architecture::all_gather>>(to_all);
  sends_codes<architecture::streaming_diloco<architecture::all_gather>>(to_all, 1, 4);
}

/// Returns half of the bytes that floats take.
template <auto Floats>
std::uint64_t half(std::size_t rank, std::size_t workers, std::size_t n) {
  return Floats(rank, workers, n) / 2;
}
/// Gradients are sent as codes, and the updated parameters as floats.
std::uint64_t codes_and_floats(std::size_t rank, std::size_t workers, std::size_t n,
                               std::size_t first) {
  return 2 * (n - dealt(first, n, rank, workers)) + 4 * (n - dealt(first, n, rank + 1, workers));
}
template <class Architecture, class Stated>
void sends_sixteen_bits(Stated stated, std::uint64_t sending = counted_steps) {
  static_assert(legal<Architecture, compression::fp16> && !legal<Architecture, codes>);
  using strategy = compose<schedule::as_ready, coordination::local, Architecture, compression::fp16,
                           partition::into>;
  engine_options<strategy> options;
  if constexpr (requires { options.architecture.momentum; }) {
    options.architecture.period = 4;
  }
  sends_as_stated<strategy>(options, stated, sending);
}
TEST(CompressedBytes, OfSixteenBitsThatAdd) {
  sends_sixteen_bits<architecture::all_reduce<>>(half<bytes::around>);
  sends_sixteen_bits<architecture::delayed<architecture::all_reduce<>>>(half<bytes::around>);
  sends_sixteen_bits<architecture::sharded<>>(codes_and_floats);
  sends_sixteen_bits<architecture::diloco<>>(half<bytes::around>, counted_steps / 4);
  sends_sixteen_bits<architecture::streaming_diloco<>>(half<bytes::around>, counted_steps / 4);
}

template <class Architecture, class... All>
constexpr bool is_one_of(const std::tuple<All...>*) {
  return (std::is_same_v<Architecture, All> || ...);
}
/// Whether `sending_codes` has exactly those architectures of a list that take codes.
template <class... Architectures>
constexpr bool asks_all(const std::tuple<Architectures...>*) {
  return ((legal<Architectures, codes> ==
           is_one_of<Architectures>(static_cast<const sending_codes*>(nullptr))) &&
          ...);
}
static_assert(asks_all(static_cast<const ordered_architectures*>(nullptr)) &&
                  asks_all(static_cast<const sampled_architectures*>(nullptr)),
              "sending_codes is not those architectures that take payloads which do not add");

}  // namespace
}  // namespace tutti::test

// What engines send of codes: every architecture that takes payloads which do not add, every code
// of a fixed length, one to five workers.
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <tuple>

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
    rule::votes_need_a_sign_each<Architecture, Compression>::holds&&
        rule::payloads_must_merge<Architecture, Compression>::holds&&
            rule::kept_magnitudes_select<Architecture, Compression>::holds&&
                rule::rounded_parameters_are_remembered<Architecture, Compression>::holds&&
                    rule::native_adds_floats<Architecture, Compression>::holds&&
                        rule::parameters_travel_whole<Architecture, Compression>::holds&&
                            rule::kept_gradients_are_undivided<Architecture, Compression>::holds&&
                                rule::compression_is_used<Architecture, Compression>::holds;

/// A piece of `n` elements that begins at the model's element `first`, on one of the workers.
struct piece {
  std::size_t rank;
  std::size_t workers;
  std::size_t n;
  std::size_t first;
};

/// Bytes of a payload of so many elements by one of the codes.
struct length_of_code {
  std::size_t which;
  std::uint64_t operator()(std::size_t elements) const { return published_bytes(which, elements); }
};

/// Bytes that a worker sends for a piece.
using bytes_of_codes = std::uint64_t (*)(const piece&, length_of_code);

std::uint64_t to_all(const piece& of, length_of_code length) {
  return (of.workers - 1) * length(of.n);
}
/// Parts go to their owners, and each owner's sum, encoded again, to all.
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

constexpr std::size_t limit = 128;  ///< elements of a piece: whole blocks of a code that has some

template <class Of>
std::uint64_t over_pieces(Of bytes_of) {
  std::uint64_t all = 0;
  std::size_t first = 0;
  for (std::size_t tensor = counted_sizes().size(); tensor-- > 0;) {
    const std::size_t end = first + counted_sizes()[tensor];
    for (std::size_t n = 0; first < end; first += n) {
      n = std::min(end - first, limit);
      all += bytes_of(first, n);
    }
  }
  return all;
}

/// Servers that keep the parameters answer with floats, others with a code of the mean.
template <class Architecture>
void sends_codes(bytes_of_codes stated, int first_steps = 1) {
  SCOPED_TRACE(type_name<Architecture>());
  static_assert(legal<Architecture, codes>);
  using strategy =
      compose<schedule::as_ready, coordination::local, Architecture, codes, partition::into>;
  engine_options<strategy> options{.partition = {.bytes = 4 * limit}};
  if constexpr (has_servers<strategy>) {
    options.architecture.servers = 2;
  }
  for (std::size_t which = 0; which < fixed_lengths_count; ++which) {
    const length_of_code length{which};
    options.compression.which = which;
    for (std::size_t workers = 1; workers <= 5; ++workers) {
      const auto sent = bytes_of_steps<strategy>(workers, options, first_steps);
      for (std::size_t rank = 0; rank < workers; ++rank) {
        EXPECT_EQ(sent[rank], counted_steps * over_pieces([&](std::size_t first, std::size_t n) {
                                return stated({rank, workers, n, first}, length);
                              }))
            << which << ", rank " << rank << " of " << workers;
      }
      const std::uint64_t answers = over_pieces([&](std::size_t, std::size_t n) {
        return facts::owns_parameters<Architecture> || facts::updates_first<Architecture>
                   ? 4 * n
                   : length(n);
      });
      EXPECT_EQ(sum_of(std::span(sent).subspan(workers)),
                has_servers<strategy> ? counted_steps * workers * answers : 0)
          << which << ", servers of " << workers;
    }
  }
}

TEST(CompressedBytes, OfEveryFixedLength) {
  using architecture::parameter_server;
  using namespace consistency;
  sends_codes<architecture::all_gather>(to_all);
  sends_codes<architecture::delayed<architecture::all_gather>>(to_all);
  sends_codes<architecture::reduce_scatter_all_gather>(to_owners);
  sends_codes<architecture::sharded_by_owners>(to_owners);
  sends_codes<architecture::momentum_exchange>(to_owners, 101);  // its warm-up is 100 steps
  sends_codes<architecture::independent>(to_nobody);
  sends_codes<parameter_server<>>(to_a_server);
  sends_codes<parameter_server<synchronous, updated_by::servers>>(to_a_server);
  sends_codes<parameter_server<synchronous, updated_by::servers_by_push>>(to_a_server);
  sends_codes<parameter_server<asynchronous>>(to_a_server);
  sends_codes<parameter_server<asynchronous, updated_by::servers>>(to_a_server);
  sends_codes<parameter_server<bounded_staleness>>(to_a_server);
  sends_codes<parameter_server<backup_workers, updated_by::servers>>(to_a_server);
}

/// What floats send, halved.
template <auto Floats>
std::uint64_t half(std::size_t rank, std::size_t workers, std::size_t n) {
  return Floats(rank, workers, n) / 2;
}
/// Gradients travel as codes, the parameters that they make as floats.
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

/// The two lists of architectures have as many that take such payloads as are asked above, less
/// `delayed<all_gather>`, which is on neither.
template <class Compression, class... Architectures>
constexpr int legal_among(const std::tuple<Architectures...>*) {
  return (0 + ... + (legal<Architectures, Compression> ? 1 : 0));
}
template <class Compression>
constexpr int legal_with = legal_among<Compression>(static_cast<ordered_architectures*>(nullptr)) +
                           legal_among<Compression>(static_cast<sampled_architectures*>(nullptr));
static_assert(legal_with<codes> == 12 && legal_with<compression::fp16> == 12 - 1 + 5,
              "an architecture takes payloads whose bytes no test above counts");

}  // namespace
}  // namespace tutti::test

#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <numeric>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "support/dealt.hpp"
#include "support/order_laws.hpp"
#include "tutti/base/type_name.hpp"
#include "tutti/collective/by_graph.hpp"
#include "tutti/collective/by_size.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/halving_doubling.hpp"
#include "tutti/collective/hierarchical.hpp"
#include "tutti/collective/hierarchical_copy.hpp"
#include "tutti/collective/ring.hpp"
#include "tutti/collective/rings.hpp"
#include "tutti/collective/shuffle.hpp"
#include "tutti/collective/star.hpp"
#include "tutti/collective/torus.hpp"

/// Bytes that engines count are those that their architecture's paper says, for one to five workers
/// and tensors of all lengths. The engines are those of the laws of order.
namespace tutti::test {

enum class some_collective {
  ring,
  rings,
  halving_doubling,
  star,
  canonical,
  by_graph,
  hierarchical,
  hierarchical_copy,
  torus,
  shuffle,
};
constexpr std::array<std::string_view, 10> names(some_collective) {
  return {"ring",     "rings",        "halving_doubling",  "star",  "canonical",
          "by_graph", "hierarchical", "hierarchical_copy", "torus", "shuffle"};
}
/// Which of them an engine has is an option.
using any_collective =
    collective::by_size<some_collective, collective::ring, collective::rings,
                        collective::halving_doubling, collective::star, collective::canonical,
                        collective::by_graph, collective::hierarchical<>,
                        collective::hierarchical_copy, collective::torus,
                        collective::shuffle<collective::gather_at::hosts>>;

inline constexpr int counted_steps = 8;
inline const tensor_lengths& counted_sizes() {
  static const tensor_lengths sizes{0, 1, 2, 7, 33, 1001};
  return sizes;
}
/// The partition's limit, in elements.
inline constexpr std::size_t counted_piece = 150;

/// Bytes that a rank sends for a piece of `n` elements.
using bytes_of_piece = std::uint64_t (*)(std::size_t rank, std::size_t workers, std::size_t n);
/// Or, where that counts, for one that begins at the model's element `first`.
using bytes_by_place = std::uint64_t (*)(std::size_t rank, std::size_t workers, std::size_t n,
                                         std::size_t first);

/// Bytes that a rank sends for all pieces: for whole tensors, where none is cut.
template <class Stated>
std::uint64_t bytes_of_pieces(Stated of, std::size_t rank, std::size_t workers,
                              std::size_t limit = counted_piece) {
  std::uint64_t all = 0;
  std::size_t first = 0;
  for (std::size_t tensor = counted_sizes().size(); tensor-- > 0;) {
    const std::size_t end = first + counted_sizes()[tensor];
    for (std::size_t n = 0; first < end; first += n) {
      n = std::min(end - first, limit);
      if constexpr (std::is_invocable_v<Stated, std::size_t, std::size_t, std::size_t,
                                        std::size_t>) {
        all += of(rank, workers, n, first);
      } else {
        all += of(rank, workers, n);
      }
    }
  }
  return all;
}

namespace bytes {

/// As many elements as the part of a rank: cut evenly, the first parts are longer by one.
constexpr std::size_t part(std::size_t n, std::size_t parts, std::size_t which) {
  return n / parts + (which % parts < n % parts ? 1 : 0);
}
inline std::uint64_t none(std::size_t, std::size_t, std::size_t) { return 0; }
/// Once around to add all parts but the own, once more to spread all sums but the successor's.
inline std::uint64_t around(std::size_t rank, std::size_t workers, std::size_t n) {
  return 4 * (2 * n - part(n, workers, rank) - part(n, workers, rank + 1));
}
inline std::uint64_t to_all(std::size_t, std::size_t workers, std::size_t n) {
  return 4 * (workers - 1) * n;
}
/// Parts go to their owners, and from there to all.
inline std::uint64_t to_owners(std::size_t rank, std::size_t workers, std::size_t n) {
  const std::size_t own = part(n, workers, rank);
  return 4 * (n - own + (workers - 1) * own);
}
/// Both, where a rank owns the parts that it is dealt of the model.
inline std::uint64_t around_parts(std::size_t rank, std::size_t workers, std::size_t n,
                                  std::size_t first) {
  return 4 * (2 * n - dealt(first, n, rank, workers) - dealt(first, n, rank + 1, workers));
}
inline std::uint64_t to_owners_of_parts(std::size_t rank, std::size_t workers, std::size_t n,
                                        std::size_t first) {
  const std::size_t own = dealt(first, n, rank, workers);
  return 4 * (n - own + (workers - 1) * own);
}
/// A bit an element, in words, to rank 0 and back.
inline std::uint64_t votes(std::size_t rank, std::size_t workers, std::size_t n) {
  return (rank == 0 ? workers - 1 : 1) * 4 * ((n + 31) / 32);
}
/// A tenth of the elements, an index and a value each: to whoever is a rank's parent, and back to
/// each of its children, who are 1, 2, 4, ... above it as far as its own number is a multiple.
inline std::uint64_t up_and_down_a_tree(std::size_t rank, std::size_t workers, std::size_t n) {
  std::uint64_t payloads = rank == 0 ? 0 : 1;
  for (std::size_t above = 1; rank % (2 * above) == 0 && rank + above < workers; above *= 2) {
    ++payloads;
  }
  return payloads * 8 * std::max<std::size_t>(n / 10, 1);
}
inline std::uint64_t once(std::size_t, std::size_t, std::size_t n) { return 4 * n; }
/// Maleki et al.: halves are exchanged with ever farther ranks, at the i-th distance with i
/// exchanges of three doubles, and spread the same way back. Ranks above a power of two hand all
/// down, and get all back.
inline std::uint64_t halved_and_doubled(std::size_t rank, std::size_t workers, std::size_t n) {
  const std::size_t core = std::bit_floor(workers);
  if (rank >= core) {
    return 4 * n;
  }
  std::uint64_t sent = rank + core < workers ? 4 * n : 0;
  std::size_t held = n;
  std::size_t level = 0;
  for (std::size_t distance = 1; distance < core; distance *= 2) {
    const std::size_t lower = held / 2;
    const std::size_t kept = (rank & distance) == 0 ? lower : held - lower;
    sent += 4 * (held - kept) + 24 * ++level + 4 * kept;
    held = kept;
  }
  return sent;
}

}  // namespace bytes

/// What each rank sends in the steps after the first ones, beside which there is part of the start.
template <class Strategy>
std::vector<std::uint64_t> bytes_of_steps(std::size_t workers, engine_options<Strategy> options,
                                          int first_steps = 1) {
  const auto after = [&](int steps) {
    return run_in_order<Strategy>(static_cast<int>(workers), steps, options, counted_sizes()).bytes;
  };
  std::vector<std::uint64_t> all = after(first_steps + counted_steps);
  const std::vector<std::uint64_t> first = after(first_steps);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    all[rank] -= first[rank];
  }
  return all;
}

inline std::uint64_t sum_of(std::span<const std::uint64_t> bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{});
}

/// Every worker sends the bytes of its pieces in `sending` steps; servers, all together, an answer
/// of floats for each piece of each worker.
template <class Strategy, class Stated>
void sends_as_stated(engine_options<Strategy> options, Stated stated,
                     std::uint64_t sending = counted_steps, std::size_t limit = counted_piece) {
  SCOPED_TRACE(type_name<Strategy>());
  if constexpr (requires { options.partition.bytes; }) {
    options.partition.bytes = 4 * counted_piece;
  }
  for (std::size_t workers = 1; workers <= 5; ++workers) {
    const auto sent = bytes_of_steps<Strategy>(workers, options);
    for (std::size_t rank = 0; rank < workers; ++rank) {
      EXPECT_EQ(sent[rank], sending * bytes_of_pieces(stated, rank, workers, limit))
          << "rank " << rank << " of " << workers;
    }
    const std::uint64_t answers = has_servers<Strategy> ? sending * workers : 0;
    EXPECT_EQ(sum_of(std::span(sent).subspan(workers)),
              answers * bytes_of_pieces(bytes::once, 0, workers))
        << workers << " workers' servers";
  }
}

/// All ranks together send `stated(workers)` times the bytes of the model in a step.
template <class Strategy>
void send_together(engine_options<Strategy> options, std::size_t (*stated)(std::size_t workers)) {
  SCOPED_TRACE(type_name<Strategy>());
  for (std::size_t workers = 1; workers <= 5; ++workers) {
    EXPECT_EQ(sum_of(bytes_of_steps<Strategy>(workers, options)),
              counted_steps * stated(workers) * bytes_of_pieces(bytes::once, 0, 1))
        << workers << " workers";
  }
}

/// The strategy that the laws of order have of an architecture, where each rank decides alone.
template <class Architecture, class Stated>
void counts_as_stated(Stated stated, std::uint64_t sending = counted_steps) {
  using alone = ordered<schedule::as_ready, coordination::local, Architecture>;
  sends_as_stated<typename alone::strategy>(alone::options(), stated, sending);
}

}  // namespace tutti::test

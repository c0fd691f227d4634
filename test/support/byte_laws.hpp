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

/// Checks that the bytes which engines count are those that their architecture's paper states, for
/// one to five workers and tensors of all lengths. The engines are those of order_laws.hpp.
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
/// An option says at run time which of these collectives an engine uses.
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

/// Returns the bytes that a rank sends for a piece of `n` elements.
using bytes_of_piece = std::uint64_t (*)(std::size_t rank, std::size_t workers, std::size_t n);
/// Returns the bytes that a rank sends for a piece of `n` elements that begins at the model's
/// element `first`, where the count depends on that.
using bytes_by_place = std::uint64_t (*)(std::size_t rank, std::size_t workers, std::size_t n,
                                         std::size_t first);

/// Returns the bytes that a rank sends for all pieces; these are whole tensors where none is cut.
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

/// Returns the elements of part `which` when `n` are cut evenly into `parts`. The first parts are
/// longer by one where the division leaves a remainder.
constexpr std::size_t part(std::size_t n, std::size_t parts, std::size_t which) {
  return n / parts + (which % parts < n % parts ? 1 : 0);
}
inline std::uint64_t none(std::size_t, std::size_t, std::size_t) { return 0; }
/// Returns the bytes of a ring all-reduce. A rank sends all parts but its own to add them, then all
/// sums but its successor's to spread them.
inline std::uint64_t around(std::size_t rank, std::size_t workers, std::size_t n) {
  return 4 * (2 * n - part(n, workers, rank) - part(n, workers, rank + 1));
}
inline std::uint64_t to_all(std::size_t, std::size_t workers, std::size_t n) {
  return 4 * (workers - 1) * n;
}
/// Returns the bytes of sending each part to its owner, and each sum from its owner to all.
inline std::uint64_t to_owners(std::size_t rank, std::size_t workers, std::size_t n) {
  const std::size_t own = part(n, workers, rank);
  return 4 * (n - own + (workers - 1) * own);
}
/// As `around` and `to_owners`, where the model's elements are dealt to the ranks in turn and a
/// rank owns what it is dealt.
inline std::uint64_t around_parts(std::size_t rank, std::size_t workers, std::size_t n,
                                  std::size_t first) {
  return 4 * (2 * n - dealt(first, n, rank, workers) - dealt(first, n, rank + 1, workers));
}
inline std::uint64_t to_owners_of_parts(std::size_t rank, std::size_t workers, std::size_t n,
                                        std::size_t first) {
  const std::size_t own = dealt(first, n, rank, workers);
  return 4 * (n - own + (workers - 1) * own);
}
/// Returns the bytes of a majority vote: one bit an element, in words of 32 bits, to rank 0 and
/// back.
inline std::uint64_t votes(std::size_t rank, std::size_t workers, std::size_t n) {
  return (rank == 0 ? workers - 1 : 1) * 4 * ((n + 31) / 32);
}
/// Returns the bytes of gTopK's tree. A payload is a tenth of the elements, an index and a value
/// each. A rank sends one to its parent, and one back to each of its children, which lie 1, 2, 4,
/// ... above it as long as its own number is a multiple of twice that distance.
inline std::uint64_t up_and_down_a_tree(std::size_t rank, std::size_t workers, std::size_t n) {
  std::uint64_t payloads = rank == 0 ? 0 : 1;
  for (std::size_t above = 1; rank % (2 * above) == 0 && rank + above < workers; above *= 2) {
    ++payloads;
  }
  return payloads * 8 * std::max<std::size_t>(n / 10, 1);
}
inline std::uint64_t once(std::size_t, std::size_t, std::size_t n) { return 4 * n; }
/// Returns the bytes of Adasum (Maleki et al.): halves are exchanged with ever farther ranks and
/// spread back along the same way. At the i-th distance three doubles are exchanged i times, too.
/// Ranks above the largest power of two send everything to a rank below it, and get everything
/// back.
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

/// Returns the bytes that each rank sends in the steps after the first `first_steps`, which also
/// contain a part of the start.
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

/// Expects every worker to send the stated bytes for its pieces in `sending` steps. Expects the
/// servers, all together, to send an answer of floats for each piece to each worker.
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

/// Expects all ranks together to send `stated(workers)` times the bytes of the model in a step.
template <class Strategy>
void send_together(engine_options<Strategy> options, std::size_t (*stated)(std::size_t workers)) {
  SCOPED_TRACE(type_name<Strategy>());
  for (std::size_t workers = 1; workers <= 5; ++workers) {
    EXPECT_EQ(sum_of(bytes_of_steps<Strategy>(workers, options)),
              counted_steps * stated(workers) * bytes_of_pieces(bytes::once, 0, 1))
        << workers << " workers";
  }
}

/// Checks the bytes of an architecture in the strategy of order_laws.hpp in which each rank decides
/// its launches alone.
template <class Architecture, class Stated>
void counts_as_stated(Stated stated, std::uint64_t sending = counted_steps) {
  using alone = ordered<schedule::as_ready, coordination::local, Architecture>;
  sends_as_stated<typename alone::strategy>(alone::options(), stated, sending);
}

}  // namespace tutti::test

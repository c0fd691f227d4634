#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "tutti/base/bounds.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"
#include "tutti/collective/exchange_with_all.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/kernels/elements.hpp"
#include "tutti/kernels/reaching.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/collective.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/launch.hpp"

namespace tutti::architecture {

/// A sparse all-reduce by regions (Ok-Topk). Every rank owns a region of each launch. Each rank
/// sends to the owners those of its elements that reach a magnitude of its own. An owner adds them
/// up in rank order, and sends to all ranks those sums that reach a second magnitude. Either
/// magnitude is that of the k-th largest element; it is found every `estimate_every` steps and kept
/// in between. Regions are found every `divide_every` steps: each rank proposes ends that would
/// give all owners equally many of its elements, and the mean of the proposals counts.
///
/// A rank clears what it has sent from its residual where the sum has come back, and keeps
/// everything else: contributions = applied + residuals, over all ranks. Receivers have room for
/// whole regions, so nothing is left out for want of room, however far a kept magnitude has
/// drifted.
///
/// In a step that finds the second magnitude, all sums are gathered, and the magnitude is found
/// among them. In other steps owners may first pass some of their sums on, so that each rank has
/// equally many to send to all (`balance_above`).
///
/// A kept magnitude may be adapted to the number of elements that reach it, as in the authors'
/// code: it rises, within the step and for the next one, where too many do, and falls where too few
/// do (`raises`, `own_correction`, `sum_correction`). Residuals grow from step to step where little
/// of them is sent, so that ever more elements reach a magnitude that stays.
///
/// Magnitudes and regions are kept across plans and in checkpoints. A launch finds them anew if
/// they were kept for another launch, as under a new plan or density; for another loss scale or
/// number of passes; after a step that loss scaling skips; and after a step in which the sums'
/// magnitude was infinite or NaN. A short chunk finds them anew in every step if none of its
/// elements has a place in the model that is a multiple of 1024.
/// Wire: (p-1)/p of a payload of k elements from every rank, twice. The second time it is up to p
/// times as much in a step that finds the second magnitude. A step that finds regions adds 4
/// (p-1)^2 bytes. Where sums may be balanced there are 4 (p-1) bytes more, and at most a payload of
/// k elements a third time.
/// Cost: a read of the chunk to select, three passes more to find a magnitude, one or more to raise
/// it; scratch for a payload of all elements; (p+5)/1024 floats of memory an element. There is no
/// `alone(placement)`, because steps that find magnitudes take other bytes than those that keep
/// them.
/// After: Li and Hoefler, "Near-optimal sparse allreduce for distributed deep learning", PPoPP
/// 2022, algorithms 1 and 2. Their code balances sums of BERT, in every step, and not of VGG and
/// LSTM.
///
/// One file, because the phases of a step share one workspace and the words that are kept from step
/// to step.
struct sparse_regions {
  using role = tutti::role::architecture;
  static constexpr bool adds_payloads = false;
  static constexpr bool completes_alone = false;
  static constexpr bool keeps_magnitudes = true;

  struct options {
    int estimate_every{32};
    int divide_every{64};
    int balance_above{0};
    int raises{0};
    double own_correction{1};
    double sum_correction{1};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("estimate_every", self.estimate_every,
            "steps from one search for the k-th largest magnitudes to the next");
      visit("divide_every", self.divide_every, "steps from one division into regions to the next");
      visit("balance_above", self.balance_above,
            "how many times the mean an owner's sums may be before they are balanced; 0: never "
            "balanced");
      visit("raises", self.raises,
            "how often in a step a rank's own kept magnitude may rise by 3 %, while more than 4/3 "
            "of k reach it");
      visit("own_correction", self.own_correction,
            "factor by which a rank's own magnitude is divided for the next step where fewer than "
            "2/3 of k were sent, and multiplied where more than 5/4 were; 1: it stays");
      visit("sum_correction", self.sum_correction,
            "the same for the kept magnitude of sums, below 2/3 and above 4/3 of k");
    }
  };

  static constexpr double busiest_nic(double payload, double, placement who) {
    return bound::compressed_all_reduce(payload, who.workers, who.per_host);
  }

  template <class World>
  class state {
    using launch = typename World::launch;
    using compression = typename World::compression;

   public:
    /// Throws usage_error if a period or a correction is not at least 1, or another option is
    /// negative.
    state(World& world, const options& set)
        : world_(&world),
          set_(set),
          kept_(world.template allocate<float>(
              words() * round_up(world.planned().elements(), block) / block)) {
      if (set.estimate_every < 1 || set.divide_every < 1) {
        throw usage_error(
            "architecture::sparse_regions: estimate_every and divide_every must be at least 1 "
            "step. Fix: 32 and 64");
      }
      if (set.balance_above < 0) {
        throw usage_error(
            "architecture::sparse_regions: balance_above must be at least 0. Fix: 4 balances what "
            "is more than four times the mean");
      }
      if (set.raises < 0) {
        throw usage_error(
            "architecture::sparse_regions: raises must be at least 0. Fix: 5, as Ok-Topk's");
      }
      if (!(set.own_correction >= 1 && set.sum_correction >= 1)) {
        throw usage_error(
            "architecture::sparse_regions: own_correction and sum_correction must be at least 1. "
            "Fix: 1.012 and 1.008, as Ok-Topk's, or 1: magnitudes stay");
      }
    }

    std::size_t workspace_bytes(std::size_t elements) const {
      const auto& its = world_->compressor();
      return payloads_begin() + capacity(its, elements) +
             at(world_->size()) * (capacity(its, 0) + alignment) +
             (set_.balance_above == 0 ? 0 : capacity(its, elements / at(world_->size()) + 1)) +
             values_bytes(elements);
    }

    std::vector<std::span<float>> memories() { return {span_of(kept_)}; }
    /// Forgets magnitudes and regions. In a step that is undone zeros travel in place of
    /// infinities, and magnitudes found among zeros would let everything through.
    void undo_step() {
      const std::span<float> all = span_of(kept_);
      world_->queue().clear(all.data(), all.size_bytes());
    }

    task exchange(typename World::endpoint self, const launch& what) {
      auto& queue = self.queue();
      const bool known = recall(queue, what);
      const bool estimates = !known || falls_on(what.step, set_.estimate_every);
      const std::span<float> values = take_in(queue, what);
      if (estimates) {
        find_magnitude(queue, what, values, own_magnitude);
      } else {
        raise_own(queue, what, values);
      }
      if (self.size() > 1 && (!known || falls_on(what.step, set_.divide_every))) {
        co_await divide(self, what, values);
      }
      const std::size_t sent = encode_regions(queue, what, values);
      what.clear(queue, 0, what.data.size());
      co_await reduce_to_owners(self, what);
      std::size_t kept = 0;
      if (estimates) {
        co_await gather(self, what, smallest, self.size(), 0, kept);
        find_magnitude(queue, what, what.data, sum_magnitude);
        keep(queue, what, what.data);
      } else {
        keep(queue, what, part_of(what, what.data, self.rank()));
        co_await gather(self, what, magnitude(what, sum_magnitude), 1, set_.balance_above, kept);
      }
      forget(queue, what, values);
      correct(what, own_magnitude, set_.own_correction, sent, 5 * k_of(what) / 4);
      if (!estimates) {
        correct(what, sum_magnitude, set_.sum_correction, kept, 4 * k_of(what) / 3);
      }
      remember(queue, what);
      what.scale(queue, 0, what.data.size());
    }

   private:
    /// The words that are kept for a launch: four that identify it and what its gradients are
    /// multiplied by, the loss scale and the number of passes; the two magnitudes; and where all
    /// regions but the first begin.
    enum word : std::size_t {
      first_place,
      length,
      selected,
      scale,
      own_magnitude,
      sum_magnitude,
      begins
    };
    struct payload {
      std::size_t offset;
      std::size_t bytes;
    };
    static constexpr std::size_t block = 1024;
    static constexpr std::size_t alignment = 64;
    static constexpr float smallest = std::numeric_limits<float>::denorm_min();

    static bool falls_on(std::uint64_t step, int period) {
      return step % static_cast<std::uint64_t>(period) == 0;
    }

    // ---- the workspace: words, records, payloads, and values that no residual holds

    std::size_t words() const { return begins + at(world_->size()) - 1; }
    std::size_t words_bytes() const { return round_up(words() * sizeof(std::uint32_t), alignment); }
    std::size_t payloads_begin() const {
      return words_bytes() + round_up(at(world_->size()) * sizeof(payload), alignment);
    }
    static std::size_t values_bytes(std::size_t elements) {
      return remembers_residuals<compression> ? 0 : elements * sizeof(float);
    }
    std::span<std::uint32_t> words_of(const launch& what) const {
      return {reinterpret_cast<std::uint32_t*>(what.workspace.data()), words()};
    }
    /// Returns the workspace's records, one for each rank.
    template <class Record>
    std::span<Record> records(const launch& what) const {
      return {reinterpret_cast<Record*>(what.workspace.data() + words_bytes()), at(world_->size())};
    }
    float magnitude(const launch& what, word which) const {
      return what.phantom() ? 0.0f : std::bit_cast<float>(words_of(what)[which]);
    }

    // ---- regions

    std::size_t begin(const launch& what, int rank) const {
      if (rank == 0 || rank == world_->size()) {
        return rank == 0 ? 0 : what.data.size();
      }
      return what.phantom() ? part_begin(what.data.size(), at(world_->size()), at(rank))
                            : words_of(what)[begins + at(rank) - 1];
    }
    std::size_t elements(const launch& what, int rank) const {
      return begin(what, rank + 1) - begin(what, rank);
    }
    std::span<float> part_of(const launch& what, std::span<float> values, int rank) const {
      return what.phantom() ? std::span<float>()
                            : values.subspan(begin(what, rank), elements(what, rank));
    }
    std::size_t most_bytes(const launch& what, int rank) const {
      return what.capacity(elements(what, rank));
    }
    /// Returns how many bytes of `payloads` payloads are expected to be of a rank's region.
    std::size_t share(const launch& what, int rank, int payloads) const {
      const std::size_t n = std::max<std::size_t>(what.data.size(), 1);
      const double part = static_cast<double>(elements(what, rank)) / static_cast<double>(n);
      const auto bytes = static_cast<double>(at(payloads) * expected(world_->compressor(), n));
      return std::min(most_bytes(what, rank), static_cast<std::size_t>(std::ceil(bytes * part)));
    }
    std::span<const std::byte> payload_of(const launch& what, int rank) const {
      if (what.phantom()) {
        return what.room(0, share(what, rank, 1));
      }
      const payload its = records<payload>(what)[at(rank)];
      return what.room(payloads_begin() + its.offset, its.bytes);
    }

    // ---- what is kept from step to step

    /// Whether words can be kept for a launch that begins with this chunk. Their place is that of
    /// the chunk's first element whose number is a multiple of `block`, so no two launches share a
    /// place.
    bool has_room(const chunk& first) const {
      return room_of(first) * block < first.first_element + first.elements;
    }
    static std::size_t room_of(const chunk& first) {
      return round_up(first.first_element, block) / block;
    }
    const chunk& first_of(const launch& what) const {
      return world_->planned().chunks[what.number];
    }
    std::span<float> kept_of(const launch& what) {
      return span_of(kept_).subspan(room_of(first_of(what)) * words(), words());
    }
    std::array<std::uint32_t, 4> name_of(const launch& what) const {
      const chunk& first = first_of(what);
      const std::size_t n = what.data.size();
      return {static_cast<std::uint32_t>(room_of(first) * block - first.first_element),
              static_cast<std::uint32_t>(n),
              static_cast<std::uint32_t>(world_->compressor().selected(n)),
              std::bit_cast<std::uint32_t>(what.worker.scale)};
    }

    /// Reads what is kept for this launch into its words, and returns whether anything is.
    template <class Queue>
    bool recall(Queue& queue, const launch& what) {
      const bool may_be_known = has_room(first_of(what));
      if (what.phantom()) {
        return may_be_known;
      }
      const std::span<std::uint32_t> its = words_of(what);
      if (may_be_known) {
        queue.copy(its.data(), kept_of(what).data(), its.size_bytes());
      }
      const std::array<std::uint32_t, 4> name = name_of(what);
      const bool known = may_be_known && std::ranges::equal(name, its.first(name.size()));
      std::ranges::copy(name, its.begin());
      return known;
    }
    /// Keeps a launch's words, but marks them as unknown if the sums' magnitude is infinite or NaN,
    /// which it then is on all ranks.
    template <class Queue>
    void remember(Queue& queue, const launch& what) {
      if (!what.phantom() && has_room(first_of(what))) {
        if (kernels::key_of(magnitude(what, sum_magnitude)) >= kernels::infinity_key) {
          words_of(what)[length] = 0;
        }
        queue.copy(kept_of(what).data(), words_of(what).data(), words_of(what).size_bytes());
      }
    }

    // ---- a step

    /// Returns what this rank has to send: its gradient plus its residual.
    template <class Queue>
    std::span<float> take_in(Queue& queue, const launch& what) const {
      charge(queue, 3 * what.data.size_bytes());
      const std::size_t n = what.data.size();
      if (what.phantom()) {
        return what.data;
      }
      if constexpr (remembers_residuals<compression>) {
        const std::span<float> values = residual_of(world_->compressor(), what.worker, n);
        kernels::add(queue, values, what.data);
        return values;
      } else {
        const auto room = what.room(workspace_bytes(n) - values_bytes(n), values_bytes(n));
        auto* const values = reinterpret_cast<float*>(room.data());
        queue.copy(values, what.data.data(), what.data.size_bytes());
        return {values, n};
      }
    }

    template <class Queue>
    void find_magnitude(Queue& queue, const launch& what, std::span<const float> values,
                        word which) const {
      charge(queue, 4 * values.size_bytes());
      if (!what.phantom()) {
        float found = smallest;
        if (!values.empty()) {
          world_->compressor().find_magnitude(queue, values, &found);
        }
        words_of(what)[which] = std::bit_cast<std::uint32_t>(found);
      }
    }

    /// Raises this rank's magnitude while more than 4/3 of k elements reach it, at most `raises`
    /// times.
    template <class Queue>
    void raise_own(Queue& queue, const launch& what, std::span<const float> values) const {
      if (set_.raises > 0) {
        charge(queue, values.size_bytes());
      }
      for (int times = 0; times < set_.raises && !what.phantom(); ++times) {
        std::size_t count = 0;
        kernels::count_reaching(queue, values, magnitude(what, own_magnitude), &count);
        if (count <= 4 * k_of(what) / 3) {
          return;
        }
        multiply(what, own_magnitude, 1.03);
      }
    }
    /// Corrects a magnitude for the next step: down if less than 2/3 of k elements reached it, up
    /// if more than `most` did.
    void correct(const launch& what, word which, double by, std::size_t reached,
                 std::size_t most) const {
      if (what.phantom() || by == 1) {
        return;
      }
      if (3 * reached < 2 * k_of(what)) {
        multiply(what, which, 1 / by);
      } else if (reached > most) {
        multiply(what, which, by);
      }
    }
    void multiply(const launch& what, word which, double by) const {
      const double made = static_cast<double>(magnitude(what, which)) * by;
      words_of(what)[which] =
          std::bit_cast<std::uint32_t>(std::max(static_cast<float>(made), smallest));
    }
    std::size_t k_of(const launch& what) const {
      return world_->compressor().selected(what.data.size());
    }

    /// Divides the launch into regions, which begin at the mean of the places that all ranks
    /// propose.
    task divide(typename World::endpoint self, const launch& what, std::span<float> values) const {
      const std::size_t count = at(self.size()) - 1;
      const std::size_t bytes = count * sizeof(std::uint32_t);
      charge(self.queue(), 2 * values.size_bytes());
      if (!what.phantom()) {
        kernels::divide_reaching(self.queue(), std::span<const float>(values),
                                 magnitude(what, own_magnitude),
                                 words_of(what).subspan(begins, count));
        std::ranges::fill(records<std::uint64_t>(what), 0);
      }
      const std::span<const std::byte> wishes = what.room(begins * sizeof(std::uint32_t), bytes);
      const auto to_all = [wishes](int) { return wishes; };
      const auto bytes_from = [bytes](int) { return bytes; };
      const auto add = [&](int rank, std::span<const std::byte> theirs) {
        if (!what.phantom()) {
          const auto* const its = reinterpret_cast<const std::uint32_t*>(
              (rank == self.rank() ? wishes : theirs).data());
          for (std::size_t i = 0; i < count; ++i) {
            records<std::uint64_t>(what)[i] += its[i];
          }
        }
      };
      co_await collective::exchange_with_all(self, to_all, bytes_from, add);
      for (std::size_t i = 0; i < count && !what.phantom(); ++i) {
        words_of(what)[begins + i] =
            static_cast<std::uint32_t>(records<std::uint64_t>(what)[i] / at(self.size()));
      }
    }

    /// Encodes the values of a rank's region that reach the magnitude `from`, at `offset` behind
    /// the first payload's place, and returns the payload.
    template <class Queue>
    std::span<const std::byte> encode(Queue& queue, const launch& what, std::span<float> values,
                                      float from, std::size_t offset, int rank,
                                      int payloads) const {
      std::size_t bytes = share(what, rank, payloads);
      const std::size_t most = most_bytes(what, rank);
      charge(queue, elements(what, rank) * sizeof(float) + bytes);
      const auto room = what.room(payloads_begin() + offset, most);
      if (!what.phantom()) {
        world_->compressor().encode_from(queue, from, part_of(what, values, rank),
                                         wire{room.data(), room.size()}, &bytes);
      }
      return room.first(bytes);
    }
    /// Encodes a payload for each region, and returns how many elements this rank sends in all.
    template <class Queue>
    std::size_t encode_regions(Queue& queue, const launch& what, std::span<float> values) const {
      const float from = magnitude(what, own_magnitude);
      std::size_t sent = 0;
      std::size_t offset = 0;
      for (int rank = 0; rank < world_->size(); ++rank) {
        const auto made = encode(queue, what, values, from, offset, rank, 1);
        if (!what.phantom()) {
          records<payload>(what)[at(rank)] = {offset, made.size()};
        }
        sent += kernels::reaching_count(made.size());
        offset = round_up(offset + made.size(), alignment);
      }
      return sent;
    }

    task reduce_to_owners(typename World::endpoint self, const launch& what) const {
      const int mine = self.rank();
      auto& queue = self.queue();
      const auto to = [&](int rank) { return payload_of(what, rank); };
      const auto bytes_from = [&](int) { return most_bytes(what, mine); };
      const auto add = [&](int rank, std::span<const std::byte> theirs) {
        what.accumulate(queue, rank == mine ? payload_of(what, mine) : theirs, begin(what, mine),
                        elements(what, mine));
      };
      co_await collective::exchange_with_all(carrier_of<compression>(self), to, bytes_from, add);
    }

    /// Sends every owner's sums that reach the magnitude `from` to all ranks, and sets `kept` to
    /// how many those are.
    task gather(typename World::endpoint self, const launch& what, float from, int payloads,
                int balance_above, std::size_t& kept) const {
      const auto sums = encode(self.queue(), what, what.data, from, 0, self.rank(), payloads);
      if (balance_above > 0) {
        co_await count(self, what, sums);
      }
      if (balance_above > 0 && !what.phantom() && most_of_mean(what) > balance_above) {
        co_await hand_on(self, what, sums.size());
        co_await hand_out_evenly(self, what, sums.size());
        kept = all_sums(what);
      } else {
        co_await hand_out(self, what, sums, kept);
      }
    }
    task hand_out(typename World::endpoint self, const launch& what,
                  std::span<const std::byte> sums, std::size_t& kept) const {
      auto& queue = self.queue();
      kept = kernels::reaching_count(sums.size());
      const auto to_all = [sums](int) { return sums; };
      const auto bytes_from = [&](int rank) { return most_bytes(what, rank); };
      const auto add = [&](int rank, std::span<const std::byte> theirs) {
        if (rank != self.rank()) {
          kept += kernels::reaching_count(theirs.size());
          what.accumulate(queue, theirs, begin(what, rank), elements(what, rank));
        }
      };
      co_await collective::exchange_with_all(carrier_of<compression>(self), to_all, bytes_from,
                                             add);
    }

    // ---- balancing: the sums of all owners, in rank order, are cut into even parts, one a rank

    /// A run of the sums of all owners, which are numbered in rank order.
    struct run {
      std::size_t first;
      std::size_t count;

      run common(const run& other) const {
        const std::size_t begin = std::max(first, other.first);
        const std::size_t end = std::min(first + count, other.first + other.count);
        return {begin, end > begin ? end - begin : 0};
      }
    };
    run owned(const launch& what, int rank) const { return records<run>(what)[at(rank)]; }
    std::size_t all_sums(const launch& what) const {
      const run last = owned(what, world_->size() - 1);
      return last.first + last.count;
    }
    run even(const launch& what, int rank) const {
      const std::size_t parts = at(world_->size());
      const std::size_t first = part_begin(all_sums(what), parts, at(rank));
      return {first, part_begin(all_sums(what), parts, at(rank) + 1) - first};
    }

    /// Exchanges how many sums each owner has, which is what its payload begins with. Throws
    /// communication_error if an owner states more than its region has elements.
    task count(typename World::endpoint self, const launch& what,
               std::span<const std::byte> sums) const {
      constexpr std::size_t bytes = sizeof(std::uint32_t);
      const std::span<const std::byte> own =
          what.phantom() ? what.room(0, bytes) : sums.first(bytes);
      std::size_t before = 0;
      const auto to_all = [own](int) { return own; };
      const auto bytes_from = [](int) { return sizeof(std::uint32_t); };
      const auto note = [&](int rank, std::span<const std::byte> theirs) {
        if (!what.phantom()) {
          std::uint32_t stated = 0;
          std::memcpy(&stated, (rank == self.rank() ? own : theirs).data(), bytes);
          if (stated > elements(what, rank)) {
            throw communication_error(
                sentence({"rank ", rank, " announced ", stated, " sums for a region of ",
                          elements(what, rank),
                          " elements. Fix: give every rank the same compression options"}));
          }
          records<run>(what)[at(rank)] = {before, stated};
          before += stated;
        }
      };
      co_await collective::exchange_with_all(self, to_all, bytes_from, note);
    }
    /// Returns the most sums that an owner has, as a multiple of the mean over owners; 0 if there
    /// are no sums.
    double most_of_mean(const launch& what) const {
      std::size_t most = 0;
      for (const run& each : records<run>(what)) {
        most = std::max(most, each.count);
      }
      const auto all = static_cast<double>(all_sums(what));
      return most == 0 ? 0.0 : static_cast<double>(most) * world_->size() / all;
    }

    /// Returns where this rank's even part goes: behind its own sums, which take `own_bytes`.
    std::span<std::byte> room_for_part(const launch& what, std::size_t own_bytes) const {
      return what.room(payloads_begin() + round_up(own_bytes, alignment),
                       kernels::reaching_bytes(even(what, world_->rank()).count));
    }
    /// Sends this owner's sums to the ranks in whose even parts they are, with places counted from
    /// the launch's first element, and receives this rank's even part.
    task hand_on(typename World::endpoint self, const launch& what, std::size_t own_bytes) const {
      const int mine = self.rank();
      const run part = even(what, mine);
      const std::span<std::byte> own = what.room(payloads_begin(), own_bytes);
      const std::span<std::byte> made = room_for_part(what, own_bytes);
      kernels::shift_reaching(self.queue(), own, static_cast<std::uint32_t>(begin(what, mine)));
      const auto to = [&](int rank) {
        const run both = even(what, rank).common(owned(what, mine));
        return std::span<const std::byte>(
            both.count == 0
                ? std::span<std::byte>()
                : kernels::reaching_part(own, both.first - owned(what, mine).first, both.count));
      };
      const auto bytes_from = [&](int rank) {
        return part.common(owned(what, rank)).count * sizeof(kernels::reaching_element);
      };
      const auto take = [&](int rank, std::span<const std::byte> theirs) {
        const run both = part.common(owned(what, rank));
        if (both.count > 0) {
          const auto place = kernels::reaching_part(made, both.first - part.first, both.count);
          std::ranges::copy(rank == mine ? to(mine) : theirs, place.begin());
        }
      };
      co_await collective::exchange_with_all(self, to, bytes_from, take);
      const auto count = static_cast<std::uint32_t>(part.count);
      std::memcpy(made.data(), &count, sizeof count);
    }
    task hand_out_evenly(typename World::endpoint self, const launch& what,
                         std::size_t own_bytes) const {
      auto& queue = self.queue();
      const int mine = self.rank();
      const std::span<const std::byte> sums = room_for_part(what, own_bytes);
      const auto to_all = [sums](int) { return sums; };
      const auto bytes_from = [&](int rank) {
        return kernels::reaching_bytes(even(what, rank).count);
      };
      const auto add = [&](int rank, std::span<const std::byte> theirs) {
        what.accumulate(queue, rank == mine ? sums : theirs, 0, what.data.size());
      };
      what.clear(queue, begin(what, mine), elements(what, mine));
      co_await collective::exchange_with_all(self, to_all, bytes_from, add);
    }

    /// Clears the sums that do not reach the sums' magnitude, so that they are not applied.
    template <class Queue>
    void keep(Queue& queue, const launch& what, std::span<float> sums) const {
      charge(queue, 2 * sums.size_bytes());
      if (!what.phantom()) {
        kernels::keep_reaching(queue, sums, magnitude(what, sum_magnitude));
      }
    }

    /// Clears from `values` what this rank has sent, where a sum of that element is applied.
    template <class Queue>
    void forget(Queue& queue, const launch& what, std::span<float> values) const {
      charge(queue, 3 * values.size_bytes());
      if (!what.phantom()) {
        kernels::clear_reaching_where(queue, values, magnitude(what, own_magnitude), what.data);
      }
    }

    World* world_;
    options set_;
    typename World::template memory<float> kept_;
  };
};
static_assert(architecture_policy<sparse_regions>);

}  // namespace tutti::architecture

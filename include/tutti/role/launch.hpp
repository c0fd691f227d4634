#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "tutti/base/gate.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/wire.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/compression.hpp"

namespace tutti {

/// Bytes of memory that a compressor reads and writes to encode `elements` elements, not counting
/// the payload: it reads each element, and reads and writes what it remembers of it.
template <class Compression>
constexpr std::size_t encoding_bytes(std::size_t elements) {
  return sizeof(float) * elements * (1 + 2 * facts::memory_per_element<Compression>);
}

/// What is exchanged as one unit, as an architecture sees it: a chunk, or several that a fusion has
/// gathered, with their buffer, the compressor, and what is remembered of their elements. On entry
/// `data` holds what travels from this rank. When the exchange ends it holds what came back: the
/// average, unless the architecture says otherwise. A launch without memory is a phantom: its
/// payloads have lengths, and nothing is encoded.
///
/// A launch is valid until the exchange's task ends. It is trivially copyable, because it lives in
/// the frames of coroutines.
template <class Compression>
struct launch {
  std::uint32_t number{};  ///< of its chunk; tags and the schedule use it
  std::uint64_t step{};    ///< number of this chunk's completed steps
  std::span<float> data{};
  const Compression* compression{};
  chunk_context worker{};  ///< for encoding this rank's gradient
  chunk_context owner{};   ///< for encoding a sum, on the rank that made it
  std::span<std::byte> workspace{};
  float average{1.0f};  ///< factor by which the sum is multiplied
  int placed_on{};      ///< rank that owns the chunk, if the plan places chunks
  bool chosen{};        ///< whether a selecting compressor's rule chose its tensors
  void (*when_released)(void*, std::uint32_t){};
  void (*when_half_done)(void*){};
  void* context{};
  gate* second_half{};  ///< opens when that half may begin, if the schedule splits exchanges
  /// The first element of each rank's share of the elements, and the end. Empty if the elements are
  /// cut evenly.
  std::span<const std::size_t> shares{};
  /// The chunks that a fusion has gathered, side by side in `data`. Empty if the launch is chunk
  /// `number` and no other.
  std::span<const std::uint32_t> chunks{};

  /// Reports that the launch's bytes have left this rank, or will have once its queue has done the
  /// work enqueued so far.
  void released() const { when_released(context, number); }

  /// `co_await what.between_halves()` says that the first half has ended on this rank. The
  /// coroutine goes on when the schedule begins the second half.
  class hand_back {
   public:
    explicit hand_back(const launch& of) : of_(&of) {}
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiter) const {
      of_->second_half->await_suspend(waiter);
      of_->when_half_done(of_->context);  // must not throw: the gate may resume the coroutine
    }
    void await_resume() const noexcept {}

   private:
    const launch* of_;
  };
  hand_back between_halves() const { return hand_back(*this); }

  bool phantom() const { return data.data() == nullptr; }
  /// This launch with `other`, one of a selecting compressor's two, in place of the compressor.
  template <class Other>
  launch<Other> seen_by(const Other& other) const {
    return {number,    step,        data,      &other, worker,        owner,
            workspace, average,     placed_on, chosen, when_released, when_half_done,
            context,   second_half, shares,    chunks};
  }
  /// The maximum length in bytes of a payload of `count` elements.
  std::size_t capacity(std::size_t count) const { return tutti::capacity(*compression, count); }
  std::size_t capacity() const { return capacity(data.size()); }
  /// The maximum length in bytes of a payload of `count` elements of a sum that is encoded again.
  std::size_t mean_capacity(std::size_t count) const {
    return tutti::capacity(relay(*compression), count);
  }
  /// A span of `bytes` bytes of the workspace from `offset` on; a null span of that length for a
  /// phantom.
  std::span<std::byte> room(std::size_t offset, std::size_t bytes) const {
    return phantom() ? std::span<std::byte>(static_cast<std::byte*>(nullptr), bytes)
                     : workspace.subspan(offset, bytes);
  }

  /// Encodes `count` elements from `first` on, with this rank's memory of them, into `room` for
  /// `capacity(count)` bytes. Returns the payload. A phantom's payload is as long as it is expected
  /// to be.
  template <class Queue>
  std::span<std::byte> encode(Queue& queue, std::size_t first, std::size_t count,
                              std::span<std::byte> room) const {
    return encode_by(*compression, queue, first, count, room, worker);
  }
  /// Encodes the mean of `count` elements from `first` on, as their owner, into `room` for
  /// `mean_capacity(count)` bytes.
  template <class Queue>
  std::span<std::byte> encode_mean(Queue& queue, std::size_t first, std::size_t count,
                                   std::span<std::byte> room) const {
    return encode_by(relay(*compression), queue, first, count, room, owner);
  }
  template <class Queue>
  void accumulate(Queue& queue, std::span<const std::byte> payload, std::size_t first,
                  std::size_t count) const {
    accumulate_by(*compression, queue, payload, first, count, worker);
  }
  /// Decodes a payload in place of `count` elements from `first` on.
  template <class Queue>
  void decode(Queue& queue, std::span<const std::byte> payload, std::size_t first,
              std::size_t count) const {
    decode_by(*compression, queue, payload, first, count, worker);
  }
  /// Decodes a payload of the compressor's that is not of one rank's gradient but of their mean.
  template <class Queue>
  void decode_result(Queue& queue, std::span<const std::byte> payload, std::size_t first,
                     std::size_t count) const {
    decode_by(*compression, queue, payload, first, count, owner);
  }
  /// Decodes a payload that `encode_mean` has made.
  template <class Queue>
  void decode_mean(Queue& queue, std::span<const std::byte> payload, std::size_t first,
                   std::size_t count) const {
    decode_by(relay(*compression), queue, payload, first, count, owner);
  }
  /// Adds rank `rank`'s payload, for callers that take payloads in rank order: rank 0's is decoded
  /// in place of what was there.
  template <class Queue>
  void accumulate_from(Queue& queue, int rank, std::span<const std::byte> payload,
                       std::size_t first, std::size_t count) const {
    if (rank == 0) {
      decode(queue, payload, first, count);
    } else {
      accumulate(queue, payload, first, count);
    }
  }

  // ---- compressors of several rounds, on a whole tensor

  template <class Queue>
  void encode_round(Queue& queue, int round, std::span<std::byte> out) const {
    charge(queue, encoding_bytes<Compression>(data.size()) + out.size());
    if (!phantom()) {
      compression->encode(queue, round, data, wire{out.data(), out.size()}, worker);
    }
  }
  /// Hands the compressor the sum of a round that is not the last.
  template <class Queue>
  void between(Queue& queue, int round, std::span<const std::byte> sum) const {
    charge(queue, 2 * sum.size());
    if (!phantom()) {
      compression->between(queue, round, const_wire(sum.data(), sum.size()), worker);
    }
  }
  /// Decodes the last round's sum: `data` becomes `average` times the sum of the gradients of
  /// `ranks` ranks.
  template <class Queue>
  void decode(Queue& queue, std::span<const std::byte> sum, int ranks) const {
    charge(queue, encoding_bytes<Compression>(data.size()) + sum.size());
    if (!phantom()) {
      compression->decode(queue, const_wire(sum.data(), sum.size()), data, worker,
                          summed{ranks, average});
    }
  }
  template <class Queue>
  void clear(Queue& queue, std::size_t first, std::size_t count) const {
    charge(queue, sizeof(float) * count);
    if (!phantom()) {
      queue.clear(data.data() + first, count * sizeof(float));
    }
  }
  template <class Queue>
  void scale(Queue& queue, std::size_t first, std::size_t count) const {
    charge(queue, average == 1.0f ? 0 : 2 * sizeof(float) * count);
    if (!phantom() && average != 1.0f) {
      kernels::scale(queue, data.subspan(first, count), average);
    }
  }

 private:
  template <class C, class Queue>
  std::span<std::byte> encode_by(const C& its, Queue& queue, std::size_t first, std::size_t count,
                                 std::span<std::byte> room, const chunk_context& where) const {
    std::size_t length = expected(its, count);
    charge(queue, encoding_bytes<C>(count) + length);
    if (!phantom()) {
      tutti::encode(its, queue, data.subspan(first, count), wire{room.data(), room.size()},
                    where.from(first), &length);
    }
    return room.first(length);
  }
  template <class C, class Queue>
  void accumulate_by(const C& its, Queue& queue, std::span<const std::byte> payload,
                     std::size_t first, std::size_t count, const chunk_context& where) const {
    charge(queue, payload.size() + 2 * sizeof(float) * count);
    if (!phantom()) {
      tutti::accumulate(its, queue, const_wire(payload.data(), payload.size()),
                        data.subspan(first, count), where.from(first));
    }
  }
  template <class C, class Queue>
  void decode_by(const C& its, Queue& queue, std::span<const std::byte> payload, std::size_t first,
                 std::size_t count, const chunk_context& where) const {
    charge(queue, payload.size() + (decodes<C> ? 1 : 3) * sizeof(float) * count);
    if (!phantom()) {
      tutti::decode(its, queue, const_wire(payload.data(), payload.size()),
                    data.subspan(first, count), where.from(first));
    }
  }
};

/// The endpoint on whose channel payloads of the compressor travel. It is the coded channel if a
/// message may be shorter than the memory that its receiver has for it.
template <class Compression, class Endpoint>
Endpoint carrier_of(const Endpoint& self) {
  return facts::variable_length<Compression> ? self.on(channel::coded) : self;
}

/// A message to a rank that answers any sender. Its bytes may lie in the sender's memory: read them
/// while this object lives. The sender goes on when it is destroyed.
template <class Loan>
class message {
 public:
  explicit message(Loan&& lent) : loan_(std::move(lent)) {}

  int peer() const { return loan_.peer(); }
  /// The number under which it was sent, which is a chunk's.
  std::uint32_t number() const { return loan_.where().chunk; }
  std::span<const std::byte> bytes() const { return loan_.bytes(); }

 private:
  Loan loan_;
};

}  // namespace tutti

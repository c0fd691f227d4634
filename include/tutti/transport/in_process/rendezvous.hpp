#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/assert.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/tag.hpp"

namespace tutti::transport::detail {

/// One cache line for each rank, in two copies: the next rendezvous may begin while slow ranks
/// still read this one, and the one after that only when all have left it.
struct alignas(64) rendezvous_line {
  std::atomic<std::uint64_t> generation{0};
  std::array<std::byte, 56> bytes{};
};

struct rendezvous {
  std::vector<rendezvous_line> lines;
  int ranks;

  explicit rendezvous(int its_ranks)
      : lines(2 * static_cast<std::size_t>(its_ranks)), ranks(its_ranks) {}
  rendezvous_line& line(std::uint64_t generation, int rank) {
    return lines[(generation & 1) * static_cast<std::size_t>(ranks) +
                 static_cast<std::size_t>(rank)];
  }
  /// Shows `bytes` as this rank's part of its next rendezvous here, whose number is the answer.
  std::uint64_t show(int rank, std::span<const std::byte> bytes) {
    TUTTI_ASSERT(bytes.size() <= sizeof(rendezvous_line::bytes),
                 "a rendezvous shows at most 56 bytes");
    const std::uint64_t generation =
        1 + std::max(line(0, rank).generation.load(std::memory_order_relaxed),
                     line(1, rank).generation.load(std::memory_order_relaxed));
    rendezvous_line& mine = line(generation, rank);
    std::ranges::copy(bytes, mine.bytes.begin());
    mine.generation.store(generation, std::memory_order_release);
    return generation;
  }
  bool complete(std::uint64_t generation) {
    for (int rank = 0; rank < ranks; ++rank) {
      if (line(generation, rank).generation.load(std::memory_order_acquire) < generation) {
        return false;
      }
    }
    return true;
  }
};

/// The rendezvous of every (chunk, lane), made on first use; finding one takes no lock.
class rendezvous_table {
 public:
  explicit rendezvous_table(int ranks) : ranks_(ranks) {}
  rendezvous_table(const rendezvous_table&) = delete;
  rendezvous_table& operator=(const rendezvous_table&) = delete;
  ~rendezvous_table() {
    for (auto& each : blocks_) {
      delete each.load();
    }
  }

  rendezvous& at(tag where) {
    const std::size_t place = where.chunk * std::size_t{lanes_per_chunk} + where.lane;
    if (place / block_size >= blocks_.size()) {
      throw usage_error(sentence({"a rendezvous is on chunks below ",
                                  blocks_.size() * block_size / lanes_per_chunk, ", not on chunk ",
                                  where.chunk, ". Fix: cut fewer chunks"}));
    }
    auto& slot = blocks_[place / block_size];
    block* found = slot.load(std::memory_order_acquire);
    if (found == nullptr) {
      auto fresh = std::make_unique<block>(ranks_);
      if (slot.compare_exchange_strong(found, fresh.get(), std::memory_order_acq_rel)) {
        found = fresh.release();
      }
    }
    return found->all[place % block_size];
  }

 private:
  static constexpr std::size_t block_size = 64;
  struct block {
    std::vector<rendezvous> all;
    explicit block(int ranks) {
      all.reserve(block_size);
      for (std::size_t i = 0; i < block_size; ++i) {
        all.emplace_back(ranks);
      }
    }
  };

  int ranks_;
  std::array<std::atomic<block*>, 4096> blocks_{};
};

}  // namespace tutti::transport::detail

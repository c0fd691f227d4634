#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/transport/rendezvous.hpp"

namespace tutti::transport::detail {

/// The rendezvous of every (chunk, lane), made on first use; finding one takes no lock.
class rendezvous_table {
 public:
  explicit rendezvous_table(int ranks) : ranks_(ranks) {}
  rendezvous_table(const rendezvous_table&) = delete;
  rendezvous_table& operator=(const rendezvous_table&) = delete;
  ~rendezvous_table() {
    for (auto& each : blocks_) {
      delete[] each.load();
    }
  }

  rendezvous at(tag where) {
    const std::size_t place = where.chunk * std::size_t{lanes_per_chunk} + where.lane;
    if (place / block_size >= blocks_.size()) {
      throw usage_error(sentence({"a rendezvous is possible on chunks below ",
                                  blocks_.size() * block_size / lanes_per_chunk, ", not on chunk ",
                                  where.chunk, ". Fix: cut tensors into fewer chunks"}));
    }
    auto& slot = blocks_[place / block_size];
    rendezvous_line* found = slot.load(std::memory_order_acquire);
    if (found == nullptr) {
      auto fresh = std::make_unique<rendezvous_line[]>(block_size * rendezvous::lines(ranks_));
      if (slot.compare_exchange_strong(found, fresh.get(), std::memory_order_acq_rel)) {
        found = fresh.release();
      }
    }
    return {found + place % block_size * rendezvous::lines(ranks_), ranks_};
  }

 private:
  static constexpr std::size_t block_size = 64;

  int ranks_;
  std::array<std::atomic<rendezvous_line*>, 4096> blocks_{};
};

}  // namespace tutti::transport::detail

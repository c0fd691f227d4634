#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/coordination/response_cache.hpp"
#include "tutti/coordination/words.hpp"

namespace tutti::coordination {

/// How a bucket that is ready is reported to rank 0.
enum class identity {
  number,  ///< by its number in the plan
  name,    ///< by its name, or by a bit while it is in the cache of those launched last
};

constexpr auto names(identity) { return std::to_array<std::string_view>({"number", "name"}); }

/// The words in which a rank reports to rank 0: numbers of buckets, or names, and bits for those
/// that were launched lately. A bucket's name is that of its first tensor. Rank 0 does not read the
/// name; it is sent so that a report costs what Horovod's costs.
class report_words {
 public:
  report_words(const plan& made, std::span<const tensor> forward, identity by, std::size_t cache)
      : plan_(&made),
        forward_(forward),
        by_(by),
        cache_(by == identity::name ? made.buckets.size() : 0, cache),
        changes_(by == identity::name ? std::bit_ceil(made.buckets.size()) : 0) {
    if (by == identity::name) {
      said_.reserve(longest());
    }
  }

  /// Returns the words to send for `news`: the numbers of buckets and, in front of them, whether
  /// the rank has joined or left (words.hpp). They are valid until the next call.
  std::span<const std::uint32_t> written(std::span<const std::uint32_t> news) {
    if (by_ == identity::number) {
      return news;
    }
    said_.clear();
    if (news.front() >= words::left) {
      said_.push_back(news.front());
      news = news.subspan(1);
    }
    write_bits(news);
    write_names(news);
    return said_;
  }

  /// Calls `take` with each number that the sending rank has passed to `written`.
  template <class Take>
  void read(std::span<const std::uint32_t> said, Take take) const {
    for (std::size_t i = 0; i < said.size(); ++i) {
      const std::uint32_t value = said[i] & words::value;
      switch (said[i] & words::kind) {
        case words::name:
          take(value);
          ++i;
          i += words_of(said[i]);
          break;
        case words::bits: {
          const std::uint32_t version = said[++i];
          for (std::uint32_t word = 0; word < value; ++word) {
            ++i;
            for (std::uint32_t bit = 0; bit < 32; ++bit) {
              if ((said[i] >> bit) & 1) {
                take(bucket_in(32 * word + bit, version));
              }
            }
          }
          break;
        }
        default:
          take(value);
      }
    }
  }

  /// Takes the launches that `launched` has not shown before into the cache. A bucket counts as
  /// launched when its first chunk is.
  template <class Decided>
  void remember(Decided& launched) {
    if (by_ == identity::number) {
      return;
    }
    launched.look([this](std::uint32_t chunk) {
      const std::uint32_t bucket = plan_->chunks[chunk].bucket;
      if (plan_->buckets[bucket].first_chunk == chunk) {
        changes_[version_ % changes_.size()] = cache_.touch(bucket);
        ++version_;
      }
    });
  }

 private:
  static std::size_t words_of(std::size_t letters) {
    return (letters + sizeof(std::uint32_t) - 1) / sizeof(std::uint32_t);
  }
  const std::string& name_of(std::uint32_t bucket) const {
    return forward_[index(plan_->at(plan_->buckets[bucket].first_tensor))].name;
  }
  std::size_t longest() const {
    std::size_t all = 3 + plan_->buckets.size() / 32 + 1;
    for (std::uint32_t bucket = 0; bucket < plan_->buckets.size(); ++bucket) {
      all += 2 + words_of(name_of(bucket).size());
    }
    return all;
  }

  /// Writes a bit for each bucket in the cache, at its slot. In front of the bits is how many
  /// launches of buckets this rank has heard of, because each launch may put another bucket into a
  /// slot.
  void write_bits(std::span<const std::uint32_t> buckets) {
    const std::size_t begin = said_.size();
    for (const std::uint32_t bucket : buckets) {
      if (const auto slot = cache_.slot_of(bucket)) {
        if (said_.size() == begin) {
          const std::size_t length = (cache_.size() + 31) / 32;
          said_.resize(begin + 2 + length);
          said_[begin] = words::bits | static_cast<std::uint32_t>(length);
          said_[begin + 1] = version_;
        }
        said_[begin + 2 + *slot / 32] |= std::uint32_t{1} << (*slot % 32);
      }
    }
  }
  void write_names(std::span<const std::uint32_t> buckets) {
    for (const std::uint32_t bucket : buckets) {
      if (!cache_.slot_of(bucket)) {
        const std::string& name = name_of(bucket);
        const std::size_t begin = said_.size();
        said_.resize(begin + 2 + words_of(name.size()));
        said_[begin] = words::name | bucket;
        said_[begin + 1] = static_cast<std::uint32_t>(name.size());
        std::memcpy(said_.data() + begin + 2, name.data(), name.size());
      }
    }
  }

  /// Returns which bucket was in a slot after `version` launches of buckets. A rank that reports
  /// may lack at most the last launch of each bucket, so all changes since then are still kept.
  std::uint32_t bucket_in(std::uint32_t slot, std::uint32_t version) const {
    for (std::uint32_t each = version; each != version_; ++each) {
      const auto& change = changes_[each % changes_.size()];
      if (change.slot == slot && change.evicted != response_cache::none) {
        return change.evicted;
      }
    }
    return cache_.at(slot);
  }

  const plan* plan_;
  std::span<const tensor> forward_;
  identity by_;
  response_cache cache_;
  /// Counts launches of buckets, modulo 2^32. It begins shortly before it wraps, so that tests see
  /// the wrap.
  std::uint32_t version_ = std::uint32_t{0} - 23;
  /// Of the cache, by each of the last launches. Their number is a power of two, because a version
  /// modulo any other jumps where versions wrap.
  std::vector<response_cache::change> changes_;
  std::vector<std::uint32_t> said_{};
};

}  // namespace tutti::coordination

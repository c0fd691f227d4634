#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/tensor.hpp"

namespace tutti::coordination {

/// Rank 0's record of which ranks have reported each bucket, and which ranks have left, as a rank
/// also does when it re-plans. A rank that leaves while others wait for buckets that it has not
/// reported is named at once, with the tensors. Cost: a byte for each rank and bucket.
class roll_call {
 public:
  roll_call(const plan& made, std::span<const tensor> forward, int ranks)
      : plan_(&made),
        forward_(forward),
        ranks_(ranks),
        missing_(made.buckets.size(), ranks),
        reported_(made.buckets.size() * static_cast<std::size_t>(ranks)),
        complete_(made.buckets.size()),
        left_(static_cast<std::size_t>(ranks)) {}

  /// Records that `rank` has reported `bucket`. Returns true if every rank now has. Throws
  /// communication_error if a rank that has left would have to report it, too.
  bool report(int rank, std::uint32_t bucket) {
    reported_[place(rank, bucket)] ^= 1;
    if (--missing_[bucket] == 0) {
      return true;
    }
    if (gone_ != 0) {
      throw left_waiting();
    }
    return false;
  }
  /// Starts the bucket's next round, which no rank has reported yet.
  void begin_again(std::uint32_t bucket) {
    missing_[bucket] = ranks_;
    complete_[bucket] ^= 1;
  }
  /// Records that `rank` has left. Throws communication_error if some ranks have reported a bucket
  /// that others have not.
  void leave(int rank) {
    left_[static_cast<std::size_t>(rank)] = 1;
    ++gone_;
    if (loops::any_of(missing_, [this](int each) { return each != ranks_; })) {
      throw left_waiting();
    }
  }

  std::size_t buckets() const { return missing_.size(); }
  bool has_left(int rank) const { return left_[static_cast<std::size_t>(rank)] != 0; }
  bool all_have_left() const { return gone_ == ranks_; }
  /// Returns the first bucket that some ranks have reported and others have not, if any.
  std::optional<std::uint32_t> awaited() const {
    for (std::uint32_t bucket = 0; bucket < missing_.size(); ++bucket) {
      if (missing_[bucket] != ranks_) {
        return bucket;
      }
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t most_named = 4;  ///< tensors in an error message, and ranks for each

  std::size_t place(int rank, std::uint32_t bucket) const {
    return static_cast<std::size_t>(rank) * missing_.size() + bucket;
  }

  [[gnu::cold]] communication_error left_waiting() const {
    std::string all = sentence({"rank ", loops::find(left_, char{1}) - left_.begin(),
                                " has left or called replan(), and others wait:"});
    std::size_t waited_for = 0;
    for (std::uint32_t bucket = 0; bucket < missing_.size(); ++bucket) {
      if (missing_[bucket] != ranks_ && ++waited_for <= most_named) {
        const tensor_id first = plan_->at(plan_->buckets[bucket].first_tensor);
        all += sentence(
            {waited_for == 1 ? " " : "; ", forward_[index(first)].name, " is missing from"});
        name_missing(bucket, all);
      }
    }
    if (waited_for > most_named) {
      all += sentence({"; and ", waited_for - most_named, " more"});
    }
    return communication_error(
        all +
        ". Fix: give every rank as many batches, or call join() where there are no more; call "
        "replan() on every rank between the same two steps");
  }
  [[gnu::cold]] void name_missing(std::uint32_t bucket, std::string& all) const {
    std::size_t named = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (reported_[place(rank, bucket)] == complete_[bucket] && ++named <= most_named) {
        all += sentence({named == 1 ? " rank " : " and rank ", rank});
      }
    }
    if (named > most_named) {
      all += sentence({" and ", named - most_named, " more ranks"});
    }
  }

  const plan* plan_;
  std::span<const tensor> forward_;
  int ranks_;
  std::vector<int> missing_;    ///< how many ranks have not reported each bucket
  std::vector<char> reported_;  ///< how often each rank has reported each bucket, modulo 2
  std::vector<char> complete_;  ///< how often all ranks have reported each bucket, modulo 2
  std::vector<char> left_;      ///< whether each rank has left
  int gone_ = 0;                ///< ranks that have left
};

}  // namespace tutti::coordination

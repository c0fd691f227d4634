#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"
#include "tutti/coordination/leader.hpp"
#include "tutti/role/coordination.hpp"

namespace tutti::coordination {

/// Rank 0 leads for one step, and every rank writes the order of launches down, in its book. From
/// then on each rank launches in the book's order, without messages. A window of credit also takes
/// chunks in that order. Where a fusion changes its groups in the first steps, rank 0 leads until
/// they stay the same, and the book is written in the first step in which they do. A checkpoint
/// holds the book, so that a resumed run goes by it.
/// Plan: none.
/// Wire: as `leader`, in the steps that are led; nothing afterwards.
/// Cost: a launch that is ready early waits for those before it in the book.
/// After: Mai et al., "KungFu", OSDI 2020: its order for NCCL.
struct learned {
  using role = tutti::role::coordination;
  static constexpr bool one_order = true;

  template <class Choice>
  class state : leader::state<Choice> {
    using led = leader::state<Choice>;

   public:
    [[gnu::cold]] state(const plan& made, std::span<const tensor> forward, ranks all,
                        const no_options& set, Choice&& choice)
        : led(made, forward, all, set, std::move(choice)),
          leads_(all.rank == 0),
          chunks_(made.chunks.size()),
          unsettled_(this->choice_.unsettled_steps()),
          unwritten_(unsettled_ * chunks_),
          let_in_(made.buckets.size()) {
      book_.reserve(2 * chunks_);
    }

    void ready(std::uint32_t bucket, seconds now) {
      if (let_in_[bucket] <= unsettled_) {
        ++let_in_[bucket];
        led::ready(bucket, now);
      }
    }
    using led::after;
    using led::due;
    using led::expects_words;
    using led::hear;
    using led::speak;
    using led::tick;
    void released(std::uint32_t launch, seconds now) {
      if (leads_ && !is_written()) {
        led::released(launch, now);
      } else if constexpr (Choice::limits_in_flight) {
        for (std::uint32_t chunk = launch; chunk != no_chunk; chunk = after(chunk)) {
          this->choice_.released(chunk);
        }
      }
    }
    template <class IsReady>
    std::optional<std::uint32_t> next(IsReady is_ready, std::size_t left) {
      if (is_written()) {
        return next_of_book(is_ready);
      }
      const auto launch = led::next(is_ready, left);
      if (launch) {
        write(*launch);
      }
      return launch;
    }
    template <class IsReady>
    std::optional<std::uint32_t> stuck(IsReady is_ready) const {
      if (!is_written()) {
        return led::stuck(is_ready);
      }
      const auto chunks = open_page();
      const auto late = loops::find_if(chunks, [&](std::uint32_t each) { return !is_ready(each); });
      return late == chunks.end() ? std::nullopt : std::optional(*late);
    }

    /// Returns how many steps are led before the book is begun.
    std::size_t unsettled_steps() const { return unsettled_; }
    /// Returns the launches of a step, each as its length and then its chunks; nothing before the
    /// book is written.
    std::span<const std::uint32_t> book() const {
      return is_written() ? std::span<const std::uint32_t>(book_)
                          : std::span<const std::uint32_t>();
    }
    /// Goes by a book that an earlier run has written for the same plan. Every rank must call it,
    /// before anything is ready. Throws usage_error if the book is not of this plan.
    void resume(std::span<const std::uint32_t> book) {
      book_.assign(book.begin(), book.end());
      std::vector<char> found(chunks_);
      written_ = 0;
      for (std::size_t page = 0; page < book_.size(); page += 1 + book_[page]) {
        const std::size_t length = book_[page];
        bool fits = length > 0 && length < book_.size() - page && (Choice::gathers || length == 1);
        for (std::size_t i = 1; fits && i <= length; ++i) {
          const std::uint32_t chunk = book_[page + i];
          fits = chunk < chunks_ && !std::exchange(found[chunk], char{1});
          if (fits) {
            this->launches_.link(chunk, i < length ? book_[page + i + 1] : no_chunk);
          }
        }
        if (!fits) {
          written_ = 0;
          break;
        }
        written_ += length;
      }
      if (!is_written()) {
        book_.clear();
        throw usage_error(
            "the learned order was not written for this plan. Fix: resume with the options that "
            "it was saved with, or learn it again");
      }
      std::fill(let_in_.begin(), let_in_.end(), unsettled_ + 1);
      unwritten_ = 0;
    }

   private:
    bool is_written() const { return written_ == chunks_; }

    [[gnu::cold, gnu::noinline]] void write(std::uint32_t launch) {
      const bool writes = unwritten_ == 0;
      const std::size_t length = book_.size();
      if (writes) {
        book_.push_back(0);
      }
      for (std::uint32_t chunk = launch; chunk != no_chunk; chunk = after(chunk)) {
        if (writes) {
          book_.push_back(chunk);
        } else {
          --unwritten_;
        }
        if constexpr (Choice::limits_in_flight) {
          if (!leads_) {  // rank 0's credit lets it go, but it leaves from here, too
            this->choice_.take(chunk);
          }
        }
      }
      if (writes) {
        book_[length] = static_cast<std::uint32_t>(book_.size() - length - 1);
        written_ += book_[length];
      }
    }

    std::span<const std::uint32_t> open_page() const {
      return std::span(book_).subspan(page_ + 1, book_[page_]);
    }

    template <class IsReady>
    std::optional<std::uint32_t> next_of_book(IsReady is_ready) {
      if (book_.empty()) {
        return std::nullopt;
      }
      const auto chunks = open_page();
      while (found_ready_ < chunks.size() && is_ready(chunks[found_ready_])) {
        ++found_ready_;
      }
      if (found_ready_ < chunks.size()) {
        return std::nullopt;
      }
      if constexpr (Choice::limits_in_flight) {
        while (taken_ < chunks.size() && this->choice_.admits(chunks[taken_])) {
          this->choice_.take(chunks[taken_++]);
        }
        if (taken_ < chunks.size()) {
          return std::nullopt;
        }
      }
      found_ready_ = 0;
      taken_ = 0;
      page_ += 1 + chunks.size();
      if (page_ == book_.size()) {
        page_ = 0;
      }
      return chunks.front();
    }

    bool leads_;
    std::size_t chunks_;
    std::size_t unsettled_;
    std::size_t unwritten_;            ///< chunks still to be launched before the book is begun
    std::vector<std::size_t> let_in_;  ///< how often each bucket was let into led steps
    std::vector<std::uint32_t> book_{};
    std::size_t written_ = 0;  ///< chunks in the book
    std::size_t page_ = 0;
    std::size_t found_ready_ = 0;
    std::size_t taken_ = 0;
  };
};
static_assert(coordination_policy<learned>);

}  // namespace tutti::coordination

#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "tutti/transport/mpi/library.hpp"

namespace tutti::transport::detail {

/// The MPI requests under way, each with an `Entry` that says what it is for. They are divided into
/// lanes, and those of a lane complete about in the order in which they began, as messages in one
/// direction between two ranks do.
///
/// MPI reads every request that it is asked about, and while a model computes none of them is in a
/// cache. Where a thousand are under way, asking about all costs more than moving the messages. So
/// each test asks about the first requests of every lane, and about some of the others in turn.
/// Memory is never given back, so that nothing is allocated after the first steps.
template <class Entry>
class request_table {
 public:
  explicit request_table(std::size_t lanes) : lanes_(lanes) {
    busy_.reserve(lanes);
    requests_.reserve(1024);
    places_.reserve(1024);
    completed_.reserve(1024);
  }

  void add(std::size_t where, MPI_Request request, const Entry& entry) {
    if (lanes_[where].size() == 0 && !std::exchange(lanes_[where].listed, true)) {
      busy_.push_back(where);
    }
    lanes_[where].add({request, entry});
  }

  /// Asks MPI about some requests. Calls `complete(entry, status)` for each of them that has
  /// completed, and forgets it. Returns true if there was one. If MPI refuses the test, calls
  /// `refuse(code)`.
  template <class Complete, class Refuse>
  bool test(Complete complete, Refuse refuse) {
    choose();
    int done = 0;
    const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &done,
                                  indices_.data(), statuses_.data());
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
      refuse(code);
      return false;
    }
    const std::size_t count = done == MPI_UNDEFINED ? 0 : static_cast<std::size_t>(done);
    bool in_turn = false;
    completed_.clear();
    for (std::size_t i = 0; i < count; ++i) {
      if (code != MPI_ERR_IN_STATUS) {
        statuses_[i].MPI_ERROR = MPI_SUCCESS;
      }
      const auto which = static_cast<std::size_t>(indices_[i]);
      completed_.push_back(
          {lanes_[places_[which].lane].end(places_[which].position), statuses_[i]});
      in_turn |= which >= first_in_turn_;
    }
    for (std::size_t i = 0; i < count; ++i) {
      lanes_[places_[static_cast<std::size_t>(indices_[i])].lane].forget_ended();
    }
    // Where one has completed, its neighbours are likely to be next: ask about them again.
    turn_ += in_turn ? 0 : asked_in_turn;
    for (const auto& each : completed_) {
      complete(each.entry, each.status);
    }
    return count > 0;
  }

  /// Calls `visit(entry, request)` for each request.
  template <class Visit>
  void for_each(Visit visit) {
    for (lane& each : lanes_) {
      for (std::size_t i = 0; i < each.size(); ++i) {
        visit(each[i].entry, each[i].request);
      }
    }
  }

  /// Forgets all requests, which must never be tested again, and returns their entries.
  std::vector<Entry> abandon() {
    std::vector<Entry> entries;
    for_each([&entries](const Entry& entry, MPI_Request&) { entries.push_back(entry); });
    lanes_.assign(lanes_.size(), lane());
    busy_.clear();
    return entries;
  }

 private:
  static constexpr std::size_t asked_first = 16;    // of each lane
  static constexpr std::size_t asked_in_turn = 64;  // of the requests behind these, on all lanes

  struct under_way {
    MPI_Request request;
    Entry entry;
  };
  struct completion {
    Entry entry;
    MPI_Status status;
  };
  struct place {
    std::size_t lane;
    std::size_t position;
  };

  /// Requests in the order in which they began.
  class lane {
   public:
    bool listed = false;  // in `busy_`

    std::size_t size() const { return all_.size() - first_; }
    std::size_t behind_first() const { return size() - std::min(size(), asked_first); }
    under_way& operator[](std::size_t position) { return all_[first_ + position]; }

    void add(const under_way& fresh) {
      if (all_.capacity() == 0) {
        all_.reserve(64);
      }
      if (first_ >= all_.size() / 2 && all_.size() == all_.capacity()) {
        all_.erase(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(first_));
        first_ = 0;
      }
      all_.push_back(fresh);
    }
    const Entry& end(std::size_t position) {
      (*this)[position].request = MPI_REQUEST_NULL;
      behind_ended_ = std::max(behind_ended_, position + 1);
      return (*this)[position].entry;
    }
    /// Removes the requests that have ended; the others keep their order.
    void forget_ended() {
      std::size_t kept = behind_ended_;
      for (std::size_t i = std::exchange(behind_ended_, 0); i-- > 0;) {
        if ((*this)[i].request != MPI_REQUEST_NULL) {
          (*this)[--kept] = (*this)[i];
        }
      }
      first_ += kept;
    }

   private:
    std::vector<under_way> all_;
    std::size_t first_ = 0;
    // All requests that have ended and are not forgotten yet come before this position.
    std::size_t behind_ended_ = 0;
  };

  /// Chooses the requests to ask about.
  void choose() {
    requests_.clear();
    places_.clear();
    std::erase_if(busy_, [this](std::size_t each) {
      lanes_[each].listed = lanes_[each].size() > 0;
      return !lanes_[each].listed;
    });
    std::size_t behind = 0;
    for (const std::size_t each : busy_) {
      ask(each, 0, std::min(lanes_[each].size(), asked_first));
      behind += lanes_[each].behind_first();
    }
    first_in_turn_ = requests_.size();
    turn_ = turn_ < behind ? turn_ : 0;
    const std::size_t end = turn_ + asked_in_turn;
    std::size_t passed = 0;
    for (std::size_t i = 0; i < busy_.size() && passed < std::min(behind, end); ++i) {
      const std::size_t its = lanes_[busy_[i]].behind_first();
      const std::size_t begin = std::min(its, turn_ - std::min(turn_, passed));
      ask(busy_[i], asked_first + begin, asked_first + std::min(its, end - passed));
      passed += its;
    }
    if (indices_.size() < requests_.size()) {
      indices_.resize(requests_.capacity());
      statuses_.resize(requests_.capacity());
    }
  }
  void ask(std::size_t where, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      requests_.push_back(lanes_[where][i].request);
      places_.push_back({where, i});
    }
  }

  std::vector<lane> lanes_;
  std::vector<std::size_t> busy_;  // lanes that have requests, or had some at the last look
  std::size_t turn_ = 0;  // how many of those behind the first of their lanes have had a turn

  // What MPI is asked about, and its answers: one element for each request asked about.
  std::vector<MPI_Request> requests_;
  std::vector<place> places_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::size_t first_in_turn_ = 0;
  std::vector<completion> completed_;
};

}  // namespace tutti::transport::detail

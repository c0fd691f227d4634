#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/options.hpp"
#include "tutti/base/sentence.hpp"

namespace tutti::consistency {

/// How many updates a chunk has had, and how many of them each worker has read.
class reads {
 public:
  reads() = default;
  reads(int workers, std::uint64_t updates)
      : updates_(updates), read_(static_cast<std::size_t>(workers), updates) {}

  std::uint64_t updates() const { return updates_; }
  void update() { ++updates_; }
  void read_by(int worker) { read_[static_cast<std::size_t>(worker)] = updates_; }
  /// Returns how many updates the worker's parameters lack.
  std::uint64_t staleness(int worker) const {
    return updates_ - read_[static_cast<std::size_t>(worker)];
  }

 private:
  std::uint64_t updates_{};
  std::vector<std::uint64_t> read_{};
};

/// Pushes take effect together, once every worker has pushed. They are added in rank order, in
/// whatever order they arrive.
struct synchronous {
  using options = no_options;
  static constexpr bool waits_for_all = true;

  static void expect(const options&, int) {}
};

// Every other consistency has a machine for each chunk, without I/O and without a clock. It begins
// where each worker has taken `steps` steps. `push(worker)` returns whether a push takes effect.
// `update` is called when one or more pushes have become an update. `may_read(worker)` says whether
// the worker's answer, which is the parameters for its next step, may go. `leave(worker)` says that
// the worker pushes no more.

/// A push takes effect at once, although its gradient may have been computed on parameters that
/// others have changed since.
struct asynchronous {
  using options = no_options;
  static constexpr bool waits_for_all = false;
  static constexpr bool waits_for_nobody = true;

  static void expect(const options&, int) {}

  struct machine : reads {
    machine() = default;
    machine(int workers, const options&, std::uint64_t steps)
        : reads(workers, steps * static_cast<std::uint64_t>(workers)) {}

    bool push(int) { return true; }
    bool may_read(int) const { return true; }
    void leave(int) {}
  };
};

/// A push takes effect at once, but its gradient g is first corrected for how far others have moved
/// the parameters x since its worker read them: it becomes g + lambda * g * g * (x - read), element
/// by element. In its adaptive form, lambda is divided by sqrt(m + 1e-7), where m is the gradients'
/// mean square, m = decay * m + (1 - decay) * g * g.
/// Cost: none for what each worker has read, which is the copy that its answer is sent from; in the
/// adaptive form, a float an element.
/// After: Zheng et al., "Asynchronous stochastic gradient descent with delay compensation", ICML
/// 2017 (DC-ASGD-c and DC-ASGD-a).
struct delay_compensated : asynchronous {
  static constexpr bool compensates = true;

  enum class rule { constant, adaptive };
  friend constexpr std::array<std::string_view, 2> names(rule) { return {"constant", "adaptive"}; }

  struct options {
    double lambda{0.04};
    rule lambda_is{};
    double decay{0.95};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("lambda", self.lambda, "weight of a late gradient's correction; 0: none");
      visit("lambda_is", self.lambda_is,
            "constant, or adaptive: divided by the root of the gradients' mean square");
      visit("decay", self.decay, "adaptive: share of that mean square that is kept at each push");
    }
  };

  /// Throws usage_error if servers would have to remember something else of each element.
  static void expect_replan(const options& was, const options& wanted, std::uint64_t) {
    if (was.lambda_is != wanted.lambda_is) {
      throw usage_error(
          "architecture.lambda_is cannot change while a model trains, because the mean square that "
          "the adaptive form divides by is remembered from the first push on. Fix: keep it, or "
          "start again");
    }
  }

  /// Throws usage_error if `lambda` or `decay` is out of range.
  static void expect(const options& set, int) {
    if (!(set.lambda >= 0) || set.lambda > std::numeric_limits<float>::max()) {
      throw usage_error(
          "architecture.lambda must be 0 or more. Fix: 0.04, for example, or 2 where it is "
          "adaptive");
    }
    if (!(set.decay >= 0 && set.decay < 1)) {
      throw usage_error("architecture.decay must be from 0 to below 1. Fix: 0.95, for example");
    }
  }

  struct machine : asynchronous::machine {
    machine() = default;
    machine(int workers, const options&, std::uint64_t steps)
        : asynchronous::machine(workers, no_options(), steps) {}
  };
};

/// A push takes effect at once, but a worker that has pushed c times may read only when every other
/// has pushed c - staleness times, so that it sees all updates of those steps. A staleness of 0 is
/// synchronous, except for the order in which pushes take effect. A worker that has ended holds no
/// other back.
/// After: Ho et al., "More effective distributed ML via a stale synchronous parallel parameter
/// server", NIPS 2013.
struct bounded_staleness {
  static constexpr bool waits_for_all = false;

  struct options {
    int staleness{3};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("staleness", self.staleness, "steps by which a worker may be ahead of the slowest");
    }
  };

  /// Throws usage_error if the staleness is negative.
  static void expect(const options& set, int) {
    if (set.staleness < 0) {
      throw usage_error(sentence({"architecture.staleness of ", set.staleness,
                                  " is out of range: no worker can be behind itself. Fix: 0, which "
                                  "is synchronous, or more"}));
    }
  }

  class machine : public reads {
   public:
    machine() = default;
    machine(int workers, const options& set, std::uint64_t steps)
        : reads(workers, steps * static_cast<std::uint64_t>(workers)),
          staleness_(static_cast<std::uint64_t>(set.staleness)),
          slowest_(steps),
          pushed_(static_cast<std::size_t>(workers), steps) {}

    bool push(int worker) {
      change(worker, pushed_[static_cast<std::size_t>(worker)] + 1);
      return true;
    }
    bool may_read(int worker) const {
      const std::uint64_t its = pushed_[static_cast<std::size_t>(worker)];
      return its <= slowest_ || its - slowest_ <= staleness_;
    }
    void leave(int worker) { change(worker, std::numeric_limits<std::uint64_t>::max()); }

   private:
    void change(int worker, std::uint64_t pushed) {
      auto& its = pushed_[static_cast<std::size_t>(worker)];
      const bool may_be_the_last = its == slowest_;
      its = pushed;
      if (may_be_the_last) {
        slowest_ = *std::min_element(pushed_.begin(), pushed_.end());
      }
    }

    std::uint64_t staleness_{};
    std::uint64_t slowest_{};
    std::vector<std::uint64_t> pushed_{};
  };
};

/// A step applies the mean of its first N gradients, where N is the number of workers, M, less
/// `backups`. Gradients that come later are dropped. With `backups` below 0, N is more than M, and
/// workers give several gradients each. All give equally many: otherwise some would wait for
/// gradients of the others' next step where those wait for them, in `average` or a checkpoint.
///
/// Tokens say which step a gradient is for. After each step max(N, M) tokens are dealt out to the
/// workers in turn, and a worker's next token is the step that its next gradient is for. A gradient
/// is dropped if the chunk is past that step. At the beginning each worker has the token 0, and if
/// N is more than M, another N tokens of step 0 are dealt out. A worker waits only for its own next
/// token, and one that is late finds its tokens there. Once workers have ended, a step waits for no
/// more gradients than the others have tokens.
///
/// A compressor that remembers something is refused, because that would be dropped with a gradient.
/// After: Chen et al., "Revisiting distributed synchronous SGD", 2016; TensorFlow's
/// SyncReplicasOptimizer.
struct backup_workers {
  static constexpr bool waits_for_all = false;
  static constexpr bool drops = true;

  struct options {
    int backups{0};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit(
          "backups", self.backups,
          "a step waits for this many gradients fewer than there are workers; a negative multiple "
          "of their number: for several of each");
    }
  };

  /// Throws usage_error if a step has begun to gather gradients and would need another number of
  /// them.
  static void expect_replan(const options& was, const options& wanted, std::uint64_t steps) {
    if (was.backups != wanted.backups && std::min(was.backups, wanted.backups) < 0 && steps > 0) {
      throw usage_error(sentence(
          {"architecture.backups cannot change from ", was.backups, " to ", wanted.backups,
           " after ", steps,
           " steps, because tokens have been dealt out for steps of more gradients than there are "
           "workers. Fix: keep it"}));
    }
  }

  /// Throws usage_error if a step would wait for no gradient, or for more of one worker than of
  /// another.
  static void expect(const options& set, int workers) {
    if (set.backups >= workers) {
      throw usage_error(sentence({set.backups, " backups among ", workers,
                                  " workers leave a step no gradient to wait for. Fix: set "
                                  "architecture.backups to at most ",
                                  workers - 1}));
    }
    if (set.backups < 0 && set.backups % workers != 0) {
      throw usage_error(sentence(
          {"architecture.backups of ", set.backups, " makes a step of ",
           std::int64_t{workers} - set.backups, " gradients, which ", workers,
           " workers cannot give in equal shares, so that they would wait for each other. Fix: 0, "
           "or a negative multiple of ",
           workers}));
    }
  }

  class machine : public reads {
   public:
    machine() = default;
    machine(int workers, const options& set, std::uint64_t steps)
        : reads(workers, updates_after(static_cast<std::uint64_t>(workers),
                                       aggregated_of(workers, set), steps)),
          workers_(static_cast<std::uint64_t>(workers)),
          aggregated_(aggregated_of(workers, set)),
          gathered_(gathered_after(steps)),
          given_(static_cast<std::size_t>(workers), steps),
          ended_(given_.size(), 0) {}

    /// Returns how many gradients a step is the mean of.
    std::uint64_t aggregated() const { return aggregated_; }
    /// Returns whether workers give several gradients to a step, so that one may have begun where
    /// all workers have taken equally many steps of their own.
    bool gathers_across_steps() const { return aggregated_ > workers_; }
    /// Returns how many tokens are dealt out after a step.
    std::uint64_t tokens() const { return std::max(aggregated_, workers_); }

    bool push(int worker) {
      const bool is_fresh = token(worker, given_[static_cast<std::size_t>(worker)]++) >= updates();
      gathered_ += is_fresh ? 1 : 0;
      return is_fresh;
    }
    /// Returns how many gradients of the current step have come.
    std::uint64_t gathered() const { return gathered_; }
    bool is_complete() const {
      return gathered_ > 0 && gathered_ >= std::min(aggregated_, tokens_of_those_left());
    }
    void update() {
      reads::update();
      gathered_ = 0;
    }
    bool may_read(int worker) const {
      return token(worker, given_[static_cast<std::size_t>(worker)]) <= updates();
    }
    void leave(int worker) { ended_[static_cast<std::size_t>(worker)] = 1; }

    /// Returns the step that the worker's gradient number `which` is for.
    std::uint64_t token(int worker, std::uint64_t which) const {
      return token_of(workers_, aggregated_, worker, which);
    }

   private:
    static std::uint64_t aggregated_of(int workers, const options& set) {
      return static_cast<std::uint64_t>(std::int64_t{workers} - set.backups);
    }
    static std::uint64_t token_of(std::uint64_t workers, std::uint64_t aggregated, int worker,
                                  std::uint64_t which) {
      if (aggregated <= workers || which == 0) {
        return which;
      }
      return ((which - 1) * workers + static_cast<std::uint64_t>(worker)) / aggregated;
    }
    /// Returns how many updates there have been once each worker has given `steps` gradients and
    /// may read. The first gradient of each has a token of step 0 beside the N that are dealt out.
    static std::uint64_t updates_after(std::uint64_t workers, std::uint64_t aggregated,
                                       std::uint64_t steps) {
      if (aggregated <= workers) {
        return steps;
      }
      return steps * workers < aggregated
                 ? 0
                 : std::max<std::uint64_t>(1, (steps - 1) * workers / aggregated);
    }
    /// Returns how many gradients of the current step have come by then.
    std::uint64_t gathered_after(std::uint64_t steps) const {
      if (aggregated_ <= workers_) {
        return 0;
      }
      const std::uint64_t given = steps * workers_;
      const std::uint64_t before = updates() == 0 ? 0 : workers_ + updates() * aggregated_;
      return given - std::min(given, before);
    }
    /// Returns how many tokens of a step go to the workers that have not ended, at least: tokens
    /// are dealt out evenly.
    std::uint64_t tokens_of_those_left() const {
      const auto ended = static_cast<std::uint64_t>(std::count(ended_.begin(), ended_.end(), 1));
      return ended == 0 ? tokens() : tokens() / workers_ * (workers_ - ended);
    }

    std::uint64_t workers_{};
    std::uint64_t aggregated_{};
    std::uint64_t gathered_{};
    std::vector<std::uint64_t> given_{};
    std::vector<char> ended_{};
  };
};

/// The facts that a consistency may leave out.
template <class C>
constexpr bool drops = requires {
  requires C::drops;
};
template <class C>
constexpr bool waits_for_nobody = requires {
  requires C::waits_for_nobody;
};
template <class C>
constexpr bool compensates = requires {
  requires C::compensates;
};

}  // namespace tutti::consistency

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <queue>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/coordination/choice.hpp"
#include "tutti/core/plan_maker.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/role/coordination.hpp"

// Ranks that train through coordination machines alone. Messages and exchanges are events of a
// virtual clock, and an exchange ends when every rank has begun it.
namespace tutti::test {

using chunk_numbers = std::vector<std::uint32_t>;

/// The machine of any coordination, with its type erased.
class any_machine {
 public:
  using is_ready = std::function<bool(std::uint32_t)>;
  virtual ~any_machine() = default;
  virtual void ready(std::uint32_t bucket, seconds now) = 0;
  virtual void hear(int peer, const chunk_numbers& words, seconds now) = 0;
  virtual void released(std::uint32_t launch, seconds now) = 0;
  virtual std::optional<seconds> due() const = 0;
  virtual void tick(seconds now) = 0;
  virtual chunk_numbers speak() = 0;
  virtual chunk_numbers next(const is_ready& ready) = 0;
  virtual std::optional<std::uint32_t> stuck(const is_ready& ready) const = 0;
  virtual bool expects_words() const = 0;
};

template <class Machine, bool Gathers>
class machine_of final : public any_machine {
 public:
  template <class... Of>
  explicit machine_of(Of&&... of) : machine_(std::forward<Of>(of)...) {
    static_assert(coordination_machine<Machine>);
  }
  void ready(std::uint32_t bucket, seconds now) override { machine_.ready(bucket, now); }
  void hear(int peer, const chunk_numbers& words, seconds now) override {
    machine_.hear(peer, words, now);
  }
  void released(std::uint32_t launch, seconds now) override { machine_.released(launch, now); }
  std::optional<seconds> due() const override { return machine_.due(); }
  void tick(seconds now) override { machine_.tick(now); }
  chunk_numbers speak() override {
    chunk_numbers all;
    machine_.speak([&](std::span<const std::uint32_t> words) {
      all.insert(all.end(), words.begin(), words.end());
    });
    return all;
  }
  chunk_numbers next(const is_ready& ready) override {
    chunk_numbers all;
    const auto first = machine_.next(std::cref(ready), std::numeric_limits<std::size_t>::max());
    if (first) {
      all.push_back(*first);
      if constexpr (Gathers) {
        for (auto chunk = machine_.after(*first); chunk != 0xffffffff;
             chunk = machine_.after(chunk)) {
          all.push_back(chunk);
        }
      }
    }
    return all;
  }
  std::optional<std::uint32_t> stuck(const is_ready& ready) const override {
    return machine_.stuck(std::cref(ready));
  }
  bool expects_words() const override { return machine_.expects_words(); }

 private:
  Machine machine_;
};

using machine_maker =
    std::function<std::unique_ptr<any_machine>(const plan&, std::span<const tensor>, int, int)>;

template <class Coordination, class Schedule, class Fusion = fusion::none>
machine_maker machines(options_of<Coordination> coordination = {},
                       options_of<Schedule> schedule = {}, options_of<Fusion> fusion = {}) {
  using choice = tutti::coordination::choice<Schedule, Fusion>;
  using state = typename Coordination::template state<choice>;
  return [=](const plan& made, std::span<const tensor> forward, int rank, int size) {
    return std::make_unique<machine_of<state, choice::gathers>>(
        made, forward, tutti::coordination::ranks{rank, size}, coordination,
        choice(made, schedule, fusion));
  };
}

/// Returns a plan of one bucket a tensor, cut into pieces of `piece` elements, or not cut if that
/// is 0.
inline plan toy_plan(const std::vector<tensor>& forward, std::size_t piece = 0) {
  const auto bytes = piece == 0 ? std::size_t{1} << 40 : piece * sizeof(float);
  return make_plan(forward, fusion::none(), partition::into({.bytes = bytes}), {}, [](plan&) {});
}

inline std::vector<tensor> toy_tensors(std::size_t count) {
  std::vector<tensor> all;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(tensor::phantom("layer" + std::to_string(i) + ".weight", 1 + i * i % 7));
  }
  return all;
}

/// What was observed in a run.
struct toy_log {
  struct ready {
    seconds when;
    int rank;
    std::uint32_t bucket;
  };
  std::vector<ready> readied{};
  std::vector<seconds> ticks{};
  std::vector<std::vector<chunk_numbers>> launches{};  ///< of each rank
  std::vector<std::vector<chunk_numbers>> said{};      ///< by each rank, message by message
  bool ended = false;
  bool members_agree = true;
  std::optional<std::uint32_t> stuck{};  ///< the bucket that rank 0 reports
};

class toy_world {
 public:
  static constexpr seconds to_rank_0(int rank) { return 2.2534567e-5 + 1.0123457e-6 * rank; }
  static constexpr seconds from_rank_0(int rank) { return 3.1256789e-5 + 1.5345671e-6 * rank; }

  toy_world(const std::vector<tensor>& forward, const plan& made, int size,
            const machine_maker& maker, unsigned seed)
      : plan_(&made), random_(seed) {
    log.launches.resize(static_cast<std::size_t>(size));
    log.said.resize(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      auto& mine = ranks_.emplace_back();
      mine.machine = maker(made, forward, rank, size);
      mine.ready.resize(made.chunks.size());
      mine.filled.resize(made.buckets.size());
      mine.readied.resize(forward.size());
      mine.arrived.resize(forward.size());
      mine.begun.resize(made.chunks.size());
      mine.pieces_left = pieces();
      mine.order.resize(forward.size());
      std::iota(mine.order.begin(), mine.order.end(), 0U);
    }
  }

  /// Lets every rank go through the tensors in an order that differs from rank to rank and step to
  /// step. It waits for each tensor of the last step and hands in that of this step. `silent` never
  /// hands in its `silent_tensor`.
  toy_log run(int steps, int silent = -1, std::size_t silent_tensor = 0) {
    steps_ = steps;
    silent_ = silent;
    silent_tensor_ = silent_tensor;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      shuffle(ranks_[rank]);
      go_on(rank);
    }
    while (!events_.empty()) {
      const event next = events_.top();
      events_.pop();
      now_ = next.when;
      handle(next);
    }
    log.ended = std::ranges::all_of(
        ranks_, [&](const rank_state& each) { return each.step == steps_ && each.is_current(); });
    for (const auto& each : ranks_) {
      log.ended = log.ended && !each.machine->expects_words();
    }
    log.stuck = ranks_[0].machine->stuck([&](std::uint32_t c) { return ranks_[0].ready[c] != 0; });
    return std::move(log);
  }

 private:
  enum class what { hand_in, deliver, tick, complete };
  struct event {
    seconds when;
    std::uint64_t number;
    what kind;
    std::size_t rank;
    std::uint32_t which;
    std::shared_ptr<chunk_numbers> words;

    bool operator<(const event& other) const {
      return when != other.when ? when > other.when : number > other.number;
    }
  };
  struct rank_state {
    std::unique_ptr<any_machine> machine{};
    std::vector<char> ready{};
    std::vector<std::size_t> filled{};
    std::vector<std::size_t> readied{};
    std::vector<std::size_t> arrived{};
    std::vector<std::size_t> pieces_left{};
    std::vector<std::size_t> begun{};  ///< launches under each number
    std::vector<std::uint32_t> order{};
    std::size_t place = 0;
    int step = 0;
    bool waits = false;
    bool is_speaking = false;
    std::optional<seconds> wakes{};

    bool is_current() const { return readied == arrived; }
  };
  struct flight {
    std::size_t begun = 0;
    chunk_numbers chunks{};
  };

  void at(seconds when, what kind, std::size_t rank, std::uint32_t which,
          std::shared_ptr<chunk_numbers> words = nullptr) {
    events_.push({when, ++numbered_, kind, rank, which, std::move(words)});
  }
  seconds some(seconds most) { return most * (1 + static_cast<double>(random_() % 999'983)) / 1e6; }

  std::vector<std::size_t> pieces() const {
    std::vector<std::size_t> all;
    for (const auto& each : plan_->buckets) {  // one tensor each
      all.push_back(each.chunks);
    }
    return all;
  }

  void shuffle(rank_state& mine) { std::shuffle(mine.order.begin(), mine.order.end(), random_); }

  void go_on(std::size_t rank) {
    auto& mine = ranks_[rank];
    while (mine.step < steps_) {
      if (mine.place == mine.order.size()) {
        mine.place = 0;
        ++mine.step;
        shuffle(mine);
        continue;
      }
      const std::uint32_t position = mine.order[mine.place];
      if (static_cast<int>(rank) == silent_ && position == silent_tensor_) {
        ++mine.place;
        continue;
      }
      if (mine.arrived[position] != mine.readied[position]) {
        mine.waits = true;
        return;
      }
      ++mine.place;
      at(now_ + some(random_() % 8 == 0 ? 2e-4 : 1e-5), what::hand_in, rank, position);
      return;
    }
  }

  void handle(const event& next) {
    auto& mine = ranks_[next.rank];
    switch (next.kind) {
      case what::hand_in:
        hand_in(next.rank, next.which);
        break;
      case what::deliver:
        mine.machine->hear(static_cast<int>(next.which), *next.words, now_);
        settle(next.rank);
        if (next.rank == 0) {
          ranks_[next.which].is_speaking = false;
          settle(next.which);
        }
        break;
      case what::tick:
        mine.wakes.reset();
        if (const auto due = mine.machine->due(); due && *due <= now_) {
          log.ticks.push_back(now_);
          mine.machine->tick(now_);
        }
        settle(next.rank);
        break;
      case what::complete:
        complete(next.rank, *next.words);
        break;
    }
  }

  void hand_in(std::size_t rank, std::uint32_t position) {
    auto& mine = ranks_[rank];
    ++mine.readied[position];
    const std::uint32_t number = plan_->bucket_of[position];
    const auto& filling = plan_->buckets[number];
    if (++mine.filled[number] == filling.tensors) {
      mine.filled[number] = 0;
      for (std::uint32_t i = 0; i < filling.chunks; ++i) {
        mine.ready[filling.first_chunk + i] = 1;
      }
      log.readied.push_back({now_, static_cast<int>(rank), number});
      mine.machine->ready(number, now_);
      settle(rank);
    }
    go_on(rank);
  }

  void settle(std::size_t rank) {
    auto& mine = ranks_[rank];
    speak(rank);
    const any_machine::is_ready is_ready = [&](std::uint32_t c) { return mine.ready[c] != 0; };
    for (auto launch = mine.machine->next(is_ready); !launch.empty();
         launch = mine.machine->next(is_ready)) {
      begin(rank, launch);
    }
    speak(rank);
    if (const auto due = mine.machine->due(); due && (!mine.wakes || *mine.wakes > *due)) {
      mine.wakes = *due;
      at(std::max(now_, *due), what::tick, rank, 0);
    }
  }

  void speak(std::size_t rank) {
    auto& mine = ranks_[rank];
    if (mine.is_speaking) {
      return;
    }
    auto words = std::make_shared<chunk_numbers>(mine.machine->speak());
    if (words->empty()) {
      return;
    }
    log.said[rank].push_back(*words);
    if (rank != 0) {
      mine.is_speaking = true;
      at(now_ + to_rank_0(static_cast<int>(rank)), what::deliver, 0,
         static_cast<std::uint32_t>(rank), words);
      return;
    }
    for (std::size_t peer = 1; peer < ranks_.size(); ++peer) {
      at(now_ + from_rank_0(static_cast<int>(peer)), what::deliver, peer, 0, words);
    }
  }

  void begin(std::size_t rank, const chunk_numbers& launch) {
    auto& mine = ranks_[rank];
    for (const std::uint32_t each : launch) {
      mine.ready[each] = 0;
    }
    log.launches[rank].push_back(launch);
    const auto key = std::pair(launch.front(), mine.begun[launch.front()]++);
    auto& mean = flights_[key];
    if (mean.begun++ == 0) {
      mean.chunks = launch;
    }
    log.members_agree = log.members_agree && mean.chunks == launch;
    if (mean.begun == ranks_.size()) {
      const auto chunks = std::make_shared<chunk_numbers>(launch);
      for (std::size_t each = 0; each < ranks_.size(); ++each) {
        at(now_ + some(4e-5), what::complete, each, 0, chunks);
      }
      flights_.erase(key);
    }
  }

  void complete(std::size_t rank, const chunk_numbers& launch) {
    auto& mine = ranks_[rank];
    mine.machine->released(launch.front(), now_);
    for (const std::uint32_t each : launch) {
      const std::size_t position = plan_->chunks[each].bucket;
      if (--mine.pieces_left[position] == 0) {
        mine.pieces_left[position] = plan_->buckets[position].chunks;
        ++mine.arrived[position];
      }
    }
    settle(rank);
    if (std::exchange(mine.waits, false)) {
      go_on(rank);
    }
  }

  const plan* plan_;
  std::mt19937 random_;
  std::vector<rank_state> ranks_{};
  std::priority_queue<event> events_{};
  std::map<std::pair<std::uint32_t, std::size_t>, flight> flights_{};
  std::uint64_t numbered_ = 0;
  seconds now_ = 0;
  int steps_ = 0;
  int silent_ = -1;
  std::size_t silent_tensor_ = 0;
  toy_log log{};
};

inline toy_log train(const std::vector<tensor>& forward, const plan& made, int size, int steps,
                     const machine_maker& maker, unsigned seed = 1) {
  return toy_world(forward, made, size, maker, seed).run(steps);
}

}  // namespace tutti::test

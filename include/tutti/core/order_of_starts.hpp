#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/gate.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/ring_buffer.hpp"
#include "tutti/base/task.hpp"
#include "tutti/coordination/decided.hpp"
#include "tutti/coordination/local.hpp"
#include "tutti/core/announcer.hpp"
#include "tutti/core/model_memory.hpp"
#include "tutti/core/observer.hpp"
#include "tutti/role/coordination.hpp"
#include "tutti/role/monitor.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// A launch whose bytes have left once `after` passes.
template <class Event>
struct departure {
  Event after{};
  std::uint32_t number{};
};

/// Decides when this rank's launches start. It owns the coordination's machine, the words that
/// ranks exchange for it, the timer of its cycles, and the credit that comes back. It touches no
/// gradient. `Owner::is_ready(chunk)` says whether a chunk could start, `Owner::start(chunk)`
/// begins a launch, and `Owner::has_buffer()` says whether one more may begin.
/// `Owner::chunk_failed` receives exceptions, and `Owner::all_have_joined` is called when no rank
/// has batches left.
template <class Types, class Owner>
class order_of_starts {
  using transport = typename Types::transport;
  using queue_type = typename transport::queue_type;
  using queue_event = typename queue_type::event;
  using coordination = typename Types::coordination;
  using machine_type = typename coordination::template state<typename Types::choice>;
  using observer_type = observer<typename Types::monitor, transport>;
  static_assert(coordination_machine<machine_type>);
  static constexpr bool gathers = Types::choice::gathers;
  static constexpr bool ticks = Types::ticks;

 public:
  /// Whether ranks tell each other in which order launches start.
  static constexpr bool speaks = !std::is_same_v<coordination, tutti::coordination::local>;
  /// Whether a launch's credit is freed later than the launch is released: on a stream it is
  /// released before its bytes have left, and its credit is free only once the stream has passed
  /// it.
  static constexpr bool leaves_later = Types::schedule::limits_in_flight &&
                                       !has_virtual_time<transport> &&
                                       !std::is_same_v<queue_type, inline_queue>;
  /// Whether launches follow an order that ranks learn in the first steps (coordination::learned).
  static constexpr bool learns = requires(machine_type & its) { its.learned_order(); };

  [[gnu::cold]] order_of_starts(transport& world, const plan& made,
                                const model_memory<queue_type>& model,
                                const typename Types::options& set, int workers, tag words_tag,
                                observer_type& watched, Owner& owner)
      : world_(&world),
        observer_(&watched),
        owner_(&owner),
        machine_(made, model.forward(), {world.rank(), workers}, set.coordination,
                 typename Types::choice(made, set.schedule, set.fusion)),
        leaving_(leaves_later ? made.chunks.size() + 1 : 1),
        answered_(world.ready_coroutines()) {
    if constexpr (speaks) {
      const auto heard = [](void* self) { static_cast<order_of_starts*>(self)->was_heard(); };
      const std::size_t most_words = tutti::coordination::decided<gathers>::room(made);
      if (world.rank() == 0 && workers > 1) {
        announcer_.emplace(world, words_tag, 1, workers, most_words, heard, this);
      } else if (world.rank() != 0) {
        announcer_.emplace(world, words_tag, 0, 1, 1, heard, this);
      }
      heard_.reserve(most_words);
    }
  }
  order_of_starts(const order_of_starts&) = delete;
  order_of_starts& operator=(const order_of_starts&) = delete;
  [[gnu::cold]] ~order_of_starts() = default;

  // ---- events in

  /// Says that all gradients of the bucket are there.
  void ready(std::uint32_t number) {
    machine_.ready(number, now());
    go_on();
  }

  /// Takes in what another rank's machine has said.
  void hear(int peer, std::span<const std::byte> words) {
    heard_.resize(words.size() / sizeof(std::uint32_t));
    std::memcpy(heard_.data(), words.data(), words.size());
    machine_.hear(peer, heard_, now());
    go_on();
    answered_.open();
  }
  /// Called when a rank has read everything that was said to it.
  void was_heard() {
    if (world_->rank() != 0) {
      go_on();
      answered_.open();
    }
  }

  /// Says that the launch's bytes have left, or will have once the event passes. Its credit is free
  /// then.
  void released(std::uint32_t number, const queue_event& after) {
    if constexpr (leaves_later) {
      leaving_.push({after, number});
    } else {
      free_credit(number);
    }
  }

  /// Starts launches that this rank has decided, once the others have been told, and frees credit
  /// that the stream has passed. Starting them earlier could leave the others untold: the thread
  /// that starts them may go on to block on the stream. Returns whether anything moved.
  bool carry_out() {
    bool any = has_decided();
    if constexpr (gathers) {
      any = any || (waits_for_buffer_ && owner_->has_buffer());
    }
    if (any) {
      go_on();
    }
    return free_what_left() || any;
  }
  bool has_decided() const {
    if constexpr (tells_first) {
      return world_->rank() == 0 && announcer_ && announcer_->told() != carried_out_;
    } else {
      return false;
    }
  }

  /// Says that this rank has no more batches. All that it has handed in must have arrived.
  void join() requires facts::joins<coordination> {
    machine_.join(now());
    go_on();
  }

  /// Starts what may start. If a launch completes while it is started, it calls this function
  /// again; that call returns and the outermost one goes on.
  void go_on() {
    if (std::exchange(deciding_, true)) {
      return;
    }
    speak();
    const std::size_t left = words_left();
    while (has_buffer()) {
      const auto next = machine_.next(could_start{owner_}, left);
      if (!next) {
        break;
      }
      owner_->start(*next);
    }
    carried_out_ = left;
    speak();
    deciding_ = false;
    if constexpr (facts::joins<coordination>) {
      if (machine_.all_have_joined()) {
        owner_->all_have_joined();
      }
    }
    if constexpr (ticks) {
      if (machine_.due() && ticker_.done()) {
        ticker_ = task();
        ticker_ = tick();
        ticker_.start(world_->ready_coroutines());
      }
    }
  }

  /// The chunk that follows `chunk` in its launch.
  std::uint32_t after(std::uint32_t chunk) const requires gathers { return machine_.after(chunk); }

  // ---- what there is to see

  /// The launches of a step in their order, as this rank has learned it.
  std::span<const std::uint32_t> learned_order() const requires learns {
    return machine_.learned_order();
  }
  void resume(std::span<const std::uint32_t> order) requires learns { machine_.resume(order); }
  /// Returns whether other ranks' machines may speak to this rank's.
  bool listens() const {
    if constexpr (speaks) {
      return announcer_.has_value();
    } else {
      return false;
    }
  }
  bool at_rest() const {
    if constexpr (speaks) {
      if (announcer_ && !announcer_->at_rest()) {
        return false;
      }
    }
    if constexpr (ticks) {
      return ticker_.done();
    } else {
      return true;
    }
  }
  /// The chunk that has to start next and is not ready.
  std::optional<std::uint32_t> stuck() const { return machine_.stuck(could_start{owner_}); }

  // ---- the end

  /// Ends when no more words are expected, and the others have read everything that was said.
  task finish() {
    if constexpr (speaks || ticks) {
      return finish_speaking();
    } else {
      return {};
    }
  }
  /// Keeps `finish` from announcing that this rank leaves: an exception ends its part, of which the
  /// others hear otherwise.
  void leave_unsaid() { leaves_unsaid_ = true; }
  /// Ends every wait for words, because none will come.
  void stop_waiting() {
    stopped_ = true;
    answered_.open();
  }
  /// Ends every wait for words, and closes the streams of words to other ranks.
  [[gnu::cold]] void stop_speaking() {
    stop_waiting();
    if constexpr (speaks) {
      if (announcer_) {
        announcer_->close();
      }
    }
  }

 private:
  [[gnu::cold]] task finish_speaking() {
    if constexpr (speaks) {
      gate& answer = answered_;
      say_that_it_leaves();
      while (machine_.expects_words() && !stopped_) {
        co_await answer;
      }
      if (announcer_) {
        co_await announcer_->finish();
      }
    }
    if constexpr (ticks) {
      const task& ticking = ticker_;
      co_await ticking;
    }
  }

  /// Whether a decision must reach the others before its launch is enqueued. On a stream it must,
  /// because the launch might wait for a message that they send only once they know.
  static constexpr bool tells_first = speaks && is_stream_ordered<transport>;

  struct could_start {
    const Owner* owner;
    bool operator()(std::uint32_t chunk) const { return owner->is_ready(chunk); }
  };
  struct silence {};

  /// The time, or 0 where nothing has to be timed.
  seconds now() const {
    if constexpr (ticks) {
      return world_->now();
    } else {
      return 0;
    }
  }

  /// Returns whether a buffer is free for the next launch. Launches wait for one in their order,
  /// which is equal on all ranks.
  bool has_buffer() {
    if constexpr (gathers) {
      waits_for_buffer_ = !owner_->has_buffer();
      return !waits_for_buffer_;
    } else {
      return true;
    }
  }

  /// Tells the machine the time for as long as it asks for that.
  task tick() {
    try {
      while (const auto due = machine_.due()) {
        if (const seconds left = *due - world_->now(); left > 0) {
          co_await world_->sleep(left);
        }
        tick_now();
      }
    } catch (...) {
      owner_->chunk_failed(std::current_exception());
    }
  }

  /// A function of its own, because the frame of `tick` would hold the machine's variables.
  [[gnu::noinline]] void tick_now() {
    machine_.tick(world_->now());
    go_on();
  }

  void speak() {
    if constexpr (speaks) {
      if (announcer_) {
        speak_to_others();
      }
    }
  }
  [[gnu::noinline]] void speak_to_others() {
    if (world_->rank() == 0 || announcer_->is_read()) {
      machine_.speak([this](std::span<const std::uint32_t> words) { announcer_->say(words); });
    }
  }

  /// How many decided words may be carried out. On a stream, only those that have been sent to all
  /// others.
  std::size_t words_left() const {
    if constexpr (tells_first) {
      if (world_->rank() == 0 && announcer_) {
        return announcer_->told();
      }
    }
    return std::numeric_limits<std::size_t>::max();
  }

  /// Tells the deciding rank that this one will hand in nothing more.
  void say_that_it_leaves() {
    if constexpr (requires { machine_.leave(); }) {
      if (leaves_unsaid_) {
        return;
      }
      try {
        machine_.leave();
      } catch (...) {
        owner_->chunk_failed(std::current_exception());
        throw;
      }
      go_on();
    }
  }

  /// Frees the credit of launches that the stream has passed.
  bool free_what_left() {
    bool any = false;
    if constexpr (leaves_later) {
      while (!leaving_.empty() && queue_type::passed(leaving_.front().after)) {
        free_credit(leaving_.pop().number);
        any = true;
      }
    }
    return any;
  }
  void free_credit(std::uint32_t number) {
    observer_->record(event::released, number);
    machine_.released(number, now());
    go_on();
  }

  transport* world_;
  observer_type* observer_;
  Owner* owner_;
  machine_type machine_;
  ring_buffer<departure<queue_event>> leaving_;
  std::conditional_t<speaks, std::optional<announcer<transport>>, silence> announcer_{};
  std::vector<std::uint32_t> heard_{};
  gate answered_;
  std::conditional_t<ticks, task, silence> ticker_{};
  bool waits_for_buffer_ = false;
  std::size_t carried_out_ = 0;
  bool stopped_ = false;
  bool leaves_unsaid_ = false;
  bool deciding_ = false;
};

}  // namespace tutti

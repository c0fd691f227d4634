#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/plan.hpp"
#include "tutti/base/push_counts.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/core/engine_base.hpp"
#include "tutti/core/remote_memories.hpp"
#include "tutti/core/startup.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// All that ranks say to each other beside chunks, from their first agreement to their last
/// message: questions to an architecture, decisions of rank 0, other values for the optimizer, and
/// memories of ranks that do not train.
template <class Transport>
class services {
  using message_type = typename engine_base<Transport>::message_type;

 public:
  /// Kinds of messages beside chunks. On the data channel they are numbered after the last chunk.
  enum class own : std::uint32_t { hello, parameters, average, change, memory, sums, decision };

  services(Transport& world, const plan& made, int workers, engine_base<Transport>& owner)
      : world_(&world), plan_(&made), workers_(workers), owner_(&owner) {}
  services(const services&) = delete;
  services& operator=(const services&) = delete;

  tag own_tag(own what) const {
    const auto number = static_cast<std::uint32_t>(what);
    if (what == own::hello || what == own::average || what == own::sums) {
      // No plan is in these numbers, since ranks say `hello` before they know that theirs are
      // equal.
      return {channel::host, number, 0};
    }
    return {channel::data, static_cast<std::uint32_t>(plan_->chunks.size()) + number, 0};
  }
  tag service_tag(service what) const {
    return {channel::service,
            static_cast<std::uint32_t>(plan_->chunks.size()) + static_cast<std::uint32_t>(what), 0};
  }

  /// The first rank that answers questions of all others, which counts the workers that have ended.
  /// Nothing if no rank does.
  std::optional<int> first_listener() const {
    for (int rank = 0; rank < world_->size(); ++rank) {
      if (owner_->listens_to_all(rank)) {
        return rank;
      }
    }
    return std::nullopt;
  }

  // ---- beginning and end

  /// Compares with rank 0 what all ranks must declare and set alike, and receives its parameters.
  /// `given` are the tensors that have parameters: none of a phantom model.
  [[gnu::cold]] task begin(std::span<const tensor> given, std::string settings) {
    try {
      co_await agree(endpoint<Transport>(*world_, own_tag(own::hello)), *plan_, owner_->tensors(),
                     settings);
    } catch (...) {
      owner_->heard(std::current_exception());  // every rank throws it by itself
      throw;
    }
    try {
      co_await broadcast_parameters(endpoint<Transport>(*world_, own_tag(own::parameters)), given);
      owner_->begun();
    } catch (...) {
      owner_->broken(std::current_exception());
      throw;
    }
  }

  /// Ends this rank's part, which `startup` began, once its gradients have arrived.
  [[gnu::cold]] task close(const task& startup) {
    co_await startup;
    if (world_->rank() < workers_) {
      co_await owner_->finish_gradients();
      if (const auto first = first_listener()) {
        co_await say_finished(*first);
        for (int rank = std::max(*first + 1, workers_); rank < world_->size(); ++rank) {
          co_await say_finished(rank);
        }
      }
      if (listens_ && !owner_->listens_to_all(world_->rank())) {
        co_await say_finished(world_->rank());
      }
    }
    co_await listening_;
    co_await owner_->finish_architecture();
    co_await owner_->finish_sums();
    co_await owner_->stop_answering();
    owner_->rethrow_failure();  // also failures that nobody has awaited
    closed_ = true;
  }
  bool closed() const { return closed_; }

  // ---- answering

  void start_listening() {
    listens_ = true;
    listening_ = listen();
    listening_.start(world_->ready_coroutines());
  }
  /// Answers a worker's question to a rank that serves or counts pushes, except for re-plans.
  task converse(int worker, service what) {
    switch (what) {
      case service::collect:
        return send_memories(memory_endpoint(), worker, owner_->remembered());
      case service::pushes:
        return send_pushes(worker);
      default:
        return receive_restored(memory_endpoint(), worker, *owner_);
    }
  }
  const task& listening() const { return listening_; }
  /// Returns whether no rank is left that may ask. For any thread.
  bool have_ended() const { return ended_.load(std::memory_order_acquire); }

  // ---- asking

  /// Sends a message from worker 0 to all ranks that do not train. Ends when they have taken it in.
  task tell(service what, std::span<const std::byte> bytes) {
    if (world_->rank() != 0) {
      co_return;
    }
    for (int rank = workers_; rank < world_->size(); ++rank) {
      co_await world_->send(rank, service_tag(what), bytes);
      co_await world_->receive(rank, own_tag(own::change), {});
    }
  }

  [[gnu::cold]] task collect(std::vector<memories_of_rank>& all) {
    for (int rank = workers_; rank < world_->size(); ++rank) {
      co_await world_->send(rank, service_tag(service::collect), {});
      co_await receive_memories(memory_endpoint(), rank,
                                all[static_cast<std::size_t>(rank - workers_)]);
    }
  }

  /// Adds the push counts of all later ranks that answer questions.
  [[gnu::cold]] task collect_pushes(push_counts& all) {
    for (int rank = world_->rank() + 1; rank < world_->size(); ++rank) {
      if (!owner_->listens_to_all(rank)) {
        continue;
      }
      push_counts its;
      co_await world_->send(rank, service_tag(service::pushes), {});
      co_await receive_now(memory_endpoint(), rank, bytes_of(its));
      all += its;
    }
  }

  [[gnu::cold]] task restore(std::uint64_t steps, std::span<const tensor> forward,
                             const std::vector<memories_of_rank>& theirs) {
    for (int rank = workers_; rank < world_->size(); ++rank) {
      co_await world_->send(rank, service_tag(service::restore), {});
      co_await send_restored(memory_endpoint(), rank, steps, forward,
                             theirs[static_cast<std::size_t>(rank - workers_)]);
    }
  }

 private:
  endpoint<Transport> memory_endpoint() const {
    return endpoint<Transport>(*world_, own_tag(own::memory));
  }

  task send_pushes(int worker) {
    push_counts mine = owner_->counted_pushes();
    co_await memory_endpoint().send(worker, bytes_of(mine));
  }

  /// Takes in messages and answers them until no rank is left that may ask. Workers tell servers
  /// that they have finished. Where all ranks train, they tell the first listener, which tells the
  /// others.
  task listen() {
    const bool serves = world_->rank() >= workers_;
    const bool counts = serves || first_listener() == world_->rank();
    int awaited = counts ? workers_ : 1;
    try {
      while (awaited > 0) {
        int peer = 0;
        std::uint32_t what = 0;
        {
          auto lent = co_await world_->receive_any(channel::service);
          peer = lent.peer();
          what = lent.where().chunk;
          const task taking = take_in(lent);
          co_await taking;
        }  // the loan ends, so that the sender goes on and can send more to the answer below
        if (is(what, service::finished) || is(what, service::ended)) {
          --awaited;
        }
        const task answering = answer(peer, what);
        co_await answering;
      }
      if (counts && !serves) {
        co_await tell_listeners();
      }
    } catch (...) {
      owner_->broken(std::current_exception());
      ended_.store(true, std::memory_order_release);
      throw;
    }
    ended_.store(true, std::memory_order_release);
  }

  // Functions of their own, because the frame of `listen` would hold their variables.

  template <class Loan>
  [[gnu::noinline]] task take_in(Loan& lent) {
    const std::uint32_t what = lent.where().chunk;
    if (what < plan_->chunks.size()) {
      return owner_->serve_chunk(message_type(std::move(lent)));
    }
    if (is(what, service::words)) {
      owner_->hear(lent.peer(), lent.bytes());
    } else if (is(what, service::change)) {
      owner_->take_values(lent.bytes());
    } else if (is(what, service::undo)) {
      owner_->undo_step();
    }
    return {};
  }
  [[gnu::noinline]] task answer(int peer, std::uint32_t what) {
    if (is(what, service::change) || is(what, service::undo)) {
      return say(peer, own_tag(own::change));
    }
    if (is(what, service::finished) && world_->rank() >= workers_) {
      return owner_->worker_left(peer);
    }
    if (is(what, service::collect) || is(what, service::restore) || is(what, service::replan) ||
        is(what, service::pushes)) {
      return owner_->converse(peer, static_cast<service>(what - plan_->chunks.size()));
    }
    return {};
  }

  /// Tells the other listeners that no rank will ask any more.
  [[gnu::cold]] task tell_listeners() {
    for (int rank = world_->rank() + 1; rank < world_->size(); ++rank) {
      if (owner_->listens_to_all(rank)) {
        co_await say(rank, service_tag(service::ended));
      }
    }
  }

  /// Tells a listener that this rank will ask no more.
  task say_finished(int listener) { return say(listener, service_tag(service::finished)); }

  /// Sends a message without bytes, whose tag says everything.
  [[gnu::cold]] task say(int rank, tag where) { co_await world_->send(rank, where, {}); }

  bool is(std::uint32_t number, service what) const { return number == service_tag(what).chunk; }

  Transport* world_;
  const plan* plan_;
  int workers_;
  engine_base<Transport>* owner_;
  task listening_{};
  bool listens_ = false;
  bool closed_ = false;
  std::atomic<bool> ended_{false};
};

}  // namespace tutti

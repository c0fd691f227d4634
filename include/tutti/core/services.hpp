#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tutti/base/plan.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/task.hpp"
#include "tutti/core/model_memory.hpp"
#include "tutti/core/remote_memories.hpp"
#include "tutti/core/surroundings.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// What an architecture's state remembers, for checkpoints.
template <class State>
std::vector<std::span<float>> memories_of([[maybe_unused]] State& state) {
  if constexpr (facts::has_memories<State>) {
    return state.memories();
  } else {
    return {};
  }
}

/// What ranks ask of each other beside chunks: whatever an architecture answers, decisions of rank
/// 0, other values for the optimizer, and memories of ranks that do not train.
/// `Owner::hear(peer, words)` is told what another rank's machine said, `Owner::broken(exception)`
/// what failed, and `Owner::replan_as_told()` that the workers make another plan.
template <class Types, class Owner>
class services {
  using transport = typename Types::transport;
  using optimizer = typename Types::optimizer;
  using architecture = typename Types::architecture;
  using world_type = surroundings<Types>;
  using state_type = typename architecture::template state<world_type>;
  using memory_type = model_memory<typename transport::queue_type>;

 public:
  /// What an engine sends beside chunks, numbered after the last chunk where there are any.
  enum class own : std::uint32_t { hello, parameters, average, change, memory, sums };
  enum class service : std::uint32_t {
    words = 8,
    farewell,
    ended,
    change,
    collect,
    restore,
    replan,
  };

  services(transport& world, const plan& made, const memory_type& model, world_type& around,
           state_type& state, optimizer& values, const typename Types::options& set, int workers,
           Owner& owner)
      : world_(&world),
        plan_(&made),
        model_(&model),
        around_(&around),
        state_(&state),
        optimizer_(&values),
        set_(&set),
        workers_(workers),
        owner_(&owner) {}
  services(const services&) = delete;
  services& operator=(const services&) = delete;

  tag own_tag(own what) const {
    const auto number = static_cast<std::uint32_t>(what);
    if (what == own::hello || what == own::average || what == own::sums) {
      return {channel::host, number, 0};  // no plan is in it: hello asks whether they are equal
    }
    return {channel::data, static_cast<std::uint32_t>(plan_->chunks.size()) + number, 0};
  }
  tag service_tag(service what) const {
    return {channel::service,
            static_cast<std::uint32_t>(plan_->chunks.size()) + static_cast<std::uint32_t>(what), 0};
  }

  bool listens_to_all(int rank) const {
    return listens<architecture>(set_->architecture, rank, world_->size());
  }
  /// The rank that counts who has ended, where some rank answers whoever asks.
  std::optional<int> first_listener() const {
    for (int rank = 0; rank < world_->size(); ++rank) {
      if (listens_to_all(rank)) {
        return rank;
      }
    }
    return std::nullopt;
  }

  // ---- answering

  void start_listening() {
    listening_ = listen();
    listening_.start(world_->ready_coroutines());
  }
  const task& listening() const { return listening_; }
  /// Nobody is left that may ask. For any thread.
  bool have_ended() const { return ended_.load(std::memory_order_acquire); }

  // ---- asking

  /// This rank asks nobody any more.
  task say_farewell(int listener) {
    co_await world_->send(listener, service_tag(service::farewell), {});
  }

  /// Worker 0 tells ranks that do not train the optimizer's values.
  task tell_values() {
    if (world_->rank() != 0) {
      co_return;
    }
    const auto bytes = std::as_bytes(std::span(optimizer_, 1));
    for (int rank = workers_; rank < world_->size(); ++rank) {
      co_await world_->send(rank, service_tag(service::change), bytes);
      co_await world_->receive(rank, own_tag(own::change), {});
    }
  }

  task collect(std::vector<memories_of_rank>& all) {
    for (int rank = workers_; rank < world_->size(); ++rank) {
      co_await world_->send(rank, service_tag(service::collect), {});
      co_await receive_memories(memory_endpoint(), rank,
                                all[static_cast<std::size_t>(rank - workers_)]);
    }
  }

  task restore(std::uint64_t steps, const std::vector<memories_of_rank>& theirs) {
    for (int rank = workers_; rank < world_->size(); ++rank) {
      co_await world_->send(rank, service_tag(service::restore), {});
      co_await send_restored(memory_endpoint(), rank, steps, model_->forward(),
                             theirs[static_cast<std::size_t>(rank - workers_)]);
    }
  }

 private:
  endpoint<transport> memory_endpoint() const {
    return endpoint<transport>(*world_, own_tag(own::memory));
  }

  /// It ends when nobody is left that may ask: workers say farewell to the first listener, which
  /// tells the others.
  task listen() {
    const bool counts = first_listener() == world_->rank();
    int farewells = counts ? workers_ : 1;
    try {
      while (farewells > 0) {
        int peer = 0;
        std::uint32_t what = 0;
        {
          auto lent = co_await world_->receive_any(channel::service);
          peer = lent.peer();
          what = lent.where().chunk;
          if (what < plan_->chunks.size()) {
            if constexpr (facts::has_serve<state_type>) {
              typename world_type::message asked(std::move(lent));
              co_await state_->serve(around_->endpoint_of(what), std::move(asked));
            }
          } else if (what == service_tag(service::farewell).chunk ||
                     what == service_tag(service::ended).chunk) {
            --farewells;
          } else if (what == service_tag(service::words).chunk) {
            owner_->hear(peer, lent.bytes());
          } else if (what == service_tag(service::change).chunk) {
            std::memcpy(static_cast<void*>(optimizer_), lent.bytes().data(), sizeof *optimizer_);
          }
        }  // only now does the sender go on, and can be asked for more
        if constexpr (facts::has_servers<architecture>) {
          if (what >= plan_->chunks.size()) {
            co_await converse(peer, what);
          }
        }
      }
      if (counts) {
        co_await tell_listeners();
      }
    } catch (...) {
      owner_->broken(std::current_exception());
    }
    ended_.store(true, std::memory_order_release);
  }

  /// Nobody will ask any more.
  task tell_listeners() {
    for (int rank = world_->rank() + 1; rank < world_->size(); ++rank) {
      if (listens_to_all(rank)) {
        co_await world_->send(rank, service_tag(service::ended), {});
      }
    }
  }

  task converse(int worker, std::uint32_t what) {
    if (what == service_tag(service::change).chunk) {
      co_await world_->send(worker, own_tag(own::change), {});
    } else if (what == service_tag(service::collect).chunk) {
      co_await send_memories(memory_endpoint(), worker, memories_of(*state_));
    } else if (what == service_tag(service::restore).chunk) {
      co_await receive_restored(memory_endpoint(), worker, model_->forward(), *state_);
    } else if (what == service_tag(service::replan).chunk) {
      co_await owner_->replan_as_told();
    }
  }

  transport* world_;
  const plan* plan_;
  const memory_type* model_;
  world_type* around_;
  state_type* state_;
  optimizer* optimizer_;
  const typename Types::options* set_;
  int workers_;
  Owner* owner_;
  task listening_{};
  std::atomic<bool> ended_{false};
};

}  // namespace tutti

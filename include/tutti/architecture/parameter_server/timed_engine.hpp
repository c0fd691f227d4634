#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tutti/architecture/parameter_server/engine_threads.hpp"
#include "tutti/base/task.hpp"
#include "tutti/base/units.hpp"

namespace tutti::architecture {

/// The threads of a server on a virtual clock. Each does its work one piece after the other, and
/// takes the time that its device is charged for it. Calls `answer(chunk)` of the `Server` when a
/// chunk has been closed and all work on it is done. On a real transport there is no time to model,
/// and this does nothing.
template <class World, class Server>
class timed_engine {
  using queue_type = typename World::queue_type;
  static constexpr bool models_time = requires(queue_type & queue) { queue.models_time(); };

 public:
  /// Makes no threads if `threads` is 0.
  timed_engine(World& world, Server& server, int threads, engine_order by)
      : world_(&world), server_(&server) {
    if constexpr (models_time) {
      const bool has_threads = !world.trains() && world.queue().models_time();
      const auto count = static_cast<std::size_t>(has_threads ? threads : 0);
      threads_ = engine_threads(count, world.planned().chunks.size(), by);
      left_.resize(world.planned().chunks.size());
      closed_.resize(left_.size());
      runs_.resize(count);
      queues_.assign(count, world.queue());
    }
  }

  bool is_there() const { return threads_.size() > 0; }

  /// Adds work on a chunk, which moves so many bytes.
  void push(std::uint32_t chunk, std::size_t bytes) {
    const std::size_t dense = world_->planned().chunks[chunk].elements * sizeof(float);
    const std::size_t thread = threads_.thread_of(chunk, dense);
    threads_.push(thread, chunk, bytes);
    ++left_[chunk];
    if (!runs_[thread]) {
      runs_[thread] = true;
      world_->beside(run(thread));
    }
  }
  /// Adds the last work on a chunk before its answer.
  void close(std::uint32_t chunk, std::size_t bytes) {
    closed_[chunk] = true;
    push(chunk, bytes);
    threads_.complete(chunk);
  }

 private:
  task run([[maybe_unused]] std::size_t thread) {
    if constexpr (models_time) {
      while (!threads_.is_idle(thread)) {
        const engine_threads::work next = threads_.pop(thread);
        queues_[thread].charge(next.bytes);
        const seconds until = queues_[thread].record();
        if (until > world_->now()) {
          co_await world_->sleep(until - world_->now());
        }
        if (--left_[next.chunk] == 0 && closed_[next.chunk]) {
          closed_[next.chunk] = false;
          threads_.answered(next.chunk);
          server_->answer(next.chunk);
        }
      }
    }
    runs_[thread] = false;
    co_return;
  }

  World* world_;
  Server* server_;
  engine_threads threads_{0, 0, engine_order::received};
  std::vector<std::size_t> left_{};   ///< work on each chunk that is not done
  std::vector<char> closed_{};        ///< whether each chunk's last work has come
  std::vector<char> runs_{};          ///< whether each thread is at work
  std::vector<queue_type> queues_{};  ///< of each thread, for the time that it is charged
};

}  // namespace tutti::architecture

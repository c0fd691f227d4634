#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/task.hpp"
#include "tutti/core/architecture_world.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/failure.hpp"
#include "tutti/core/gradient_intake.hpp"
#include "tutti/core/model_memory.hpp"
#include "tutti/core/remote_memories.hpp"
#include "tutti/core/services.hpp"
#include "tutti/core/startup.hpp"
#include "tutti/core/state_memory.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// Returns the floats of all memories, one after the other, on the host.
template <class Queue>
[[gnu::cold]] std::vector<float> joined(Queue& queue,
                                        const std::vector<std::span<float>>& memories) {
  std::vector<float> all;
  for (const std::span<float> each : memories) {
    const auto values = host_view(queue, each);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

/// Writes joined floats back into memories of the same length in all, or throws usage_error.
template <class Queue>
[[gnu::cold]] void restore_joined(Queue& queue, const std::vector<std::span<float>>& memories,
                                  std::span<const float> values) {
  std::size_t room = 0;
  for (const std::span<float> each : memories) {
    room += each.size();
  }
  if (room != values.size()) {
    throw usage_error(sentence(
        {"with these options the strategy remembers ", room, " floats, but until now it was ",
         values.size(), ". Fix: do not change options on which a compressor's memory depends"}));
  }
  for (const std::span<float> each : memories) {
    fill_from_host(queue, each, [&](std::span<float> into) {
      std::copy_n(values.begin(), into.size(), into.begin());
    });
    values = values.subspan(each.size());
  }
}

template <class Endpoint>
[[gnu::cold]] task send_plan(Endpoint self, int rank, const plan& made) {
  const std::uint64_t buckets = made.buckets.size();
  const std::uint64_t chunks = made.chunks.size();
  co_await self.send(rank, std::as_bytes(std::span(&buckets, 1)));
  co_await self.send(rank, std::as_bytes(std::span(made.buckets)));
  co_await self.send(rank, std::as_bytes(std::span(made.bucket_of)));
  co_await self.send(rank, std::as_bytes(std::span(&chunks, 1)));
  co_await self.send(rank, std::as_bytes(std::span(made.chunks)));
  co_await self.send(rank, std::as_bytes(std::span(&made.hash, 1)));
}
/// Receives what `send_plan` sends, into a plan of the same tensors.
template <class Endpoint>
[[gnu::cold]] task receive_plan(Endpoint self, int rank, plan& made) {
  std::uint64_t buckets = 0;
  std::uint64_t chunks = 0;
  co_await receive_now(self, rank, bytes_of(buckets));
  made.buckets.resize(buckets);
  co_await receive_now(self, rank, std::as_writable_bytes(std::span(made.buckets)));
  co_await receive_now(self, rank, std::as_writable_bytes(std::span(made.bucket_of)));
  co_await receive_now(self, rank, bytes_of(chunks));
  made.chunks.resize(chunks);
  co_await receive_now(self, rank, std::as_writable_bytes(std::span(made.chunks)));
  co_await receive_now(self, rank, bytes_of(made.hash));
}

/// Gives an engine another plan while it trains; all ranks do so together. Their messages travel on
/// the host channel, under numbers that are independent of the plan. Three rendezvous separate the
/// plans: after the first nothing of the old plan is in flight, after the second all ranks have the
/// new plan, and after the third all have their memories.
template <class Types, class Engine>
class replan_steps {
  using options = typename Types::options;
  using architecture = typename Types::architecture;
  using compression = typename Types::compression;
  using state_type =
      typename architecture::template state<architecture_world<typename Types::exchange>>;
  using services_type = services<typename Types::transport>;
  using audience = typename failure<typename Types::transport>::audience;
  using endpoint_type = endpoint<typename Types::transport>;
  static constexpr bool has_servers = facts::has_servers<architecture>;
  /// Whether each rank remembers residuals of the means of its part of every chunk.
  static constexpr bool moves_owners =
      facts::encodes_means<architecture> && facts::owns_parts<architecture>;
  /// Whether each rank has the optimizer's memory of its part of every chunk.
  static constexpr bool moves_parts = facts::updates_parts<architecture>;

  static void expect(bool fits) {
    if (!fits) {
      throw usage_error(
          "this architecture's owners do not keep a fixed number of floats per element, so their "
          "memory cannot move. Fix: save, and start again with the other options");
    }
  }

  /// What owners of chunks remember, kept independently of who owns what: rows of floats by place
  /// in the model. Each owner's memories (`memories()` of an architecture that places chunks) are
  /// those of its chunks, one after the other.
  class memories_by_place {
   public:
    /// Takes the memories of `rank`, which owns chunks under the plan `made`.
    [[gnu::cold]] void take(const plan& made, int rank, const memories_of_rank& memories) {
      std::size_t next = 0;
      const std::size_t each = memories_a_chunk(made, rank, memories.size());
      for_each_chunk(made, rank, [&](const chunk& piece) {
        rows_.resize(std::max(rows_.size(), each));
        for (std::size_t which = 0; which < each; ++which) {
          const std::vector<float>& from = memories[next++];
          const std::size_t rows = from.size() / piece.elements;
          expect(rows * piece.elements == from.size());
          rows_[which].resize(rows * made.elements());
          for (std::size_t row = 0; row < rows; ++row) {
            std::copy_n(&from[row * piece.elements], piece.elements,
                        &rows_[which][row * made.elements() + piece.first_element]);
          }
        }
      });
    }
    /// Returns the memories that `rank` has to have under the plan `made`.
    [[gnu::cold]] memories_of_rank of(const plan& made, int rank) const {
      memories_of_rank all;
      for_each_chunk(made, rank, [&](const chunk& piece) {
        for (const std::vector<float>& from : rows_) {
          const std::size_t rows = from.size() / made.elements();
          std::vector<float>& into = all.emplace_back(rows * piece.elements);
          for (std::size_t row = 0; row < rows; ++row) {
            std::copy_n(&from[row * made.elements() + piece.first_element], piece.elements,
                        &into[row * piece.elements]);
          }
        }
      });
      return all;
    }

   private:
    template <class Visit>
    static void for_each_chunk(const plan& made, int rank, Visit visit) {
      for (const chunk& each : made.chunks) {
        if (each.placed_on == rank && each.elements != 0) {
          visit(each);
        }
      }
    }
    static std::size_t memories_a_chunk(const plan& made, int rank, std::size_t memories) {
      std::size_t chunks = 0;
      for_each_chunk(made, rank, [&chunks](const chunk&) { ++chunks; });
      expect(chunks == 0 ? memories == 0 : memories % chunks == 0);
      return chunks == 0 ? 0 : memories / chunks;
    }

    std::vector<std::vector<float>> rows_{};
  };

  /// What rank 0 tells servers: the options they need, and the optimizer, which may count steps.
  struct told {
    policy_options<typename Types::strategy> policies{};
    unsigned accumulation{};
    typename Types::optimizer values{};
  };

 public:
  /// Changes the plan, on a rank that trains.
  [[gnu::cold]] static task to(Engine& its, const options& next) {
    auto who = audience::everybody;
    try {
      expect_between_steps(its);
      co_await its.flow_->finish();
      if constexpr (has_servers) {  // once no worker waits for an answer of a server
        co_await average_and_compare(host_endpoint(its), its.workers_, its.nothing, its.given_);
        if (its.world_->rank() == 0) {
          co_await tell_servers(its, next);
        }
      }
      const std::string settings = its.settings(next);
      plan made = asked(its, settings);
      who = audience::nobody;  // all ranks find the same differences
      co_await compare(its, made, settings);
      expect_allowed(its, next);
      who = audience::everybody;
      made = its.planned_for(its.world_->size(), its.model_.forward(), next,
                             make_policy<compression>(next.compression), its.optimizer_);
      who = has_servers ? audience::everybody : audience::nobody;  // servers do not check that
      expect_same_order(its.plan_, made);
      who = audience::everybody;
      gradient_intake<Types, Engine>::expect_gradients_come_back(its, next, made);
      if constexpr (has_servers) {
        for (int rank = its.workers_; its.world_->rank() == 0 && rank < its.world_->size();
             ++rank) {
          co_await send_plan(host_endpoint(its), rank, made);
        }
      }
      who = audience::nobody;
      co_await compare(its, made, settings);
      who = audience::everybody;
      co_await move_over(its, next, made);
    } catch (...) {
      its.fail(std::current_exception(), who);
      throw;
    }
  }

  /// Changes the plan, on a server whose services have been told to by rank 0.
  [[gnu::cold]] static task as_told(Engine& its) requires has_servers {
    auto who = audience::everybody;
    try {
      static_assert(std::is_trivially_copyable_v<told>);
      told heard;
      co_await receive_now(host_endpoint(its), 0, bytes_of(heard));
      its.optimizer_ = heard.values;
      const options next = of_workers(its, heard);
      const std::string settings = its.settings(next);
      plan made = asked(its, settings);
      who = audience::nobody;
      co_await compare(its, made, settings);
      expect_allowed(its, next);
      who = audience::everybody;
      co_await receive_plan(host_endpoint(its), 0, made);  // servers do not know the profile
      who = audience::nobody;
      co_await compare(its, made, settings);
      who = audience::everybody;
      co_await its.finish_architecture();
      co_await send_memories(host_endpoint(its), 0, its.remembered());
      rebuild(its, next, made);
      co_await receive_restored<endpoint_type, engine_base<typename Types::transport>>(
          host_endpoint(its), 0, its);
      co_await meet(its);
    } catch (...) {
      its.fail(std::current_exception(), who);
      throw;
    }
  }

 private:
  static endpoint_type host_endpoint(const Engine& its) {
    return endpoint_type(*its.world_, its.services_.own_tag(services_type::own::average));
  }

  [[gnu::cold]] static void expect_between_steps(Engine& its) {
    its.expect_to_train();
    if (its.flow_->outstanding()) {
      throw usage_error(
          "a plan cannot change while gradients are on their way. Fix: await every arrival first");
    }
    for (std::size_t position = 0; position < its.plan_.backward.size(); ++position) {
      if (its.model_.is_lent(position)) {
        throw usage_error(
            "a plan cannot change while a lent gradient is being written. Fix: replan before "
            "gradient()");
      }
    }
    if (its.is_in_a_step()) {
      throw usage_error(
          "a plan cannot change in the middle of a step. Fix: replan where every tensor has been "
          "ready run.accumulation times");
    }
  }

  /// Returns the present plan with the hash of the settings asked for, which ranks compare first.
  [[gnu::cold]] static plan asked(const Engine& its, const std::string& settings) {
    plan made = its.plan_;
    running_hash hash;
    hash.feed(std::as_bytes(std::span(settings)));
    made.hash = hash.value();
    return made;
  }

  static task compare(Engine& its, const plan& made, std::string_view settings) {
    return agree(endpoint_type(*its.world_, its.services_.own_tag(services_type::own::hello)), made,
                 its.model_.forward(), settings);
  }

  [[gnu::cold]] static void expect_allowed(const Engine& its, const options& next) {
    expect_run_options<typename Types::strategy::fusion>(next, its.plan_, its.set_.run.deadline,
                                                         *its.world_);
    if (workers_among<architecture>(next.architecture, its.world_->size()) != its.workers_) {
      throw usage_error(
          "a replan cannot change which ranks train and which serve. Fix: replan with as many "
          "servers as before");
    }
    expect_goes_on<architecture, compression>(its.set_, next, its.steps());
  }

  [[gnu::cold]] static void expect_same_order(const plan& before, const plan& made) {
    if (hash_of_order(made) != hash_of_order(before)) {
      throw usage_error(
          "which tensors a compressor selects, and whether a fusion keeps types apart, cannot "
          "change while a model trains, because the layout of memory depends on it. Fix: replan "
          "with these options unchanged");
    }
  }

  [[gnu::cold]] static options of_workers(const Engine& its, const told& heard) {
    options next = its.set_;
    next.fusion = heard.policies.fusion;
    next.partition = heard.policies.partition;
    next.schedule = heard.policies.schedule;
    next.coordination = heard.policies.coordination;
    next.compression = heard.policies.compression;
    next.architecture = heard.policies.architecture;
    next.run.accumulation = heard.accumulation;
    return next;
  }

  [[gnu::cold]] static task tell_servers(Engine& its, const options& next) {
    told all{{next.fusion, next.partition, next.schedule, next.coordination, next.compression,
              next.architecture},
             next.run.accumulation,
             its.optimizer_};
    endpoint_type to_servers = host_endpoint(its);
    for (int rank = its.workers_; rank < its.world_->size(); ++rank) {
      co_await its.world_->send(rank, its.services_.service_tag(service::replan), {});
      co_await to_servers.send(rank, bytes_of(all));
    }
  }

  /// Makes the new plan and its buffers, and fills them with what was remembered under the old one.
  [[gnu::cold]] static task move_over(Engine& its, const options& next, plan& made) {
    auto& queue = its.world_->queue();
    endpoint_type self = host_endpoint(its);
    co_await its.finish_architecture();
    const std::uint64_t steps = its.steps();
    std::vector<float> of_chunks = joined(queue, its.flow_->memories());
    follow_gradients<typename Engine::compression>(
        std::span(of_chunks).first(its.flow_->memories().front().size()),
        change_of_passes<architecture>(its.set_.run, next.run));
    std::vector<float> of_state;
    if constexpr (moves_parts) {
      std::vector<float> rows = rows_of_parts(its);
      co_await sum_on_hosts(self, rows);
      of_state = parts_by_place(its, rows);
      co_await sum_on_hosts(self, of_state);
    } else {
      of_state = joined(queue, its.remembered());
    }
    std::vector<float> of_means;
    if constexpr (moves_owners) {
      of_means = joined(queue, {means_of(its)});
      co_await sum_on_hosts(self, of_means);
    }
    memories_by_place of_servers;
    if constexpr (has_servers) {
      for (int rank = its.workers_; self.rank() == 0 && rank < self.size(); ++rank) {
        memories_of_rank theirs;
        co_await receive_memories(self, rank, theirs);
        of_servers.take(its.plan_, rank, theirs);
      }
    }

    rebuild(its, next, made);

    its.flow_->resume(steps);
    its.resume_architecture(steps);
    restore_joined(queue, its.flow_->memories(), of_chunks);
    if constexpr (moves_parts) {
      restore_parts(its, of_state);
    } else {
      restore_joined(queue, its.remembered(), of_state);
    }
    if constexpr (moves_owners) {
      keep_own_share(its, of_means);
      restore_joined(queue, {means_of(its)}, of_means);
    }
    if constexpr (has_servers) {
      for (int rank = its.workers_; self.rank() == 0 && rank < self.size(); ++rank) {
        const memories_of_rank theirs = of_servers.of(its.plan_, rank);
        co_await send_restored(self, rank, steps, its.model_.forward(), theirs);
      }
    }
    co_await meet(its);
  }

  /// Ends when all ranks have their memories.
  [[gnu::cold]] static task meet(Engine& its) {
    its.world_->queue().synchronize();
    co_await average_over_workers(host_endpoint(its), its.world_->size(), its.nothing);
  }

  static std::span<float> means_of(Engine& its) { return its.flow_->memories()[1]; }

  /// Returns the part of a chunk that this rank owns.
  static chunk part_of(Engine& its, const chunk& whole) {
    return whole.part(at(its.world_->size()), at(its.world_->rank()));
  }

  [[gnu::cold]] static void keep_own_share(Engine& its, std::vector<float>& of_means) {
    const plan& made = its.plan_;
    for (const chunk& each : made.chunks) {
      const chunk mine = part_of(its, each);
      const std::size_t begin = mine.first_element - each.first_element;
      for (std::size_t row = 0; row * made.elements() < of_means.size(); ++row) {
        float* first = of_means.data() + row * made.elements() + each.first_element;
        std::fill(first, first + begin, 0.0f);
        std::fill(first + begin + mine.elements, first + each.elements, 0.0f);
      }
    }
  }

  /// Calls `visit(memory, place)` for each row of each part of a chunk that this rank remembers.
  /// `place` is where that row lies in rows of the whole model, one after the other.
  template <class Visit>
  [[gnu::cold]] static void for_each_part(Engine& its, Visit visit) {
    const plan& made = its.plan_;
    const std::vector<std::span<float>> memories = its.remembered();
    expect(memories.empty() || memories.size() == made.chunks.size());
    for (std::size_t number = 0; number < memories.size(); ++number) {
      const chunk mine = part_of(its, made.chunks[number]);
      const std::size_t rows = memories[number].size() / std::max<std::size_t>(1, mine.elements);
      expect(rows * mine.elements == memories[number].size());
      for (std::size_t row = 0; row < rows; ++row) {
        visit(memories[number].subspan(row * mine.elements, mine.elements),
              row * made.elements() + mine.first_element);
      }
    }
  }
  /// Returns two numbers whose sums over the ranks have the number of rows for their quotient.
  [[gnu::cold]] static std::vector<float> rows_of_parts(Engine& its) {
    std::size_t rows = 0;
    for_each_part(its, [&](std::span<float>, std::size_t place) {
      rows = std::max(rows, place / its.plan_.elements() + 1);
    });
    return {static_cast<float>(rows), rows == 0 ? 0.0f : 1.0f};
  }
  /// Returns rows of the whole model, with zeros for parts that other ranks remember.
  [[gnu::cold]] static std::vector<float> parts_by_place(Engine& its, std::span<const float> rows) {
    auto& queue = its.world_->queue();
    std::vector<float> all(
        rows[1] == 0 ? 0 : static_cast<std::size_t>(rows[0] / rows[1]) * its.plan_.elements());
    for_each_part(its, [&](std::span<float> memory, std::size_t place) {
      expect(place + memory.size() <= all.size());
      const auto values = host_view(queue, memory);
      std::copy(values.begin(), values.end(), all.begin() + static_cast<std::ptrdiff_t>(place));
    });
    return all;
  }
  [[gnu::cold]] static void restore_parts(Engine& its, std::span<const float> all) {
    auto& queue = its.world_->queue();
    for_each_part(its, [&](std::span<float> memory, std::size_t place) {
      expect(place + memory.size() <= all.size());
      fill_from_host(queue, memory, [&](std::span<float> into) {
        std::copy_n(all.subspan(place).begin(), into.size(), into.begin());
      });
    });
  }

  /// Replaces whatever depends on the plan. Nothing of it may be in flight.
  [[gnu::cold]] static void rebuild(Engine& its, const options& next, plan& made) {
    auto& queue = its.world_->queue();
    queue.synchronize();
    its.flow_.reset();
    if constexpr (facts::has_counted_pushes<state_type>) {
      its.counted_before_ = its.counted_pushes();
    }
    its.state_.reset();
    const run_options run = its.set_.run;
    its.set_ = next;
    its.set_.run.deadline = run.deadline;
    its.set_.run.progress = run.progress;
    its.compression_ = make_policy<compression>(next.compression);
    its.plan_ = std::move(made);
    its.observer_.replanned();
    its.around_.accumulate(next.run.accumulation);
    std::vector<tensor> forward = its.model_.forward();
    its.model_ = {queue, std::move(forward), its.plan_, its.buffers_wanted(its.serves()),
                  gradient_intake<Types, Engine>::most_lent(its.set_)};
    its.state_.emplace(its.around_, its.set_.architecture);
    its.open_flow();
  }
};

}  // namespace tutti

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tutti/architecture/all_reduce.hpp"
#include "tutti/architecture/departures.hpp"
#include "tutti/architecture/diloco.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/task.hpp"
#include "tutti/role/architecture.hpp"

namespace tutti::architecture {

/// DiLoCo (see `diloco`) whose outer steps are taken by one fragment of the model after the other,
/// while training goes on. There are P fragments, and each takes a step in every period of H inner
/// steps; bucket b belongs to fragment b mod P. After the inner step t for which (t + 1) mod H is
/// floor(f H / P), ranks begin to average for fragment f:
///   d = mean over the ranks of s - x.
/// The mean comes `overlap` steps later. Then, after their own inner step, they compute
///   v = momentum * v + d
///   s = s - rate * (d + momentum * v)
///   x = keep * x + (1 - keep) * s.
/// `Mean` is the architecture that averages. With all_gather, payloads of any compressor are added
/// as floats.
/// Wire: as `Mean`, for the payload of s - x, in one step of every `period` for each fragment.
/// Cost: a buffer and two memories (s and v) as large as the model. A checkpoint holds all three; a
/// mean that is on its way when training ends is never applied.
/// After: Douillard et al., "Streaming DiLoCo with overlapping communication", 2025.
template <architecture_policy Mean = all_reduce<>>
struct streaming_diloco : Mean {
  static constexpr bool stale = true;
  static constexpr tutti::carries carries = tutti::carries::difference;
  static constexpr bool updates_first = true;
  static constexpr bool has_halves = false;
  static constexpr bool turns_on_steps = true;
  static constexpr int delay = 1;

  struct options {
    int period{100};
    int fragments{4};
    int overlap{1};
    double keep{0.5};
    double rate{0.7};
    double momentum{0.9};

    template <class Self, class Visitor>
    static void describe(Self& self, Visitor&& visit) {
      visit("period", self.period, "inner steps from one outer step of a fragment to the next");
      visit("fragments", self.fragments, "parts of the model that take turns");
      visit("overlap", self.overlap, "inner steps within which a mean must arrive");
      visit("keep", self.keep,
            "share of its own model that a rank keeps when a mean arrives, 0 to 1");
      visit("rate", self.rate, "learning rate of the outer steps");
      visit("momentum", self.momentum, "Nesterov momentum of the outer steps");
    }

    /// Returns the fragment whose mean the ranks begin to take after a step, if any.
    std::optional<std::uint32_t> begun_after(std::uint64_t step) const {
      const auto steps = static_cast<std::uint64_t>(period);
      const auto parts = static_cast<std::uint64_t>(fragments);
      const std::uint64_t place = (step + 1) % steps;
      const std::uint64_t fragment = (place * parts + steps - 1) / steps;
      return fragment * steps / parts == place ? std::optional(static_cast<std::uint32_t>(fragment))
                                               : std::nullopt;
    }
    /// Returns the fragment whose mean is applied after a step, if any.
    std::optional<std::uint32_t> ended_after(std::uint64_t step) const {
      const auto late = static_cast<std::uint64_t>(overlap);
      return step < late ? std::nullopt : begun_after(step - late);
    }
  };

  /// Returns 0, because most steps send nothing.
  static constexpr double busiest_nic(double, double, placement) { return 0; }

  /// Throws usage_error while a fragment's mean is on its way, because another plan has other
  /// fragments.
  template <class Compression>
  static void expect_replan(const options& was, const options&, std::uint64_t steps) {
    for (int late = 0; late < was.overlap && steps > 0; ++late) {
      if (const auto ago = static_cast<std::uint64_t>(late);
          steps > ago && was.begun_after(steps - 1 - ago)) {
        throw usage_error(sentence({"architecture::streaming_diloco: after ", steps,
                                    " steps the mean of a fragment is on its way. Fix: replan ",
                                    was.overlap - late, " steps later, or use a smaller overlap"}));
      }
    }
  }

  template <class World>
  class state : public Mean::template state<World> {
    using base = typename Mean::template state<World>;
    using launch = typename World::launch;

   public:
    /// Throws usage_error unless every fragment has a turn in each period and its mean comes no
    /// later than the next fragment's turn, or if another option is out of range.
    state(World& world, const options& set)
        : base(world, {}),
          world_(&world),
          set_(set),
          start_(world.allocate_parallel()),
          velocity_(world.allocate_parallel()),
          departed_(world.planned()) {
      if (set.period < 1 || set.fragments < 1 || set.fragments > set.period) {
        throw usage_error(
            sentence({"architecture::streaming_diloco: ", set.fragments,
                      " fragments cannot take turns in a period of ", set.period,
                      " steps. Fix: from 1 fragment to one per step, such as 4 in 100"}));
      }
      if (set.overlap < 1 || set.overlap > set.period / set.fragments) {
        throw usage_error(
            sentence({"architecture::streaming_diloco: the overlap is ", set.overlap,
                      " steps, but the next fragment begins after ", set.period / set.fragments,
                      ". Fix: use an overlap from 1 step to that; architecture::diloco has none"}));
      }
      if (!(set.keep >= 0 && set.keep <= 1)) {
        throw usage_error("architecture::streaming_diloco: keep must be from 0 to 1. Fix: 0.5");
      }
      expect_outer_steps<typename World::compression>("architecture::streaming_diloco", set.rate,
                                                      set.momentum);
    }

    bool sends(std::uint64_t step) const {
      return set_.begun_after(step).has_value() || set_.ended_after(step).has_value();
    }
    float average() const { return 1.0f / static_cast<float>(world_->workers()); }
    void depart(std::size_t position, std::uint64_t step) {
      departed_.note(position, step);
      world_->update_alone(position, step);
    }

    void incoming(const chunk& piece, std::span<float> mean) {
      if (set_.ended_after(departed_.step_of(piece)) != fragment_of(piece)) {
        return;
      }
      const auto momentum = static_cast<float>(set_.momentum);
      const std::span<float> start = world_->part_of(span_of(start_), piece);
      const std::span<float> velocity = world_->part_of(span_of(velocity_), piece);
      world_->blend(velocity, mean, momentum, 1.0f);
      world_->blend(mean, velocity, 1.0f, momentum);
      world_->blend(start, mean, 1.0f, -static_cast<float>(set_.rate));
      world_->mix_parameters(piece, start, static_cast<float>(1 - set_.keep));
    }
    void outgoing(const chunk& piece, std::span<float> buffer) {
      if (set_.begun_after(departed_.step_of(piece)) == fragment_of(piece)) {
        world_->read_parameters(piece, buffer);
        world_->blend(buffer, world_->part_of(span_of(start_), piece), -1.0f, 1.0f);
      }
    }
    task exchange(typename World::endpoint self, const launch& what) {
      const chunk& piece = world_->planned().chunks[what.number];
      if (set_.begun_after(what.step) == fragment_of(piece)) {
        co_await base::exchange(self, what);
      }
    }
    void arrive(std::size_t, std::uint64_t) {}

    void resume(std::uint64_t) {
      for (const chunk& each : world_->planned().chunks) {
        world_->read_parameters(each, world_->part_of(span_of(start_), each));
      }
    }
    std::vector<std::span<float>> memories() { return {span_of(start_), span_of(velocity_)}; }

   private:
    std::optional<std::uint32_t> fragment_of(const chunk& piece) const {
      return piece.bucket % static_cast<std::uint32_t>(set_.fragments);
    }

    World* world_;
    options set_;
    typename World::template memory<float> start_;     ///< s: parameters after the last outer steps
    typename World::template memory<float> velocity_;  ///< v: the outer momentum
    departures departed_;
  };
};
static_assert(architecture_policy<streaming_diloco<>>);

}  // namespace tutti::architecture

// What every named strategy remembers stays with its elements where the plan changes. The laws are
// for gradients of floats and of several types, and for several numbers of workers.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <gtest/gtest.h>
#include <mutex>
#include <span>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/extent.hpp"
#include "support/training.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/coordination/learned.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/kernels/cast.hpp"
#include "tutti/strategies.hpp"

namespace tutti::test::changed_plans {
namespace {

constexpr int half = 5;
constexpr int all_steps = 10;

enum class types { floats, mixed };

/// A model whose gradients have few digits, so that sums are exact in any order. It has matrices,
/// which some compressors treat in their own way.
class model {
 public:
  model(int rank, types which) {
    const std::vector<tensor_shape> shapes{{37}, {1}, {60, 30}, {0}, {27, 19}, {2, 4}, {30, 40}};
    for (const tensor_shape& each : shapes) {
      elements_ += each.elements();
    }
    parameters_.resize(elements_);
    wide_.resize(elements_);
    narrow_.resize(elements_);
    std::size_t first = elements_;
    for (std::size_t id = 0; id < shapes.size(); ++id) {
      const std::size_t n = shapes[id].elements();
      first -= n;
      firsts_.push_back(first);
      const auto parameter = std::span(parameters_).subspan(first, n);
      for (std::size_t i = 0; i < n; ++i) {
        parameter[i] = rank == 0 ? initial(first + i) : 99.0f;
      }
      const std::string name = "t" + std::to_string(id);
      const auto type = static_cast<element_type>(which == types::floats ? 0 : id % 3);
      if (type == element_type::fp32) {
        tensors_.emplace_back(name, parameter, std::span(wide_).subspan(first, n), shapes[id]);
      } else {
        tensors_.emplace_back(name, parameter, std::span(narrow_).subspan(first, n), type,
                              shapes[id]);
      }
    }
  }

  const std::vector<tensor>& tensors() const { return tensors_; }
  const std::vector<float>& parameters() const { return parameters_; }
  void backward(tensor_id id, int worker, int step) {
    const tensor& to = tensors_[index(id)];
    std::vector<float> values(to.elements);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = gradient_of_few_digits(worker, step, firsts_[index(id)] + i);
    }
    inline_queue queue;
    switch (to.gradient_type) {
      case element_type::fp32:
        std::copy(values.begin(), values.end(), to.gradient.begin());
        break;
      case element_type::fp16:
        kernels::narrow<kernels::half>(queue, values, to.narrow_gradient.data());
        break;
      case element_type::bf16:
        kernels::narrow<kernels::bfloat>(queue, values, to.narrow_gradient.data());
        break;
    }
  }

 private:
  std::size_t elements_ = 0;
  std::vector<float> parameters_{};
  std::vector<float> wide_{};
  std::vector<std::uint16_t> narrow_{};
  std::vector<std::size_t> firsts_{};
  std::vector<tensor> tensors_{};
};

/// Returns a strategy's options for one of two plans, which fuse, cut and place what they can in
/// other ways, and let everything happen that the strategy does only from time to time.
template <class Strategy>
engine_options<Strategy> plan_of(int which) {
  const bool first = which == 0;
  engine_options<Strategy> set;
  set.run.deadline = 60;
  if constexpr (requires { set.fusion.bytes; }) {
    set.fusion.bytes = first ? 100 : 6000;
  }
  if constexpr (requires { set.fusion.elements; }) {
    set.fusion.elements = fusion::by_bytes;
  }
  if constexpr (requires { set.fusion.modules; }) {
    set.fusion.modules = first ? 1 : 4;
  }
  if constexpr (requires { set.fusion.startup; }) {
    set.fusion.startup = first ? 1e-9 : 1;
    set.fusion.seconds_per_byte = first ? 1e-3 : 1e-9;
  }
  if constexpr (requires { set.fusion.types; }) {
    set.fusion.types = fusion_types::apart;
  }
  if constexpr (requires { set.partition.bytes; }) {
    set.partition.bytes = first ? 4000 : 700;
  }
  if constexpr (requires { set.partition.bound; }) {
    set.partition.bound = first ? 100'000 : 300;
  }
  if constexpr (requires { set.schedule.credit; }) {
    set.schedule.credit = first ? 5000 : 8000;
  }
  if constexpr (requires { set.architecture.servers; }) {
    set.architecture.servers = 2;
  }
  if constexpr (requires { set.architecture.placed_by; }) {
    using architecture::placed_by;
    set.architecture.placed_by = first ? placed_by::naive : placed_by::built_in;
  }
  if constexpr (requires { set.architecture.period; }) {
    set.architecture.period = 3;
  }
  if constexpr (requires { set.architecture.step; }) {
    set.architecture.step = 4;
  }
  if constexpr (requires { set.architecture.estimate_every; }) {
    set.architecture.estimate_every = 3;
    set.architecture.divide_every = 4;
  }
  if constexpr (requires { set.compression.bytes; }) {
    set.compression.bytes = 900;
  }
  if constexpr (requires { set.compression.density; }) {
    set.compression.density = 0.05;
  }
  return set;
}

/// What happens after half of the steps: nothing, a re-plan to the second plan and one back, a
/// re-plan to the second plan, or a checkpoint that is loaded under it.
enum class change { nothing, there_and_back, replan, checkpoint };

struct outcome_of_a_run {
  std::vector<std::vector<float>> parameters{};
  std::string refused{};  ///< the error, if the checkpoint was refused
};

/// Takes a step of one worker.
template <class Engine>
void one_step(Engine& engine, model& its, int step) {
  engine.wait();
  for (const tensor_id id : shuffled(its.tensors().size(), engine.worker(), step)) {
    its.backward(id, engine.worker(), step);
    engine.ready(id);
  }
}

/// Trains all steps. Where no worker waits for another, they take their steps in turn, so that it
/// is known what each of them finds.
template <class Strategy>
outcome_of_a_run trained(int worker_count, types which, change what) {
  using architecture = typename strategy_of<Strategy>::architecture;
  constexpr bool in_turns =
      facts::keeps_no_step<architecture> && !facts::drops_gradients<architecture>;
  outcome_of_a_run result{std::vector<std::vector<float>>(static_cast<std::size_t>(worker_count)),
                          {}};
  std::vector<std::string> files(result.parameters.size());
  std::mutex writing;
  const auto part = [&](int first, int last, int plan) {
    const auto set = plan_of<Strategy>(plan);
    transport::run_ranks(
        worker_count + servers_in<Strategy>(set), [&](transport::in_process& world) {
          model its(world.rank(), which);
          auto engine = make_engine<Strategy>(world, its.tensors(), optimizer_for<Strategy>(), set);
          if (engine.serves()) {
            engine.serve();
            return;
          }
          const auto rank = static_cast<std::size_t>(world.rank());
          if (first != 0) {
            std::istringstream in(files[rank]);
            try {
              load(engine, in);
            } catch (const usage_error& why) {
              const std::scoped_lock lock(writing);
              result.refused = why.what();
              throw;
            }
          }
          for (int step = first; step < last; ++step) {
            if (step == half && (what == change::replan || what == change::there_and_back)) {
              engine.replan(plan_of<Strategy>(1));
            }
            if (step == half && what == change::there_and_back) {
              engine.replan(plan_of<Strategy>(0));
            }
            for (int turn = 0; turn < (in_turns ? worker_count : 1); ++turn) {
              if (!in_turns || turn == world.rank()) {
                one_step(engine, its, step);
              }
              if (in_turns) {
                engine.wait();
                engine.average(0);
              }
            }
          }
          std::ostringstream out;
          save(engine, out);
          files[rank] = out.str();
          result.parameters[rank] = its.parameters();
        });
  };
  if (what != change::checkpoint) {
    part(0, all_steps, 0);
    return result;
  }
  part(0, half, 0);
  try {
    part(half, all_steps, 1);
  } catch (const std::exception&) {
    EXPECT_NE(result.refused, "");
  }
  return result;
}

/// Checkpoints that cannot be loaded under another plan say so.
bool names_chunks(const std::string& refused) {
  return refused.find("of other chunks") != std::string::npos ||
         refused.find("belong to other chunks") != std::string::npos;
}

template <class Strategy>
void keeps_what_it_remembers() {
  using architecture = typename strategy_of<Strategy>::architecture;
  constexpr bool floats_alone = facts::delay<architecture> != 0;  // means that come late are floats
  // An order that is learned again lets other elements travel together, which rings add in another
  // order. Halves of numbers of few digits do not show that.
  constexpr bool learns =
      std::is_same_v<typename strategy_of<Strategy>::coordination, coordination::learned>;
  for (const int worker_count : {1, 2, 3, 5}) {
    if (learns && worker_count > 2) {
      continue;
    }
    const types which =
        floats_alone || worker_count == 1 || worker_count == 3 ? types::floats : types::mixed;
    const auto run = [&](change what) { return trained<Strategy>(worker_count, which, what); };
    const std::string name = std::string(Strategy::name) + ", " + std::to_string(worker_count) +
                             (which == types::mixed ? " workers, mixed" : " workers");
    EXPECT_EQ(run(change::there_and_back).parameters, run(change::nothing).parameters) << name;
    const auto loaded = run(change::checkpoint);
    if (loaded.refused.empty()) {
      EXPECT_EQ(loaded.parameters, run(change::replan).parameters) << name;
    } else {
      EXPECT_TRUE(names_chunks(loaded.refused)) << name << ": " << loaded.refused;
    }
  }
}

template <class... Strategies>
void for_each(std::tuple<Strategies...>*) {
  [&]<std::size_t... Place>(std::index_sequence<Place...>) {
    const auto take = [&]<class Strategy, std::size_t At>() {
      if constexpr (checks_named(At)) {
        keeps_what_it_remembers<Strategy>();
      }
    };
    (take.template operator()<Strategies, Place>(), ...);
  }
  (std::index_sequence_for<Strategies...>());
}
TEST(ChangedPlan, LeavesWhatEveryNamedStrategyRemembers) {
  for_each(static_cast<strategies::all*>(nullptr));
}

}  // namespace
}  // namespace tutti::test::changed_plans

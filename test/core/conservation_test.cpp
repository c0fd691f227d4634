// Nothing is lost: what ranks have contributed equals what has been applied plus what residuals
// still hold. Histories are drawn at random. They have steps of one pass or two, tensors without a
// gradient, changes of the plan and the number of passes, checkpoints from which other engines
// continue, and rates that change. A composition joins a list. One file, because all compositions
// go through one history and are added up in one ledger.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <mutex>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/extent.hpp"
#include "support/one_of_compressors.hpp"
#include "support/sparse_tree_oracle.hpp"
#include "support/training.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/momentum_exchange.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/architecture/replicated.hpp"
#include "tutti/architecture/selecting_all_gather.hpp"
#include "tutti/architecture/sparse_regions.hpp"
#include "tutti/architecture/sparse_tree.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/base/type_name.hpp"
#include "tutti/compression/bf16.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/block_sign.hpp"
#include "tutti/compression/by_kth_magnitude.hpp"
#include "tutti/compression/by_magnitude.hpp"
#include "tutti/compression/byteps_onebit.hpp"
#include "tutti/compression/byteps_randomk.hpp"
#include "tutti/compression/byteps_topk.hpp"
#include "tutti/compression/chain.hpp"
#include "tutti/compression/dense_below.hpp"
#include "tutti/compression/dithering.hpp"
#include "tutti/compression/e3m0.hpp"
#include "tutti/compression/elementwise.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/fading_error_feedback.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/fp8.hpp"
#include "tutti/compression/momentum_correction.hpp"
#include "tutti/compression/natural.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/power_sgd.hpp"
#include "tutti/compression/push_only.hpp"
#include "tutti/compression/qsgd.hpp"
#include "tutti/compression/random_k.hpp"
#include "tutti/compression/remembering_answers.hpp"
#include "tutti/compression/rescaled_error_feedback.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/compression/select.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/compression/threshold.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/core/rules.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/optimizer/one_bit_adam.hpp"
#include "tutti/partition/into.hpp"

namespace tutti::test {
namespace {

using compression::error_feedback;

/// An optimizer that adds up what is applied to the parameters.
struct adds {
  using role = tutti::role::optimizer;
  static constexpr bool elementwise = true;

  float learning_rate{1};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    visit("learning_rate", self.learning_rate, "what a mean counts");
  }
  static std::size_t memory_per_element() { return 0; }
  template <class Queue>
  void apply(Queue& queue, std::span<float> parameters, std::span<const float> mean,
             const chunk_context&) const {
    kernels::add_scaled(queue, parameters, mean, learning_rate);
  }
};
static_assert(optimizer_policy<adds>);

const std::vector<arena::declaration>& tensors() {
  static const std::vector<arena::declaration> all{
      {"a", 60, {6, 10}}, {"b", 1}, {"c", 0}, {"d", 135, {9, 5, 3}}};
  return all;
}
constexpr std::size_t elements = 196;
constexpr int steps = 24;
constexpr int segments = 3;  ///< successive engines; each loads what the one before saved
constexpr float most_rate = 4;
constexpr unsigned most_passes = 2;

/// Returns a gradient of few bits, so that sums are exact.
float dyadic(int worker, int step, unsigned pass, std::size_t i) {
  const auto mixed =
      static_cast<unsigned>(worker * 31 + step * 17) + pass * 7 + static_cast<unsigned>(i) * 13;
  return static_cast<float>(static_cast<int>(mixed % 64) - 32) / 16.0f;
}

/// The events between steps, which are equal on all ranks.
struct history {
  struct event {
    bool replans{};
    float rate_times{1};
  };

  explicit history(unsigned seed) {
    std::mt19937 random(seed);
    for (unsigned& each : passes) {
      each = 1 + random() % most_passes;
    }
    for (event& each : events) {
      each.replans = random() % 3 == 0;
      each.rate_times = std::array{1.0f, 1.0f, 0.5f, 2.0f}[random() % 4];
    }
  }
  /// Whether a tensor has no gradient in a rank's pass.
  static bool is_absent(int worker, int step, unsigned pass, std::size_t tensor) {
    return (static_cast<unsigned>(worker * 5 + step * 3) + pass * 11 +
            static_cast<unsigned>(tensor)) %
               7 ==
           0;
  }

  std::array<unsigned, 2> passes{};  ///< in a step, under each plan
  std::array<event, steps> events{};
};

/// The sum of residual and gradient that each rank gave its compressor in a step, and the chunks in
/// which it did.
struct given_in_a_step {
  std::vector<chunk> chunks{};
  std::vector<std::vector<double>> of_ranks{};
};

struct ledger {
  std::array<given_in_a_step, steps> given{};  ///< where the loss depends on all ranks
  std::vector<double> contributed = std::vector<double>(elements);
  std::vector<double> applied = std::vector<double>(elements);
  std::vector<double> remembered = std::vector<double>(elements);
  std::vector<double> lost = std::vector<double>(elements);
};

/// A composition and two of its plans, which share no boundary. Rates change only for compressors
/// that rescale their residuals.
template <class Compression, class Architecture>
struct listed {
  using architecture = Architecture;
  using strategy = compose<Compression, Architecture, fusion::up_to, partition::into>;
  using options = engine_options<strategy>;
  using answers = decltype(relay(std::declval<const Compression&>()));
  /// Whether the owner of a chunk, or of a part of it, keeps a residual of the mean that it
  /// encodes.
  static constexpr bool has_owners =
      !facts::owns_parameters<Architecture> && remembers_residuals<answers> &&
      (facts::has_servers<Architecture> || facts::encodes_means<Architecture>);

  static constexpr int steps = test::steps;
  /// The share of a gradient that counts as contributed. `applied` is the share of the parameters
  /// that counts as applied.
  static double taken(unsigned) { return 1; }
  static double applied(float now, float) { return static_cast<double>(now); }
  /// The number of gradients over which a mean is taken.
  static float averaged(int workers, unsigned passes) {
    return static_cast<float>(workers) * static_cast<float>(passes);
  }
  static adds optimizer_of(float worth) { return {worth}; }
  /// A worker's parameters may lack what others have pushed meanwhile. Worker 0 then reads the
  /// servers' parameters in the end.
  static constexpr bool is_stale = facts::stale<Architecture>;

  static options plan(int which, unsigned passes) {
    options set;
    set.run.deadline = 60;
    set.run.accumulation = passes;
    set.fusion.bytes = which == 0 ? 100 : 1000;
    set.partition.elements = which == 0 ? 64 : 50;
    if constexpr (has_servers<strategy>) {
      using tutti::architecture::placed_by;
      set.architecture.servers = 2;
      set.architecture.placed_by = which == 0 ? placed_by::naive : placed_by::djb2;
    }
    if constexpr (requires { set.architecture.give_back; }) {
      set.architecture.give_back = tutti::architecture::give_back::exact;
    }
    if constexpr (requires { set.architecture.estimate_every; }) {
      set.architecture.estimate_every = 3;
      set.architecture.divide_every = 4;
    }
    make_small(set.compression);
    return set;
  }
};

template <class Listed>
constexpr int engines = segments + (Listed::is_stale ? 1 : 0);

/// One rank's part of a history.
template <class Listed>
class part_of_history {
  using strategy = typename Listed::strategy;
  using options = typename Listed::options;
  static constexpr bool rescales = facts::rescales<typename strategy::compression>;

 public:
  part_of_history(transport::in_process& world, const history& told, int workers,
                  const options& compressing)
      : world_(&world), told_(&told), workers_(workers), compressing_(&compressing) {}

  /// Runs one engine's steps, from what an earlier engine has left in `file`, if anything, and
  /// saves its own state there. Owners' residuals are loaded under the plan under which they were
  /// saved.
  void go_on(int segment, std::string& file, ledger& all, std::mutex& mutex) {
    const bool any_plan = !Listed::has_owners && !has_servers<strategy>;
    which = segment > 0 && any_plan ? 1 - which : which;
    arena memory(tensors());
    auto engine = make_engine<strategy>(
        *world_, memory.tensors(), Listed::optimizer_of(rescales ? 2 * worth() : worth()), plan());
    if (engine.serves()) {
      engine.serve();
      return;
    }
    if (segment > 0) {
      std::istringstream in(file);
      load(engine, in);
    }
    change_rate(engine, worth());
    const int end = std::min(segment + 1, segments) * Listed::steps / segments;
    for (int step = segment * Listed::steps / segments; step < end; ++step) {
      happen(engine, step);
      if constexpr (requires { Listed::lost(0.0f, 1u, *compressing_); }) {
        for_each_residual(engine, [&](std::size_t i, float value, double times, unsigned summed) {
          lost_[i] += times * Listed::lost(value, summed, *compressing_);
        });
      }
      const auto before = own_rows(engine);
      hand_in(engine, memory, step);
      if constexpr (requires { Listed::lost_of(0.0, 0.0, 0.0, 0.0); }) {
        const auto after = own_rows(engine);
        for (std::size_t i = 0; i < elements; ++i) {
          lost_[i] +=
              weight() * Listed::lost_of(before[0][i], before[1][i], given_[i], after[1][i]);
        }
      }
      if constexpr (requires { Listed::lost_by_all(all.given[0], all.lost); }) {
        write_down(all.given[static_cast<std::size_t>(step)], engine, before[0], mutex);
      }
    }
    if (segment == segments && world_->rank() == 0) {
      push_zeros(engine, memory);
    }
    change_rate(engine, 0);
    std::ostringstream out;
    save(engine, out);
    file = out.str();
    enter(engine, memory, segment + 1 == engines<Listed>, all, mutex);
  }

  int which = 0;
  float rate = 1;

 private:
  unsigned passes() const { return told_->passes[static_cast<std::size_t>(which)]; }
  float scale() const { return Listed::averaged(workers_, most_passes); }
  /// The factor by which a gradient of this plan counts as one of a step with the most passes.
  double weight() const {
    return static_cast<double>(scale()) / static_cast<double>(Listed::averaged(workers_, passes()));
  }
  /// The learning rate by which a mean counts as its sum.
  float worth() const { return rate * scale(); }
  options plan() const {
    options set = Listed::plan(which, passes());
    set.compression = compressing_->compression;
    return set;
  }

  template <class Engine>
  void happen(Engine& engine, int step) {
    engine.drain();
    const auto& event = told_->events[static_cast<std::size_t>(step)];
    if (event.replans) {
      which = 1 - which;
      engine.replan(plan());
    }
    if (rescales && event.rate_times != 1) {
      rate = std::clamp(rate * event.rate_times, 1 / most_rate, most_rate);
      change_rate(engine, 0);
      change_rate(engine, worth());
    }
  }
  /// Changes the rate. Residuals follow from one rate to the next also by way of 0, of a checkpoint
  /// and of another engine's rate.
  template <class Engine>
  static void change_rate(Engine& engine, float worth) {
    if (rescales) {
      engine.change(Listed::optimizer_of(worth));
    }
  }

  template <class Engine>
  void hand_in(Engine& engine, arena& memory, int step) {
    before_.assign(memory.parameters().begin(), memory.parameters().end());
    std::ranges::fill(given_, 0.0);
    for (unsigned pass = 0; pass < passes(); ++pass) {
      std::size_t begin = elements;
      for (std::size_t tensor = 0; tensor < tensors().size(); ++tensor) {
        const std::span<float> gradient = memory.tensors()[tensor].gradient;
        begin -= gradient.size();
        if (history::is_absent(world_->rank(), step, pass, tensor)) {
          engine.absent(tensor_id(tensor));
          continue;
        }
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          const float value = dyadic(world_->rank(), step, pass, begin + i);
          gradient[i] = pass == 0 ? value : gradient[i] + value;
          given_[begin + i] += static_cast<double>(value);
          contributed_[begin + i] += Listed::taken(passes()) * weight() *
                                     static_cast<double>(rate) * static_cast<double>(value);
        }
        engine.ready(tensor_id(tensor));
      }
    }
    engine.wait();
  }

  /// Pushes zeros. The answer contains everything that was pushed before the last checkpoint.
  template <class Engine>
  void push_zeros(Engine& engine, arena& memory) {
    before_.assign(memory.parameters().begin(), memory.parameters().end());
    std::ranges::fill(memory.gradients(), 0.0f);
    for (unsigned pass = 0; pass < passes(); ++pass) {
      for (std::size_t tensor = 0; tensor < tensors().size(); ++tensor) {
        engine.ready(tensor_id(tensor));
      }
    }
    engine.wait();
  }

  /// Returns the rows of this rank's compressor memory, with elements in the model's order.
  template <class Engine>
  static std::vector<std::vector<double>> own_rows(Engine& engine) {
    const std::span<const float> all = engine.memories()[0];
    std::vector<std::vector<double>> rows;
    for (std::size_t row = 0; row < facts::memory_per_element<typename Engine::compression>;
         ++row) {
      rows.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(row * elements),
                        all.begin() + static_cast<std::ptrdiff_t>((row + 1) * elements));
    }
    return rows;
  }
  template <class Engine>
  void write_down(given_in_a_step& given, Engine& engine, const std::vector<double>& residual,
                  std::mutex& mutex) {
    const std::scoped_lock lock(mutex);
    given.chunks = engine.planned().chunks;
    given.of_ranks.resize(static_cast<std::size_t>(workers_));
    auto& mine = given.of_ranks[at(world_->rank())];
    mine = residual;
    for (std::size_t i = 0; i < elements; ++i) {
      mine[i] = weight() * (mine[i] + given_[i]);
    }
  }

  /// Calls `visit(element, value, weight, summed)` for all residuals of this rank, where `weight`
  /// is what the value counts relative to a rank's gradient, and `summed` the number of passes of
  /// which it is a sum. Rank 0 also visits the servers' residuals.
  template <class Engine, class Visit>
  void for_each_residual(Engine& engine, Visit visit) {
    const auto memories = engine.memories();
    const auto own = residual_of(engine);
    const auto& made = engine.planned();  // the plan puts tensors of a class side by side
    for (std::size_t at = elements, id = 0; id < tensors().size() && !own.empty(); ++id) {
      at -= tensors()[id].elements;
      for (std::size_t i = 0; i < tensors()[id].elements; ++i) {
        visit(at + i, own[made.first_element[made.position(tensor_id(id))] + i], weight(),
              passes());
      }
    }
    if constexpr (Listed::has_owners && has_servers<strategy>) {
      const auto others = engine.collect_from_others();
      std::vector<std::size_t> next(others.size());
      for (const chunk& each : engine.planned().chunks) {
        const auto server = static_cast<std::size_t>(each.placed_on - workers_);
        if (server < others.size() && each.elements > 0) {
          const auto& residual = others[server][next[server]++];
          for (std::size_t i = 0; i < each.elements; ++i) {
            visit(each.first_element + i, residual[i], static_cast<double>(scale()), 1);
          }
        }
      }
    } else if constexpr (Listed::has_owners) {
      for (const chunk& each : engine.planned().chunks) {
        const chunk mine = each.part(at(workers_), at(world_->rank()));
        for (std::size_t i = mine.first_element; i < mine.first_element + mine.elements; ++i) {
          visit(i, memories[1][i], static_cast<double>(scale()), 1);
        }
      }
    }
  }
  /// Returns the residual of the whole model, by a context that begins at the model's first element
  /// and has its whole length.
  template <class Engine>
  static std::span<float> residual_of(Engine& engine) {
    using compression = typename Engine::compression;
    const auto its = make_policy<compression>(options_of<compression>());
    chunk_context whole;
    whole.memory = engine.memories()[0].data();
    whole.stride = elements;
    if constexpr (facts::in_rounds<compression> || selects<compression>) {
      return whole.row(0, elements);
    }
    return tutti::residual_of(its, whole, elements);
  }

  template <class Engine>
  void enter(Engine& engine, arena& memory, bool last, ledger& all, std::mutex& mutex) {
    std::vector<double> left(elements);
    for_each_residual(engine, [&](std::size_t i, float value, double times, unsigned) {
      left[i] += static_cast<double>(rate) * times * static_cast<double>(value);
    });
    if constexpr (requires { Listed::waiting(0.0); }) {
      const auto rows = own_rows(engine);
      for (std::size_t i = 0; i < elements; ++i) {
        left[i] += weight() * Listed::waiting(rows[0][i]);
      }
    }
    const std::scoped_lock lock(mutex);
    for (std::size_t i = 0; i < elements; ++i) {
      all.contributed[i] += contributed_[i];
      all.lost[i] += lost_[i];
      all.remembered[i] += last ? left[i] : 0;
      if (world_->rank() == 0) {
        all.applied[i] = Listed::applied(memory.parameters()[i], before_[i]);
      }
    }
  }

  transport::in_process* world_;
  const history* told_;
  int workers_;
  const options* compressing_;
  std::vector<double> contributed_ = std::vector<double>(elements);
  std::vector<double> lost_ = std::vector<double>(elements);
  std::vector<double> given_ = std::vector<double>(elements);  ///< of the last step
  std::vector<float> before_{};  ///< the parameters before the last step
};

template <class Listed>
ledger account(int workers, const history& told, const typename Listed::options& compressing) {
  ledger all;
  std::mutex mutex;
  const int ranks = workers + servers_in<typename Listed::strategy>(compressing);
  std::vector<std::string> files(static_cast<std::size_t>(ranks));
  int which = 0;
  float rate = 1;
  for (int segment = 0; segment < engines<Listed>; ++segment) {
    int which_after = which;
    float rate_after = rate;
    transport::run_ranks(ranks, [&](transport::in_process& world) {
      part_of_history<Listed> mine(world, told, workers, compressing);
      mine.which = which;
      mine.rate = rate;
      mine.go_on(segment, files[static_cast<std::size_t>(world.rank())], all, mutex);
      if (world.rank() == 0) {
        which_after = mine.which;
        rate_after = mine.rate;
      }
    });
    which = which_after;
    rate = rate_after;
  }
  if constexpr (requires { Listed::lost_by_all(all.given[0], all.lost); }) {
    for (const given_in_a_step& each : all.given) {
      Listed::lost_by_all(each, all.lost);
    }
  }
  return all;
}

/// What remains after a history: how much the residuals hold, and how much was lost. A test must
/// see that these are not 0, or it would show nothing. With `exact`, payloads and remainders are
/// representable floats, and so is a mean over a power of two.
struct left_over {
  double remembered{};
  double lost{};
};
template <class Listed>
left_over conserves(bool exact, typename Listed::options compressing = Listed::plan(0, 1),
                    unsigned first_seed = 0, unsigned histories = 2,
                    const std::vector<int>& with_workers = {1, 2, 3, 4, 5}) {
  left_over left;
  for (const int workers : with_workers) {
    for (unsigned seed = first_seed; seed < first_seed + histories; ++seed) {
      const history told(seed + 10 * static_cast<unsigned>(workers));
      const ledger all = account<Listed>(workers, told, compressing);
      const bool no_rounding = exact && (workers & (workers - 1)) == 0;
      // A sum of magnitudes up to 2 is rounded once at each worker and three times on its way, in
      // every step.
      const double largest = static_cast<double>(most_rate) * steps * workers * 2 * most_passes;
      const double bound = no_rounding ? 0 : std::ldexp(steps * (workers + 3) * largest, -24);
      for (std::size_t i = 0; i < elements; ++i) {
        EXPECT_NEAR(all.contributed[i], all.applied[i] + all.remembered[i] + all.lost[i], bound)
            << type_name<typename Listed::strategy>() << ", " << workers << " workers, element "
            << i << ", seed " << seed;
        left.remembered += std::abs(all.remembered[i]);
        left.lost += std::abs(all.lost[i]);
      }
      if (testing::Test::HasFailure()) {
        return left;
      }
    }
  }
  return left;
}

// ---- the list

using selections =
    one_of_compressors<compression::top_k, compression::random_k, compression::byteps_topk,
                       compression::byteps_randomk, compression::sign, compression::one_bit,
                       compression::two_bit>;
using roundings =
    one_of_compressors<compression::fp16, compression::bf16, compression::scaled_sign,
                       compression::norm_scaled_sign, compression::block_sign,
                       compression::block_int8, compression::fp8_e4m3, compression::fp8_e5m2,
                       compression::e3m0, compression::natural, compression::byteps_onebit,
                       compression::chain<compression::top_k, compression::fp16>,
                       compression::chain<compression::top_k, compression::block_int8>,
                       compression::chain<compression::top_k, compression::scaled_sign>,
                       compression::chain<compression::random_k, compression::natural>>;
using lengths_of_their_own =
    one_of_compressors<compression::by_magnitude, compression::by_kth_magnitude, compression::qsgd,
                       compression::dithering,
                       compression::chain<compression::top_k, compression::qsgd>>;

template <class All, class Architecture>
void each_conserves(bool exact) {
  using its = listed<compression::rescaled_error_feedback<All>, Architecture>;
  double left = 0;
  for (std::size_t which = 0; which < std::tuple_size_v<typename All::all>; ++which) {
    SCOPED_TRACE(which);
    auto set = its::plan(0, 1);
    set.compression.which = which;
    const auto seed = static_cast<unsigned>(100 * which);
    left += conserves<its>(exact, set, seed, 1, numbers_of_workers(which)).remembered;
  }
  EXPECT_GT(left, 0);
}

template <class Architecture>
class conservation : public testing::Test {};
using architectures =
    testing::Types<architecture::all_gather, architecture::reduce_scatter_all_gather,
                   architecture::parameter_server<>>;
TYPED_TEST_SUITE(conservation, architectures);

TYPED_TEST(conservation, is_exact_for_selections) { each_conserves<selections, TypeParam>(true); }
TYPED_TEST(conservation, is_within_a_rounding_otherwise) {
  each_conserves<roundings, TypeParam>(false);
}
TYPED_TEST(conservation, holds_for_lengths_that_only_the_encoder_knows) {
  each_conserves<lengths_of_their_own, TypeParam>(false);
}

using architecture::parameter_server;
using compression::dense_below;
using compression::top_k;

TEST(Conservation, OfASumThatIsSelectedAgain) {
  using its = listed<error_feedback<top_k>, architecture::selecting_all_gather>;
  EXPECT_GT(conserves<its>(true).remembered, 0);
}
TEST(Conservation, OfATreeOfSelections) {
  EXPECT_GT((conserves<listed<error_feedback<top_k>, architecture::sparse_tree>>(true)).remembered,
            0);
}
/// Magnitudes are kept for several steps, and those of one plan do not apply to another.
TEST(Conservation, OfSumsInRegions) {
  using its = listed<error_feedback<compression::by_kth_magnitude>, architecture::sparse_regions>;
  EXPECT_GT(conserves<its>(true).remembered, 0);
}
TEST(Conservation, OfPushesAlone) {
  using servers_update = parameter_server<consistency::synchronous, updated_by::servers>;
  using pushes = compression::push_only<error_feedback<compression::two_bit>>;
  EXPECT_GT((conserves<listed<pushes, servers_update>>(true)).remembered, 0);
}
/// Each push is a step of its own.
template <class Consistency>
struct pushed : listed<compression::push_only<error_feedback<compression::two_bit>>,
                       parameter_server<Consistency, updated_by::servers>> {
  static float averaged(int, unsigned passes) { return static_cast<float>(passes); }
};
TEST(Conservation, OfPushesThatWaitForNobody) {
  EXPECT_GT(conserves<pushed<consistency::asynchronous>>(true).remembered, 0);
  EXPECT_GT(conserves<pushed<consistency::bounded_staleness>>(true).remembered, 0);
}
TEST(Conservation, OfLongChunksAlone) {
  using its = listed<dense_below<error_feedback<top_k>>, parameter_server<>>;
  EXPECT_GT(conserves<its>(true).remembered, 0);
}

/// Means are encoded again only before the switch and have no residual. The workers' own residuals
/// continue after it.
struct pushed_in_turn : listed<compression::push_only<error_feedback<top_k>>,
                               architecture::switch_at<architecture::reduce_scatter_all_gather,
                                                       architecture::all_gather>> {
  static options plan(int which, unsigned passes) {
    options set = listed::plan(which, passes);
    set.architecture.step = steps / 2;
    return set;
  }
};
TEST(Conservation, OfPushesAcrossASwitch) {
  using switched = pushed_in_turn::architecture;
  static_assert(!rule::residuals_are_sent<switched, error_feedback<top_k>>::holds);
  using answering = compression::remembering_answers<compression::block_int8>;
  static_assert(!rule::residuals_are_sent<switched, answering>::holds);
  EXPECT_GT(conserves<pushed_in_turn>(true).remembered, 0);
}

/// Residuals are what low-rank factors leave of matrices. Vectors are sent as they are, or as one
/// matrix.
TEST(Conservation, OfFactors) {
  using compression::power_sgd;
  using matrices_alone = compression::select<matrices, power_sgd, compression::none>;
  EXPECT_GT((conserves<listed<power_sgd, architecture::replicated<>>>(false)).remembered, 0);
  EXPECT_GT((conserves<listed<matrices_alone, architecture::replicated<>>>(false)).remembered, 0);
  EXPECT_GT((conserves<listed<matrices_alone, parameter_server<>>>(false)).remembered, 0);
}
/// Rounds to whole halves, so that most values leave a remainder and sums are exact.
struct whole_halves {
  using bits = std::int32_t;
  static bits to_bits(float value) { return static_cast<bits>(2 * value); }
  static float to_float(bits halves) { return static_cast<float>(halves) / 2; }
};
using rounded = compression::elementwise<whole_halves>;

/// The residual that rounding leaves of a matrix is carried over into the factors, once these
/// start.
TEST(Conservation, OfFactorsThatStartLater) {
  using rounded_first =
      error_feedback<compression::select<matrices, compression::power_sgd, rounded>>;
  using its = listed<rounded_first, architecture::replicated<>>;
  auto set = its::plan(0, 1);
  set.compression.start = steps / 2;
  EXPECT_GT(conserves<its>(false, set).remembered, 0);
}
/// Before the start, residuals follow the rate as those of the compressor in use do.
TEST(Conservation, OfResidualsThatFollowTheRateUntilAStart) {
  using rounded_first = compression::select<matrices, compression::power_sgd,
                                            compression::rescaled_error_feedback<rounded>>;
  using its = listed<rounded_first, architecture::replicated<>>;
  auto set = its::plan(0, 1);
  set.compression.start = steps;
  EXPECT_GT(conserves<its>(false, set).remembered, 0);
}

/// 1-bit Adam that moves by m only, because v stays 0 and epsilon is 1. A worker contributes m / 2
/// + g / 2, with g the mean of its passes, so that its contribution of m is half of all that was
/// applied before the last step.
struct of_momenta
    : listed<error_feedback<compression::norm_scaled_sign>, architecture::momentum_exchange> {
  static double taken(unsigned passes) { return 0.5 / passes; }
  static double applied(float now, float before) {
    return static_cast<double>(now) - static_cast<double>(before) / 2;
  }
  static float averaged(int workers, unsigned) { return static_cast<float>(workers); }
  static optimizer::one_bit_adam optimizer_of(float worth) {
    return {.learning_rate = -worth,
            .beta1 = 0.5,
            .beta2 = 1,
            .epsilon = 1,
            .freeze_step = steps / segments + 2};
  }
};
TEST(Conservation, OfMomenta) { EXPECT_GT(conserves<of_momenta>(false).remembered, 0); }

/// The part of a residual that is forgotten when the next step's gradient arrives. The bound is
/// meant for the mean over passes: it is so many times as large for the sum of passes.
template <class Architecture>
struct forgetting : listed<compression::fading_error_feedback<top_k>, Architecture> {
  using typename listed<compression::fading_error_feedback<top_k>, Architecture>::options;

  static double lost(float residual, unsigned summed, const options& set) {
    const double before = static_cast<double>(residual);
    const auto most = static_cast<double>(set.compression.most) * summed;
    return before - std::clamp(static_cast<double>(set.compression.keep) * before, -most, most);
  }
};
template <class Architecture>
void loses_as_stated() {
  using its = forgetting<Architecture>;
  auto cut = its::plan(0, 1);
  cut.compression.keep = 1;
  EXPECT_GT(conserves<its>(true, cut).remembered, 0);
  EXPECT_GT(conserves<its>(false, its::plan(0, 1)).remembered, 0) << "each halving is a digit more";
}
TEST(Conservation, OfResidualsThatFade) {
  loses_as_stated<architecture::all_gather>();
  loses_as_stated<architecture::reduce_scatter_all_gather>();
}

/// The momenta u = u / 2 + g are conserved, in which each gradient counts twice in the long run.
/// What remains in u in the end and what was masked are accounted for; masking removes all of an
/// element that was sent, which leaves no residual. Half as many steps keep every halving exact.
template <class Architecture>
struct masked : listed<compression::momentum_correction<error_feedback<top_k>>, Architecture> {
  static constexpr int steps = test::steps / 2;

  static double taken(unsigned) { return 2; }
  static double waiting(double momentum) { return momentum; }
  static double lost_of(double momentum, double residual, double gradient, double residual_after) {
    const double now = momentum / 2 + gradient;
    return residual_after == 0 && residual + now != 0 ? now : 0;
  }
};
template <class Architecture>
void loses_what_is_masked(bool exact) {
  using its = masked<Architecture>;
  auto set = its::plan(0, 1);
  set.compression.momentum = 0.5;
  const left_over left = conserves<its>(exact, set);
  EXPECT_GT(left.remembered, 0);
  EXPECT_GT(left.lost, 0);
}
TEST(Conservation, OfMomentaThatAreMasked) {
  loses_what_is_masked<architecture::all_gather>(true);
  loses_what_is_masked<architecture::reduce_scatter_all_gather>(false);
  loses_what_is_masked<parameter_server<>>(false);
}

/// gTopK as its authors wrote it. The loss is that of the tree in plain loops, computed from what
/// all ranks gave in a step, chunk by chunk. A rank selects one element in 16 or 17.
struct given_back_by_the_original : listed<error_feedback<top_k>, architecture::sparse_tree> {
  using options = typename listed<error_feedback<top_k>, tutti::architecture::sparse_tree>::options;

  static options plan(int which, unsigned passes) {
    options set = listed::plan(which, passes);
    set.architecture.give_back = tutti::architecture::give_back::compatible;
    return set;
  }
  static void lost_by_all(const given_in_a_step& given, std::vector<double>& lost) {
    for (const chunk& each : given.chunks) {
      const auto of_rank = [&](std::size_t rank, std::size_t, std::size_t i) {
        return given.of_ranks[rank][each.first_element + i];
      };
      const std::size_t k =
          std::min(each.elements,
                   std::max<std::size_t>(
                       static_cast<std::size_t>(0.06 * static_cast<double>(each.elements)), 1));
      const auto made = selected_by_a_tree(tutti::architecture::give_back::compatible,
                                           given.of_ranks.size(), each.elements, k, 1, of_rank);
      for (std::size_t i = 0; i < each.elements; ++i) {
        double left = -made.sums[0][i];
        for (std::size_t rank = 0; rank < given.of_ranks.size(); ++rank) {
          left += of_rank(rank, 0, i) - made.residuals[rank][i];
        }
        lost[each.first_element + i] += left;
      }
    }
  }
};
TEST(Conservation, OfATreeThatGivesBackAsTheOriginalDoes) {
  const left_over left = conserves<given_back_by_the_original>(true);
  EXPECT_GT(left.remembered, 0);
  EXPECT_GT(left.lost, 0);
}

}  // namespace
}  // namespace tutti::test

// Payloads whose length only their encoder knows, and answers that are encoded otherwise than what
// they answer. Each architecture is compared with plain loops around the codec alone, in values and
// bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <tuple>
#include <vector>

#include "support/errors.hpp"
#include "support/extent.hpp"
#include "support/one_of_compressors.hpp"
#include "support/published_lengths.hpp"
#include "support/strategy_laws.hpp"
#include "support/training.hpp"
#include "support/training_worlds.hpp"
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/momentum_exchange.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/architecture/sharded_by_owners.hpp"
#include "tutti/architecture/sparse_tree.hpp"
#include "tutti/base/type_name.hpp"
#include "tutti/compression/by_kth_magnitude.hpp"
#include "tutti/compression/by_magnitude.hpp"
#include "tutti/compression/byteps_onebit.hpp"
#include "tutti/compression/chain.hpp"
#include "tutti/compression/dithering.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/power_sgd.hpp"
#include "tutti/compression/push_only.hpp"
#include "tutti/compression/qsgd.hpp"
#include "tutti/compression/remembering_answers.hpp"
#include "tutti/compression/select.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/optimizer/one_bit_adam.hpp"

namespace tutti::test {

static_assert(strategies_in<coded_strategies_on<on_the_virtual_clock>> == 8);
INSTANTIATE_TYPED_TEST_SUITE_P(CodedOnTheVirtualClock, StrategyLaw,
                               coded_strategies_on<on_the_virtual_clock>);

namespace {

constexpr int steps = 4;

// ---- every compressor, one after the other, by a place in a list

using lengths_of_their_own =
    one_of_compressors<compression::by_magnitude, compression::by_kth_magnitude, compression::qsgd,
                       compression::dithering,
                       compression::chain<compression::top_k, compression::qsgd>>;

/// With error feedback, each compressor trains as plain loops around it alone, and sends as many
/// bytes.
template <way How, class Architecture, class Compressors>
void trains_and_sends_as_its_codec() {
  using its = compression::error_feedback<Compressors>;
  using strategy = compose<its, Architecture>;
  for (std::size_t which = 0; which < std::tuple_size_v<typename Compressors::all>; ++which) {
    const engine_options<strategy> set{.compression = {.which = which}};
    for (const int workers : numbers_of_workers(which)) {
      SCOPED_TRACE(std::to_string(which) + " between " + std::to_string(workers));
      const auto expected = payloads<its>(How, workers, steps, its(set.compression));
      const outcome start = train_on_threads<strategy>(workers, 0, set);
      const outcome made = train_on_threads<strategy>(workers, steps, set);
      ASSERT_EQ(made.bytes.size(), expected.bytes.size());
      for (std::size_t rank = 0; rank < made.bytes.size(); ++rank) {
        EXPECT_EQ(made.bytes[rank] - start.bytes[rank], expected.bytes[rank]) << "rank " << rank;
      }
      for (std::size_t rank = 0; rank < made.parameters.size(); ++rank) {
        EXPECT_TRUE(made.parameters[rank] == expected.parameters) << "rank " << rank;
      }
    }
  }
}
template <class Compressors>
void trains_and_sends_in_every_way() {
  trains_and_sends_as_its_codec<way::gathered, architecture::all_gather, Compressors>();
  trains_and_sends_as_its_codec<way::scattered, architecture::reduce_scatter_all_gather,
                                Compressors>();
  trains_and_sends_as_its_codec<way::served, architecture::parameter_server<>, Compressors>();
}
TEST(Payloads, OfEveryFixedLength) { trains_and_sends_in_every_way<fixed_lengths>(); }
TEST(Payloads, OfEveryOtherLength) { trains_and_sends_in_every_way<lengths_of_their_own>(); }

/// Expects every rank to be refused an engine whose residuals would grow without bound.
template <class Architecture>
void refuses_residuals_that_grow() {
  using strategy = compose<compression::error_feedback<compression::qsgd>, Architecture>;
  for (const std::string& said : errors(2 + (has_servers<strategy> ? 1 : 0), [](auto& world) {
         arena memory(declarations());
         auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of());
       })) {
    EXPECT_NE(
        said.find("error feedback around it would grow without bound. Fix: blocks of at most 195"),
        std::string::npos)
        << said;
  }
}
TEST(Payloads, WhoseResidualsWouldGrowAreRefused) {
  refuses_residuals_that_grow<architecture::all_gather>();
  refuses_residuals_that_grow<architecture::reduce_scatter_all_gather>();
  refuses_residuals_that_grow<architecture::parameter_server<>>();
}

/// Where gradients are sent, a sign may be worth 1. For parameters and their changes, a sign alone
/// would lose everything.
template <class Compression, class Architecture, class Optimizer = optimizer::sgd>
void takes_no_signs_alone(options_of<Compression> signs, const std::string& wanted) {
  using strategy = compose<Compression, Architecture>;
  for (const std::string& said : errors(2 + (has_servers<strategy> ? 1 : 0), [&](auto& world) {
         arena memory(declarations());
         auto engine =
             make_engine<strategy>(world, memory.tensors(), Optimizer(), {.compression = signs});
         if (engine.serves()) {
           engine.serve();
         }
       })) {
    EXPECT_TRUE(wanted.empty() ? said.empty() : said.find(wanted) != std::string::npos)
        << type_name<strategy>() << ": " << said;
  }
}
TEST(Payloads, OfSignsAloneAreNeitherParametersNorDifferences) {
  using compression::byteps_onebit;
  using compression::chain;
  using compression::error_feedback;
  using compression::top_k;
  using servers = architecture::parameter_server<consistency::asynchronous>;
  using owners = architecture::sharded_by_owners;
  const byteps_onebit::options one{compression::sign_is_worth::one};
  const std::string refused =
      "with worth one, parameters or their changes would arrive as 1 or -1. Fix: worth mean_";
  takes_no_signs_alone<byteps_onebit, servers>(one, refused);
  takes_no_signs_alone<chain<top_k, byteps_onebit>, servers>({.code = one}, refused);
  takes_no_signs_alone<error_feedback<byteps_onebit>, owners>(one, refused);
  takes_no_signs_alone<error_feedback<byteps_onebit>, architecture::momentum_exchange,
                       optimizer::one_bit_adam>(one, refused);
  takes_no_signs_alone<compression::remembering_answers<byteps_onebit>, owners>(one, refused);
  const std::string taken{};
  takes_no_signs_alone<byteps_onebit, servers>({}, taken);
  takes_no_signs_alone<compression::push_only<byteps_onebit>, owners>(one, taken);
  takes_no_signs_alone<error_feedback<byteps_onebit>, architecture::all_gather>(one, taken);
}

/// Rank 1's payloads name an element that no chunk has.
struct foreign_top_k : compression::top_k {
  using top_k::top_k;

  template <class Queue>
  void encode(Queue& queue, std::span<const float> gradient, wire out,
              const chunk_context& where) const {
    top_k::encode(queue, gradient, out, where);
    if (where.rank == 1 && out.size > 0) {
      queue.run([=] { *out.header<std::uint32_t>() = 1'000'000'000; });
    }
  }
};
template <class Architecture>
void ends_by_a_foreign_element() {
  using strategy = compose<foreign_top_k, Architecture>;
  for (const std::string& said :
       errors(2 + (has_servers<strategy> ? 1 : 0), [](transport::in_process& world) {
         arena memory = model_of(world.rank());
         auto engine = make_engine<strategy>(world, memory.tensors(), optimizer_of());
         for (int step = 0; step < 3 && !engine.serves(); ++step) {
           take_step(engine, memory, step);
         }
         if (engine.serves()) {
           engine.serve();
         } else {
           engine.wait();
         }
       })) {
    EXPECT_NE(said.find("a payload names element 1000000000 of a chunk that has "),
              std::string::npos)
        << type_name<Architecture>() << ": " << said;
  }
}
TEST(Payloads, WithElementsThatNoChunkHasEndEveryRank) {
  ends_by_a_foreign_element<architecture::all_gather>();
  ends_by_a_foreign_element<architecture::reduce_scatter_all_gather>();
  ends_by_a_foreign_element<architecture::parameter_server<>>();
  ends_by_a_foreign_element<architecture::sparse_tree>();
}

TEST(Payloads, OfFixedLengthsAreAsLongAsPublished) {
  for (std::size_t which = 0; which < fixed_lengths_count; ++which) {
    for (const std::size_t n : {0U, 1U, 2U, 31U, 32U, 33U, 100U, 1001U, 30011U}) {
      EXPECT_EQ(fixed_lengths({which}).wire_bytes(n), published_bytes(which, n))
          << which << " of " << n;
    }
  }
}

constexpr std::size_t phantom_sizes[] = {30011, 513, 0, 40};

template <class Strategy>
task phantom_rank(transport::simulated& world, std::vector<std::uint64_t>& sent) {
  std::vector<tensor> tensors;
  for (const std::size_t each : phantom_sizes) {
    const tensor_shape shape = each == 513 ? tensor_shape{27, 19} : tensor_shape{each};
    tensors.push_back(tensor::phantom(std::to_string(each), each, shape));
  }
  auto engine = make_engine<Strategy>(world, tensors, optimizer_of());
  co_await engine.started();
  const std::uint64_t before = engine.counted().bytes_sent;
  for (int step = 0; step < steps && !engine.serves(); ++step) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      engine.ready(tensor_id(i));
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      co_await engine.arrival(tensor_id(i));
    }
  }
  sent[static_cast<std::size_t>(world.rank())] = engine.counted().bytes_sent - before;
  co_await engine.close();
}

/// Returns the bytes that the first `counted` ranks send together in a step, as phantoms send them.
template <class Strategy>
std::uint64_t sent_by_phantoms(int ranks, int counted) {
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(ranks));
  transport::run_simulated(ranks, transport::link{1.25e9, 50e-6}, [&](transport::simulated& world) {
    return phantom_rank<Strategy>(world, sent);
  });
  std::uint64_t sum = 0;
  for (int rank = 0; rank < counted; ++rank) {
    sum += sent[static_cast<std::size_t>(rank)];
  }
  return sum / steps;
}

TEST(Payloads, OfPhantomsAreAsLongAsExpected) {
  using compression::qsgd;
  const qsgd policy;
  std::uint64_t whole = 0;
  std::uint64_t parts = 0;
  std::uint64_t dense = 0;
  for (const std::size_t each : phantom_sizes) {
    whole += policy.expected(each);
    for (std::size_t part = 0; part < 3; ++part) {
      parts += policy.expected(each / 3 + (part < each % 3 ? 1 : 0));
    }
    dense += each == 513 ? 4 * (27 + 19) : 4 * each;
  }
  EXPECT_EQ((sent_by_phantoms<compose<qsgd, architecture::all_gather>>(3, 3)), 3 * 2 * whole);
  EXPECT_EQ((sent_by_phantoms<compose<qsgd, architecture::reduce_scatter_all_gather>>(3, 3)),
            2 * 2 * parts);
  EXPECT_EQ((sent_by_phantoms<compose<qsgd, architecture::parameter_server<>>>(4, 3)), 3 * whole);
  using low_rank = compression::select<matrices, compression::power_sgd, compression::none>;
  EXPECT_EQ((sent_by_phantoms<compose<low_rank>>(3, 3)), 2 * 2 * dense) << "a ring's";
}

}  // namespace
}  // namespace tutti::test

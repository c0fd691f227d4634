// The type of a gradient and its place in memory change nothing but its rounding. Gradients have 32
// or 16 bits an element and stay in one place or move at each step.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/architecture/delayed.hpp"
#include "tutti/architecture/local_sgd.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/base/host_stream.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/role/fusion.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test::handed_in {
namespace {

constexpr std::size_t sizes[] = {37, 1, 1000, 0, 5, 64};
constexpr int steps = 5;

/// Returns values of few binary digits: 8 significant bits hold a value, and floats hold any sum of
/// them.
float value_of(int worker, int step, std::size_t tensor, std::size_t element) {
  const std::size_t mixed = (static_cast<std::size_t>(worker) * 37 +
                             static_cast<std::size_t>(step) * 11 + tensor * 5 + element * 7) %
                            201;
  return (static_cast<float>(mixed) - 100) / 16;
}

/// Returns the bits of a value in a narrower type; the value's low digits are 0, so nothing is
/// lost.
std::uint16_t bits_of(element_type type, float value) {
  if (type == element_type::bf16) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<std::uint16_t>(bits >> 16);
  }
  if (value == 0) {
    return 0;
  }
  int exponent = 0;
  const float digits = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
  const auto mantissa = static_cast<unsigned>(std::ldexp(digits, 11)) & 0x3ffu;
  const auto biased = static_cast<unsigned>(exponent + 14);
  return static_cast<std::uint16_t>((value < 0 ? 0x8000u : 0u) | biased << 10 | mantissa);
}

enum class types { floats, halves, brains, mixed };
enum class place { stays, moves, some_move };

/// A model in a queue's memory whose gradients are in three places, taken in turn. In each place
/// they are in backward order.
template <class Queue>
class model {
 public:
  model(Queue& compute, types chosen, place where) : compute_(&compute), where_(where) {
    std::size_t total = 0;
    for (const std::size_t each : sizes) {
      total += each;
    }
    parameters_ = allocate_zeros<float>(compute, total);
    for (auto& each : wide_) {
      each = allocate<float>(compute, total);
    }
    for (auto& each : narrow_) {
      each = allocate<std::uint16_t>(compute, total);
    }
    std::size_t offset = total;
    for (std::size_t id = 0; id < std::size(sizes); ++id) {
      offset -= sizes[id];
      offsets_.push_back(offset);
      const std::span<float> parameter = span_of(parameters_).subspan(offset, sizes[id]);
      const element_type type = type_of(chosen, id);
      const std::string name = std::string("t").append(std::to_string(id));
      if (type == element_type::fp32) {
        tensors_.emplace_back(name, parameter, wide(id, 0));
      } else {
        tensors_.emplace_back(name, parameter, narrow(id, 0), type);
      }
    }
    compute.synchronize();
  }

  const std::vector<tensor>& tensors() const { return tensors_; }
  std::vector<float> parameters() {
    const auto values = host_view(*compute_, span_of(parameters_));
    return {values.begin(), values.end()};
  }

  template <class Engine>
  void hand_in(Engine& engine, int worker, int step) {
    spoil();
    for (std::size_t id = std::size(sizes); id-- > 0;) {
      const std::size_t turn = moves(id) ? static_cast<std::size_t>(step + 1) % 3 : 0;
      const element_type type = tensors_[id].gradient_type;
      std::vector<float> floats;
      std::vector<std::uint16_t> bits;
      for (std::size_t i = 0; i < sizes[id]; ++i) {
        floats.push_back(value_of(worker, step, id, i));
        bits.push_back(bits_of(type, floats.back()));
      }
      if (type == element_type::fp32) {
        write(wide(id, turn), floats);
      } else {
        write(narrow(id, turn), bits);
      }
      if (!moves(id)) {
        engine.ready(tensor_id(id), *compute_);
      } else if (type == element_type::fp32) {
        engine.ready(tensor_id(id), wide(id, turn), *compute_);
      } else {
        engine.ready(tensor_id(id), narrow(id, turn), *compute_);
      }
    }
  }

  /// Overwrites the gradients' memory with NaN, to show that nothing reads it any more.
  void spoil() {
    const std::size_t total = parameters_.size();
    for (auto& each : wide_) {
      write(span_of(each), std::vector<float>(total, std::numeric_limits<float>::quiet_NaN()));
    }
    for (auto& each : narrow_) {
      write(span_of(each), std::vector<std::uint16_t>(total, 0x7fff));  // NaN in either type
    }
  }

  std::span<float> wide(std::size_t id, std::size_t turn) {
    return span_of(wide_[turn]).subspan(offsets_[id], sizes[id]);
  }
  std::span<std::uint16_t> narrow(std::size_t id, std::size_t turn) {
    return span_of(narrow_[turn]).subspan(offsets_[id], sizes[id]);
  }

 private:
  template <class T>
  void write(std::span<T> to, const std::vector<T>& values) {
    compute_->copy(to.data(), values.data(), to.size_bytes());
    compute_->synchronize();
  }
  static element_type type_of(types chosen, std::size_t id) {
    switch (chosen) {
      case types::floats:
        return element_type::fp32;
      case types::halves:
        return element_type::fp16;
      case types::brains:
        return element_type::bf16;
      case types::mixed:
        break;
    }
    return static_cast<element_type>(id % 3);
  }
  bool moves(std::size_t id) const {
    return where_ == place::moves || (where_ == place::some_move && id % 2 == 0);
  }

  Queue* compute_;
  place where_;
  memory_of<float, Queue> parameters_{};
  std::array<memory_of<float, Queue>, 3> wide_{};
  std::array<memory_of<std::uint16_t, Queue>, 3> narrow_{};
  std::vector<std::size_t> offsets_;
  std::vector<tensor> tensors_;
};

template <class Strategy, class Transport = transport::in_process, class Optimizer>
std::vector<float> train(int workers, const engine_options<Strategy>& set, const Optimizer& values,
                         types chosen, place where) {
  using queue = typename Transport::queue_type;
  constexpr int servers = facts::owns_parameters<typename Strategy::architecture> ? 1 : 0;
  std::vector<float> result;
  transport::run_ranks<Transport>(workers + servers, [&](Transport& world) {
    queue compute;
    model<queue> mine(compute, chosen, where);
    auto engine = make_engine<Strategy>(world, mine.tensors(), values, set);
    if (engine.serves()) {
      engine.serve();
      return;
    }
    for (int step = 0; step < steps; ++step) {
      mine.hand_in(engine, world.rank(), step);
      engine.wait();
    }
    if (world.rank() == 0) {
      result = mine.parameters();
    }
  });
  return result;
}

constexpr optimizer::sgd rule{.learning_rate = 0.125f, .momentum = 0.5f};

template <class Body>
std::string said(Body body) {
  try {
    body();
  } catch (const usage_error& refused) {
    return refused.what();
  }
  return {};
}

/// Returns the parameters after `steps` steps of momentum SGD on the mean gradient, in double.
std::vector<float> oracle(int workers) {
  std::vector<float> all;
  for (std::size_t id = std::size(sizes); id-- > 0;) {
    for (std::size_t i = 0; i < sizes[id]; ++i) {
      double x = 0;
      double momentum = 0;
      for (int step = 0; step < steps; ++step) {
        double sum = 0;
        for (int worker = 0; worker < workers; ++worker) {
          sum += static_cast<double>(value_of(worker, step, id, i));
        }
        momentum = 0.5 * momentum + sum / workers;
        x -= 0.125 * momentum;
      }
      all.push_back(static_cast<float>(x));
    }
  }
  return all;
}

template <class Strategy>
void is_its_values(const engine_options<Strategy>& set = {}) {
  for (const int workers : {1, 2, 3, 5}) {
    const auto floats = train<Strategy>(workers, set, rule, types::floats, place::stays);
    for (const types chosen : {types::floats, types::halves, types::brains, types::mixed}) {
      for (const place where : {place::stays, place::moves, place::some_move}) {
        SCOPED_TRACE(workers);
        EXPECT_EQ(train<Strategy>(workers, set, rule, chosen, where), floats);
      }
    }
  }
}

using summed = architecture::all_reduce<collective::canonical>;

TEST(Gradients, TheOracleIsWhatFloatsGive) {
  for (const int workers : {1, 2, 3, 5}) {
    const auto expected = oracle(workers);
    const auto seen = train<compose<summed>>(workers, {}, rule, types::floats, place::stays);
    ASSERT_EQ(seen.size(), expected.size());
    for (std::size_t i = 0; i < seen.size(); ++i) {
      ASSERT_NEAR(seen[i], expected[i], 1e-5) << i;
    }
  }
}

TEST(Gradients, ATensorAloneIsItsValues) { is_its_values<compose<summed>>(); }
TEST(Gradients, FusedTensorsAreTheirValues) {
  is_its_values<compose<summed, fusion::all>>();
  using limited = compose<summed, fusion::up_to, partition::into, schedule::by_priority>;
  engine_options<limited> set;
  set.fusion.bytes = 300;
  set.partition.bytes = 100;
  is_its_values<limited>(set);
}
TEST(Gradients, GatheredTensorsAreTheirValues) {
  using gathered = compose<summed, fusion::when_ready>;
  is_its_values<gathered>();
  engine_options<gathered> set;
  set.fusion.types = fusion_types::apart;
  is_its_values<gathered>(set);
}
/// Buckets have one type each.
TEST(Gradients, TensorsOfTypesApartAreTheirValues) {
  using limited = compose<summed, fusion::up_to, partition::into>;
  engine_options<limited> set;
  set.fusion.types = fusion_types::apart;
  set.partition.bytes = 100;
  is_its_values<limited>(set);
  transport::run_ranks(1, [&](transport::in_process& world) {
    inline_queue compute;
    model<inline_queue> mixed(compute, types::mixed, place::stays);
    const auto engine = make_engine<limited>(world, mixed.tensors(), rule, set);
    EXPECT_EQ(engine.planned().buckets.size(), 3U);
    for (const bucket& group : engine.planned().buckets) {
      for (std::size_t i = 1; i < group.tensors; ++i) {
        const auto type_at = [&](std::size_t position) {
          return mixed.tensors()[index(engine.planned().at(position))].gradient_type;
        };
        EXPECT_EQ(type_at(group.first_tensor + i), type_at(group.first_tensor));
      }
    }
  });
}
TEST(Gradients, ServersSeeTheirValues) {
  is_its_values<
      compose<architecture::parameter_server<consistency::synchronous, updated_by::servers>,
              fusion::all>>();
}
TEST(Gradients, LocalStepsTakeTheirValues) {
  is_its_values<compose<architecture::local_sgd<collective::canonical>, fusion::all>>();
}

/// On a stream, work is done later than it is enqueued.
TEST(Gradients, OnAStreamTheyAreTheirValues) {
  using on_streams = transport::basic_in_process<host_stream, transport::by_mailbox>;
  using strategy = compose<summed, fusion::all>;
  for (const int workers : {1, 3}) {
    const auto floats = train<strategy>(workers, {}, rule, types::floats, place::stays);
    for (const types chosen : {types::floats, types::mixed}) {
      for (const place where : {place::stays, place::moves, place::some_move}) {
        EXPECT_EQ((train<strategy, on_streams>(workers, {}, rule, chosen, where)), floats);
      }
    }
  }
}

/// Delayed means allow only floats, but these may be in another place at each step.
TEST(Gradients, DelayedMeansComeFromWhereTheyLay) {
  using strategy = compose<architecture::delayed<summed>, fusion::all>;
  for (const int workers : {1, 2, 3, 5}) {
    EXPECT_EQ(train<strategy>(workers, {}, rule, types::floats, place::moves),
              train<strategy>(workers, {}, rule, types::floats, place::stays));
  }
  EXPECT_EQ(said([] { train<strategy>(1, {}, rule, types::halves, place::stays); }),
            "t0 has a gradient of 16 bits per element, but this architecture replaces it by the "
            "last step's mean, in fp32. Fix: give it a gradient of fp32");
}

/// Without an optimizer the mean is left in the gradient's memory. With one rank, that preserves
/// every bit.
TEST(Gradients, AMeanIsLeftWhereTheGradientLies) {
  for (const element_type type : {element_type::fp16, element_type::bf16}) {
    transport::run_ranks(1, [&](transport::in_process& world) {
      std::vector<std::uint16_t> bits;
      for (std::uint32_t each = 0; each < 65536; ++each) {
        const std::uint32_t exponent = type == element_type::fp16 ? 0x7c00 : 0x7f80;
        if ((each & exponent) != exponent) {
          bits.push_back(static_cast<std::uint16_t>(each));
        }
      }
      const auto before = bits;
      std::vector<float> parameters(bits.size());
      std::vector<std::uint16_t> elsewhere = bits;
      auto engine = make_engine<compose<summed>>(world, {tensor("x", parameters, bits, type)});
      engine.ready(tensor_id(0));
      engine.wait();
      EXPECT_EQ(bits, before);
      std::ranges::fill(bits, std::uint16_t{0});
      engine.ready(tensor_id(0), std::span(elsewhere));
      engine.wait();
      EXPECT_EQ(elsewhere, before);
    });
  }
}

/// Two workers' mean of neighbouring values of the type lies halfway and is rounded to the even
/// one.
TEST(Gradients, AMeanIsRoundedOnceToEven) {
  for (const element_type type : {element_type::fp16, element_type::bf16}) {
    transport::run_ranks(2, [&](transport::in_process& world) {
      constexpr std::uint16_t first[] = {0x3c00, 0x3c01, 0x3c02, 0xbc01};
      constexpr std::uint16_t even[] = {0x3c00, 0x3c02, 0x3c02, 0xbc02};
      std::vector<std::uint16_t> bits;
      for (const std::uint16_t each : first) {
        bits.push_back(static_cast<std::uint16_t>(each + world.rank()));
      }
      std::vector<float> parameters(bits.size());
      auto engine = make_engine<compose<summed>>(world, {tensor("x", parameters, bits, type)});
      engine.ready(tensor_id(0));
      engine.wait();
      EXPECT_EQ(bits, std::vector<std::uint16_t>(std::begin(even), std::end(even)));
    });
  }
}

TEST(Gradients, NoGradientIsZeroInAnyType) {
  for (const element_type type : {element_type::fp16, element_type::bf16}) {
    transport::run_ranks(2, [&](transport::in_process& world) {
      std::vector<std::uint16_t> bits(3, bits_of(type, 2.0f));
      std::vector<float> parameters(3);
      auto engine = make_engine<compose<summed>>(world, {tensor("x", parameters, bits, type)});
      if (world.rank() == 0) {
        engine.absent(tensor_id(0));
      } else {
        engine.ready(tensor_id(0));
      }
      engine.wait();
      EXPECT_EQ(bits, std::vector<std::uint16_t>(3, bits_of(type, 1.0f)));
    });
  }
}

TEST(Gradients, OfAPhantomAreRefused) {
  transport::run_ranks(1, [](transport::in_process& world) {
    std::vector<float> floats(4);
    auto engine = make_engine<compose<summed>>(world, {tensor::phantom("x", 4)});
    EXPECT_EQ(said([&] { engine.ready(tensor_id(0), std::span(floats)); }),
              "x is ready with values, but its model has no memory. Fix: call ready(id) alone, or "
              "declare its memory");
    engine.ready(tensor_id(0));
    engine.wait();
  });
}

/// The sum is where the last pass put its gradient, also if that is where the first pass had it.
TEST(Gradients, PassesMayMoveAwayAndBack) {
  transport::run_ranks(2, [](transport::in_process& world) {
    std::vector<float> parameters(3);
    std::vector<float> here(3, 4.0f);
    std::vector<float> there(3, 100.0f);
    engine_options<compose<summed>> set;
    set.run.accumulation = 2;
    auto engine = make_engine<compose<summed>>(world, {tensor("x", parameters, here)},
                                               optimizer::none{}, set);
    engine.ready(tensor_id(0), std::span(there));
    engine.ready(tensor_id(0), std::span(here));
    engine.wait();
    EXPECT_EQ(here, std::vector<float>(3, 2.0f));
    engine.ready(tensor_id(0));
    engine.ready(tensor_id(0), std::span(there));
    engine.wait();
    EXPECT_EQ(there, std::vector<float>(3, 50.0f));
    EXPECT_EQ(here, std::vector<float>(3, 2.0f));
  });
}

TEST(Gradients, OfAnotherLengthOrTypeAreRefused) {
  transport::run_ranks(1, [](transport::in_process& world) {
    std::vector<float> parameters(4);
    std::vector<float> floats(4);
    std::vector<std::uint16_t> bits(4);
    auto engine = make_engine<compose<summed>>(world, {tensor("x", parameters, floats)});
    EXPECT_EQ(said([&] { engine.ready(tensor_id(0), std::span(floats).first(3)); }),
              "x is ready with 3 values of 32 bits, but has 4 elements. Fix: pass its whole "
              "gradient, in the type that was declared");
    EXPECT_EQ(said([&] { engine.ready(tensor_id(0), std::span(bits)); }),
              "x is ready with 0 values of 32 bits, but has 4 elements. Fix: pass its whole "
              "gradient, in the type that was declared");
    engine.ready(tensor_id(0));
    engine.wait();
  });
}

TEST(Gradients, OfATensorThatTheModelHasNotAreRefused) {
  transport::run_ranks(1, [](transport::in_process& world) {
    std::vector<float> parameters(4);
    std::vector<float> floats(4);
    auto engine = make_engine<compose<summed>>(world, {tensor("x", parameters, floats)});
    const std::string none =
        "tensor 1 does not exist in a model of 1 tensors. Fix: count ids from 0";
    EXPECT_EQ(said([&] { engine.ready(tensor_id(1)); }), none);
    EXPECT_EQ(said([&] { engine.ready(tensor_id(1), std::span(floats)); }), none);
    EXPECT_EQ(said([&] { engine.absent(tensor_id(1)); }), none);
    EXPECT_EQ(said([&] { engine.gradient(tensor_id(1)); }), none);
    EXPECT_EQ(said([&] { engine.wait(tensor_id(1)); }), none);
  });
}

}  // namespace
}  // namespace tutti::test::handed_in

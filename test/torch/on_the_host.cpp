// What programs with LibTorch's own modules and optimizers do to a model on the host: ranks are
// threads, and gradients are small integers, whose means have no rounding.
#include <ATen/ATen.h>
#include <exception>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <torch/csrc/autograd/variable.h>
#include <vector>

#include "tutti/adapter/torch.hpp"
#include "tutti/base/error.hpp"
#include "tutti/compiled/in_process.hpp"
#include "tutti/strategies/wfbp.hpp"

namespace tutti::test {
namespace {

using transport::in_process;
using Strategy = strategies::WFBPUnlimited;
using data_parallel = adapter::data_parallel<Strategy, in_process>;

/// Calls `body(world, beside)` on `ranks` threads.
template <class Body>
void run_on_the_host(int ranks, const Body& body) {
  in_process::fabric others(ranks);
  transport::run_ranks(ranks, [&](in_process& world) { body(world, others.end(world.rank())); });
}

/// A parameter of zeros.
at::Tensor parameter(int elements) { return at::zeros({elements}).requires_grad_(); }
/// Runs a backward pass in which each element's gradient is `by`.
void backward(const at::Tensor& of, int by) { (of * by).sum().backward(); }
bool are(const at::Tensor& values, float wanted) { return values.eq(wanted).all().item<bool>(); }

/// torch::optim::Optimizer::zero_grad, which Python's does otherwise, detaches `.grad` in place.
TEST(TorchOnTheHost, AnOptimizerOfLibTorchResetsGradients) {
  run_on_the_host(2, [](in_process& world, in_process& beside) {
    const at::Tensor weight = parameter(3);
    data_parallel model(world, beside, {{"weight", weight}});
    model.listen();
    for (int step = 0; step < 3; ++step) {
      if (weight.grad().defined()) {
        weight.mutable_grad().detach_();
        weight.mutable_grad().zero_();
      }
      backward(weight, 1 + 2 * world.rank());
      EXPECT_TRUE(are(weight.grad(), 2)) << weight.grad();
    }
    const at::Tensor kept = weight.grad();
    weight.mutable_grad() = at::Tensor();
    backward(weight, 3 + 2 * world.rank());
    EXPECT_TRUE(are(weight.grad(), 4)) << weight.grad();
    EXPECT_TRUE(are(kept, 2)) << "code that keeps a gradient keeps its values";
  });
}

/// LibTorch's named_parameters() lists a module that is registered twice twice.
TEST(TorchOnTheHost, AParameterThatIsListedTwiceIsOne) {
  run_on_the_host(2, [](in_process& world, in_process& beside) {
    const at::Tensor weight = parameter(1000);
    const at::Tensor bias = parameter(2);
    data_parallel model(world, beside,
                        {{"first.weight", weight}, {"bias", bias}, {"second.weight", weight}});
    model.listen();
    for (int step = 0; step < 10; ++step) {
      ((weight * (1 + 2 * world.rank())).sum() + (weight * 2).sum() + bias.sum()).backward();
      EXPECT_TRUE(are(weight.grad(), 4)) << weight.grad()[0];
      EXPECT_TRUE(are(bias.grad(), 1));
      weight.mutable_grad() = bias.mutable_grad() = at::Tensor();
    }
  });
}

/// Returns the sentence with which a model is refused on rank 1, when every rank refuses it or
/// hears of that.
template <class Make>
std::string refusal(const Make& make) {
  std::string told;
  run_on_the_host(2, [&](in_process& world, in_process& beside) {
    try {
      make(world, beside);
      ADD_FAILURE() << "made on rank " << world.rank();
    } catch (const std::exception& refused) {
      if (world.rank() == 1) {
        told = refused.what();
      }
    }
  });
  return told;
}

/// With several passes a step, a pass would leave this rank's own gradient in `.grad`.
TEST(TorchOnTheHost, AStepOfSeveralPassesIsRefused) {
  engine_options<Strategy> set;
  set.run.accumulation = 2;
  EXPECT_NE(refusal([&](in_process& world, in_process& beside) {
              data_parallel model(world, beside, {{"weight", parameter(3)}}, set);
            }).find("run.accumulation = 2"),
            std::string::npos);
  EXPECT_NE(refusal([&](in_process& world, in_process& beside) {
              data_parallel model(world, beside, {{"weight", parameter(3)}});
              model.replan(set);
            }).find("run.accumulation = 2"),
            std::string::npos);
}

TEST(TorchOnTheHost, RanksThatTreatUnusedParametersDifferentlyAreRefused) {
  EXPECT_NE(refusal([](in_process& world, in_process& beside) {
              data_parallel model(world, beside, {{"weight", parameter(3)}}, {},
                                  world.rank() == 1 ? adapter::unused_parameters::left_alone
                                                    : adapter::unused_parameters::as_zeros);
            }).find("ranks differ in"),
            std::string::npos);
}

TEST(TorchOnTheHost, OneTransportForEverythingIsRefused) {
  EXPECT_NE(refusal([](in_process& world, in_process&) {
              data_parallel model(world, world, {{"weight", parameter(3)}});
            }).find("its own transport"),
            std::string::npos);
}

/// The others would otherwise wait for it until the deadline, and not know why.
TEST(TorchOnTheHost, ARankWhoseModelIsRefusedTellsTheOthers) {
  run_on_the_host(2, [](in_process& world, in_process& beside) {
    engine_options<Strategy> set;
    set.run.deadline = 5;
    const auto type = world.rank() == 1 ? at::kDouble : at::kFloat;
    const at::Tensor weight = at::zeros({3}, type).requires_grad_();
    try {
      data_parallel model(world, beside, {{"weight", weight}}, set);
      ADD_FAILURE() << "made on rank " << world.rank();
    } catch (const std::exception& refused) {
      EXPECT_NE(std::string(refused.what()).find("weight has type Double"), std::string::npos)
          << refused.what();
    }
  });
}

/// The others may wait for it beside the gradients, on the second transport.
TEST(TorchOnTheHost, ARankThatFailsTellsWhoWaitsForItsMessages) {
  for (const bool says_why : {false, true}) {
    run_on_the_host(2, [says_why](in_process& world, in_process& beside) {
      const at::Tensor weight = parameter(3);
      std::string told;
      try {
        data_parallel model(world, beside, {{"weight", weight}}, {},
                            adapter::unused_parameters::left_alone);
        model.listen();
        if (world.rank() == 0) {
          backward(weight, 1);
        } else if (says_why) {
          model.fail(std::make_exception_ptr(std::runtime_error("no batch is left")));
        } else {
          throw std::runtime_error("no batch is left");
        }
      } catch (const std::exception& failed) {
        told = failed.what();
      }
      if (world.rank() == 0) {
        EXPECT_EQ(told,
                  says_why ? "rank 1 failed: no batch is left" : "rank 1 left by an exception");
      }
    });
  }
}

TEST(TorchOnTheHost, ListensOnce) {
  run_on_the_host(2, [](in_process& world, in_process& beside) {
    const at::Tensor weight = parameter(3);
    data_parallel model(world, beside, {{"weight", weight}});
    model.listen();
    model.listen();
    backward(weight, 1 + 2 * world.rank());
    EXPECT_TRUE(are(weight.grad(), 2)) << weight.grad();
  });
}

/// A pass cannot be announced before `backward()`.
TEST(TorchOnTheHost, ARefusedAnnouncementLeavesNothingBehind) {
  run_on_the_host(2, [](in_process& world, in_process& beside) {
    const at::Tensor weight = parameter(3);
    data_parallel model(world, beside, {{"weight", weight}});
    model.listen();
    EXPECT_THROW(model.begin(), std::exception);
    backward(weight, 1 + 2 * world.rank());
    EXPECT_TRUE(are(weight.grad(), 2)) << weight.grad();
  });
}

/// A pass that has ended with an exception has sent some gradients and not others.
TEST(TorchOnTheHost, NothingFollowsAPassThatHasEndedWithAnException) {
  run_on_the_host(2, [](in_process& world, in_process& beside) {
    const at::Tensor first = parameter(3);
    const at::Tensor second = parameter(3);
    data_parallel model(world, beside, {{"first", first}, {"second", second}});
    model.listen();
    at::Tensor fails = first * 1;
    fails.register_hook([](const at::Tensor& gradient) {
      throw std::runtime_error("no memory is left");
      return gradient;
    });
    EXPECT_THROW((fails + second).sum().backward(), std::runtime_error);
    EXPECT_THROW(backward(first, 1 + world.rank()), usage_error);
  });
}

}  // namespace
}  // namespace tutti::test

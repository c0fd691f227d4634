// Where buckets are in memory: in place of the tensors where these are neighbours, in memory of
// their own where they are not.
#include "tutti/core/model_memory.hpp"

#include <cstddef>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/cost.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/core/plan_maker.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/partition/none.hpp"

namespace tutti::test {
namespace {

/// A queue that counts its operations.
class counting_queue : public host_loops<counting_queue> {
 public:
  struct event {};
  event record() { return {}; }

  std::size_t operations = 0;
  template <class F>
  void run(F f) {
    ++operations;
    f();
  }
};

constexpr std::size_t lengths[] = {7, 0, 1, 100, 33};

template <class Fusion, class Partition>
plan planned(const std::vector<tensor>& tensors, const Fusion& fusion, const Partition& partition) {
  return make_plan(tensors, fusion, partition, {}, [](plan&) {});
}

/// Expects each chunk's elements to be the tensors' own memory, tensor after tensor in backward
/// order.
void expect_views(const arena& memory, const plan& made) {
  counting_queue queue;
  const model_memory<counting_queue> model(queue, memory.tensors(), made);
  const float* next = memory.tensors().back().gradient.data();
  for (std::size_t number = 0; number < made.chunks.size(); ++number) {
    EXPECT_EQ(model.data(made.chunks[number]).data(), next);
    model.pack(queue, number);
    next += made.chunks[number].elements;
  }
  EXPECT_EQ(queue.operations, 0u);
}

TEST(ModelMemory, BucketsOfAnArenaAreViewsAndPackingThemIsNothing) {
  std::vector<arena::declaration> declared;
  for (const std::size_t each : lengths) {
    declared.push_back({std::to_string(declared.size()), each});
  }
  const arena memory(declared);
  const auto& tensors = memory.tensors();
  expect_views(memory, planned(tensors, fusion::all(), partition::none()));
  expect_views(memory, planned(tensors, fusion::none(), partition::none()));
  expect_views(memory, planned(tensors, fusion::up_to({.bytes = 140}), partition::none()));
  expect_views(memory, planned(tensors, fusion::all(), partition::into({.bytes = 12})));
}

TEST(ModelMemory, WhatIsGivenBackIsLentAgain) {
  const arena memory(std::vector<arena::declaration>{{"a", 60}, {"b", 30}, {"none", 0}, {"c", 20}},
                     without_gradients());
  const plan made = planned(memory.tensors(), fusion::none(), partition::into({.bytes = 80}));
  counting_queue queue;
  model_memory<counting_queue> model(queue, memory.tensors(), made);
  ASSERT_TRUE(model.lends());
  const auto give_back = [&](std::size_t bucket) {
    for (const chunk& each : made.chunks) {
      if (each.bucket == bucket && each.elements > 0) {
        model.give_back(queue, each);
      }
    }
  };
  enum : std::size_t { c, none, b, a };  // in backward order
  for (int step = 0; step < 3; ++step) {
    float* first = model.lend(queue, c).first.data();
    EXPECT_EQ(model.lend(queue, c).first.data(), first) << "it holds that already";
    EXPECT_TRUE(model.lend(queue, none).first.empty());
    EXPECT_EQ(model.lend(queue, c).first.size(), 20U);
    EXPECT_FALSE(model.lacks_gradient(c));
    model.gradient_is_there(c, decltype(model)::pass::last);
    EXPECT_TRUE(model.lacks_gradient(c));
    const float* second = model.lend(queue, b).first.data();
    EXPECT_NE(second, first);
    give_back(c);
    EXPECT_EQ(model.data(std::size_t{c}).data(), nullptr);
    // The free buffer is too short and is enlarged; b's is in use.
    EXPECT_EQ(model.lend(queue, a).first.size(), 60U);
    model.give_back(queue, made.chunks.back());
    EXPECT_NE(model.data(std::size_t{a}).data(), nullptr) << "its other pieces are on their way";
    for (const chunk& each : made.chunks) {
      if (each.bucket == a && &each != &made.chunks.back()) {
        model.give_back(queue, each);
      }
    }
    give_back(b);
    // From the second step on, the first bucket to come takes the shorter buffer, so the longest
    // bucket enlarges that one, too. There are as many buffers as were held at a time, and none is
    // longer than the longest bucket.
    EXPECT_EQ(model.bucket_bytes(), 4 * (60 + (step == 0 ? 30U : 60U)));
    EXPECT_EQ(model.own_bytes(), 0U);
  }
}

TEST(ModelMemory, ScatteredTensorsArePackedInBackwardOrderByOneOperationAChunk) {
  std::vector<std::vector<float>> gradients;
  std::vector<tensor> tensors;
  float value = 0;
  for (const std::size_t each : lengths) {
    std::vector<float> made(each + 1);  // one more element keeps neighbours apart
    for (float& number : made) {
      number = ++value;
    }
    gradients.push_back(std::move(made));
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto memory = std::span(gradients[i]).first(lengths[i]);
    tensors.emplace_back(std::to_string(i), memory, memory);
  }
  const plan made = planned(tensors, fusion::all(), partition::into({.bytes = 36}));
  ASSERT_GT(made.chunks.size(), 3u);
  counting_queue queue;
  const model_memory<counting_queue> model(queue, tensors, made);
  std::vector<float> packed;
  for (std::size_t number = 0; number < made.chunks.size(); ++number) {
    model.pack(queue, number);
    const auto data = model.data(made.chunks[number]);
    packed.insert(packed.end(), data.begin(), data.end());
  }
  std::vector<float> expected;
  for (std::size_t i = gradients.size(); i-- > 0;) {
    expected.insert(expected.end(), gradients[i].begin(), gradients[i].end() - 1);
  }
  EXPECT_EQ(packed, expected);
  EXPECT_EQ(queue.operations, made.chunks.size());
}

TEST(ModelMemory, ABucketThatMovesWholeStaysAView) {
  const std::vector<arena::declaration> declared = {{"0", 3}, {"1", 0}, {"2", 5}};
  const arena here(declared);
  const arena there(declared);
  const plan made = planned(here.tensors(), fusion::all(), partition::none());
  counting_queue queue;
  model_memory<counting_queue> model(queue, here.tensors(), made);
  const auto lies_at = [&] { return model.data(made.chunks[0]).data(); };
  model.move(0, {.wide = there.tensors()[2].gradient});
  model.move(2, {.wide = there.tensors()[0].gradient});
  EXPECT_EQ(lies_at(), here.tensors()[2].gradient.data());  // where it was when it was launched
  model.settle(queue, 0);
  model.pack(queue, 0);
  EXPECT_EQ(lies_at(), there.tensors()[2].gradient.data());
  EXPECT_EQ(queue.operations, 0u);

  model.move(2, {.wide = here.tensors()[0].gradient});
  model.settle(queue, 0);
  queue.operations = 0;
  model.pack(queue, 0);
  EXPECT_NE(lies_at(), there.tensors()[2].gradient.data());
  EXPECT_EQ(queue.operations, 2u);
}

/// Returns the error of planning `tensors`.
std::string refusal(const std::vector<tensor>& tensors, const profile& known = {}) {
  try {
    make_plan(tensors, fusion::none{}, partition::none{}, known, [](plan&) {});
  } catch (const usage_error& refused) {
    return refused.what();
  }
  return {};
}

TEST(Tensor, OneWhoseMembersWereAssignedIsRefused) {
  std::vector<float> memory(8);
  tensor assigned;
  assigned.name = "w";
  assigned.parameter = memory;
  assigned.gradient = memory;
  EXPECT_EQ(refusal({assigned}),
            "w has 0 elements, but its parameter has 8 and its gradient 8. Fix: declare "
            "tensor(name, parameter, gradient) with two spans of one length");
  assigned.elements = 8;
  EXPECT_EQ(refusal({assigned}), "");
}

TEST(Tensor, SpansOfTwoLengthsAreRefused) {
  std::vector<float> memory(8);
  const std::span<float> all(memory);
  EXPECT_EQ(refusal({tensor("a", all, all), tensor("w", all.first(3), all)}),
            "w has 8 elements, but its parameter has 3 and its gradient 8. Fix: declare "
            "tensor(name, parameter, gradient) with two spans of one length");
  EXPECT_EQ(refusal({tensor("w", {}, all)}),
            "w has 8 elements, but its parameter has 0 and its gradient 8. Fix: declare "
            "tensor(name, parameter, gradient) with two spans of one length");
}

TEST(Tensor, APhantomAmongOthersIsRefused) {
  std::vector<float> memory(8);
  const std::span<float> all(memory);
  EXPECT_EQ(
      refusal({tensor("w", all, all), tensor::phantom("b", 4)}),
      "w has memory, but b has none. Fix: give memory to every tensor, or, to simulate, to none");
  EXPECT_EQ(refusal({tensor::phantom("w", 8), tensor::phantom("b", 4)}), "");
  EXPECT_EQ(refusal({tensor("w", all, all), tensor("nothing", {}, {})}), "");
}

TEST(Profile, OneOfAnotherNumberOfTensorsIsRefused) {
  const std::vector<tensor> model{tensor::phantom("w", 8), tensor::phantom("b", 4)};
  const auto known = [](std::vector<seconds> backward) {
    return profile{.backward = std::move(backward)};
  };
  EXPECT_EQ(refusal(model, known({1})),
            "the profile holds 1 backward times, but the model has 2 tensors. Fix: give one for "
            "each tensor, in forward order, or none");
  EXPECT_EQ(refusal(model, known({1, 2, 3})),
            "the profile holds 3 backward times, but the model has 2 tensors. Fix: give one for "
            "each tensor, in forward order, or none");
  EXPECT_EQ(refusal(model, known({1, 2})), "");
  EXPECT_EQ(refusal(model, known({})), "");
}

}  // namespace
}  // namespace tutti::test

// Fusions: what every grouping must satisfy, then each policy compared with its documentation.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support/policies.hpp"
#include "tutti/core/plan_maker.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/by_group.hpp"
#include "tutti/fusion/by_modules.hpp"
#include "tutti/fusion/into_groups.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/fusion/of_small.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/none.hpp"
#include "tutti/role/compression.hpp"

namespace tutti {
namespace {

using ends = std::vector<std::size_t>;

/// Returns a model's tensors in backward order, in which ids descend.
std::vector<tensor_facts> backward_order(const std::vector<std::size_t>& elements) {
  std::vector<tensor_facts> facts;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const auto id = static_cast<std::uint32_t>(elements.size() - 1 - i);
    facts.push_back({tensor_id{id}, elements[i], {}, "tensor" + std::to_string(id)});
  }
  return facts;
}

std::vector<std::size_t> random_sizes(std::mt19937& random) {
  std::vector<std::size_t> sizes(random() % 20);
  for (std::size_t& each : sizes) {
    each = random() % 4 == 0 ? random() % 3 : random() % 400;
  }
  return sizes;
}

template <class F>
class fusion_law : public testing::Test {};
TYPED_TEST_SUITE(fusion_law, testing_lists::fusions);

TYPED_TEST(fusion_law, covers_every_tensor_once_in_order) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const auto sizes = random_sizes(random);
    const ends groups = TypeParam{}.group_ends(backward_order(sizes), profile{});
    ASSERT_EQ(groups.empty(), sizes.empty());
    ASSERT_TRUE(sizes.empty() || (groups.front() > 0 && groups.back() == sizes.size()));
    ASSERT_TRUE(std::ranges::is_sorted(groups, std::less_equal{})) << "an empty group";
  }
}

/// Ranks that plan independently must make the same plan.
TYPED_TEST(fusion_law, answers_the_same_again) {
  std::mt19937 random(2);
  const auto facts = backward_order(random_sizes(random));
  ASSERT_FALSE(facts.empty());
  const TypeParam fusion;
  const ends first = fusion.group_ends(facts, profile{});
  EXPECT_EQ(fusion.group_ends(facts, profile{}), first);
  EXPECT_EQ(TypeParam{}.group_ends(facts, profile{}), first);
}

TEST(fusion_none, leaves_every_tensor_alone) {
  EXPECT_EQ(fusion::none{}.group_ends(backward_order({5, 0, 7}), {}), (ends{1, 2, 3}));
}

TEST(fusion_all, makes_one_group) {
  EXPECT_EQ(fusion::all{}.group_ends(backward_order({5, 0, 7}), {}), (ends{3}));
}

/// The rule as a walk over labels, each the group number of a tensor; written independently of the
/// policy.
ends oracle(std::vector<std::size_t> sizes, const fusion::up_to::options& with) {
  if (with.from == fusion::filled_from::first) {
    std::ranges::reverse(sizes);
  }
  std::vector<std::size_t> group_of(sizes.size());
  std::size_t group = 0;
  double total = 0;
  bool open = false;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const double bytes = 4.0 * static_cast<double>(sizes[i]);
    const auto limit = [&] {
      return static_cast<double>(group == 0 && with.first_bytes      ? with.first_bytes
                                 : with.elements != fusion::by_bytes ? 4 * with.elements
                                                                     : with.bytes);
    };
    if (with.crossing == fusion::crossing::out && open && total + bytes > limit()) {
      ++group;
      total = 0;
    }
    group_of[i] = group;
    total += bytes;
    open = true;
    if (limit() == 0 || (with.crossing == fusion::crossing::in && total >= limit())) {
      ++group;
      total = 0;
      open = false;
    }
  }
  if (with.from == fusion::filled_from::first) {
    std::ranges::reverse(group_of);
  }
  ends result;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (i + 1 == sizes.size() || group_of[i + 1] != group_of[i]) {
      result.push_back(i + 1);
    }
  }
  return result;
}

TEST(fusion_up_to, equals_an_independent_walk) {
  std::mt19937 random(3);
  for (int round = 0; round < 10'000; ++round) {
    const auto sizes = random_sizes(random);
    fusion::up_to::options with{.bytes = random() % 5 == 0 ? 0 : random() % 3000};
    with.elements = random() % 2 ? random() % 700 : fusion::by_bytes;
    with.elements = random() % 9 ? with.elements : 0;
    with.first_bytes = random() % 2 ? random() % 500 : 0;
    with.crossing = random() % 2 ? fusion::crossing::in : fusion::crossing::out;
    with.from = random() % 2 ? fusion::filled_from::first : fusion::filled_from::last;
    ASSERT_EQ(fusion::up_to(with).group_ends(backward_order(sizes), {}), oracle(sizes, with));
  }
}

TEST(fusion_up_to, takes_the_crossing_tensor_in) {
  const fusion::up_to two_elements({.bytes = 8, .crossing = fusion::crossing::in});
  EXPECT_EQ(two_elements.group_ends(backward_order({1, 5, 1, 1, 1}), {}), (ends{2, 4, 5}));
}

TEST(fusion_up_to, leaves_the_crossing_tensor_out_and_a_large_one_alone) {
  const fusion::up_to two_elements({.bytes = 8, .crossing = fusion::crossing::out});
  EXPECT_EQ(two_elements.group_ends(backward_order({1, 5, 1, 1, 1}), {}), (ends{1, 2, 4, 5}));
}

TEST(fusion_up_to, begins_at_either_end) {
  const auto begun = [](fusion::filled_from from) {
    return fusion::up_to({.bytes = 8, .crossing = fusion::crossing::out, .from = from});
  };
  EXPECT_EQ(begun(fusion::filled_from::last).group_ends(backward_order({1, 1, 1}), {}),
            (ends{2, 3}));
  EXPECT_EQ(begun(fusion::filled_from::first).group_ends(backward_order({1, 1, 1}), {}),
            (ends{1, 3}));
  EXPECT_EQ(begun(fusion::filled_from::first).group_ends({}, {}), ends{});
}

TEST(fusion_up_to, leaves_all_alone_at_zero) {
  for (const auto crossing : {fusion::crossing::in, fusion::crossing::out}) {
    const fusion::up_to zero({.bytes = 0, .crossing = crossing});
    EXPECT_EQ(zero.group_ends(backward_order({0, 0, 3, 0}), {}), (ends{1, 2, 3, 4}));
  }
}

TEST(fusion_up_to, closes_the_first_group_early) {
  const fusion::up_to ddp({.bytes = 12, .first_bytes = 4});
  EXPECT_EQ(ddp.group_ends(backward_order({1, 1, 1, 1, 1}), {}), (ends{1, 4, 5}));
}

TEST(fusion_up_to, counts_elements_where_asked) {
  const fusion::up_to three({.elements = 3});
  EXPECT_EQ(three.group_ends(backward_order({1, 1, 1, 1}), {}), (ends{3, 4}));
}

/// Returns the first tensor of each group, in forward order, if the tensors `small` are small.
std::vector<std::size_t> packed(std::size_t tensors, const std::vector<std::size_t>& small,
                                std::size_t at_most) {
  std::vector<std::size_t> backward(tensors, 101);
  for (const std::size_t each : small) {
    backward[tensors - 1 - each] = 100;
  }
  const fusion::of_small how({.bytes = 400, .tensors = at_most});
  std::vector<std::size_t> first;
  for (const std::size_t end : how.group_ends(backward_order(backward), {})) {
    first.insert(first.begin(), tensors - end);
  }
  return first;
}

/// As tf_cnn_benchmarks' extract_ranges answers for the same indices at commit 8fb7907, with limits
/// that are less by two: 10, 10, 2, 0 and 1.
TEST(fusion_of_small, packs_as_tf_cnn_benchmarks) {
  std::vector<std::size_t> every(30);
  std::iota(every.begin(), every.end(), std::size_t{0});
  const std::vector<std::size_t> seven(every.begin(), every.begin() + 7);
  EXPECT_EQ(packed(30, every, 12), (ends{0, 12, 24}));                         // 0-11, 12-23, 24-29
  EXPECT_EQ(packed(10, {0, 1, 2, 5, 7, 8}, 12), (ends{0, 3, 4, 5, 6, 7, 9}));  // 0-2, 5, 7-8
  EXPECT_EQ(packed(7, seven, 4), (ends{0, 4}));                                // 0-3, 4-6
  EXPECT_EQ(packed(7, seven, 2), (ends{0, 2, 4, 6}));                          // 0-1, 2-3, 4-5, 6
  EXPECT_EQ(packed(7, seven, 3), (ends{0, 3, 6}));                             // 0-2, 3-5, 6
  EXPECT_EQ(packed(3, {0, 1, 2}, 1), (ends{0, 1, 2}));
}

/// Limits in elements: none, one less than all, all, one more, and what ddl-benchmarks takes as no
/// limit.
TEST(fusion_up_to, has_edges_in_elements) {
  const auto facts = backward_order({5, 1, 3, 2});
  const auto groups = [&](std::size_t elements, fusion::crossing crossing) {
    return fusion::up_to({.elements = elements, .crossing = crossing}).group_ends(facts, {});
  };
  using fusion::crossing;
  for (const auto either : {crossing::in, crossing::out}) {
    EXPECT_EQ(groups(0, either), (ends{1, 2, 3, 4}));
    EXPECT_EQ(groups(11, either), (ends{4}));
    EXPECT_EQ(groups(12, either), (ends{4}));
    EXPECT_EQ(groups(std::size_t{1} << 29, either), (ends{4}));
    EXPECT_EQ(groups(fusion::by_bytes - 1, either), (ends{4}));
  }
  EXPECT_EQ(groups(10, crossing::in), (ends{4}));
  EXPECT_EQ(groups(10, crossing::out), (ends{3, 4}));
  EXPECT_EQ(groups(5, crossing::in), (ends{1, 4}));
  EXPECT_EQ(groups(5, crossing::out), (ends{1, 3, 4}));
  EXPECT_EQ(groups(1, crossing::in), (ends{1, 2, 3, 4}));
}

/// Horovod's `split_list` of a list in forward order: the first r of n groups have one tensor more.
TEST(fusion_into_groups, splits_the_forward_order_evenly) {
  const auto groups = [](std::size_t tensors, std::size_t count) {
    return fusion::into_groups({.groups = count})
        .group_ends(backward_order(std::vector<std::size_t>(tensors, 3)), {});
  };
  for (std::size_t tensors = 0; tensors < 30; ++tensors) {
    EXPECT_EQ(groups(tensors, 0).size(), tensors);
    for (std::size_t count = 1; count < 35; ++count) {
      std::vector<std::size_t> lengths;  // in forward order
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t more = tensors / count + (i < tensors % count ? 1 : 0);
        if (more != 0) {
          lengths.push_back(more);
        }
      }
      ends expected;
      for (std::size_t i = lengths.size(); i-- > 0;) {
        expected.push_back((expected.empty() ? 0 : expected.back()) + lengths[i]);
      }
      ASSERT_EQ(groups(tensors, count), expected) << tensors << " tensors in " << count;
    }
  }
}

/// Returns layers of a weight and a bias, given the weights' elements in forward order.
std::vector<tensor_facts> layers(const std::vector<std::size_t>& elements) {
  std::vector<tensor_facts> backward;
  for (std::size_t i = elements.size(); i-- > 0;) {
    const std::string layer = "block.layer" + std::to_string(i);
    const auto id = static_cast<std::uint32_t>(2 * i);
    backward.push_back({tensor_id{id + 1}, 1, {}, layer + ".bias"});
    backward.push_back({tensor_id{id}, elements[i] - 1, {}, layer + ".weight"});
  }
  return backward;
}

/// DeAR's rule as a walk over forward modules that gives each its group, converted to backward
/// ends.
ends of_dear(const std::vector<std::size_t>& elements, const fusion::by_modules::options& with) {
  std::vector<std::size_t> group_of;
  std::size_t group = 0;
  std::size_t size = 0;
  for (std::size_t module = 0; module < elements.size(); ++module) {
    if (with.modules != 0) {
      group = module / with.modules;
    } else if (module > 0 && size + 4 * elements[module] >= with.bytes) {
      ++group;
      size = 0;
    }
    size += 4 * elements[module];
    group_of.push_back(group);
  }
  ends all;
  for (std::size_t i = elements.size(); i-- > 0;) {
    if (i == 0 || group_of[i - 1] != group_of[i]) {
      all.push_back(2 * (elements.size() - i));
    }
  }
  return all;
}

TEST(fusion_by_modules, groups_as_dear_does) {
  std::mt19937 random(4);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::size_t> elements(random() % 12);
    for (std::size_t& each : elements) {
      each = 1 + random() % 300;
    }
    const fusion::by_modules::options with{.bytes = random() % 5 == 0 ? 0 : random() % 3000,
                                           .modules = random() % 3 == 0 ? random() % 6 : 0};
    ASSERT_EQ(fusion::by_modules(with).group_ends(layers(elements), {}), of_dear(elements, with));
  }
  const auto groups = [](const fusion::by_modules::options& with) {
    return fusion::by_modules(with).group_ends(layers({5, 5, 2, 30, 1, 1}), {});
  };
  EXPECT_EQ(groups({.bytes = 48}), (ends{4, 6, 8, 12}));  // 10 and 2 elements reach 48 bytes
  EXPECT_EQ(groups({.bytes = 49}), (ends{4, 6, 12}));
  EXPECT_EQ(groups({.modules = 4}), (ends{4, 12}));
  EXPECT_EQ(groups({.bytes = 0}), (ends{2, 4, 6, 8, 10, 12}));

  // The default of 25 means MiB: 26,214,400 bytes. A tensor whose name has no dot is a module of
  // its own.
  const fusion::by_modules dear;
  EXPECT_EQ(dear.group_ends(layers({6'553'500, 99}), {}), ends{4});
  EXPECT_EQ(dear.group_ends(layers({6'553'500, 100}), {}), (ends{2, 4}));
  for (const std::string name : {"", "weight"}) {
    EXPECT_EQ(dear.group_ends(std::vector<tensor_facts>(3, {{}, 10'000'000, {}, name}), {}),
              (ends{1, 2, 3}));
  }
}

/// Returns the tensors of each bucket, in backward order, for a model with these names in forward
/// order.
template <class Fusion>
std::vector<std::vector<std::string>> named_buckets(const Fusion& policy,
                                                    const std::vector<std::string>& names) {
  std::vector<tensor> forward;
  for (const std::string& name : names) {
    forward.push_back(tensor::phantom(name, 10));
  }
  const plan made = make_plan(
      forward, policy, partition::none(), {}, [](plan&) {}, {},
      [&](const tensor_facts& each) {
        tensor_class its;
        its.group = policy.group_of(each);
        return its;
      });
  std::vector<std::vector<std::string>> buckets;
  for (const bucket& group : made.buckets) {
    auto& members = buckets.emplace_back();
    for (std::size_t i = 0; i < group.tensors; ++i) {
      members.push_back(made.backward[group.first_tensor + i].name);
    }
  }
  return buckets;
}

/// Lists of names, as Horovod's `groups`: a group is complete with its member nearest the input.
TEST(fusion_by_group, keeps_what_is_named_together) {
  using named_lists = std::vector<std::vector<std::string>>;
  const std::vector<std::string> model{"a.w", "a.b", "b.w", "b.b", "c.w", "c.b"};
  using biases_and_ends = fusion::by_group<fusion::none, named<"*.b">, named<"a.w", "c.*">>;
  EXPECT_EQ(named_buckets(biases_and_ends(), model),
            (named_lists{{"b.w"}, {"c.b", "b.b", "a.b"}, {"c.w", "a.w"}}));
  EXPECT_EQ(named_buckets(fusion::by_group<fusion::all, named<"b.w", "c.w">>(), model),
            (named_lists{{"c.w", "b.w"}, {"c.b", "b.b", "a.b", "a.w"}}));
  // Tensors that no rule chooses are grouped as if the chosen ones were not there, with ends at 20
  // elements.
  using rest_by_two = fusion::by_group<fusion::up_to, named<"b.*">>;
  EXPECT_EQ(named_buckets(rest_by_two({.bytes = 80}), model),
            (named_lists{{"c.b", "c.w"}, {"b.b", "b.w"}, {"a.b", "a.w"}}));
  EXPECT_EQ(named_buckets(fusion::by_group<fusion::none, named<"d.*">>(), model),
            (named_lists{{"c.b"}, {"c.w"}, {"b.b"}, {"b.w"}, {"a.b"}, {"a.w"}}));
  EXPECT_TRUE(named_buckets(biases_and_ends(), {}).empty());
}

/// Tensors in the order in which they become ready, each of one of two types of 4 bytes, and the
/// buckets in which they are sent.
struct bucket_assignment {
  std::vector<std::size_t> elements;
  std::vector<int> types;
  std::size_t first_bytes;
  std::size_t bytes;
  std::vector<std::vector<std::size_t>> buckets;
};

/// The answers of PyTorch 1.13's `torch.distributed._compute_bucket_assignment_by_size` for
/// `torch.empty(n, dtype=torch.float32 or torch.int32)`, with limits [first_bytes, bytes], or
/// [bytes] where first_bytes is 0, and tensor indices 0, 1, …. Buckets that reached no limit are in
/// no particular order.
const std::vector<bucket_assignment>& of_pytorch() {
  static const std::vector<bucket_assignment> all{
      {{1}, {0}, 0, 0, {{0}}},
      {{3, 1, 2}, {0, 0, 0}, 0, 0, {{0}, {1}, {2}}},
      {{1, 1, 1, 1}, {0, 0, 0, 0}, 0, 4, {{0}, {1}, {2}, {3}}},
      {{2, 2, 2, 2, 2}, {0, 0, 0, 0, 0}, 8, 16, {{0}, {1, 2}, {3, 4}}},
      {{2, 2, 2, 2, 2}, {0, 0, 0, 0, 0}, 9, 17, {{0, 1}, {2, 3, 4}}},
      {{6553600, 1, 262144, 262143, 1, 6815744, 7},
       {0, 0, 0, 0, 0, 0, 0},
       1048576,
       26214400,
       {{0}, {1, 2, 3, 4, 5}, {6}}},
      {{5, 4}, {0, 0}, 0, 36, {{0, 1}}},
      {{5, 4}, {0, 0}, 0, 37, {{0, 1}}},
      {{5, 4, 3}, {0, 0, 0}, 0, 2147483648, {{0, 1, 2}}},
      {{336, 0, 194, 0, 0, 870, 0, 176, 0, 1944, 1, 372, 1208},
       {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
       1660,
       9544,
       {{0, 1, 2}, {3, 4, 5, 6, 7, 8, 9}, {10, 11, 12}}},
      {{215, 1483, 1, 169, 1, 8, 1789, 1, 356, 1, 0},
       {1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 0},
       2216,
       5052,
       {{1}, {0, 2, 4, 6}, {3, 5, 10}, {7, 8, 9}}},
      {{0, 0, 0, 0, 16, 1, 1, 1828, 533, 557, 1},
       {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
       0,
       9060,
       {{0, 1, 2, 3, 4, 5, 6, 7, 8}, {9, 10}}},
      {{0, 367, 0, 1, 1, 260}, {0, 0, 0, 0, 1, 0}, 376, 3528, {{0, 1}, {4}, {2, 3, 5}}},
      {{0, 0, 1, 0, 149, 1, 381}, {1, 0, 1, 1, 0, 1, 1}, 1476, 3964, {{0, 2, 3, 5, 6}, {1, 4}}},
      {{203, 1, 1, 0, 1, 1}, {0, 0, 0, 0, 0, 0}, 0, 6484, {{0, 1, 2, 3, 4, 5}}},
      {{1, 1}, {1, 0}, 0, 456, {{1}, {0}}},
      {{1, 918, 1, 0, 356, 1, 864, 202},
       {0, 0, 0, 0, 0, 0, 0, 0},
       0,
       10096,
       {{0, 1, 2, 3, 4, 5, 6, 7}}},
      {{0, 79}, {0, 0}, 0, 9396, {{0, 1}}},
      {{690, 1009, 1511, 0, 0, 51, 0, 0, 302},
       {0, 1, 0, 1, 0, 1, 1, 1, 1},
       1936,
       2164,
       {{0}, {1}, {2}, {3, 5, 6, 7, 8}, {4}}},
      {{0, 1, 0, 0, 1, 1548, 1, 1558, 1, 1045, 0, 95, 251},
       {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
       0,
       9248,
       {{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12}}},
      {{0}, {0}, 0, 2148, {{0}}},
  };
  return all;
}

TEST(fusion_up_to, makes_the_buckets_of_pytorch) {
  for (const bucket_assignment& each : of_pytorch()) {
    const std::size_t n = each.elements.size();
    std::vector<tensor> forward;
    for (std::size_t i = n; i-- > 0;) {
      forward.push_back(tensor::phantom("tensor", each.elements[i]));
    }
    const auto ready_as = [n](tensor_id id) { return n - 1 - index(id); };
    const fusion::up_to policy({.bytes = each.bytes, .first_bytes = each.first_bytes});
    const plan made = make_plan(
        forward, policy, partition::none(), {}, [](plan&) {}, {},
        [&](const tensor_facts& its) {
          tensor_class one;
          one.type = each.types[ready_as(its.id)] == 0 ? element_type::fp32 : element_type::bf16;
          return one;
        });
    std::vector<std::vector<std::size_t>> buckets;
    for (const bucket& group : made.buckets) {
      auto& members = buckets.emplace_back();
      for (std::size_t i = 0; i < group.tensors; ++i) {
        members.push_back(ready_as(made.at(group.first_tensor + i)));
      }
      EXPECT_EQ(made.chunks[group.first_chunk].kind, each.types[members[0]] == 0 ? 0U : 4U);
    }
    auto expected = each.buckets;
    std::sort(expected.begin(), expected.end());
    std::sort(buckets.begin(), buckets.end());
    EXPECT_EQ(buckets, expected) << "case " << &each - of_pytorch().data();
  }
}

}  // namespace
}  // namespace tutti

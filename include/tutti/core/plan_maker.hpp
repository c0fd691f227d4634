#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/base/cost.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/function_ref.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/fusion.hpp"
#include "tutti/role/partition.hpp"

namespace tutti {

/// The most chunks of a plan, since tags carry a chunk's number in a few bits.
inline constexpr std::size_t most_chunks = 30'000;

namespace detail {

[[gnu::cold]] inline void add_hash(plan& made, std::span<const tensor> forward,
                                   std::string_view settings) {
  running_hash hash;
  hash.feed(std::as_bytes(std::span(settings)));
  for (const auto& each : forward) {
    hash.feed(std::as_bytes(std::span(each.name)));
    hash.feed(each.elements);
    for (std::size_t i = 0; i < each.shape.dimensions(); ++i) {
      hash.feed(each.shape[i]);
    }
  }
  for (const auto& each : made.buckets) {
    hash.feed(each.first_tensor);
    hash.feed(each.elements);
  }
  for (const auto& each : made.chunks) {
    hash.feed(each.first_element);
    hash.feed(each.elements);
    hash.feed(static_cast<std::uint64_t>(each.placed_on));
    hash.feed(std::uint64_t{each.kind});
  }
  made.hash = hash.value();
}

/// Elements of gradient memory, of the type that the tensor declares.
inline std::size_t length_of_gradient(const tensor& each) {
  return each.gradient_type == element_type::fp32 ? each.gradient.size()
                                                  : each.narrow_gradient.size();
}

/// Throws usage_error unless every tensor has memory for its elements, or none has any (a phantom),
/// or none has any for its gradient (which is then lent).
[[gnu::cold]] inline void expect_memory(std::span<const tensor> forward) {
  const auto phantom = [](const tensor& each) {
    return each.parameter.empty() && each.gradient.empty() && each.narrow_gradient.empty();
  };
  const tensor* without = nullptr;
  const tensor* with = nullptr;
  const tensor* lent = nullptr;
  const tensor* owned = nullptr;
  for (const tensor& each : forward) {
    if (each.elements > 0) {
      (phantom(each) ? without : with) = &each;
      (length_of_gradient(each) == 0 ? lent : owned) = &each;
    }
    if (!phantom(each) &&
        (each.parameter.size() != each.elements ||
         (length_of_gradient(each) != each.elements && length_of_gradient(each) != 0))) {
      throw usage_error(sentence(
          {each.name, " has ", each.elements, " elements, but its parameter has ",
           each.parameter.size(), " and its gradient ", length_of_gradient(each),
           ". Fix: declare tensor(name, parameter, gradient) with two spans of one length"}));
    }
  }
  if (without != nullptr && with != nullptr) {
    throw usage_error(
        sentence({with->name, " has memory, but ", without->name,
                  " has none. Fix: give memory to every tensor, or, to simulate, to none"}));
  }
  if (lent != nullptr && owned != nullptr) {
    throw usage_error(sentence(
        {owned->name, " has memory for its gradient, but ", lent->name,
         " has none. Fix: give every tensor's gradient memory, or let the engine lend all of it"}));
  }
}

/// Throws usage_error for narrow gradients, under architectures whose tensors arrive before their
/// launch has ended: there means and gradients swap their memory.
[[gnu::cold]] inline void expect_floats(std::span<const tensor> forward) {
  for (const tensor& each : forward) {
    if (each.gradient_type != element_type::fp32) {
      throw usage_error(each.name +
                        " has a gradient of 16 bits per element, but this architecture replaces it "
                        "by the last step's mean, in fp32. Fix: give it a gradient of fp32");
    }
  }
}

/// Throws usage_error if a tensor's shape has another number of elements than the tensor.
[[gnu::cold]] inline void expect_shapes(std::span<const tensor> forward) {
  for (const tensor& each : forward) {
    if (each.shape.dimensions() != 0 && each.shape.elements() != each.elements) {
      throw usage_error(
          sentence({each.name, " has ", each.elements, " elements, but its shape has ",
                    each.shape.elements(), ". Fix: give the shape of the tensor, or none"}));
    }
  }
}

/// Throws usage_error if a profile is of another number of tensors.
[[gnu::cold]] inline void expect_profile(std::span<const tensor> forward, const profile& known) {
  if (!known.backward.empty() && known.backward.size() != forward.size()) {
    throw usage_error(sentence(
        {"the profile holds ", known.backward.size(), " backward times, but the model has ",
         forward.size(), " tensors. Fix: give one for each tensor, in forward order, or none"}));
  }
}

/// Throws usage_error unless the ends that `verb` of a policy returned ascend to the last one,
/// `whole`. `least` is the least length between two of them.
[[gnu::cold]] inline void expect_ends(std::string_view verb, std::span<const std::size_t> ends,
                                      std::size_t whole, std::size_t least) {
  std::size_t before = 0;
  bool ascend = !ends.empty() && ends.back() == whole;
  for (const std::size_t each : ends) {
    ascend = ascend && each >= before && each - before >= least;
    before = each;
  }
  if (!ascend) {
    throw usage_error(sentence({"the ends that ", verb, " returned do not ascend to ", whole,
                                ". Fix: return one past the last of each group or piece, in "
                                "ascending order, for all of them"}));
  }
}

/// Moves each cut of a bucket on to the end of the block that it lies in. `ends` are the ends of
/// the bucket's pieces. Those of pieces without elements are left out, except for the only one.
[[gnu::cold]] inline std::vector<std::size_t> cut_between(std::vector<std::size_t> ends,
                                                          std::size_t block) {
  const std::size_t all = ends.back();
  std::size_t cuts = 0;
  for (std::size_t each : ends) {
    if (const std::size_t begun = each % block; begun != 0) {
      each = std::min(all, each - begun + std::min(block, all));
    }
    if (each != (cuts == 0 ? 0 : ends[cuts - 1])) {
      ends[cuts++] = each;
    }
  }
  ends.resize(std::max<std::size_t>(cuts, 1));
  return ends;
}

/// The rule by which all tensors are of one class.
struct of_one_class {
  constexpr tensor_class operator()(const tensor_facts&) const { return {}; }
};

/// Forward index of the earliest tensor of which a piece of a bucket holds some elements.
inline std::uint32_t priority_of(const plan& made, const bucket& group, std::size_t first,
                                 std::size_t elements) {
  std::size_t position = group.first_tensor + group.tensors - 1;
  while (position > group.first_tensor && elements != 0 &&
         made.first_element[position] >= first + elements) {
    --position;
  }
  return static_cast<std::uint32_t>(index(made.at(position)));
}

/// Returns a plan with the tensors in backward order and no buckets yet.
[[gnu::cold]] inline plan backward_of(std::span<const tensor> forward) {
  plan made;
  made.backward = std::vector<tensor_facts>(forward.size());
  for (std::size_t i = 0; i < forward.size(); ++i) {
    made.backward[forward.size() - 1 - i] = {static_cast<tensor_id>(i), forward[i].elements,
                                             forward[i].shape, forward[i].name};
  }
  made.bucket_of.resize(forward.size());
  made.position_of.resize(forward.size());
  return made;
}

/// Returns whether tensors of these two classes may share a bucket.
inline bool alike(const tensor_class& a, const tensor_class& b) {
  return a.chosen == b.chosen && a.type == b.type && a.group == b.group;
}

/// Sorts the tensors by class, in backward order within each, beginning with the class of the
/// model's last tensor. Positions and elements are numbered in that order. `classes` are the
/// tensors' classes, by id.
[[gnu::cold]] inline void part_classes(plan& made, std::span<const tensor_class> classes) {
  std::vector<tensor_facts> tensors(classes.size());
  const std::size_t nowhere = classes.size();
  std::fill(made.position_of.begin(), made.position_of.end(), nowhere);
  made.first_element.push_back(0);
  std::size_t position = 0;
  for (std::size_t first = classes.size(); first-- > 0;) {
    if (made.position_of[first] != nowhere) {
      continue;
    }
    for (std::size_t id = first + 1; id-- > 0;) {
      if (alike(classes[id], classes[first])) {
        tensor_facts& its = made.backward[classes.size() - 1 - id];
        made.position_of[id] = position;
        made.first_element.push_back(made.first_element.back() + its.elements);
        tensors[position++] = std::move(its);
      }
    }
  }
  made.backward = std::move(tensors);
}

/// Counts the tensors of the class that begins at position `begin`. `classes` are the tensors'
/// classes, by id.
[[gnu::cold]] inline std::size_t as_many_alike(const plan& made,
                                               std::span<const tensor_class> classes,
                                               std::size_t begin) {
  std::size_t end = begin;
  while (end < classes.size() &&
         alike(classes[index(made.at(end))], classes[index(made.at(begin))])) {
    ++end;
  }
  return end - begin;
}

/// Adds a class's buckets, without chunks yet. The class has `tensors` tensors from position
/// `begin` on, and its groups end at `ends`.
[[gnu::cold]] inline void add_buckets(plan& made, std::size_t begin, std::size_t tensors,
                                      std::span<const std::size_t> ends) {
  expect_ends("the fusion's group_ends", ends, tensors, 1);
  std::size_t first = 0;
  for (const std::size_t end : ends) {
    const std::size_t element = made.first_element[begin + first];
    made.buckets.push_back(
        {begin + first, end - first, element, made.first_element[begin + end] - element, 0, 0});
    first = end;
  }
}

/// Sorts buckets in the order in which a backward pass completes them, which is that of their last
/// tensors.
[[gnu::cold]] inline void order_buckets(plan& made) {
  std::vector<bucket> by_last(made.backward.size());
  for (const bucket& each : made.buckets) {
    by_last[index(made.at(each.first_tensor + each.tensors - 1))] = each;
  }
  made.buckets.clear();
  for (std::size_t last = by_last.size(); last-- > 0;) {
    if (by_last[last].tensors != 0) {
      made.buckets.push_back(by_last[last]);
    }
  }
}

/// Adds the chunks of bucket `number`, which end at `piece_ends`.
[[gnu::cold]] inline void add_chunks(plan& made, std::uint32_t number, const tensor_class& its,
                                     std::span<const std::size_t> piece_ends) {
  bucket& group = made.buckets[number];
  group.first_chunk = static_cast<std::uint32_t>(made.chunks.size());
  std::fill_n(made.bucket_of.data() + group.first_tensor, group.tensors, number);
  const auto shared =
      static_cast<std::uint32_t>(its.chosen) + 2 * static_cast<std::uint32_t>(its.type);
  const auto kind =
      shared + (its.alone ? 8 * static_cast<std::uint32_t>(group.first_tensor + 1) : 0);
  std::size_t cut = 0;
  for (const std::size_t piece_end : piece_ends) {
    made.chunks.push_back({number, group.first_element + cut, piece_end - cut,
                           priority_of(made, group, group.first_element + cut, piece_end - cut), 0,
                           kind, its.chosen});
    cut = piece_end;
    ++group.chunks;
  }
}

[[gnu::cold]] inline void expect_few_chunks(const plan& made) {
  if (made.chunks.size() > most_chunks) {
    throw usage_error(sentence({"the plan has ", made.chunks.size(), " chunks, but at most ",
                                most_chunks, " can be numbered. Fix: raise partition.bytes"}));
  }
}

/// Divides a backward time that is known only of the whole model among its tensors, in proportion
/// to their elements, because a fusion sees the tensors of one class alone.
[[gnu::cold]] inline profile with_times(profile known, std::span<const tensor> forward) {
  std::size_t elements = 0;
  for (const tensor& each : forward) {
    elements += each.elements;
  }
  if (known.backward.empty() && known.backward_total > 0 && elements > 0) {
    const double per_element = known.backward_total / static_cast<double>(elements);
    for (const tensor& each : forward) {
      known.backward.push_back(per_element * static_cast<double>(each.elements));
    }
  }
  return known;
}

/// Does what `make_plan` does. Compiled once for all strategies.
[[gnu::cold]] inline plan make_plan_by(
    std::span<const tensor> forward, const profile& known, std::string_view settings,
    function_ref<tensor_class(const tensor_facts&)> class_of,
    function_ref<std::vector<std::size_t>(std::span<const tensor_facts>, const profile&)>
        group_ends,
    function_ref<std::vector<std::size_t>(std::size_t)> piece_ends,
    function_ref<void(plan&)> place) {
  expect_memory(forward);
  expect_shapes(forward);
  expect_profile(forward, known);
  plan made = backward_of(forward);
  std::vector<tensor_class> classes(forward.size());  // by id
  for (const tensor_facts& each : made.backward) {
    classes[index(each.id)] = class_of(each);
  }
  part_classes(made, classes);
  profile weighed = with_times(known, forward);
  for (std::size_t begin = 0; begin < classes.size();) {
    const std::size_t tensors = as_many_alike(made, classes, begin);
    const auto its = std::span<const tensor_facts>(made.backward).subspan(begin, tensors);
    const tensor_class& theirs = classes[index(made.at(begin))];
    weighed.payload = theirs.payload;
    add_buckets(made, begin, tensors,
                theirs.alone ? fusion::none().group_ends(its, weighed) : group_ends(its, weighed));
    begin += tensors;
  }
  order_buckets(made);
  for (std::uint32_t number = 0; number < made.buckets.size(); ++number) {
    const std::size_t elements = made.buckets[number].elements;
    const tensor_class& its = classes[index(made.at(made.buckets[number].first_tensor))];
    std::vector<std::size_t> ends{elements};
    if (!its.alone) {
      ends = piece_ends(elements);
      expect_ends("the partition's piece_ends", ends, elements, 0);
      ends = cut_between(std::move(ends), its.block);
    }
    add_chunks(made, number, its, ends);
  }
  expect_few_chunks(made);
  place(made);
  add_hash(made, forward, settings);
  return made;
}

}  // namespace detail

/// Returns the plan of a strategy for these tensors. `class_of(tensor)` gives a tensor's class;
/// only tensors of one class may share a bucket, and a tensor that must be alone is a bucket and,
/// whatever the partition says, a single chunk. The fusion sees each class as if there were no
/// other. `place(plan)` sets the rank that owns each chunk. The plan's hash also covers `settings`,
/// which every rank must set alike and which the plan does not show. Throws usage_error if the plan
/// has too many chunks, if the fusion or the partition returns ends that do not ascend to the last
/// one, if a tensor's memory does not fit its elements, or if the profile is of another number of
/// tensors.
template <fusion_policy Fusion, partition_policy Partition, class Place,
          class ClassOf = detail::of_one_class>
plan make_plan(std::span<const tensor> forward, const Fusion& fusion, const Partition& partition,
               const profile& known, Place place, std::string_view settings = {},
               ClassOf class_of = {}) {
  return detail::make_plan_by(
      forward, known, settings, class_of,
      [&](std::span<const tensor_facts> backward, const profile& its) {
        return fusion.group_ends(backward, its);
      },
      [&](std::size_t elements) { return partition.piece_ends(elements); }, place);
}

}  // namespace tutti

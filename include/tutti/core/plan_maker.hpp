#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/base/assert.hpp"
#include "tutti/base/cost.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/role/compression.hpp"
#include "tutti/role/fusion.hpp"
#include "tutti/role/partition.hpp"

namespace tutti {

/// Tags carry a chunk's number in a few bits; beyond this many a partition is too fine.
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

/// Of the memory that its type says.
inline std::size_t length_of_gradient(const tensor& each) {
  return each.gradient_type == element_type::fp32 ? each.gradient.size()
                                                  : each.narrow_gradient.size();
}

/// A tensor has memory for its elements, or none has any; or none has any for its gradient.
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
      throw usage_error(
          sentence({each.name, " has ", each.elements, " elements, its parameter ",
                    each.parameter.size(), " and its gradient ", length_of_gradient(each),
                    ". Fix: make it as tensor(name, parameter, gradient), with two "
                    "spans of one length"}));
    }
  }
  if (without != nullptr && with != nullptr) {
    throw usage_error(
        sentence({with->name, " has memory and ", without->name,
                  " has none. Fix: give every tensor memory, or, to simulate, none"}));
  }
  if (lent != nullptr && owned != nullptr) {
    throw usage_error(sentence(
        {owned->name, " has memory for its gradient and ", lent->name,
         " has none. Fix: give every tensor's gradient memory, or have all lent by the engine"}));
  }
}

/// Where tensors arrive before their launch has ended, means and gradients change places.
[[gnu::cold]] inline void expect_floats(std::span<const tensor> forward) {
  for (const tensor& each : forward) {
    if (each.gradient_type != element_type::fp32) {
      throw usage_error(each.name +
                        " has a gradient of 16 bits an element, and this architecture puts the "
                        "last step's mean in its place. Fix: give it a gradient of fp32");
    }
  }
}

/// A shape that is given has as many elements as its tensor.
[[gnu::cold]] inline void expect_shapes(std::span<const tensor> forward) {
  for (const tensor& each : forward) {
    if (each.shape.dimensions() != 0 && each.shape.elements() != each.elements) {
      throw usage_error(
          sentence({each.name, " has ", each.elements, " elements and its shape ",
                    each.shape.elements(), ". Fix: give the shape of the tensor, or none"}));
    }
  }
}

/// A profile is of this model.
[[gnu::cold]] inline void expect_profile(std::span<const tensor> forward, const profile& known) {
  if (!known.backward.empty() && known.backward.size() != forward.size()) {
    throw usage_error(sentence({"the profile holds ", known.backward.size(),
                                " backward times and the model ", forward.size(),
                                " tensors. Fix: one for each tensor, in forward order, or none"}));
  }
}

/// Where a bucket is cut, each cut moved on to the end of a block.
[[gnu::cold]] inline std::vector<std::size_t> cut_between(std::vector<std::size_t> ends,
                                                          std::size_t block) {
  const std::size_t all = ends.back();
  for (std::size_t& each : ends) {
    if (const std::size_t begun = each % block; begun != 0) {
      each = std::min(all, each - begun + std::min(block, all));
    }
  }
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

/// Every tensor is of the same class.
struct of_one_class {
  constexpr tensor_class operator()(const tensor_facts&) const { return {}; }
};

/// Forward index of the earliest tensor that a piece of a bucket holds some of.
inline std::uint32_t priority_of(const plan& made, const bucket& group, std::size_t first,
                                 std::size_t elements) {
  std::size_t position = group.first_tensor + group.tensors - 1;
  while (position > group.first_tensor && elements != 0 &&
         made.first_element[position] >= first + elements) {
    --position;
  }
  return static_cast<std::uint32_t>(index(made.at(position)));
}

/// Tensors in backward order, in no buckets yet.
[[gnu::cold]] inline plan backward_of(std::span<const tensor> forward) {
  plan made;
  for (std::size_t i = forward.size(); i-- > 0;) {
    made.backward.push_back(
        {static_cast<tensor_id>(i), forward[i].elements, forward[i].shape, forward[i].name});
  }
  made.bucket_of.resize(forward.size());
  made.position_of.resize(forward.size());
  return made;
}

/// They may share a bucket.
inline bool alike(const tensor_class& a, const tensor_class& b) {
  return a.chosen == b.chosen && a.type == b.type && a.group == b.group;
}

/// One class after the other, that of the model's last tensor first: places follow that order.
[[gnu::cold]] inline void part_classes(plan& made, std::vector<tensor_class>& classes) {
  std::vector<tensor_facts> tensors;
  std::vector<tensor_class> theirs;
  std::vector<bool> placed(classes.size());
  made.first_element.push_back(0);
  for (std::size_t first = 0; first < classes.size(); ++first) {
    if (placed[first]) {
      continue;
    }
    for (std::size_t i = first; i < classes.size(); ++i) {
      if (alike(classes[i], classes[first])) {
        placed[i] = true;
        made.position_of[index(made.backward[i].id)] = tensors.size();
        made.first_element.push_back(made.first_element.back() + made.backward[i].elements);
        tensors.push_back(std::move(made.backward[i]));
        theirs.push_back(classes[i]);
      }
    }
  }
  made.backward = std::move(tensors);
  classes = std::move(theirs);
}

/// Positions of tensors that travel together.
struct group {
  std::size_t first{};
  std::size_t end{};
};

/// Tensors of the class that begins at position `begin`.
[[gnu::cold]] inline std::size_t as_many_alike(std::span<const tensor_class> classes,
                                               std::size_t begin) {
  std::size_t end = begin;
  while (end < classes.size() && alike(classes[end], classes[begin])) {
    ++end;
  }
  return end - begin;
}

/// A class's groups, which end there, of `tensors` that begin at position `begin`.
[[gnu::cold]] inline void add_groups(std::vector<group>& groups, std::size_t begin,
                                     std::size_t tensors, std::span<const std::size_t> ends) {
  std::size_t first = 0;
  for (const std::size_t end : ends) {
    TUTTI_ASSERT(end > first && end <= tensors, "a fusion's groups must ascend");
    groups.push_back({begin + first, begin + end});
    first = end;
  }
  TUTTI_ASSERT(first == tensors, "a fusion must cover every tensor");
}

/// In the order in which a backward pass completes them: that of their last tensors.
[[gnu::cold]] inline void order(std::vector<group>& groups, const plan& made) {
  std::vector<group> by_last(made.backward.size());
  for (const group& each : groups) {
    by_last[index(made.at(each.end - 1))] = each;
  }
  groups.clear();
  for (std::size_t last = by_last.size(); last-- > 0;) {
    if (by_last[last].end != 0) {
      groups.push_back(by_last[last]);
    }
  }
}

/// The next bucket, of these tensors; it has no chunks yet.
[[gnu::cold]] inline bucket& add_bucket(plan& made, const group& its) {
  const auto number = static_cast<std::uint32_t>(made.buckets.size());
  std::fill(made.bucket_of.data() + its.first, made.bucket_of.data() + its.end, number);
  const std::size_t begin = made.first_element[its.first];
  return made.buckets.emplace_back(bucket{its.first, its.end - its.first, begin,
                                          made.first_element[its.end] - begin,
                                          static_cast<std::uint32_t>(made.chunks.size()), 0});
}

/// The chunks of the last bucket, which end there.
[[gnu::cold]] inline void add_chunks(plan& made, const tensor_class& its,
                                     std::span<const std::size_t> piece_ends) {
  bucket& group = made.buckets.back();
  const auto number = static_cast<std::uint32_t>(made.buckets.size() - 1);
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
  TUTTI_ASSERT(cut == group.elements && group.chunks > 0, "a partition must cover its bucket");
}

[[gnu::cold]] inline void expect_few_chunks(const plan& made) {
  if (made.chunks.size() > most_chunks) {
    throw usage_error(sentence({"the plan has ", made.chunks.size(), " chunks and at most ",
                                most_chunks, " can be told apart. Fix: raise partition.bytes"}));
  }
}

}  // namespace detail

/// The plan of a strategy for these tensors; `place(plan)` says which rank owns each chunk, and
/// `class_of(tensor)` which tensors may share a bucket: those of one class, and one that must be
/// alone is a bucket and, whatever the partition says, a chunk. The fusion sees each class as if
/// there were no other. The plan's hash covers `settings`, too: what every rank must set alike and
/// the plan alone does not show. Throws usage_error if it has too many chunks, a tensor whose
/// memory is not its elements, or a profile of another number of tensors.
template <fusion_policy Fusion, partition_policy Partition, class Place,
          class ClassOf = detail::of_one_class>
plan make_plan(std::span<const tensor> forward, const Fusion& fusion, const Partition& partition,
               const profile& known, Place place, std::string_view settings = {},
               ClassOf class_of = {}) {
  detail::expect_memory(forward);
  detail::expect_shapes(forward);
  detail::expect_profile(forward, known);
  plan made = detail::backward_of(forward);
  std::vector<tensor_class> classes;
  for (const tensor_facts& each : made.backward) {
    classes.push_back(class_of(each));
  }
  detail::part_classes(made, classes);
  std::vector<detail::group> groups;
  profile weighed = known;
  for (std::size_t begin = 0; begin < classes.size();) {
    const std::size_t tensors = detail::as_many_alike(classes, begin);
    const auto its = std::span<const tensor_facts>(made.backward).subspan(begin, tensors);
    weighed.payload = classes[begin].payload;
    detail::add_groups(groups, begin, tensors,
                       classes[begin].alone ? fusion::none().group_ends(its, weighed)
                                            : fusion.group_ends(its, weighed));
    begin += tensors;
  }
  detail::order(groups, made);
  for (const detail::group& each : groups) {
    const std::size_t elements = detail::add_bucket(made, each).elements;
    const tensor_class& its = classes[each.first];
    detail::add_chunks(made, its,
                       its.alone ? std::vector<std::size_t>{elements}
                                 : detail::cut_between(partition.piece_ends(elements), its.block));
  }
  detail::expect_few_chunks(made);
  place(made);
  detail::add_hash(made, forward, settings);
  return made;
}

}  // namespace tutti

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
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

inline void add_hash(plan& made, std::span<const tensor> forward, std::string_view settings) {
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

/// A tensor has memory for its elements, or none has any.
inline void expect_memory(std::span<const tensor> forward) {
  const auto phantom = [](const tensor& each) {
    return each.parameter.empty() && each.gradient.empty() && each.narrow_gradient.empty();
  };
  const tensor* without = nullptr;
  const tensor* with = nullptr;
  for (const tensor& each : forward) {
    if (each.elements > 0) {
      (phantom(each) ? without : with) = &each;
    }
    if (!phantom(each) &&
        (each.parameter.size() != each.elements || length_of_gradient(each) != each.elements)) {
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
}

/// Where tensors arrive before their launch has ended, means and gradients change places.
inline void expect_floats(std::span<const tensor> forward) {
  for (const tensor& each : forward) {
    if (each.gradient_type != element_type::fp32) {
      throw usage_error(each.name +
                        " has a gradient of 16 bits an element, and this architecture puts the "
                        "last step's mean in its place. Fix: give it a gradient of fp32");
    }
  }
}

/// A shape that is given has as many elements as its tensor.
inline void expect_shapes(std::span<const tensor> forward) {
  for (const tensor& each : forward) {
    if (each.shape.dimensions() != 0 && each.shape.elements() != each.elements) {
      throw usage_error(
          sentence({each.name, " has ", each.elements, " elements and its shape ",
                    each.shape.elements(), ". Fix: give the shape of the tensor, or none"}));
    }
  }
}

/// The backward order, one class after the other, that of the model's last tensor first.
template <class ClassOf>
void part_classes(std::vector<tensor_facts>& backward, ClassOf class_of) {
  if (!backward.empty()) {
    const bool first = class_of(backward.front()).chosen;
    std::stable_partition(  // clang 14 cannot compile the one of std::ranges
        backward.begin(), backward.end(),
        [&](const tensor_facts& each) { return class_of(each).chosen == first; });
  }
}

/// Positions of tensors that travel together.
struct group {
  std::size_t first{};
  std::size_t end{};
};

/// A fusion's groups of each class, or every tensor alone where its encoder works on one, in the
/// order in which they are complete.
template <class Fusion, class ClassOf>
std::vector<group> groups_of(std::span<const tensor_facts> ordered, const Fusion& fusion,
                             const profile& known, ClassOf class_of) {
  std::vector<group> groups;
  for (std::size_t begin = 0; begin < ordered.size();) {
    const tensor_class its = class_of(ordered[begin]);
    const auto is_other = [&](const tensor_facts& each) {
      return class_of(each).chosen != its.chosen;
    };
    const auto rest = ordered.subspan(begin);
    const auto alike =
        rest.first(static_cast<std::size_t>(std::ranges::find_if(rest, is_other) - rest.begin()));
    const auto ends =
        its.alone ? fusion::none().group_ends(alike, known) : fusion.group_ends(alike, known);
    std::size_t first = 0;
    for (const std::size_t end : ends) {
      TUTTI_ASSERT(end > first && end <= alike.size(), "a fusion's groups must ascend");
      groups.push_back({begin + first, begin + end});
      first = end;
    }
    TUTTI_ASSERT(first == alike.size(), "a fusion must cover every tensor");
    begin += alike.size();
  }
  std::ranges::stable_sort(groups, std::greater(),
                           [&](const group& each) { return index(ordered[each.end - 1].id); });
  return groups;
}

/// Where a bucket is cut, each cut moved on to the end of a block.
inline std::vector<std::size_t> cut_between(std::vector<std::size_t> ends, std::size_t block) {
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

}  // namespace detail

/// The plan of a strategy for these tensors; `place(plan)` says which rank owns each chunk, and
/// `class_of(tensor)` which tensors may share a bucket: those of one class, and one that must be
/// alone is a bucket and, whatever the partition says, a chunk. The fusion sees each class as if
/// there were no other. The plan's hash covers `settings`, too: what every rank must set alike and
/// the plan alone does not show. Throws usage_error if it has too many chunks, or a tensor whose
/// memory is not its elements.
template <fusion_policy Fusion, partition_policy Partition, class Place,
          class ClassOf = detail::of_one_class>
plan make_plan(std::span<const tensor> forward, const Fusion& fusion, const Partition& partition,
               const profile& known, Place place, std::string_view settings = {},
               ClassOf class_of = {}) {
  detail::expect_memory(forward);
  detail::expect_shapes(forward);
  plan made;
  for (std::size_t i = forward.size(); i-- > 0;) {
    made.backward.push_back(
        {static_cast<tensor_id>(i), forward[i].elements, forward[i].shape, forward[i].name});
  }
  detail::part_classes(made.backward, class_of);
  made.first_element.push_back(0);
  made.position_of.resize(forward.size());
  for (const tensor_facts& each : made.backward) {
    made.position_of[index(each.id)] = made.first_element.size() - 1;
    made.first_element.push_back(made.first_element.back() + each.elements);
  }
  made.bucket_of.resize(forward.size());
  for (const auto [first_tensor, end] : detail::groups_of(made.backward, fusion, known, class_of)) {
    const auto number = static_cast<std::uint32_t>(made.buckets.size());
    const std::size_t begin = made.first_element[first_tensor];
    bucket group{first_tensor,
                 end - first_tensor,
                 begin,
                 made.first_element[end] - begin,
                 static_cast<std::uint32_t>(made.chunks.size()),
                 0};
    std::fill(made.bucket_of.data() + first_tensor, made.bucket_of.data() + end, number);
    std::size_t cut = 0;
    const tensor_class its = class_of(made.backward[first_tensor]);
    const auto kind = static_cast<std::uint32_t>(its.chosen) +
                      (its.alone ? 2 * static_cast<std::uint32_t>(first_tensor + 1) : 0);
    const auto piece_ends =
        its.alone ? std::vector<std::size_t>{group.elements}
                  : detail::cut_between(partition.piece_ends(group.elements), its.block);
    for (const std::size_t piece_end : piece_ends) {
      made.chunks.push_back({number, begin + cut, piece_end - cut,
                             detail::priority_of(made, group, begin + cut, piece_end - cut), 0,
                             kind, its.chosen});
      cut = piece_end;
      ++group.chunks;
    }
    TUTTI_ASSERT(cut == group.elements && group.chunks > 0, "a partition must cover its bucket");
    made.buckets.push_back(group);
  }
  if (made.chunks.size() > most_chunks) {
    throw usage_error(sentence({"the plan has ", made.chunks.size(), " chunks and at most ",
                                most_chunks, " can be told apart. Fix: raise partition.bytes"}));
  }
  place(made);
  detail::add_hash(made, forward, settings);
  return made;
}

}  // namespace tutti

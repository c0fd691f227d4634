#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/base/assert.hpp"
#include "tutti/base/cost.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
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

/// A tensor has memory for its elements, or none has any.
[[gnu::cold]] inline void expect_memory(std::span<const tensor> forward) {
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

/// Where groups end that are of one class, and have a tensor alone where its encoder works on one:
/// those of a fusion, cut further.
[[gnu::cold]] inline std::vector<std::size_t> cut_by_class(std::vector<std::size_t> ends,
                                                           std::span<const tensor_class> backward) {
  for (std::size_t i = 1; i < backward.size(); ++i) {
    const tensor_class& before = backward[i - 1];
    const tensor_class& here = backward[i];
    if (before.alone || here.alone || before.chosen != here.chosen) {
      ends.push_back(i);
    }
  }
  std::sort(ends.begin(), ends.end());
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
  made.first_element.push_back(0);
  for (std::size_t i = forward.size(); i-- > 0;) {
    made.backward.push_back(
        {static_cast<tensor_id>(i), forward[i].elements, forward[i].shape, forward[i].name});
    made.first_element.push_back(made.first_element.back() + forward[i].elements);
  }
  return made;
}

/// The next bucket, of the tensors up to `end`; it has no chunks yet.
[[gnu::cold]] inline bucket& add_bucket(plan& made, std::size_t end) {
  const std::size_t first_tensor =
      made.buckets.empty() ? 0 : made.buckets.back().first_tensor + made.buckets.back().tensors;
  TUTTI_ASSERT(end > first_tensor && end <= made.backward.size(), "a fusion's groups must ascend");
  const std::size_t begin = made.first_element[first_tensor];
  made.bucket_of.resize(end, static_cast<std::uint32_t>(made.buckets.size()));
  return made.buckets.emplace_back(bucket{first_tensor, end - first_tensor, begin,
                                          made.first_element[end] - begin,
                                          static_cast<std::uint32_t>(made.chunks.size()), 0});
}

/// The chunks of the last bucket, which end there.
[[gnu::cold]] inline void add_chunks(plan& made, const tensor_class& its,
                                     std::span<const std::size_t> piece_ends) {
  bucket& group = made.buckets.back();
  const auto number = static_cast<std::uint32_t>(made.buckets.size() - 1);
  const auto kind = static_cast<std::uint32_t>(its.chosen) +
                    (its.alone ? 2 * static_cast<std::uint32_t>(group.first_tensor + 1) : 0);
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

[[gnu::cold]] inline void expect_whole(const plan& made) {
  TUTTI_ASSERT(made.bucket_of.size() == made.backward.size(), "a fusion must cover every tensor");
  if (made.chunks.size() > most_chunks) {
    throw usage_error(sentence({"the plan has ", made.chunks.size(), " chunks and at most ",
                                most_chunks, " can be told apart. Fix: raise partition.bytes"}));
  }
}

}  // namespace detail

/// The plan of a strategy for these tensors; `place(plan)` says which rank owns each chunk, and
/// `class_of(tensor)` which tensors may share a bucket: none across a change of class, and a tensor
/// that must be alone is a bucket and, whatever the partition says, a chunk. Its hash covers
/// `settings`, too: what every rank must set alike and the plan alone does not show. Throws
/// usage_error if it has too many chunks, or a tensor whose memory is not its elements.
template <fusion_policy Fusion, partition_policy Partition, class Place,
          class ClassOf = detail::of_one_class>
plan make_plan(std::span<const tensor> forward, const Fusion& fusion, const Partition& partition,
               const profile& known, Place place, std::string_view settings = {},
               ClassOf class_of = {}) {
  detail::expect_memory(forward);
  detail::expect_shapes(forward);
  plan made = detail::backward_of(forward);
  std::vector<tensor_class> classes;
  for (const tensor_facts& each : made.backward) {
    classes.push_back(class_of(each));
  }
  for (const std::size_t end :
       detail::cut_by_class(fusion.group_ends(made.backward, known), classes)) {
    const bucket& group = detail::add_bucket(made, end);
    const tensor_class& its = classes[group.first_tensor];
    detail::add_chunks(made, its,
                       its.alone ? std::vector<std::size_t>{group.elements}
                                 : partition.piece_ends(group.elements));
  }
  detail::expect_whole(made);
  place(made);
  detail::add_hash(made, forward, settings);
  return made;
}

}  // namespace tutti

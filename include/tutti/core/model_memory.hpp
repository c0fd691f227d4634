#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/core/lent_gradients.hpp"
#include "tutti/kernels/cast.hpp"
#include "tutti/kernels/copies.hpp"

namespace tutti {

/// Where a bucket's data lies before and after it travels.
enum class buffers {
  views,     ///< in the gradients' own memory, where those of a bucket are neighbours
  separate,  ///< always in a buffer of the bucket's, so that gradients stay as they are
  none,      ///< nowhere: this rank sends no gradients
};

/// The memory of a gradient, of floats or of 16-bit values; empty if it has not changed.
struct gradient_memory {
  std::span<float> wide{};
  std::span<std::uint16_t> narrow{};

  bool empty() const { return wide.empty() && narrow.empty(); }
};

/// The model's tensors as buckets see them. A bucket whose gradients are floats and neighbours in
/// memory is a view of them, if views are wanted. Any other bucket has a buffer of floats into
/// which its gradients are packed, allocated where work of `Queue` can reach it. If the model has
/// no memory for gradients, buckets are lent some in each step.
template <class Queue>
class model_memory {
 public:
  [[gnu::cold]] model_memory(Queue& queue, std::vector<tensor> forward, const plan& made,
                             buffers wanted = buffers::views, std::size_t most_lent = 0)
      : forward_(std::move(forward)), plan_(&made), data_(made.buckets.size()) {
    const bool has_parameters =
        loops::any_of(forward_, [](const tensor& each) { return !each.parameter.empty(); });
    phantom_ = !has_parameters && made.elements() > 0;
    for (const tensor& each : forward_) {
      own_bytes_ += each.gradient.size_bytes() + each.narrow_gradient.size_bytes();
    }
    if (has_parameters && own_bytes_ == 0) {
      asked_.resize(made.backward.size());
      lent_ = std::make_unique<lent_gradients<Queue>>(made, most_lent);
      lay_out(queue, buffers::none);
    } else if (!phantom_) {
      lay_out(queue, wanted);
      list_runs();
    }
  }

  /// Returns whether the model has only lengths and no values, for simulation.
  bool phantom() const { return phantom_; }
  /// Elements of which policies may remember something; 0 for a phantom.
  std::size_t remembered() const { return phantom_ ? 0 : plan_->elements(); }
  const std::vector<tensor>& forward() const { return forward_; }

  /// Returns whether gradients lie in memory that is lent to their buckets.
  bool lends() const { return lent_ != nullptr; }
  /// Lends memory for the gradient of the tensor at `position`, with the event after which it may
  /// be written.
  std::pair<std::span<float>, typename Queue::event> lend(Queue& queue, std::size_t position) {
    const std::size_t number = plan_->bucket_of[position];
    const auto room = lent_->lend(queue, number, data_[number]);
    asked_[position] = true;
    return {data(position), room.after};
  }
  /// Returns whether `lend` keeps to the limit, or has to exceed it because waiting would not help.
  bool has_room(std::size_t position) const { return lent_->has_room(plan_->bucket_of[position]); }
  /// Returns whether memory for the tensor's gradient has been lent since the tensor was last
  /// ready.
  bool is_lent(std::size_t position) const { return lends() && asked_[position]; }
  /// Returns whether memory for the tensor's gradient ought to be lent, and has not been.
  bool lacks_gradient(std::size_t position) const {
    return lends() && !asked_[position] && at(position).elements != 0;
  }
  /// Whether a pass is a step's last, which makes the gradient final.
  enum class pass { any, last };
  void gradient_is_there(std::size_t position, pass which) {
    if (lends()) {
      asked_[position] = false;
      if (which == pass::last) {
        lent_->written(plan_->bucket_of[position]);
      }
    }
  }
  /// Says that the gradients of a chunk, which has elements, are not needed any more.
  void give_back(Queue& queue, const chunk& piece) {
    if (lends()) {
      lent_->give_back(queue, piece.bucket, data_[piece.bucket]);
    }
  }

  /// Bytes of gradients in the model's own memory. For any thread, as is `bucket_bytes`.
  std::size_t own_bytes() const { return own_bytes_; }
  /// Bytes of gradient memory that the engine has allocated, the most at any time so far.
  std::size_t bucket_bytes() const {
    return (lends() ? lent_->bytes() : 0) +
           std::atomic_ref(packed_bytes_).load(std::memory_order_relaxed);
  }

  /// The parameters of a chunk if they are neighbours in memory; empty if not.
  std::span<float> parameters(const chunk& piece) const {
    std::span<float> all;
    bool neighbours = !phantom_;
    for_each_run(piece,
                 [&](std::size_t position, std::size_t offset, std::size_t count, std::size_t) {
                   if (neighbours) {
                     const auto run = at(position).parameter.subspan(offset, count);
                     neighbours = all.empty() || all.data() + all.size() == run.data();
                     all = {all.empty() ? run.data() : all.data(), all.size() + count};
                   }
                 });
    return neighbours ? all : std::span<float>();
  }

  const tensor& at(std::size_t position) const { return forward_[index(plan_->at(position))]; }

  /// The gradient of a chunk, in its bucket.
  std::span<float> data(const chunk& piece) const {
    float* bucket = data_[piece.bucket];
    const std::size_t skipped = piece.first_element - plan_->buckets[piece.bucket].first_element;
    return {bucket == nullptr ? nullptr : bucket + skipped, piece.elements};
  }
  /// The gradient of a tensor, in its bucket. This is the tensor's own memory if the bucket is a
  /// view.
  std::span<float> data(std::size_t position) const {
    const std::uint32_t number = plan_->bucket_of[position];
    float* bucket = data_[number];
    const std::size_t skipped =
        plan_->first_element[position] - plan_->buckets[number].first_element;
    return {bucket == nullptr ? nullptr : bucket + skipped, at(position).elements};
  }

  /// Copies the gradients of the plan's chunk `number` into its bucket, unless they are there
  /// already. This is one operation of the queue, or one for each tensor in a bucket with gradients
  /// that are narrow or have moved.
  void pack(Queue& queue, std::size_t number) const {
    const chunk& piece = plan_->chunks[number];
    if (phantom_ || packed_[piece.bucket].empty()) {
      return;
    }
    if (one_by_one_[piece.bucket]) {
      const std::span<float> room = data(piece);
      for_each_run(piece, [&](std::size_t position, std::size_t offset, std::size_t count,
                              std::size_t in_chunk) {
        widen(queue, position, offset, room.subspan(in_chunk, count));
      });
      return;
    }
    const std::size_t first = first_run_[number];
    kernels::copy_runs(queue, std::span(runs_).subspan(first, first_run_[number + 1] - first));
  }

  /// Copies a tensor's gradient from element `offset` on, converted to float.
  void widen(Queue& queue, std::size_t position, std::size_t offset, std::span<float> into) const {
    const tensor& from = at(position);
    switch (from.gradient_type) {
      case element_type::fp32:
        queue.copy(into.data(), from.gradient.data() + offset, into.size_bytes());
        break;
      case element_type::fp16:
        kernels::widen<kernels::half>(queue, from.narrow_gradient.data() + offset, into);
        break;
      case element_type::bf16:
        kernels::widen<kernels::bfloat>(queue, from.narrow_gradient.data() + offset, into);
        break;
    }
  }

  /// Writes a mean where the model had the tensor's gradient, rounded to its type.
  void leave(Queue& queue, std::size_t position, std::span<const float> mean) const {
    const tensor& to = at(position);
    switch (to.gradient_type) {
      case element_type::fp32:
        if (mean.data() != to.gradient.data()) {
          queue.copy(to.gradient.data(), mean.data(), mean.size_bytes());
        }
        break;
      case element_type::fp16:
        kernels::narrow<kernels::half>(queue, mean, to.narrow_gradient.data());
        break;
      case element_type::bf16:
        kernels::narrow<kernels::bfloat>(queue, mean, to.narrow_gradient.data());
        break;
    }
  }

  /// Throws usage_error unless memory that is given for a step has the type and length of the
  /// tensor.
  void expect_gradient(const tensor& its, const gradient_memory& given) const {
    if (phantom_) {
      throw usage_error(its.name +
                        " is ready with values, but its model has no memory. Fix: call ready(id) "
                        "alone, or declare its memory");
    }
    const bool is_wide = its.gradient_type == element_type::fp32;
    const std::size_t length = is_wide ? given.wide.size() : given.narrow.size();
    if (length != its.elements) {
      throw usage_error(
          sentence({its.name, " is ready with ", length, " values of ", is_wide ? "32" : "16",
                    " bits, but has ", its.elements,
                    " elements. Fix: pass its whole gradient, in the type that was declared"}));
    }
  }

  /// Says that a tensor's gradient lies elsewhere from now on. Nothing of it may be in flight.
  /// `settle` its bucket before that travels again.
  void move(std::size_t position, const gradient_memory& to) {
    tensor& mine = forward_[index(plan_->at(position))];
    mine.gradient = to.wide;
    mine.narrow_gradient = to.narrow;
    one_by_one_[plan_->bucket_of[position]] = true;
  }
  /// Adapts a bucket that is a view of gradients, some of which have moved: it becomes a view of
  /// their present places if these are neighbours, and otherwise gets a buffer. Nothing of it may
  /// be in flight.
  void settle(Queue& queue, std::size_t number) {
    if (!phantom_ && one_by_one_[number] && packed_[number].empty()) {
      view_or_pack(queue, number);
    }
  }

  /// Calls `run(position, offset in the tensor, count, offset in the chunk)` for each run of the
  /// chunk's elements that lies in one tensor.
  template <class Run>
  void for_each_run(const chunk& piece, Run run) const {
    const std::size_t end = piece.first_element + piece.elements;
    const auto& starts = plan_->first_element;
    auto position = static_cast<std::size_t>(
        std::upper_bound(starts.begin(), starts.end(), piece.first_element) - starts.begin() - 1);
    for (std::size_t from = piece.first_element; from < end; ++position) {
      const std::size_t count = std::min(starts[position + 1], end) - from;
      if (count > 0) {
        run(position, from - starts[position], count, from - piece.first_element);
      }
      from += count;
    }
  }

 private:
  void lay_out(Queue& queue, buffers wanted) {
    packed_.resize(data_.size());
    one_by_one_.resize(data_.size());
    if (wanted == buffers::none) {
      return;
    }
    for (std::size_t number = 0; number < data_.size(); ++number) {
      const auto& group = plan_->buckets[number];
      for (std::size_t i = 0; i < group.tensors; ++i) {
        const bool is_narrow = at(group.first_tensor + i).gradient_type != element_type::fp32;
        one_by_one_[number] = one_by_one_[number] || is_narrow;
      }
      if (wanted == buffers::views) {
        view_or_pack(queue, number);
      } else {
        make_room(queue, number);
      }
    }
  }

  void view_or_pack(Queue& queue, std::size_t number) {
    const bucket& group = plan_->buckets[number];
    data_[number] = at(group.first_tensor).gradient.data();
    float* next = data_[number];
    for (std::size_t i = 0; i < group.tensors; ++i) {
      const tensor& each = at(group.first_tensor + i);
      const bool is_next = each.gradient_type == element_type::fp32 && each.gradient.data() == next;
      if (each.elements > 0 && !is_next) {
        make_room(queue, number);
        return;
      }
      next += each.gradient.size();
    }
  }
  void make_room(Queue& queue, std::size_t number) {
    if (const std::size_t elements = plan_->buckets[number].elements; elements > 0) {
      packed_[number] = allocate_zeros<float>(queue, elements);
      std::atomic_ref(packed_bytes_).fetch_add(sizeof(float) * elements, std::memory_order_relaxed);
      data_[number] = packed_[number].data();
    }
  }

  /// Lists the copies that pack each chunk. Made once, because a queue may read the list later.
  [[gnu::cold]] void list_runs() {
    first_run_.push_back(0);
    for (const chunk& piece : plan_->chunks) {
      if (!packed_[piece.bucket].empty() && !one_by_one_[piece.bucket]) {
        const std::span<float> room = data(piece);
        for_each_run(piece, [&](std::size_t position, std::size_t offset, std::size_t count,
                                std::size_t in_chunk) {
          runs_.push_back({at(position).gradient.data() + offset, room.data() + in_chunk, count});
        });
      }
      first_run_.push_back(runs_.size());
    }
  }

  std::vector<tensor> forward_;
  const plan* plan_;
  bool phantom_ = false;
  std::size_t own_bytes_ = 0;
  mutable std::size_t packed_bytes_ = 0;  ///< other threads read it while buckets are packed
  std::vector<float*> data_;
  std::vector<memory_of<float, Queue>> packed_;
  std::vector<char> one_by_one_;  ///< buckets with gradients that are narrow or have moved
  std::vector<kernels::copy_run> runs_;
  std::vector<std::size_t> first_run_;  ///< index in `runs_` of each chunk's first run, and the end
  std::vector<char> asked_;  ///< tensors whose gradient has been lent and is being written
  std::unique_ptr<lent_gradients<Queue>> lent_;
};

}  // namespace tutti

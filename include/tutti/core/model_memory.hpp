#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/kernels/copies.hpp"

namespace tutti {

/// Where what travels lies before and after.
enum class buffers {
  views,     ///< in the gradients' own memory, where a bucket's are neighbours
  separate,  ///< always in a buffer of the bucket's own: the gradients stay as they are
  none,      ///< nothing travels from this rank
};

/// The model's tensors as buckets see them: a bucket whose gradients are neighbours in memory is a
/// view of them where it may be one, any other has a buffer to be packed into, where `Queue`'s work
/// reaches it.
template <class Queue>
class model_memory {
 public:
  model_memory(Queue& queue, std::vector<tensor> forward, const plan& made,
               buffers wanted = buffers::views)
      : forward_(std::move(forward)), plan_(&made), data_(made.buckets.size()) {
    phantom_ = std::ranges::all_of(forward_, [](const tensor& each) {
      return each.elements == 0 || each.gradient.data() == nullptr;
    });
    phantom_ = phantom_ && made.elements() > 0;
    if (!phantom_) {
      lay_out(queue, wanted);
      list_runs();
    }
  }

  /// No values, only lengths.
  bool phantom() const { return phantom_; }
  /// Elements that policies may remember something of: none of a phantom's.
  std::size_t remembered() const { return phantom_ ? 0 : plan_->elements(); }
  const std::vector<tensor>& forward() const { return forward_; }
  const tensor& at(std::size_t position) const { return forward_[forward_.size() - 1 - position]; }

  /// A chunk's gradient, in its bucket.
  std::span<float> data(const chunk& piece) const {
    float* bucket = data_[piece.bucket];
    const std::size_t skipped = piece.first_element - plan_->buckets[piece.bucket].first_element;
    return {bucket == nullptr ? nullptr : bucket + skipped, piece.elements};
  }
  /// A tensor's gradient, in its bucket; the tensor's own memory if the bucket is a view.
  std::span<float> data(std::size_t position) const {
    const std::uint32_t number = plan_->bucket_of[position];
    float* bucket = data_[number];
    const std::size_t skipped =
        plan_->first_element[position] - plan_->buckets[number].first_element;
    return {bucket == nullptr ? nullptr : bucket + skipped, at(position).elements};
  }

  /// Brings the gradients of the plan's chunk `number` into its bucket, if they are not there
  /// already: one operation of the queue.
  void pack(Queue& queue, std::size_t number) const {
    if (!phantom_ && !packed_[plan_->chunks[number].bucket].empty()) {
      const std::size_t first = first_run_[number];
      kernels::copy_runs(queue, std::span(runs_).subspan(first, first_run_[number + 1] - first));
    }
  }

  /// Calls `run(position, offset in the tensor, count, offset in the chunk)` for each run of a
  /// chunk that lies in one tensor.
  template <class Run>
  void for_each_run(const chunk& piece, Run run) const {
    const std::size_t end = piece.first_element + piece.elements;
    const auto& starts = plan_->first_element;
    auto position = static_cast<std::size_t>(std::ranges::upper_bound(starts, piece.first_element) -
                                             starts.begin() - 1);
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
    if (wanted == buffers::none) {
      return;
    }
    for (std::size_t number = 0; number < data_.size(); ++number) {
      const auto& group = plan_->buckets[number];
      data_[number] = at(group.first_tensor).gradient.data();
      float* next = data_[number];
      for (std::size_t i = 0; i < group.tensors; ++i) {
        const auto gradient = at(group.first_tensor + i).gradient;
        if ((gradient.data() != next || wanted == buffers::separate) && !gradient.empty()) {
          packed_[number] = allocate_zeros<float>(queue, group.elements);
          data_[number] = packed_[number].data();
          break;
        }
        next += gradient.size();
      }
    }
  }

  /// What packing each chunk takes, once and for all: a queue may read it later.
  void list_runs() {
    first_run_.push_back(0);
    for (const chunk& piece : plan_->chunks) {
      if (!packed_[piece.bucket].empty()) {
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
  std::vector<float*> data_;
  std::vector<memory_of<float, Queue>> packed_;
  std::vector<kernels::copy_run> runs_;
  std::vector<std::size_t> first_run_;  ///< of each chunk, and the end
};

}  // namespace tutti

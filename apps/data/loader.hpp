#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/augmentation.hpp"
#include "data/dataset.hpp"
#include "tutti/base/error.hpp"

namespace data {

/// Loads one worker's share of a data set, epoch by epoch. Every worker draws the same permutation
/// from (seed, epoch) and takes its slice of each global batch of `workers * batch_size` images.
/// Images that do not fill a global batch are dropped on all workers alike.
/// Cost: memory for one batch and one permutation. A step gathers one batch and allocates nothing.
class loader {
 public:
  struct options {
    std::size_t batch_size{128};  ///< images per worker and step
    std::size_t worker{0};
    std::size_t workers{1};
    std::uint64_t seed{1};
    std::size_t repeats{0};  ///< steps of an epoch that repeats a single batch; 0: no repetition
    augmentation shown{};
  };

  /// `from` must outlive the loader.
  loader(const dataset& from, options chosen)
      : from_(&from),
        options_(chosen),
        order_(from.size()),
        images_(chosen.batch_size * chosen.shown.of(from.image).size()),
        labels_(chosen.batch_size) {
    if (options_.worker >= options_.workers) {
      throw tutti::usage_error("loader: worker " + std::to_string(options_.worker) + " of " +
                               std::to_string(options_.workers) +
                               " does not exist. Fix: count workers from 0");
    }
    if (options_.batch_size == 0 || from.size() == 0 || steps() == 0) {
      throw tutti::usage_error("loader: " + std::to_string(from.size()) + " images do not make " +
                               std::to_string(options_.workers) + " batches of " +
                               std::to_string(options_.batch_size) +
                               ". Fix: a batch size that is positive and smaller");
    }
  }

  /// Returns the number of steps in an epoch, which is equal on all workers.
  std::size_t steps() const {
    return options_.repeats > 0 ? options_.repeats
                                : from_->size() / (options_.workers * options_.batch_size);
  }

  class iterator {
   public:
    using value_type = batch;
    using difference_type = std::ptrdiff_t;

    iterator(loader& owner, std::size_t step) : owner_(&owner), step_(step) { gather(); }
    /// Whether this batch is another than that of the step before.
    bool is_new() const { return is_new_; }
    const batch& operator*() const { return batch_; }
    const batch* operator->() const { return &batch_; }
    iterator& operator++() {
      ++step_;
      is_new_ = owner_->options_.repeats == 0;
      if (is_new_) {
        gather();
      }
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return step_ == owner_->steps(); }

   private:
    void gather() {
      if (step_ < owner_->steps()) {
        batch_ = owner_->gather(step_);
      }
    }

    loader* owner_;
    std::size_t step_;
    batch batch_{};
    bool is_new_ = true;
  };

  struct epoch_range {
    loader* owner;
    iterator begin() const { return {*owner, 0}; }
    std::default_sentinel_t end() const { return {}; }
  };

  /// Returns the batches of one epoch. A batch is valid until the iterator moves on. Only one epoch
  /// can be iterated at a time.
  epoch_range epoch(std::size_t number) {
    epoch_ = number;
    std::iota(order_.begin(), order_.end(), std::uint32_t{0});
    std::seed_seq both{options_.seed, std::uint64_t{number}};
    std::mt19937_64 random(both);
    // By hand, because std::shuffle may differ between standard libraries, and ranks must agree.
    for (std::size_t left = order_.size(); left > 1; --left) {
      std::swap(order_[left - 1], order_[(random() >> 32) * left >> 32]);
    }
    return {this};
  }

 private:
  batch gather(std::size_t step) {
    const std::size_t first = (step * options_.workers + options_.worker) * options_.batch_size;
    const std::size_t size = options_.shown.of(from_->image).size();
    for (std::size_t i = 0; i < options_.batch_size; ++i) {
      const std::size_t which = order_[(first + i) % order_.size()];
      options_.shown.standardise(*from_, which, options_.seed, epoch_,
                                 std::span(images_).subspan(i * size, size));
      labels_[i] = from_->labels[which];
    }
    return {images_, labels_};
  }

  const dataset* from_;
  options options_;
  std::size_t epoch_ = 0;
  std::vector<std::uint32_t> order_;
  std::vector<float> images_;
  std::vector<std::uint8_t> labels_;
};

static_assert(std::input_iterator<loader::iterator>);

}  // namespace data

#pragma once

#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

namespace tutti {

/// A first-in, first-out queue of values. It allocates only when it holds more than ever before.
template <class T>
class ring_buffer {
 public:
  /// `places` is the number of values that it usually holds at most.
  explicit ring_buffer(std::size_t places) : places_(std::bit_ceil(places)) {}

  bool empty() const { return head_ == tail_; }
  const T& front() const { return places_[place(head_)]; }

  void push(T value) {
    if (tail_ - head_ == places_.size()) {
      grow();
    }
    places_[place(tail_++)] = std::move(value);
  }
  T pop() { return std::move(places_[place(head_++)]); }

 private:
  std::size_t place(std::size_t number) const { return number & (places_.size() - 1); }
  void grow() {
    std::vector<T> wider(2 * places_.size());
    for (std::size_t i = head_; i != tail_; ++i) {
      wider[i & (wider.size() - 1)] = std::move(places_[place(i)]);
    }
    places_ = std::move(wider);
  }

  std::vector<T> places_;
  std::size_t head_ = 0;
  std::size_t tail_ = 0;
};

}  // namespace tutti

#pragma once

#include <atomic>
#include <utility>

namespace tutti::transport::detail {

/// A list in which any thread leaves messages for the one thread that reads them. Cost: one atomic
/// exchange each way.
template <class Message>
class mailbox {
 public:
  /// Returns false if the mailbox is closed, so that no one will read the message.
  bool push(Message& arrived) {
    Message* last = last_.load(std::memory_order_relaxed);
    do {
      if (last == closed()) {
        return false;
      }
      arrived.next = last;
    } while (!last_.compare_exchange_weak(last, &arrived, std::memory_order_release,
                                          std::memory_order_relaxed));
    return true;
  }

  /// Calls `take(message)` for each message, the oldest first. Returns true if there was one.
  template <class Take>
  bool read(Take take) {
    Message* last = last_.load(std::memory_order_relaxed);
    if (last == nullptr || last == closed()) {
      return false;
    }
    take_all(last_.exchange(nullptr, std::memory_order_acquire), take);
    return true;
  }

  /// Takes what is there and closes the mailbox: nothing can be put in afterwards.
  template <class Take>
  [[gnu::cold]] void close(Take take) {
    Message* last = last_.exchange(closed(), std::memory_order_acq_rel);
    take_all(last == closed() ? nullptr : last, take);
  }

 private:
  static Message* closed() { return reinterpret_cast<Message*>(alignof(Message)); }

  template <class Take>
  static void take_all(Message* last, Take& take) {
    Message* first = nullptr;
    while (last != nullptr) {  // the list is last in, first out
      Message* before = last->next;
      last->next = first;
      first = std::exchange(last, before);
    }
    while (first != nullptr) {
      take(*std::exchange(first, first->next));
    }
  }

  alignas(64) std::atomic<Message*> last_{nullptr};
};

}  // namespace tutti::transport::detail

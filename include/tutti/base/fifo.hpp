#pragma once

namespace tutti {

/// A first-in, first-out list that is linked by the nodes' own `next`. It allocates nothing and
/// owns nothing.
template <class Node>
class fifo {
 public:
  fifo() = default;
  fifo(const fifo&) = delete;
  fifo& operator=(const fifo&) = delete;

  bool empty() const { return head_ == nullptr; }
  Node* front() const { return head_; }

  void push(Node& node) {
    node.next = nullptr;
    *tail_ = &node;
    tail_ = &node.next;
  }

  Node* pop() {
    Node* first = head_;
    if (first != nullptr) {
      unlink(&head_);
    }
    return first;
  }

  /// Removes and returns the first node that satisfies `wanted`, or returns null.
  template <class Predicate>
  Node* take(Predicate wanted) {
    for (Node** link = &head_; *link != nullptr; link = &(*link)->next) {
      if (wanted(**link)) {
        Node* found = *link;
        unlink(link);
        return found;
      }
    }
    return nullptr;
  }

 private:
  void unlink(Node** link) {
    Node* node = *link;
    *link = node->next;
    if (tail_ == &node->next) {
      tail_ = link;
    }
  }

  Node* head_ = nullptr;
  Node** tail_ = &head_;
};

}  // namespace tutti

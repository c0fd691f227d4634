#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/sentence.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/transport/operation.hpp"

namespace tutti::transport::detail {

inline constexpr int any_rank = -1;

/// A send in flight: it lies in the sender's frame, is read by the receiver, and then goes back.
template <class Event>
struct message {
  message* next{};     // in the mailbox, among the unexpected, or among the lent
  message** before{};  // among the lent
  int from{};
  int to{};
  tag where{};
  std::span<const std::byte> bytes{};
  Event event{};   // on its way: the bytes are valid after it; back: the reader is done after it
  bool is_back{};  // or on its way back
  bool refused{};
  operation* owner{};  // null where nobody waits until it has been read

  [[gnu::cold]] std::string unread() const {
    return sentence(
        {"rank ", to, " has left before it received chunk ", where.chunk, " of rank ", from});
  }
};

/// A message that nobody's frame holds, with bytes of its own, until it has been read.
template <class Event>
struct copied_message : message<Event> {
  explicit copied_message(const message<Event>& out) : copy(out.bytes.begin(), out.bytes.end()) {
    this->from = out.from;
    this->to = out.to;
    this->where = out.where;
    this->bytes = copy;
  }
  std::vector<std::byte> copy;
};

/// A receive that waits for its message.
template <class Endpoint>
struct pending_receive {
  using message_type = message<typename Endpoint::queue_type::event>;

  pending_receive* next{};
  int from{};  // any_rank: whoever sends on the tag's channel
  tag where{};
  std::span<std::byte> into{};
  operation* owner{};
  void (*take)(Endpoint&, pending_receive&, message_type&){};  // what the queue has to do for it
  bool lends{};  // and the reader says when it has read

  /// Whether a message is as long as this says, or, of a loan on the coded channel, no longer;
  /// from anybody, whatever it is.
  bool takes(const message_type& arrived) const {
    return from == any_rank || arrived.bytes.size() == into.size() ||
           (lends && where.channel == channel::coded && arrived.bytes.size() < into.size());
  }
};

/// Messages whose readers say when they have read them.
template <class Message>
class lent_messages {
 public:
  Message* front() const { return first_; }
  void push(Message& lent) {
    lent.next = first_;
    lent.before = &first_;
    if (first_ != nullptr) {
      first_->before = &lent.next;
    }
    first_ = &lent;
  }
  void remove(Message& lent) {
    *lent.before = lent.next;
    if (lent.next != nullptr) {
      lent.next->before = lent.before;
    }
  }

 private:
  Message* first_ = nullptr;
};

}  // namespace tutti::transport::detail

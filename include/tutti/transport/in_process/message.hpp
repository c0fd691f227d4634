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

/// A send in flight. It lies in the sender's frame, is read by the receiver, and then goes back.
template <class Event>
struct message {
  message* next{};     // in a mailbox, among unexpected messages, or among lent ones
  message** before{};  // among lent messages
  int from{};
  int to{};
  tag where{};
  std::span<const std::byte> bytes{};
  /// On the way to the receiver: the bytes are valid after it. On the way back: the reader is done
  /// after it.
  Event event{};
  bool is_back{};  // on the way back to its sender: it has been read or refused
  bool refused{};
  operation* owner{};  // null if no operation waits until it has been read

  [[gnu::cold]] std::string unread() const {
    if (where.channel == channel::host) {
      return sentence({"rank ", to, " has left, and rank ", from,
                       " waits for it in a call that all ranks make, such as make_engine, "
                       "average() or replan(). Fix: make it on every rank"});
    }
    return sentence(
        {"rank ", to, " has left before it received chunk ", where.chunk, " of rank ", from});
  }
};

/// A message with bytes of its own, which lies in no sender's frame. Its reader deletes it.
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
  int from{};  // any_rank: any rank that sends on the tag's channel
  tag where{};
  std::span<std::byte> into{};
  operation* owner{};
  // Enqueues what is to be done with the message.
  void (*take)(Endpoint&, pending_receive&, message_type&){};
  bool lends{};  // a loan: its reader gives the message back

  /// Whether a message has the expected length. A loan on the coded channel also takes a shorter
  /// one, and a receive from any rank takes every length.
  bool takes(const message_type& arrived) const {
    return from == any_rank || arrived.bytes.size() == into.size() ||
           (lends && where.channel == channel::coded && arrived.bytes.size() < into.size());
  }
};

/// The messages that a rank has borrowed and not given back.
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

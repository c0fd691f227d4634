#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "tutti/base/fifo.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/transport/in_process/message.hpp"

namespace tutti::transport::detail {

/// Matches messages with receives. Both wait here for each other, in the order in which they came.
/// Cost: a search through one of 256 lists.
template <class Message, class Receive>
class matching {
 public:
  /// Returns the receive that waits for this message. If there is none, keeps the message and
  /// returns null.
  Receive* receive_for(Message& arrived) {
    Receive* match = pending_[slot(arrived.from, arrived.where)].take([&](const Receive& each) {
      return each.from == arrived.from && each.where == arrived.where;
    });
    if (match == nullptr && !pending_from_any_.empty()) {
      match = pending_from_any_.take(
          [&](const Receive& each) { return each.where.channel == arrived.where.channel; });
    }
    if (match == nullptr) {
      unexpected(arrived.from, arrived.where).push(arrived);
    }
    return match;
  }

  /// Returns the message that this receive waits for. If there is none, keeps the receive and
  /// returns null.
  Message* message_for(Receive& in) {
    Message* match = take_unexpected(in.from, in.where);
    if (match == nullptr) {
      keep(in);
    }
    return match;
  }

  void keep(Receive& in) {
    if (in.from == any_rank) {
      pending_from_any_.push(in);
    } else {
      pending_[slot(in.from, in.where)].push(in);
    }
  }

  /// Empties the lists: calls `end` for each receive and `refuse` for each message.
  template <class End, class Refuse>
  [[gnu::cold]] void clear(End end, Refuse refuse) {
    for (auto& each : pending_) {
      while (Receive* in = each.pop()) {
        end(*in);
      }
    }
    while (Receive* in = pending_from_any_.pop()) {
      end(*in);
    }
    for (auto& each : unexpected_) {
      while (Message* foreign = each.pop()) {
        refuse(*foreign);
      }
    }
  }

  /// The receives that wait, in words; empty if there are none.
  std::string waits_for() const {
    std::string words;
    for (const auto& each : pending_) {
      for (const Receive* in = each.front(); in != nullptr; in = in->next) {
        add_to_list(words, sentence({"chunk ", in->where.chunk, " from rank ", in->from}));
      }
    }
    for (const Receive* in = pending_from_any_.front(); in != nullptr; in = in->next) {
      add_to_list(words, "a message from any rank");
    }
    return words;
  }

  /// The messages that wait, in words; empty if there are none.
  std::string has_not_received() const {
    std::string words;
    for (const auto& each : unexpected_) {
      for (const Message* out = each.front(); out != nullptr; out = out->next) {
        add_to_list(words, sentence({"chunk ", out->where.chunk, " from rank ", out->from}));
      }
    }
    return words;
  }

 private:
  static constexpr std::size_t table_size = 256;

  static std::size_t slot(int from, tag where) {
    return (static_cast<std::size_t>(from) * 31 + where.chunk * 7 + where.lane +
            static_cast<std::size_t>(where.channel) * 101) %
           table_size;
  }

  /// Keeps messages of channels that are received from any rank in the order of arrival, since a
  /// wildcard would favour some ranks otherwise.
  fifo<Message>& unexpected(int from, tag where) {
    return where.channel == channel::data
               ? unexpected_[slot(from, where)]
               : unexpected_[table_size + static_cast<std::size_t>(where.channel)];
  }

  Message* take_unexpected(int from, tag where) {
    if (from != any_rank) {
      return unexpected(from, where).take([&](const Message& each) {
        return each.from == from && each.where == where;
      });
    }
    if (where.channel != channel::data) {
      return unexpected(from, where).pop();
    }
    for (std::size_t i = 0; i < table_size; ++i) {
      if (Message* found = unexpected_[i].pop()) {
        return found;
      }
    }
    return nullptr;
  }

  std::array<fifo<Receive>, table_size> pending_;
  fifo<Receive> pending_from_any_;
  // The first `table_size` lists are for the data channel; then there is one for each channel.
  std::array<fifo<Message>, table_size + channels> unexpected_;
};

}  // namespace tutti::transport::detail

#pragma once

#include <concepts>
#include <cstddef>
#include <exception>
#include <span>
#include <utility>

#include "tutti/base/queue.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/role/transport.hpp"
#include "tutti/transport/in_process/message.hpp"
#include "tutti/transport/operation.hpp"

/// The operations that a coroutine awaits from an in-process transport. An operation keeps its
/// message or its receive in its frame and asks the endpoint to begin it; the endpoint's progress
/// ends it.
namespace tutti::transport::detail {

template <class Endpoint>
using message_of = typename pending_receive<Endpoint>::message_type;

template <class Endpoint>
class send_operation : public operation {
 public:
  send_operation(Endpoint& self, int to, tag where, std::span<const std::byte> bytes)
      : operation(self.ready_coroutines(), 1) {
    self.begin_send(out_, *this, to, where, bytes);
  }

 private:
  message_of<Endpoint> out_;
};

template <class Endpoint, class Fold>
class folding_receive : public pending_receive<Endpoint> {
 public:
  explicit folding_receive(Fold fold) : fold_(fold) {
    this->take = [](Endpoint& self, pending_receive<Endpoint>& which, message_of<Endpoint>& read) {
      self.queue().wait(read.event);
      if constexpr (!std::same_as<Fold, copy_bytes>) {  // copies are the NIC's work
        charge(self.queue(), 3 * read.bytes.size());
      }
      if (read.bytes.data() != nullptr && which.into.data() != nullptr) {
        static_cast<folding_receive&>(which).fold_(self.queue(), which.into.data(),
                                                   read.bytes.data(), read.bytes.size());
      }
    };
  }

 private:
  Fold fold_;
};

template <class Endpoint, class Fold>
class receive_operation : public operation {
 public:
  receive_operation(Endpoint& self, int from, tag where, std::span<std::byte> into, Fold fold)
      : operation(self.ready_coroutines(), 1), in_(fold) {
    self.begin_receive(in_, *this, from, where, into);
  }

 private:
  folding_receive<Endpoint, Fold> in_;
};

template <class Endpoint, class Fold>
class exchange_operation : public operation {
 public:
  exchange_operation(Endpoint& self, int to, std::span<const std::byte> out, int from,
                     std::span<std::byte> into, tag where, Fold fold)
      : operation(self.ready_coroutines(), 2), in_(fold) {
    self.begin_send(out_, *this, to, where, out);
    self.begin_receive(in_, *this, from, where, into);
  }

 private:
  message_of<Endpoint> out_;
  folding_receive<Endpoint, Fold> in_;
};

/// A peer's bytes, readable until the loan is destroyed.
template <class Endpoint>
class loan {
 public:
  loan(Endpoint& self, message_of<Endpoint>* lent) : self_(&self), lent_(lent) {}
  loan(loan&& other) noexcept : self_(other.self_), lent_(std::exchange(other.lent_, nullptr)) {}
  loan& operator=(loan&&) = delete;
  ~loan() { self_->end_loan(lent_); }

  std::span<const std::byte> bytes() const { return lent_->bytes; }
  int peer() const { return lent_->from; }
  tag where() const { return lent_->where; }

 private:
  Endpoint* self_;
  message_of<Endpoint>* lent_;
};

template <class Endpoint>
class loan_operation : public operation {
 public:
  loan_operation(Endpoint& self, int from, tag where, std::size_t bytes)
      : operation(self.ready_coroutines(), 1), self_(&self) {
    in_.take = [](Endpoint& taker, pending_receive<Endpoint>& which, message_of<Endpoint>& lent) {
      taker.queue().wait(lent.event);
      static_cast<lending_receive&>(which).lent = &lent;
    };
    in_.lends = true;
    self.begin_receive(in_, *this, from, where,
                       std::span<std::byte>(static_cast<std::byte*>(nullptr), bytes));
  }
  ~loan_operation() { self_->end_loan(in_.lent); }
  loan<Endpoint> await_resume() {
    operation::await_resume();
    if (self_->loans_revoked()) {
      std::rethrow_exception(self_->failure());
    }
    return loan<Endpoint>(*self_, std::exchange(in_.lent, nullptr));
  }

 private:
  struct lending_receive : pending_receive<Endpoint> {
    message_of<Endpoint>* lent{};
  };

  Endpoint* self_;
  lending_receive in_;
};

}  // namespace tutti::transport::detail

#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/base/tag.hpp"
#include "tutti/base/units.hpp"

namespace tutti::transport {

/// A network interface card (NIC): bytes pass it at this rate, one message after the other, in
/// each direction apart; the head of a message that it sends is so long on its way. One message
/// alone may not fill it: its last byte follows its head at a share of the rate, and others pass
/// meanwhile. Where k exchanges are under way at once, each takes k times the share as long, not k
/// times: contention by 1.5 of two is a share of 0.75.
/// After: Shi, Chu and Li, "Exploiting Simultaneous Communications", INFOCOM 2021 (the contention).
struct link {
  double bytes_per_second{};
  seconds latency{};
  double share_of_one{1};
};

/// How much longer a message of a chunk takes than its link says, on the data channel or the coded
/// one, where few ranks represent many (core/representatives.hpp).
struct stretch {
  double latency{1};
  double bytes{1};
  bool between_hosts{};  ///< inside one, none
};

/// Which ranks share a host, and by what NIC each host reaches the others. The network between the
/// NICs is never the bottleneck.
class network {
 public:
  /// Between ranks of one host, unless somebody says otherwise: no time.
  static constexpr link at_once{std::numeric_limits<double>::infinity(), 0};

  /// A host for each rank.
  network(int ranks, link nic) : network(ranks, nic, 1, at_once) {}

  /// Consecutive ranks share a host, `per_host` each, and its NIC; to one another they send by
  /// `inside`, of which every rank has its own. Throws usage_error if that cannot be.
  network(int ranks, link nic, int per_host, link inside) : inside_(check(inside)) {
    if (ranks < 1) {
      throw usage_error("cannot simulate " + std::to_string(ranks) + " ranks. Fix: use at least 1");
    }
    if (per_host < 1) {
      throw usage_error("a host must have at least 1 rank, not " + std::to_string(per_host));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      host_.push_back(static_cast<std::size_t>(rank / per_host));
    }
    nics_.assign(host_.back() + 1, check(nic));
  }

  int ranks() const { return static_cast<int>(host_.size()); }
  std::size_t hosts() const { return nics_.size(); }
  /// The number of the host that `rank` lives on.
  std::size_t host(int rank) const { return host_[static_cast<std::size_t>(rank)]; }
  const link& nic(std::size_t host) const { return nics_[host]; }
  const link& inside() const { return inside_; }
  bool share_host(int rank, int other) const { return host(rank) == host(other); }
  /// The link by which `rank` takes part in a message that it has with `peer`.
  const link& way(int rank, int peer) const {
    return share_host(rank, peer) ? inside_ : nic(host(rank));
  }

  /// Moves `rank` to a host of its own, with this NIC.
  void isolate(int rank, link nic) {
    host_.at(static_cast<std::size_t>(rank)) = nics_.size();
    nics_.push_back(check(nic));
  }
  /// A host's NIC from a moment on: of what was posted before it keeps the sender's NIC busy as
  /// long as then, and is timed at the receiver's as that is when its head arrives.
  struct change {
    seconds when{};
    std::size_t host{};
    link nic{};
  };
  /// Where time is virtual; emulation in real time takes no notice. Throws usage_error for a host
  /// that is not there, or a moment that is none.
  void change_nic(seconds when, std::size_t host, link nic) {
    if (!(when >= 0)) {
      throw usage_error("a NIC cannot change at " + std::to_string(when) +
                        " s. Fix: use a time of 0 or later");
    }
    if (host >= nics_.size()) {
      throw usage_error("host " + std::to_string(host) + " is not one of " +
                        std::to_string(nics_.size()) + " hosts. Fix: count hosts from 0");
    }
    changes_.push_back({when, host, check(nic)});
  }
  std::vector<change>& changes() { return changes_; }
  void take_effect(const change& which) { nics_[which.host] = which.nic; }

  /// From now on messages of chunks take so much longer: as the first of these says those of the
  /// first chunk, and so on, and as the last all that are left.
  void stretch_data(std::vector<stretch> of_chunks) { data_ = std::move(of_chunks); }

  /// How long a message between two ranks keeps the NIC of `rank`, one of them, busy.
  seconds occupation(int rank, int peer, tag of, std::size_t bytes) const {
    return static_cast<double>(bytes) * stretched(rank, peer, of).bytes /
           way(rank, peer).bytes_per_second;
  }
  /// How long its last byte follows its head at least.
  seconds passage(int rank, int peer, tag of, std::size_t bytes) const {
    return std::max(occupation(rank, peer, of, bytes) / way(rank, peer).share_of_one,
                    occupation(peer, rank, of, bytes) / way(peer, rank).share_of_one);
  }
  /// How long the head of a message that `rank` sends is on its way.
  seconds latency(int rank, int peer, tag of) const {
    return way(rank, peer).latency * stretched(rank, peer, of).latency;
  }

  /// Each part of it in one word, for processes to compare: its hosts, their NICs, what is inside.
  using hashes = std::array<std::uint64_t, 3>;
  hashes hashed() const {
    std::array<running_hash, 3> parts;
    for (const std::size_t each : host_) {
      parts[0].feed(std::uint64_t{each});
    }
    for (const link& each : nics_) {
      feed(parts[1], each);
    }
    feed(parts[2], inside_);
    return {parts[0].value(), parts[1].value(), parts[2].value()};
  }
  /// Throws usage_error where this is the network of `rank` and another than rank 0's.
  void expect_same(const hashes& of_rank_0, int rank) const {
    constexpr std::array parts{"other hosts", "other NICs", "another link inside hosts"};
    const hashes own = hashed();
    for (std::size_t part = 0; part < own.size(); ++part) {
      if (own[part] != of_rank_0[part]) {
        throw usage_error(
            sentence({"rank ", rank, "'s network has ", parts[part],
                      " than rank 0's. Fix: describe the same network on every rank"}));
      }
    }
  }

  /// A later message may be quicker than one before it, by what one leaves of a link or by a
  /// change.
  bool may_overtake() const {
    const auto shares = [](const link& each) { return each.share_of_one < 1; };
    return !changes_.empty() || shares(inside_) || std::any_of(nics_.begin(), nics_.end(), shares);
  }

  /// Moves `rank` to the host of `other`.
  void join(int rank, int other) { host_.at(static_cast<std::size_t>(rank)) = host(other); }

 private:
  static link check(link each) {
    if (!(each.bytes_per_second > 0) || !(each.latency >= 0)) {
      throw usage_error("a link needs a rate above 0 and a latency of 0 or more");
    }
    if (!(each.share_of_one > 0 && each.share_of_one <= 1)) {
      throw usage_error(
          "one message's share of a link must be above 0 and at most 1. Fix: 0.75, for example");
    }
    return each;
  }

  static void feed(running_hash& hash, const link& each) {
    for (const double figure : {each.bytes_per_second, each.latency, each.share_of_one}) {
      hash.feed(std::bit_cast<std::uint64_t>(figure));
    }
  }

  stretch stretched(int rank, int peer, tag of) const {
    if (data_.empty() || (of.channel != channel::data && of.channel != channel::coded)) {
      return {};
    }
    const stretch& its = data_[std::min<std::size_t>(of.chunk, data_.size() - 1)];
    return its.between_hosts && share_host(rank, peer) ? stretch() : its;
  }

  link inside_;
  std::vector<std::size_t> host_;
  std::vector<link> nics_;
  std::vector<change> changes_;
  std::vector<stretch> data_{};
};

}  // namespace tutti::transport

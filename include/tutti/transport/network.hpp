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

/// A network interface card (NIC). Messages pass it one after the other at `bytes_per_second`,
/// separately in each direction, and the head of a message takes `latency` to reach the receiver.
/// One message may not fill the link: its last byte follows its head at `share_of_one` of the rate,
/// while other messages use the rest. So each of k exchanges at once takes k * share_of_one times
/// as long as one on its own, not k times: two that slow each other down by 1.5 mean a share of
/// 0.75.
/// After: Shi, Chu and Li, "Exploiting Simultaneous Communications", INFOCOM 2021 (the contention).
struct link {
  double bytes_per_second{};
  seconds latency{};
  double share_of_one{1};
};

/// The factors by which a message of a chunk, on the data or the coded channel, takes longer than
/// its link says, where few simulated ranks represent many (core/representatives.hpp).
struct cost_factors {
  double latency{1};
  double bytes{1};
  bool between_hosts{};  ///< applies only to messages between hosts
};

/// Which ranks share a host, and by which NIC each host reaches the others. The network between the
/// NICs is never the bottleneck.
class network {
 public:
  /// The link between ranks of one host unless another is given: it takes no time.
  static constexpr link at_once{std::numeric_limits<double>::infinity(), 0};

  /// Gives each rank a host of its own.
  network(int ranks, link nic) : network(ranks, nic, 1, at_once) {}

  /// Puts `per_host` consecutive ranks on each host, which share its NIC. Ranks of one host send to
  /// each other by `inside`, a link that each rank has to itself. Throws usage_error for fewer than
  /// 1 rank, fewer than 1 rank a host, or an invalid link.
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
  /// The link of `rank` that its messages with `peer` use: its own inside a host, or its host's
  /// NIC.
  const link& way(int rank, int peer) const {
    return share_host(rank, peer) ? inside_ : nic(host(rank));
  }

  /// Moves `rank` to a new host of its own, with this NIC.
  void isolate(int rank, link nic) {
    host_.at(static_cast<std::size_t>(rank)) = nics_.size();
    nics_.push_back(check(nic));
  }
  /// A change of a host's NIC at a moment. A message posted before it keeps the sender's NIC busy
  /// for as long as the old NIC would; how it passes the receiver's NIC is computed when its head
  /// arrives.
  struct change {
    seconds when{};
    std::size_t host{};
    link nic{};
  };
  /// Changes the NIC of `host` at virtual time `when`, for run_simulated and run_emulated;
  /// run_shaped ignores it. Throws usage_error for a host that does not exist or a moment before 0.
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

  /// Makes messages of chunks take longer from now on: those of chunk i as `of_chunks[i]` says, and
  /// those of all further chunks as its last entry says.
  void set_data_factors(std::vector<cost_factors> of_chunks) { data_ = std::move(of_chunks); }

  /// How long a message between `rank` and `peer` keeps the NIC of `rank` busy.
  seconds occupation(int rank, int peer, tag of, std::size_t bytes) const {
    return static_cast<double>(bytes) * factors_between(rank, peer, of).bytes /
           way(rank, peer).bytes_per_second;
  }
  /// The least time by which a message's last byte follows its head.
  seconds passage(int rank, int peer, tag of, std::size_t bytes) const {
    return std::max(occupation(rank, peer, of, bytes) / way(rank, peer).share_of_one,
                    occupation(peer, rank, of, bytes) / way(peer, rank).share_of_one);
  }
  /// How long the head of a message that `rank` sends takes to reach `peer`.
  seconds latency(int rank, int peer, tag of) const {
    return way(rank, peer).latency * factors_between(rank, peer, of).latency;
  }

  /// A hash of each part, for processes to compare: the ranks' hosts, the hosts' NICs, and the link
  /// inside hosts.
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
  /// Throws usage_error if this network, given by `rank`, differs from rank 0's.
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

  /// Whether a later message may reach its receiver before an earlier one: where one message does
  /// not fill its link, where a NIC changes, or, by rounding, where a NIC is slower than another.
  bool may_overtake() const {
    const auto alters = [rate = nics_.front().bytes_per_second](const link& each) {
      return each.share_of_one < 1 || each.bytes_per_second != rate;
    };
    return !changes_.empty() || inside_.share_of_one < 1 ||
           std::any_of(nics_.begin(), nics_.end(), alters);
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

  cost_factors factors_between(int rank, int peer, tag of) const {
    if (data_.empty() || (of.channel != channel::data && of.channel != channel::coded)) {
      return {};
    }
    const cost_factors& its = data_[std::min<std::size_t>(of.chunk, data_.size() - 1)];
    return its.between_hosts && share_host(rank, peer) ? cost_factors() : its;
  }

  link inside_;
  std::vector<std::size_t> host_;
  std::vector<link> nics_;
  std::vector<change> changes_;
  std::vector<cost_factors> data_{};
};

}  // namespace tutti::transport

#include "compare/place.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/job.hpp"
#include "common/names.hpp"
#include "models/replayed/csv.hpp"

namespace compare {

namespace {

using tutti::transport::link;
using unit = std::pair<std::string_view, double>;

/// Removes a number with one of these units from the front of `text` and returns their product, or
/// a number below 0 if there is none.
template <std::size_t Count>
double take(std::string_view& text, const unit (&units)[Count]) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc{} || !(number >= 0)) {
    return -1;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  for (const auto& [name, factor] : units) {
    if (text.starts_with(name)) {
      text.remove_prefix(name.size());
      return number * factor;
    }
  }
  return -1;
}

/// The limits between which a row's iteration time stays readable.
constexpr double slowest = 1.0 / 8;  // bytes a second
constexpr double fastest = 1e15 / 8;
constexpr double longest = 1e6;  // seconds

constexpr unit bits[] = {{"Gbit", 1e9 / 8}, {"Mbit", 1e6 / 8}, {"Kbit", 1e3 / 8}, {"bit", 1.0 / 8}};
constexpr unit shares[] = {{"%", 0.01}};
constexpr unit times[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};

/// The networks of "A Quantitative Survey of Communication Optimizations in Distributed Deep
/// Learning" (Shi et al., IEEE Network 2020), with four GPUs to a host. The rates are those that
/// its BSP rows reach with 2(p-1)/p of the gradient, the latencies the start-up times of MG-WFBP's
/// tables. What the survey calls 100GbE is the InfiniBand NIC used through TCP.
const std::vector<place>& named_networks() {
  static const link inside{6.0e9, 5e-6};
  static const std::vector<place> all{{"10GbE", 4, {1.2e9, 5e-5}, inside},
                                      {"100GbE-TCP", 4, {2.3e9, 3e-5}, inside},
                                      {"100GbIB", 4, {6.0e9, 5e-6}, inside}};
  return all;
}

}  // namespace

place place::faster(double times) const {
  place all = *this;
  all.nic.bytes_per_second *= times;
  if (all.server_nic) {
    all.server_nic->bytes_per_second *= times;
  }
  for (auto& [rank, its] : all.nic_of_rank) {
    its.bytes_per_second *= times;
  }
  return all;
}

int place::hosts(const tutti::placement& all) const {
  const tutti::transport::network its = with({all});
  std::vector<char> lived_on(its.hosts());
  for (int rank = 0; rank < its.ranks(); ++rank) {
    lived_on[its.host(rank)] = 1;
  }
  return static_cast<int>(std::ranges::count(lived_on, 1));
}

tutti::transport::network place::with(const tutti::representatives& who) const {
  const auto& few = who.few;
  tutti::transport::network all(few.workers + few.servers, nic, per_host, inside);
  all.set_data_factors(who.data);
  for (const auto& [rank, its] : nic_of_rank) {
    all.isolate(rank, its);
  }
  for (int server = 0; server < few.servers; ++server) {
    const int rank = few.workers + server;
    const int before_shared = few.serving == tutti::server_hosts::own ? few.servers
                              : few.serving == tutti::server_hosts::mixed
                                  ? few.servers - few.workers
                                  : 0;
    if (server < before_shared) {
      const link its = server_nic.value_or(nic);
      all.isolate(rank, {its.bytes_per_second / who.server_load, its.latency, its.share_of_one});
    } else {
      all.join(rank, (server - before_shared) % few.hosts() * few.per_host);
    }
  }
  return all;
}

place parse_link(const std::string& text) {
  constexpr int most_a_host = 1'000'000;  // as many as a job may have workers
  place parsed{text};
  std::string_view left = text;
  if (const auto times_at = left.find('x'); times_at != std::string_view::npos) {
    const auto [end, status] =
        std::from_chars(left.data(), left.data() + times_at, parsed.per_host);
    if (status != std::errc{} || end != left.data() + times_at) {
      parsed.per_host = 0;
    }
    left.remove_prefix(times_at + 1);
  }
  parsed.nic.bytes_per_second = take(left, bits);
  const bool slash = left.starts_with('/');
  left.remove_prefix(slash ? 1 : 0);
  parsed.nic.latency = take(left, times);
  if (left.starts_with('/')) {
    left.remove_prefix(1);
    parsed.nic.share_of_one = take(left, shares);
  }
  if (parsed.per_host < 1 || parsed.per_host > most_a_host ||
      !(parsed.nic.bytes_per_second >= slowest) || !(parsed.nic.bytes_per_second <= fastest) ||
      !slash || !(parsed.nic.latency >= 0) || !(parsed.nic.latency <= longest) ||
      !(parsed.nic.share_of_one > 0) || !(parsed.nic.share_of_one <= 1) || !left.empty()) {
    throw common::flag_error(
        "--link " + text +
        " is not a link. Fix: rate and latency as 10Gbit/50us, from 1bit to 1000000Gbit and up to "
        "a million seconds; 4x10Gbit/50us for 4 ranks on a host, a million at most; "
        "10Gbit/50us/75% where one message alone gets 75% of the rate");
  }
  return parsed;
}

namespace {

/// Returns the number of a rank, or a number below 0 if the text is none.
int parse_rank(const std::string& text) {
  int rank = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), rank);
  return status == std::errc{} && end == text.data() + text.size() ? rank : -1;
}

place read_network(const std::string& file) {
  std::ifstream in(file);
  place read{file};
  read.nic.bytes_per_second = 0;
  std::set<std::string> said;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    const std::string_view text = ++number == 1 ? models::without_mark(line) : line;
    std::istringstream words(std::string(text.substr(0, text.find('#'))));
    std::string what;
    std::string link;
    std::string more;
    if (!(words >> what)) {
      continue;
    }
    const std::string where = file + " line " + std::to_string(number);
    int rank = 0;
    bool reads = static_cast<bool>(words >> link);
    if (what == "rank") {
      rank = parse_rank(link);
      reads = rank >= 0 && words >> link;
    } else if (what != "link" && what != "inside" && what != "servers") {
      reads = false;
    }
    if (!reads || words >> more) {
      throw common::flag_error(
          where + ": '" + line +
          "' is not a link. Fix: a line as link 4x25Gbit/10us or rank 2 1Gbit/10us");
    }
    const std::string key = what == "rank" ? what + " " + std::to_string(rank) : what;
    if (!said.insert(key).second) {
      throw common::flag_error(where + ": a second line '" + key + "'. Fix: leave one out");
    }
    try {
      const place parsed = parse_link(link);
      if (what != "link" && parsed.per_host != 1) {
        throw common::flag_error(link + " puts several ranks behind one NIC, which only the line " +
                                 "'link' can do. Fix: without " + std::to_string(parsed.per_host) +
                                 "x");
      }
      if (what == "rank") {
        read.nic_of_rank[rank] = parsed.nic;
      } else if (what == "inside") {
        read.inside = parsed.nic;
      } else if (what == "servers") {
        read.server_nic = parsed.nic;
      } else {
        read.per_host = parsed.per_host;
        read.nic = parsed.nic;
      }
    } catch (const common::flag_error& refused) {
      throw common::flag_error(where + ": " + refused.what());
    }
  }
  if (!(read.nic.bytes_per_second > 0)) {
    throw common::flag_error(file + " has no line 'link'. Fix: add one as link 4x25Gbit/10us");
  }
  return read;
}

}  // namespace

place find_network(const std::string& name) {
  if (std::filesystem::is_regular_file(name)) {
    return read_network(name);
  }
  common::expect_one_of("network or file", name, common::names_of(named_networks()));
  return *std::ranges::find(named_networks(), name, &place::name);
}

}  // namespace compare

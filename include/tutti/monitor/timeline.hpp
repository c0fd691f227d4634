#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/role/monitor.hpp"

namespace tutti::monitor {

/// Records every event with its time, to be looked at afterwards. Cost: 16 bytes per event,
/// reserved at the start; events that no longer fit are counted, not kept. After: Horovod's
/// timeline and BytePS's trace.
class timeline {
 public:
  using role = tutti::role::monitor;
  static constexpr bool observes = true;

  struct moment {
    seconds when{};
    std::uint32_t which{};
    event what{};
  };

  explicit timeline(std::size_t capacity = std::size_t{1} << 16) { moments_.reserve(capacity); }
  /// Copies the capacity, too. A copied vector would have no room for further events.
  timeline(const timeline& other) : timeline(other.moments_.capacity()) {
    moments_.insert(moments_.end(), other.moments_.begin(), other.moments_.end());
    missed_ = other.missed_;
  }
  timeline(timeline&&) noexcept = default;
  timeline& operator=(timeline other) noexcept {
    std::swap(moments_, other.moments_);
    std::swap(missed_, other.missed_);
    return *this;
  }
  ~timeline() = default;

  void record(event what, std::uint32_t which, seconds when) {
    if (moments_.size() < moments_.capacity()) {
      moments_.push_back({when, which, what});
    } else {
      ++missed_;
    }
  }

  std::span<const moment> moments() const { return moments_; }
  std::size_t missed() const { return missed_; }

 private:
  std::vector<moment> moments_;
  std::size_t missed_ = 0;
};
static_assert(monitor_policy<timeline>);

namespace detail {

/// Returns a tensor's name, escaped for a JSON string.
inline std::string escaped(std::string_view name) {
  std::string safe;
  for (const char each : name) {
    if (each == '"' || each == '\\') {
      safe += '\\';
    }
    safe += static_cast<unsigned char>(each) < 0x20 ? ' ' : each;
  }
  return safe;
}

/// Writes one rank's events, one per line. Each line begins by ending the previous one with a
/// comma.
class trace_writer {
 public:
  trace_writer(std::ostream& out, int rank, std::span<const std::string> tensors)
      : out_(&out), rank_(std::to_string(rank)), tensors_(tensors) {}

  void name_rows() {
    event_line("M", "process_name", 0, 0, ",\"args\":{\"name\":\"rank " + rank_ + "\"}");
    for (int row = 0; row < 4; ++row) {
      event_line("M", "thread_name", row, 0,
                 ",\"args\":{\"name\":\"" + std::string(rows[row]) + "\"}");
    }
  }

  void write(const timeline::moment& each) {
    switch (each.what) {
      case event::ready:
        event_line("i", tensor(each.which), 0, each.when, ",\"s\":\"t\"");
        break;
      case event::started:
        chunk_line("b", chunk(each.which), each);
        break;
      case event::released:
        chunk_line("n", "released", each);
        break;
      case event::finished:
        chunk_line("e", chunk(each.which), each);
        break;
      case event::arrived:
        event_line("i", tensor(each.which), 2, each.when, ",\"s\":\"t\"");
        break;
      case event::wait_begins:
        event_line("B", "wait for " + tensor(each.which), 3, each.when);
        break;
      case event::wait_ends:
        event_line("E", "wait for " + tensor(each.which), 3, each.when);
        break;
    }
  }

 private:
  static constexpr std::string_view rows[] = {"gradients", "exchange", "results", "waits"};

  std::string tensor(std::uint32_t which) const {
    return which < tensors_.size() ? escaped(tensors_[which]) : "all";
  }
  static std::string chunk(std::uint32_t which) { return "chunk " + std::to_string(which); }

  /// Writes an event of a chunk. Chunks overlap, so their events are asynchronous ones, identified
  /// by rank and chunk number.
  void chunk_line(std::string_view phase, const std::string& name, const timeline::moment& each) {
    event_line(phase, name, 1, each.when,
               ",\"cat\":\"chunk\",\"id\":\"" + rank_ + "." + std::to_string(each.which) + "\"");
  }
  void event_line(std::string_view phase, const std::string& name, int row, seconds when,
                  const std::string& more = "") {
    *out_ << ",\n{\"ph\":\"" << phase << "\",\"name\":\"" << name << "\",\"pid\":" << rank_
          << ",\"tid\":" << row << ",\"ts\":" << when * 1e6 << more << "}";
  }

  std::ostream* out_;
  std::string rank_;
  std::span<const std::string> tensors_;
};

}  // namespace detail

/// Writes the ranks' timelines together in the Chrome trace format, for Perfetto. Each rank is a
/// process, which has a row each for gradients, exchanges, results and waits. The ranks must have
/// one clock, as ranks of this process do.
inline void write_trace(std::ostream& out, const std::map<int, timeline>& ranks,
                        std::span<const std::string> tensors) {
  const auto precision = out.precision(15);  // microseconds, to the nanosecond for eleven days
  std::size_t missed = 0;
  // A first event, so that every other one can begin with a comma.
  out << "{\"traceEvents\":[\n"
      << R"({"ph":"M","name":"process_labels","pid":0,"args":{"labels":"tutti"}})";
  for (const auto& [rank, seen] : ranks) {
    detail::trace_writer writer(out, rank, tensors);
    writer.name_rows();
    for (const auto& each : seen.moments()) {
      writer.write(each);
    }
    missed += seen.missed();
  }
  out << "\n],\"otherData\":{\"events that did not fit\":\"" << missed << "\"}}\n";
  out.precision(precision);
}

}  // namespace tutti::monitor

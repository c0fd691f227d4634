#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/role/monitor.hpp"

namespace tutti::monitor {

/// Keeps every event with its time, to be looked at afterwards.
/// Cost: 16 bytes an event of memory reserved at the start; what no longer fits is counted, not
/// kept. After: Horovod's timeline and BytePS's trace.
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

/// Writes one rank's timeline as events of the Chrome trace format, for Perfetto: a process a rank,
/// in it a row each for gradients, exchanges, results and waits. The caller puts the brackets
/// around the ranks' events and a comma between them.
inline void write_trace_events(std::ostream& out, int rank, const timeline& seen,
                               std::span<const std::string> tensors) {
  const auto name_of = [tensors](std::uint32_t which) {
    return which < tensors.size() ? tensors[which] : std::string("all");
  };
  const auto write = [&](std::string_view phase, const std::string& name, int row, seconds when,
                         const std::string& more = "") {
    out << ",\n{\"ph\":\"" << phase << "\",\"name\":\"" << name << "\",\"pid\":" << rank
        << ",\"tid\":" << row << ",\"ts\":" << when * 1e6 << more << "}";
  };
  constexpr std::string_view rows[] = {"gradients", "exchange", "results", "waits"};
  out << "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":" << rank << ",\"args\":{\"name\":\"rank "
      << rank << "\"}}";
  for (int row = 0; row < 4; ++row) {
    write("M", "thread_name", row, 0, ",\"args\":{\"name\":\"" + std::string(rows[row]) + "\"}");
  }
  const auto precision = out.precision(15);
  for (const auto& each : seen.moments()) {
    const std::string chunk = "chunk " + std::to_string(each.which);
    const std::string id = ",\"cat\":\"chunk\",\"id\":\"" + std::to_string(rank) + "." +
                           std::to_string(each.which) + "\"";
    switch (each.what) {
      case event::ready:
        write("i", name_of(each.which), 0, each.when, ",\"s\":\"t\"");
        break;
      case event::started:  // chunks overlap, so they are asynchronous events
        write("b", chunk, 1, each.when, id);
        break;
      case event::released:
        write("n", "released", 1, each.when, id);
        break;
      case event::finished:
        write("e", chunk, 1, each.when, id);
        break;
      case event::arrived:
        write("i", name_of(each.which), 2, each.when, ",\"s\":\"t\"");
        break;
      case event::wait_begins:
        write("B", "wait for " + name_of(each.which), 3, each.when);
        break;
      case event::wait_ends:
        write("E", "wait for " + name_of(each.which), 3, each.when);
        break;
    }
  }
  out.precision(precision);
}

}  // namespace tutti::monitor

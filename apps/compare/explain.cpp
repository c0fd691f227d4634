#include "compare/explain.hpp"

#include <cstddef>
#include <cstdio>
#include <string>

namespace compare {

namespace {

/// Returns the names of a bucket's tensors: the first, the last and how many there are.
std::string tensors_of(const tutti::bucket& which, const row& of) {
  const tutti::plan& plan = of.shown().planned;
  const auto name = [&](std::size_t position) {
    return of.of.model->tensors[tutti::index(plan.at(position))].name;
  };
  const std::string first = name(which.first_tensor);
  if (which.tensors == 1) {
    return first;
  }
  return first + " .. " + name(which.first_tensor + which.tensors - 1) + " (" +
         std::to_string(which.tensors) + ")";
}

}  // namespace

void explain(const row& of) {
  // Processes of a real world note no times, but their prediction has the same plan.
  const bool is_real = of.of.world == "real";
  const tutti::replayed& shown = is_real ? of.simulated : of.shown();
  const tutti::plan& plan = shown.planned;
  if (plan.backward.empty()) {
    std::printf("%s: its row was read and not run, so there is no plan to explain\n",
                of.strategy.c_str());
    return;
  }
  std::printf(
      "%s: %zu tensors in %zu buckets and %zu chunks; the exchanges that ended within %s "
      "iteration of %.2f ms, which is counted from the end of a backward pass to that of the "
      "next:\n",
      of.strategy.c_str(), of.of.model->tensors.size(), plan.buckets.size(), plan.chunks.size(),
      is_real ? "a predicted" : "an", 1e3 * shown.iterations.back());
  std::fputs(of.ways.c_str(), stdout);
  std::printf("   began ms  ended ms  chunk  bucket   elements  priority  tensors\n");
  for (const tutti::exchanged& each : shown.agenda) {
    const tutti::chunk& what = plan.chunks[each.chunk];
    std::printf("  %9.3f %9.3f  %5u  %6u  %9zu  %8u  %s\n", 1e3 * each.started, 1e3 * each.finished,
                each.chunk, what.bucket, what.elements, what.priority,
                tensors_of(plan.buckets[what.bucket], of).c_str());
  }
}

}  // namespace compare

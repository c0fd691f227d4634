#include "train/schedule.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/sentence.hpp"

namespace train {

tutti::optimizer::falling falling(const std::string& name) {
  const auto all = names(tutti::optimizer::falling());
  return static_cast<tutti::optimizer::falling>(std::ranges::find(all, name) - all.begin());
}

void expect_one_schedule(const common::job& job,
                         const std::function<void(std::span<double>)>& average) {
  const std::array<std::pair<const char*, double>, 6> flags{
      {{"--batch-size", static_cast<double>(job.batch_size)},
       {"--epochs", static_cast<double>(job.epochs)},
       {"--rate", static_cast<double>(falling(job.rate))},
       {"--rate-warm-up", job.rate_warm_up},
       {"--rate-every", job.rate_every},
       {"--rate-factor", job.rate_factor}}};
  std::vector<double> own;
  for (const auto& [flag, value] : flags) {
    tutti::running_hash hash;
    hash.feed(std::bit_cast<std::uint64_t>(value));
    // 32 bits, so that sums over workers are exact.
    own.push_back(static_cast<double>(hash.value() >> 32));
  }
  auto unlike = own;
  average(unlike);
  std::ranges::transform(unlike, own, unlike.begin(), std::not_equal_to());
  average(unlike);
  for (std::size_t i = 0; i < flags.size(); ++i) {
    if (unlike[i] > 0) {
      throw tutti::disagreement(tutti::sentence(
          {flags[i].first, " is not the same everywhere. Fix: set it alike on every rank"}));
    }
  }
}

}  // namespace train

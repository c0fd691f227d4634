#pragma once

#include <cstddef>
#include <gtest/gtest.h>
#include <tuple>
#include <type_traits>
#include <vector>

#include "support/oracle.hpp"
#include "support/training.hpp"
#include "tutti/architecture/parameter_server.hpp"
#include "tutti/collective/addressable.hpp"
#include "tutti/collective/canonical.hpp"
#include "tutti/collective/star.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/merge_gradients.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/partition/none.hpp"
#include "tutti/schedule/as_ready.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/in_order.hpp"

// Every two choices of different roles meet in one of sixteen strategies: an orthogonal array of
// five columns with four levels, from lines over the field of four elements.
namespace tutti::test::covering {

/// The product by 2 and by 3 in the field of four elements; its sum is an exclusive or.
inline constexpr unsigned twice[] = {0, 2, 3, 1};
inline constexpr unsigned thrice[] = {0, 3, 1, 2};

template <unsigned Row>
struct row {
  static constexpr unsigned fusion = Row / 4;
  static constexpr unsigned schedule = Row % 4;
  static constexpr unsigned architecture = fusion ^ schedule;
  static constexpr unsigned cut = twice[fusion] ^ schedule;
  static constexpr unsigned place = thrice[fusion] ^ schedule;
  static constexpr bool partitioned = cut % 2 == 1;
  static constexpr bool one_chunk_at_a_time = cut / 2 == 1;
  static constexpr bool simulated = place % 2 == 1;
  static constexpr bool scattered = place / 2 == 1;

  using collective =
      std::conditional_t<simulated, tutti::collective::star, tutti::collective::addressable>;
  using fusions = std::tuple<tutti::fusion::none, tutti::fusion::up_to, tutti::fusion::all,
                             tutti::fusion::merge_gradients>;
  using schedules = std::tuple<tutti::schedule::as_ready, tutti::schedule::at_end,
                               tutti::schedule::by_priority, tutti::schedule::in_order>;
  using architectures = std::tuple<
      tutti::architecture::all_reduce<tutti::collective::canonical>,
      tutti::architecture::all_reduce<collective>, tutti::architecture::parameter_server<>,
      tutti::architecture::parameter_server<consistency::synchronous, updated_by::servers>>;
  using strategy =
      compose<std::tuple_element_t<fusion, fusions>, std::tuple_element_t<schedule, schedules>,
              std::tuple_element_t<architecture, architectures>,
              std::conditional_t<partitioned, partition::into, partition::none>>;

  static engine_options<strategy> options(int workers) {
    engine_options<strategy> set;
    set.run.deadline = 30;
    if constexpr (fusion == 1) {
      set.fusion = {.bytes = 3000};
    }
    if constexpr (partitioned) {
      set.partition.bytes = 20'000;
    }
    if constexpr (schedule == 2) {
      set.schedule.credit = one_chunk_at_a_time ? 1 : 0;
    }
    if constexpr (architecture >= 2) {
      set.architecture.servers = workers % 3 + 1;
    }
    return set;
  }
};

/// A rank's model: in an arena, or each tensor in memory of its own, so that buckets are packed.
class model {
 public:
  model(int rank, bool scattered) : flat_(model_of(rank)), tensors_(flat_.tensors()) {
    if (scattered) {
      for (auto& each : tensors_) {
        parameters_.emplace_back(each.parameter.begin(), each.parameter.end());
        gradients_.emplace_back(each.elements);
        each = tensor(each.name, parameters_.back(), gradients_.back());
      }
    }
  }

  const std::vector<tensor>& tensors() const { return tensors_; }

  /// The gradients of a step, tensor by tensor.
  void backward(int worker, int step) {
    std::size_t element = 0;
    for (std::size_t i = tensors_.size(); i-- > 0;) {
      for (float& each : tensors_[i].gradient) {
        each = gradient(worker, step, element++);
      }
    }
  }

  /// In backward order, as the oracle has them.
  std::vector<float> parameters() const {
    std::vector<float> all;
    for (std::size_t i = tensors_.size(); i-- > 0;) {
      all.insert(all.end(), tensors_[i].parameter.begin(), tensors_[i].parameter.end());
    }
    return all;
  }

 private:
  arena flat_;
  std::vector<tensor> tensors_;
  std::vector<std::vector<float>> parameters_{};
  std::vector<std::vector<float>> gradients_{};
};

using parameters_by_rank = std::vector<std::vector<float>>;

inline void expect_oracle(const parameters_by_rank& result, int workers, int steps) {
  const auto expected = trained(workers, steps);
  for (const auto& each : result) {
    EXPECT_EQ(each, expected) << workers << " workers";
  }
}

}  // namespace tutti::test::covering

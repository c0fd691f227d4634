#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/job.hpp"
#include "common/names.hpp"
#include "common/pace.hpp"
#include "common/policy_flags.hpp"
#include "models/declaration.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/optimizer/adam.hpp"
#include "tutti/optimizer/one_bit_adam.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/optimizer.hpp"

namespace train {

/// SGD or Adam, as the job says: one type, so that each strategy is compiled once.
struct sgd_or_adam : tutti::optimizer::adam {
  enum class rule { sgd, adam };

  rule by{rule::sgd};
  float momentum{0.0f};
  tutti::optimizer::acceleration acceleration{tutti::optimizer::acceleration::heavy_ball};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    if (self.by == rule::adam) {
      adam::describe(self, visit);
    } else {
      visit("learning_rate", self.learning_rate, "step along the averaged gradient");
      visit("momentum", self.momentum, "share of the last direction that is kept");
      visit("weight_decay", self.weight_decay, "share of a parameter added to its gradient");
      visit("acceleration", self.acceleration, "heavy_ball or nesterov");
    }
  }

  std::size_t memory_per_element() const {
    return by == rule::adam ? adam::memory_per_element() : as_sgd().memory_per_element();
  }

  template <class Queue>
  void apply(Queue& queue, std::span<float> parameters, std::span<const float> gradient,
             const tutti::chunk_context& where) const {
    if (by == rule::adam) {
      adam::apply(queue, parameters, gradient, where);
    } else {
      as_sgd().apply(queue, parameters, gradient, where);
    }
  }

 private:
  tutti::optimizer::sgd as_sgd() const {
    return {learning_rate, momentum, weight_decay, acceleration};
  }
};
static_assert(tutti::optimizer_policy<sgd_or_adam>);

template <class Strategy>
constexpr bool exchanges_momenta =
    tutti::facts::exchanges_momenta<typename tutti::strategy_of<Strategy>::architecture>;

template <class Strategy>
using optimizer_of =
    std::conditional_t<exchanges_momenta<Strategy>, tutti::optimizer::one_bit_adam, sgd_or_adam>;

/// The optimizer that `--optimizer` names, before any of its values is set.
template <class Strategy>
optimizer_of<Strategy> named_optimizer(const models::declaration& model, const common::job& asked) {
  if constexpr (exchanges_momenta<Strategy>) {
    if (!asked.optimizer.empty()) {
      common::expect_one_of("optimizer of " + std::string(Strategy::name), asked.optimizer,
                            {"one_bit_adam"});
    }
    return {};
  } else {
    const std::string name = asked.optimizer.empty() ? "sgd" : asked.optimizer;
    common::expect_one_of("optimizer", name, {"sgd", "adam", "adamw"});
    sgd_or_adam made;
    if (name == "sgd") {
      const auto its = common::pace<Strategy>(model, asked);
      made.learning_rate = its.learning_rate;
      made.momentum = its.momentum;
    } else {
      made.by = sgd_or_adam::rule::adam;
      if (name == "adamw") {  // as PyTorch's
        made.decay = tutti::optimizer::decay::decoupled;
        made.weight_decay = 0.01f;
      }
    }
    return made;
  }
}

/// The flags of the optimizer that the job names, with their help.
template <class Strategy>
common::flag_values optimizer_flags(const common::job& asked) {
  common::flag_values all;
  common::add_flags("optimizer", named_optimizer<Strategy>({}, asked), all);
  return all;
}

/// Sets what `made` describes by that name. Throws flag_error if it describes none.
template <class Optimizer>
void set_value(Optimizer& made, std::string_view name, const std::string& flag,
               const std::optional<float>& value) {
  if (!value) {
    return;
  }
  bool known = false;
  Optimizer::describe(made, [&](std::string_view its, auto& field, std::string_view) {
    if constexpr (std::is_floating_point_v<std::remove_reference_t<decltype(field)>>) {
      if (its == name) {
        field = *value;
        known = true;
      }
    }
  });
  if (!known) {
    throw common::flag_error("--" + flag + " is not this optimizer's. Fix: leave it out");
  }
}

/// The optimizer for a model under a strategy, with the job's values. Throws flag_error if the job
/// sets what it does not have.
template <class Strategy>
optimizer_of<Strategy> optimizer(const models::declaration& model, const common::job& asked) {
  common::expect_flags("this optimizer", asked.optimizer_flags, optimizer_flags<Strategy>(asked));
  auto made = named_optimizer<Strategy>(model, asked);
  set_value(made, "learning_rate", "learning-rate", asked.learning_rate);
  set_value(made, "momentum", "momentum", asked.momentum);
  set_value(made, "weight_decay", "weight-decay", asked.weight_decay);
  common::set_described("optimizer", made, asked.optimizer_flags);
  return made;
}

}  // namespace train

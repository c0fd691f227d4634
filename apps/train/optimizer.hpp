#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/job.hpp"
#include "common/names.hpp"
#include "common/policy_flags.hpp"
#include "common/sgd_values.hpp"
#include "models/declaration.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/rules.hpp"
#include "tutti/optimizer/adam.hpp"
#include "tutti/optimizer/lamb.hpp"
#include "tutti/optimizer/lars.hpp"
#include "tutti/optimizer/one_bit_adam.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/optimizer.hpp"

namespace train {

/// SGD or Adam, chosen at run time. One type for both, so that each strategy is compiled only once.
struct sgd_or_adam : tutti::optimizer::adam {
  enum class rule { sgd, adam, lars, lamb };

  rule by{rule::sgd};
  float momentum{0.0f};
  tutti::optimizer::acceleration acceleration{tutti::optimizer::acceleration::heavy_ball};

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    if (self.by == rule::adam) {
      adam::describe(self, visit);
    } else {
      visit("learning_rate", self.learning_rate, "length of a step along the mean gradient");
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

/// Also LARS or LAMB, for strategies that update whole tensors on the host.
struct any_optimizer : sgd_or_adam {
  static constexpr bool elementwise = false;

  float trust{};

  any_optimizer() = default;
  explicit any_optimizer(const tutti::optimizer::lars& values) : trust(values.trust) {
    by = rule::lars;
    learning_rate = values.learning_rate;
    momentum = values.momentum;
    weight_decay = values.weight_decay;
  }
  explicit any_optimizer(const tutti::optimizer::lamb& values) {
    by = rule::lamb;
    learning_rate = values.learning_rate;
    beta1 = values.beta1;
    beta2 = values.beta2;
    epsilon = values.epsilon;
    weight_decay = values.weight_decay;
  }

  template <class Self, class Visitor>
  static void describe(Self& self, Visitor&& visit) {
    if (self.by == rule::lars) {
      tutti::optimizer::lars::describe(self, visit);
    } else if (self.by == rule::lamb) {
      tutti::optimizer::lamb::describe(self, visit);
    } else {
      sgd_or_adam::describe(self, visit);
    }
  }

  std::size_t memory_per_element() const {
    return by == rule::lars   ? as_lars().memory_per_element()
           : by == rule::lamb ? as_lamb().memory_per_element()
                              : sgd_or_adam::memory_per_element();
  }

  template <class Queue>
  void apply(Queue& queue, std::span<float> parameters, std::span<const float> gradient,
             const tutti::chunk_context& where) const {
    if constexpr (tutti::host_queue<Queue>) {
      if (by == rule::lars) {
        as_lars().apply(queue, parameters, gradient, where);
        return;
      }
      if (by == rule::lamb) {
        as_lamb().apply(queue, parameters, gradient, where);
        return;
      }
    }
    sgd_or_adam::apply(queue, parameters, gradient, where);
  }

 private:
  tutti::optimizer::lars as_lars() const { return {learning_rate, momentum, weight_decay, trust}; }
  tutti::optimizer::lamb as_lamb() const {
    return {learning_rate, beta1, beta2, epsilon, weight_decay};
  }
};
static_assert(tutti::optimizer_policy<any_optimizer>);

template <class Strategy>
constexpr bool exchanges_momenta =
    tutti::facts::exchanges_momenta<typename tutti::strategy_of<Strategy>::architecture>;

template <class Strategy>
constexpr bool updates_whole_tensors = tutti::rule::pieces_need_an_elementwise_optimizer<
    typename tutti::strategy_of<Strategy>::architecture, any_optimizer>::holds;

template <class Strategy>
using optimizer_of = std::conditional_t<
    exchanges_momenta<Strategy>, tutti::optimizer::one_bit_adam,
    std::conditional_t<updates_whole_tensors<Strategy>, any_optimizer, sgd_or_adam>>;

/// Throws flag_error unless the strategy updates whole tensors, and on the host.
template <class Strategy>
void expect_whole_tensors(const common::job& asked) {
  if (!updates_whole_tensors<Strategy>) {
    throw common::flag_error("--optimizer " + asked.optimizer + " needs whole tensors, but " +
                             std::string(Strategy::name) +
                             " updates parts of them. Fix: sgd, adam or adamw");
  }
  if (asked.device != "cpu") {
    throw common::flag_error("--optimizer " + asked.optimizer +
                             " runs only on the CPU. Fix: --device cpu");
  }
}

/// Returns the optimizer that `--optimizer` names, with its default values. Throws flag_error if
/// there is no such optimizer, or if it does not go together with the strategy.
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
    common::expect_one_of("optimizer", name, {"sgd", "adam", "adamw", "lars", "lamb"});
    if (name == "lars" || name == "lamb") {
      expect_whole_tensors<Strategy>(asked);
      if constexpr (updates_whole_tensors<Strategy>) {
        return name == "lars" ? any_optimizer(tutti::optimizer::lars())
                              : any_optimizer(tutti::optimizer::lamb());
      }
    }
    optimizer_of<Strategy> made;
    if (name == "sgd") {
      const auto its = common::sgd_values<Strategy>(model, asked);
      made.learning_rate = its.learning_rate;
      made.momentum = its.momentum;
    } else {
      made.by = sgd_or_adam::rule::adam;
      if (name == "adamw") {  // with PyTorch's default weight decay
        made.decay = tutti::optimizer::decay::decoupled;
        made.weight_decay = 0.01f;
      }
    }
    return made;
  }
}

/// Returns the flags of the optimizer that the job names, with their help.
template <class Strategy>
common::flag_values optimizer_flags(const common::job& asked) {
  common::flag_values all;
  common::add_flags("optimizer", named_optimizer<Strategy>({}, asked), all);
  return all;
}

/// Sets the value that `made` describes as `name`. Throws flag_error, naming `flag`, if it has
/// none.
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
    throw common::flag_error("--" + flag +
                             " is not an option of this optimizer. Fix: leave it out");
  }
}

/// Throws flag_error unless every share of the past that the optimizer keeps is below 1. A mean
/// that keeps all of it or more grows without limit, or is divided by zero.
template <class Optimizer>
void expect_shares_below_one(const Optimizer& made) {
  Optimizer::describe(made, [](std::string_view name, const auto& share, std::string_view) {
    if constexpr (std::is_floating_point_v<std::remove_cvref_t<decltype(share)>>) {
      if ((name == "momentum" || name.starts_with("beta")) && !(share < 1)) {
        throw common::flag_error(tutti::sentence(
            {"--optimizer.", name, " ", share, " is out of range. Fix: from 0 to below 1"}));
      }
    }
  });
}

/// Returns the optimizer for a model and a strategy, with the job's values. Throws flag_error if
/// the job sets a value that the optimizer does not have.
template <class Strategy>
optimizer_of<Strategy> optimizer(const models::declaration& model, const common::job& asked) {
  common::expect_flags("this optimizer", asked.optimizer_flags, optimizer_flags<Strategy>(asked));
  auto made = named_optimizer<Strategy>(model, asked);
  set_value(made, "learning_rate", "learning-rate", asked.learning_rate);
  set_value(made, "momentum", "momentum", asked.momentum);
  set_value(made, "weight_decay", "weight-decay", asked.weight_decay);
  common::set_described("optimizer", made, asked.optimizer_flags);
  expect_shares_below_one(made);
  return made;
}

}  // namespace train

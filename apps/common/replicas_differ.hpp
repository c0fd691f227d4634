#pragma once

#include "tutti/core/compose.hpp"
#include "tutti/role/architecture.hpp"

namespace common {

/// Whether the workers' models may differ at the end of a step.
template <class Strategy, class A = typename tutti::strategy_of<Strategy>::architecture>
constexpr bool replicas_differ = tutti::facts::stale<A> ||
                                 (A::completes_alone && !tutti::facts::has_servers<A>);

}  // namespace common

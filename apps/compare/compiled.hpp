#pragma once

#include "compare/processes.hpp"
#include "tutti/core/driver.hpp"
#include "tutti/core/engine_base.hpp"
#include "tutti/core/failure.hpp"
#include "tutti/core/observer.hpp"
#include "tutti/core/replay.hpp"
#include "tutti/core/services.hpp"
#include "tutti/core/waiting.hpp"
#include "tutti/core/watch.hpp"

/// Explicit instantiations of the engine's parts that do not depend on the strategy, for ranks of
/// any_world. Units that include this header do not compile them again.
/// tutti/compiled/in_process.hpp does the same for threads.
namespace tutti {

extern template class engine_base<compare::any_world>;
extern template class driver<compare::any_world, engine_base<compare::any_world>>;
extern template class failure<compare::any_world>;
extern template class services<compare::any_world>;
extern template class waiting<compare::any_world>;
extern template class watch<compare::any_world>;
extern template class observer<agenda_log, compare::any_world>;

}  // namespace tutti

#pragma once

#include "tutti/core/driver.hpp"
#include "tutti/core/engine_base.hpp"
#include "tutti/core/failure.hpp"
#include "tutti/core/services.hpp"
#include "tutti/core/waiting.hpp"
#include "tutti/core/watch.hpp"
#include "tutti/transport/in_process.hpp"

/// What strategies share over threads, compiled once: include this before anything that trains, or
/// precompile it, and link `tutti::in_process`. The compiler then leaves it out of the unit, a
/// sixth of what the unit's first strategy takes it at -O2. Nothing else changes: without it all of
/// tutti is headers.
namespace tutti {

extern template class transport::basic_in_process<inline_queue, transport::by_mailbox>;
extern template class engine_base<transport::in_process>;
extern template class driver<transport::in_process, engine_base<transport::in_process>>;
extern template class failure<transport::in_process>;
extern template class services<transport::in_process>;
extern template class waiting<transport::in_process>;
extern template class watch<transport::in_process>;

}  // namespace tutti

#pragma once

#include "tutti/core/driver.hpp"
#include "tutti/core/engine_base.hpp"
#include "tutti/core/failure.hpp"
#include "tutti/core/services.hpp"
#include "tutti/core/waiting.hpp"
#include "tutti/core/watch.hpp"
#include "tutti/transport/in_process.hpp"

/// Declares what all strategies over threads share as compiled once, in the library
/// `tutti::in_process`. Include this header before anything that trains, or precompile it, and link
/// the library. The compiler then skips these templates, which are a sixth of what the first
/// strategy of a translation unit costs it at -O2. Nothing else changes: without this header all of
/// tutti is headers.
namespace tutti {

extern template class transport::basic_in_process<inline_queue, transport::by_mailbox>;
extern template void transport::detail::run_on_threads<transport::in_process>(
    transport::in_process::fabric&, int, function_ref<void(transport::in_process&)>);
extern template class engine_base<transport::in_process>;
extern template class driver<transport::in_process, engine_base<transport::in_process>>;
extern template class failure<transport::in_process>;
extern template class services<transport::in_process>;
extern template class waiting<transport::in_process>;
extern template class watch<transport::in_process>;

}  // namespace tutti

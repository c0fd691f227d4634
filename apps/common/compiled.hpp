#pragma once

#include "tutti/core/driver.hpp"
#include "tutti/core/engine_base.hpp"
#include "tutti/core/failure.hpp"
#include "tutti/core/services.hpp"
#include "tutti/core/waiting.hpp"
#include "tutti/core/watch.hpp"
#include "tutti/transport/any_transport.hpp"

/// Explicit instantiations of the engine's parts that do not depend on the strategy, for ranks of
/// any_transport. Units that include this header do not compile them again.
/// tutti/compiled/in_process.hpp does the same for threads.
namespace tutti {

extern template class engine_base<transport::any_transport>;
extern template class driver<transport::any_transport, engine_base<transport::any_transport>>;
extern template class failure<transport::any_transport>;
extern template class services<transport::any_transport>;
extern template class waiting<transport::any_transport>;
extern template class watch<transport::any_transport>;

}  // namespace tutti

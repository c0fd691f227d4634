#pragma once

#include "tutti/core/driver.hpp"
#include "tutti/core/engine_base.hpp"
#include "tutti/core/failure.hpp"
#include "tutti/core/services.hpp"
#include "tutti/core/waiting.hpp"
#include "tutti/core/watch.hpp"
#include "tutti/transport/simulated.hpp"

/// Instantiates once for all tests what strategies share on the virtual clock, as
/// tutti/compiled/in_process.hpp does for threads.
namespace tutti {

extern template class transport::basic_in_process<transport::virtual_queue,
                                                  transport::virtual_link>;
extern template class engine_base<transport::simulated>;
extern template class driver<transport::simulated, engine_base<transport::simulated>>;
extern template class failure<transport::simulated>;
extern template class services<transport::simulated>;
extern template class waiting<transport::simulated>;
extern template class watch<transport::simulated>;

}  // namespace tutti

#include "support/compiled_simulated.hpp"

namespace tutti {

template class transport::basic_in_process<transport::virtual_queue, transport::virtual_link>;
template class engine_base<transport::simulated>;
template class driver<transport::simulated, engine_base<transport::simulated>>;
template class failure<transport::simulated>;
template class services<transport::simulated>;
template class waiting<transport::simulated>;
template class watch<transport::simulated>;

}  // namespace tutti

#include "tutti/compiled/in_process.hpp"

namespace tutti {

template class transport::basic_in_process<inline_queue, transport::by_mailbox>;
template void transport::detail::run_on_threads<transport::in_process>(
    transport::in_process::fabric&, int, function_ref<void(transport::in_process&)>);
template class engine_base<transport::in_process>;
template class driver<transport::in_process, engine_base<transport::in_process>>;
template class failure<transport::in_process>;
template class services<transport::in_process>;
template class waiting<transport::in_process>;
template class watch<transport::in_process>;

}  // namespace tutti

#include "common/compiled.hpp"

namespace tutti {

template class engine_base<transport::any_transport>;
template class driver<transport::any_transport, engine_base<transport::any_transport>>;
template class failure<transport::any_transport>;
template class services<transport::any_transport>;
template class waiting<transport::any_transport>;
template class watch<transport::any_transport>;

}  // namespace tutti

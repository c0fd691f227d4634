#include "tutti/compiled/mpi.hpp"

namespace tutti {

template class transport::detail::mpi_transfers<inline_queue>;
template class transport::mpi_on<inline_queue>;
template class engine_base<transport::mpi>;
template class driver<transport::mpi, engine_base<transport::mpi>>;
template class failure<transport::mpi>;
template class services<transport::mpi>;
template class waiting<transport::mpi>;
template class watch<transport::mpi>;

}  // namespace tutti

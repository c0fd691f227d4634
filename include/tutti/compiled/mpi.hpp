#pragma once

#include "tutti/compiled/in_process.hpp"
#include "tutti/transport/mpi.hpp"

/// Declares what all strategies between MPI processes share as compiled once, as
/// compiled/in_process.hpp does for threads. The library to link is `tutti::mpi`.
namespace tutti {

extern template class transport::detail::mpi_transfers<inline_queue>;
extern template class transport::mpi_on<inline_queue>;
extern template class engine_base<transport::mpi>;
extern template class driver<transport::mpi, engine_base<transport::mpi>>;
extern template class failure<transport::mpi>;
extern template class services<transport::mpi>;
extern template class waiting<transport::mpi>;
extern template class watch<transport::mpi>;

}  // namespace tutti

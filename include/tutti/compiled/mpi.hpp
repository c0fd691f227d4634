#pragma once

#include "tutti/compiled/in_process.hpp"
#include "tutti/transport/mpi.hpp"

/// What strategies share between MPI processes, compiled once: as compiled/in_process.hpp has it
/// for threads, and with `tutti::mpi` to link.
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

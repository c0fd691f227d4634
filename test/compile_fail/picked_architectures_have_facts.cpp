// expect: tutti: replicated stands for an architecture that the composer picks, and one that is derived from it would have the facts of none. Fix: derive from all_reduce, reduce_scatter_all_gather or all_gather.
#include "tutti/architecture/replicated.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/engine_types.hpp"
#include "tutti/monitor/none.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/transport/in_process.hpp"

#ifdef GOOD
struct mine : tutti::architecture::reduce_scatter_all_gather {};
#else
struct mine : tutti::architecture::replicated<> {};
#endif

using engine =
    tutti::engine_types<tutti::strategy_of<tutti::compose<tutti::compression::block_int8, mine>>,
                        tutti::transport::in_process, tutti::optimizer::sgd, tutti::monitor::none>;
static_assert(sizeof(typename engine::architecture) > 0);

// expect: tutti: this compressor's payloads have a length that only its encoding tells, but this transport's host sends before its stream has encoded. Fix: use a compressor of a fixed length, such as block_int8, or transport::in_process or mpi in host memory.
#include "tutti/architecture/all_gather.hpp"
#include "tutti/base/host_stream.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/qsgd.hpp"
#include "tutti/tutti.hpp"

#ifdef GOOD
using Compression = tutti::compression::block_int8;
#else
using Compression = tutti::compression::qsgd;
#endif

using Strategy = tutti::compose<Compression, tutti::architecture::all_gather>;
using network =
    tutti::transport::basic_in_process<tutti::host_stream, tutti::transport::by_mailbox>;

void train(tutti::engine<Strategy, network, tutti::optimizer::none>& engine) { engine.wait(); }

// expect: tutti: a rank that has joined lets others have batches that it has not, but this coordination takes every rank to have as many. Fix: coordination::negotiated.
#include "tutti/coordination/leader.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/transport/in_process.hpp"

#ifdef GOOD
using decides = tutti::coordination::negotiated;
#else
using decides = tutti::coordination::leader;
#endif

void end(tutti::engine<tutti::compose<decides>, tutti::transport::in_process,
                       tutti::optimizer::sgd>& its_engine) {
  its_engine.join();
}

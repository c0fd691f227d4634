// expect: tutti: engine.join() is for ranks with fewer batches than others, but this coordination expects equally many on every rank. Fix: use coordination::negotiated.
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

// expect: tutti: a rank that has joined hands in zero gradients and follows their mean, but this engine leaves the mean to the caller, or its architecture sends something else. Fix: pass an optimizer to make_engine, and send gradients in every step.
#include "tutti/coordination/negotiated.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/optimizer/none.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/transport/in_process.hpp"

#ifdef GOOD
using updates = tutti::optimizer::sgd;
#else
using updates = tutti::optimizer::none;
#endif

void end(tutti::engine<tutti::compose<tutti::coordination::negotiated>,
                       tutti::transport::in_process, updates>& its_engine) {
  its_engine.join();
}

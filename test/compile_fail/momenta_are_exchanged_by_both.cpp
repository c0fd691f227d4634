// expect: tutti: exchanging momenta takes an architecture that sends them and an optimizer that makes them, but only one of these does. Fix: use architecture::momentum_exchange with optimizer::one_bit_adam, or neither.
#include "tutti/strategies/one_bit_adam.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/tutti.hpp"

#ifdef GOOD
using optimizer = tutti::optimizer::one_bit_adam;
#else
using optimizer = tutti::optimizer::adam;
#endif

void train(tutti::transport::in_process& world) {
  auto engine = tutti::make_engine<tutti::strategies::OneBitAdam>(world, {}, optimizer{});
  engine.wait();
}

// expect: tutti: this architecture exchanges an optimizer's momentum, but this optimizer has none to send. Fix: pass optimizer::one_bit_adam to make_engine, or use architecture::reduce_scatter_all_gather.
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

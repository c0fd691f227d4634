// expect: tutti: this collective or transport matches messages by the order in which ranks start them, but by this coordination each rank starts them in an order of its own. Fix: leave the coordination out, or use coordination::leader, or schedule::in_order.
#include "stream_ordered_network.hpp"
#include "tutti/coordination/leader.hpp"
#include "tutti/coordination/local.hpp"
#include "tutti/tutti.hpp"

#ifdef GOOD
using Strategy = tutti::compose<tutti::coordination::leader>;
#else
using Strategy = tutti::compose<tutti::coordination::local>;
#endif

void train(tutti::engine<Strategy, network, tutti::optimizer::none>& engine) { engine.wait(); }

// expect: tutti: this would clip the norm of gradients that are still multiplied by the loss's scale. Fix: optimizer::loss_scaled<optimizer::clipped<O>>.
#include "tutti/optimizer/clipped.hpp"
#include "tutti/optimizer/loss_scaled.hpp"
#include "tutti/optimizer/sgd.hpp"

#ifdef GOOD
tutti::optimizer::loss_scaled<tutti::optimizer::clipped<tutti::optimizer::sgd>> values;
#else
tutti::optimizer::clipped<tutti::optimizer::loss_scaled<tutti::optimizer::sgd>> values;
#endif

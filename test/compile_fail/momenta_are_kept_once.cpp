// expect: tutti: this compressor would be given momenta and build another momentum of them, which diverges. Fix: keep one of the two, as in momentum_correction<error_feedback<C>>.
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/momentum_correction.hpp"
#include "tutti/compression/nesterov_momentum.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/compose.hpp"

using tutti::compression::momentum_correction;
using tutti::compression::nesterov_momentum;
using selection = tutti::compression::error_feedback<tutti::compression::top_k>;

#ifdef GOOD
using compressor = momentum_correction<selection>;
#else
using compressor = momentum_correction<nesterov_momentum<selection> >;
#endif

tutti::compose<compressor> composed;

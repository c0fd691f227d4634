// expect: tutti: error feedback adds what was not sent to what is sent next, but this compressor's own memory holds that already. Fix: use error feedback once, inside, as in momentum_correction<error_feedback<C>>.
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/momentum_correction.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/core/compose.hpp"

using tutti::compression::error_feedback;
using tutti::compression::momentum_correction;
using tutti::compression::sign;

#ifdef GOOD
using compressor = momentum_correction<error_feedback<sign>>;
#else
using compressor = error_feedback<momentum_correction<sign>>;
#endif

tutti::compose<compressor> composed;

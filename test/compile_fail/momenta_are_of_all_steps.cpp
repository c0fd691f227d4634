// expect: tutti: this compressor sends each rank's momentum, but this architecture sends plain gradients before or after some step, which would have no momentum. Fix: use an architecture that compresses in every step, or a compressor without a momentum and an optimizer with one.
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/dense.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/momentum_correction.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/compose.hpp"

using tutti::architecture::all_gather;
using tutti::architecture::switch_at;
using selection = tutti::compression::error_feedback<tutti::compression::top_k>;

#ifdef GOOD
using in_turn = switch_at<all_gather, tutti::architecture::reduce_scatter_all_gather>;
#else
using in_turn = switch_at<tutti::architecture::dense, all_gather>;
#endif

tutti::compose<in_turn, tutti::compression::momentum_correction<selection>> composed;

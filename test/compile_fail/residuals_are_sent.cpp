// expect: tutti: this compressor sends later what it has left out, but this architecture drops late payloads or stops compressing at some step, so that it would be lost. Fix: use a compressor without error feedback, push_only<C> where only means stop being compressed, or an architecture that takes every payload and compresses to the end.
#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/dense.hpp"
#include "tutti/architecture/switch_at.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/core/compose.hpp"

using tutti::architecture::all_gather;
using tutti::architecture::dense;
using tutti::architecture::switch_at;

#ifdef GOOD
using in_turn = switch_at<dense, all_gather>;
#else
using in_turn = switch_at<all_gather, dense>;
#endif

tutti::compose<in_turn, tutti::compression::error_feedback<tutti::compression::top_k>> composed;

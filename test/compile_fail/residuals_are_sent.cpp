// expect: tutti: this compressor sends later what it has left out, but this architecture drops payloads that come late, or from some step on sends none, and that would be lost. Fix: a compressor without error feedback, push_only<C> where means alone are compressed no more, or an architecture that takes every payload and compresses to the end.
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

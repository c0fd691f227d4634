#pragma once

#include <gtest/gtest.h>

#include "consumer/readme_policies.hpp"
#include "support/short_blocks.hpp"
#include "tutti/compression/bf16.hpp"
#include "tutti/compression/block_int8.hpp"
#include "tutti/compression/block_sign.hpp"
#include "tutti/compression/by_kth_magnitude.hpp"
#include "tutti/compression/by_magnitude.hpp"
#include "tutti/compression/byteps_onebit.hpp"
#include "tutti/compression/byteps_randomk.hpp"
#include "tutti/compression/byteps_topk.hpp"
#include "tutti/compression/chain.hpp"
#include "tutti/compression/dense_below.hpp"
#include "tutti/compression/dithering.hpp"
#include "tutti/compression/e3m0.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/fading_error_feedback.hpp"
#include "tutti/compression/fp16.hpp"
#include "tutti/compression/fp8.hpp"
#include "tutti/compression/momentum_correction.hpp"
#include "tutti/compression/natural.hpp"
#include "tutti/compression/nesterov_momentum.hpp"
#include "tutti/compression/none.hpp"
#include "tutti/compression/qsgd.hpp"
#include "tutti/compression/random_k.hpp"
#include "tutti/compression/rescaled_error_feedback.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/compression/sign.hpp"
#include "tutti/compression/signum.hpp"
#include "tutti/compression/threshold.hpp"
#include "tutti/compression/top_k.hpp"
#include "tutti/coordination/automatic.hpp"
#include "tutti/coordination/leader.hpp"
#include "tutti/coordination/learned.hpp"
#include "tutti/coordination/local.hpp"
#include "tutti/coordination/negotiated.hpp"
#include "tutti/fusion/all.hpp"
#include "tutti/fusion/by_arrival.hpp"
#include "tutti/fusion/by_group.hpp"
#include "tutti/fusion/by_modules.hpp"
#include "tutti/fusion/into_groups.hpp"
#include "tutti/fusion/merge_gradients.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/fusion/of_small.hpp"
#include "tutti/fusion/sparse_merge.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/optimizer/adam.hpp"
#include "tutti/optimizer/clipped.hpp"
#include "tutti/optimizer/lamb.hpp"
#include "tutti/optimizer/lars.hpp"
#include "tutti/optimizer/loss_scaled.hpp"
#include "tutti/optimizer/none.hpp"
#include "tutti/optimizer/one_bit_adam.hpp"
#include "tutti/optimizer/scaled_elsewhere.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/partition/none.hpp"
#include "tutti/partition/over_servers.hpp"
#include "tutti/schedule/as_ready.hpp"
#include "tutti/schedule/at_end.hpp"
#include "tutti/schedule/at_most.hpp"
#include "tutti/schedule/by_priority.hpp"
#include "tutti/schedule/in_order.hpp"
#include "tutti/schedule/split_phase.hpp"

/// One list of policies per role. A new policy joins its list and is then checked by its role's
/// laws; test/lint/lists.py finds policies that are on none. Collectives are listed in
/// collective_laws.hpp, architectures in order_laws.hpp.
namespace tutti::testing_lists {

using fusions = testing::Types<fusion::none, fusion::up_to, fusion::all, fusion::merge_gradients,
                               fusion::of_small, fusion::when_ready, fusion::into_groups,
                               fusion::by_modules, fusion::by_arrival, fusion::sparse_merge,
                               fusion::by_group<fusion::up_to, named<"*1", "*2">>>;

using partitions = testing::Types<partition::none, partition::into, partition::over_servers>;

using schedules =
    testing::Types<schedule::as_ready, schedule::in_order, schedule::at_end, schedule::at_most,
                   schedule::by_priority, schedule::split_phase, newest_first>;

using coordinations =
    testing::Types<coordination::automatic, coordination::local, coordination::leader,
                   coordination::learned, coordination::negotiated>;

using optimizers = testing::Types<optimizer::none, optimizer::sgd, optimizer::adam,
                                  optimizer::one_bit_adam, optimizer::lars, optimizer::lamb,
                                  optimizer::scaled_elsewhere, optimizer::clipped<optimizer::sgd>,
                                  optimizer::loss_scaled<optimizer::clipped<optimizer::adam>>>;

/// Compressors without memory, each of whose payloads represents just the chunk that it was made
/// from. Error feedback around them conserves the gradients' sum.
using memoryless_compressions =
    testing::Types<compression::none, compression::fp16, compression::bf16, compression::sign,
                   compression::scaled_sign, compression::norm_scaled_sign, compression::block_sign,
                   compression::block_int8, compression::top_k, compression::random_k,
                   compression::one_bit, compression::two_bit, compression::byteps_onebit,
                   compression::fp8_e4m3, compression::fp8_e5m2, compression::e3m0,
                   compression::natural, compression::byteps_topk, compression::byteps_randomk,
                   compression::chain<compression::top_k, compression::fp16>,
                   compression::chain<compression::top_k, compression::block_int8>,
                   compression::chain<compression::random_k, compression::scaled_sign>, byte_codes>;

/// Compressors that a GPU encodes by kernels of tutti's; the others have none.
using device_compressions = testing::Types<
    compression::none, compression::fp16, compression::bf16, compression::sign,
    compression::scaled_sign, compression::norm_scaled_sign, compression::block_sign,
    compression::block_int8, compression::top_k, compression::random_k, compression::one_bit,
    compression::two_bit, compression::byteps_onebit, compression::fp8_e4m3, compression::fp8_e5m2,
    compression::e3m0, compression::natural, compression::byteps_topk, compression::byteps_randomk,
    compression::chain<compression::top_k, compression::fp16>,
    compression::chain<compression::top_k, compression::block_int8>,
    compression::chain<compression::random_k, compression::scaled_sign>, compression::signum,
    compression::error_feedback<compression::top_k>,
    compression::fading_error_feedback<compression::top_k>,
    compression::momentum_correction<
        compression::error_feedback<compression::chain<compression::top_k, compression::fp16>>>,
    compression::nesterov_momentum<compression::rescaled_error_feedback<compression::byteps_topk>>,
    compression::dense_below<compression::two_bit>>;

using compressions = testing::Types<
    compression::none, compression::fp16, compression::bf16, compression::sign,
    compression::scaled_sign, compression::norm_scaled_sign, compression::block_sign,
    compression::block_int8, compression::signum, compression::top_k, compression::random_k,
    compression::by_magnitude, compression::by_kth_magnitude, compression::qsgd,
    compression::dithering, compression::one_bit, compression::two_bit, compression::byteps_onebit,
    compression::fp8_e4m3, compression::fp8_e5m2, compression::e3m0, compression::natural,
    compression::byteps_topk, compression::byteps_randomk, byte_codes,
    compression::error_feedback<compression::none>, compression::error_feedback<compression::fp16>,
    compression::error_feedback<compression::sign>,
    compression::error_feedback<compression::scaled_sign>,
    compression::error_feedback<compression::norm_scaled_sign>,
    compression::error_feedback<compression::block_sign>,
    compression::error_feedback<compression::block_int8>,
    compression::error_feedback<compression::top_k>,
    compression::error_feedback<test::qsgd_in_short_blocks>,
    compression::error_feedback<compression::dithering>,
    compression::error_feedback<compression::one_bit>,
    compression::error_feedback<compression::two_bit>,
    compression::error_feedback<compression::byteps_onebit>,
    compression::rescaled_error_feedback<compression::byteps_onebit>,
    compression::dense_below<compression::error_feedback<compression::byteps_onebit>>,
    compression::dense_below<compression::dithering>,
    compression::nesterov_momentum<compression::dithering>,
    compression::nesterov_momentum<compression::rescaled_error_feedback<compression::byteps_topk>>,
    compression::chain<compression::top_k, compression::scaled_sign>,
    compression::chain<compression::random_k, compression::natural>,
    compression::chain<compression::top_k, compression::qsgd>,
    compression::error_feedback<compression::chain<compression::top_k, compression::qsgd>>,
    compression::fading_error_feedback<compression::top_k>,
    compression::fading_error_feedback<test::qsgd_in_short_blocks>,
    compression::momentum_correction<
        compression::error_feedback<compression::chain<compression::top_k, compression::fp16>>>,
    compression::momentum_correction<compression::fp16>,
    compression::momentum_correction<compression::error_feedback<compression::top_k>>>;

}  // namespace tutti::testing_lists

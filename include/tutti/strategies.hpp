#pragma once

#include <tuple>

#include "tutti/strategies/ad_psgd.hpp"
#include "tutti/strategies/adasum.hpp"
#include "tutti/strategies/asc_wfbp.hpp"
#include "tutti/strategies/bsp.hpp"
#include "tutti/strategies/byteps.hpp"
#include "tutti/strategies/byteps_compressed.hpp"
#include "tutti/strategies/bytescheduler.hpp"
#include "tutti/strategies/d_psgd.hpp"
#include "tutti/strategies/dc_asgd.hpp"
#include "tutti/strategies/ddp.hpp"
#include "tutti/strategies/dear.hpp"
#include "tutti/strategies/dgc.hpp"
#include "tutti/strategies/diloco.hpp"
#include "tutti/strategies/distributed_replicated.hpp"
#include "tutti/strategies/easgd.hpp"
#include "tutti/strategies/ef_sign_sgd.hpp"
#include "tutti/strategies/gtopk_sgd.hpp"
#include "tutti/strategies/horovod.hpp"
#include "tutti/strategies/horovod_hierarchical.hpp"
#include "tutti/strategies/kungfu.hpp"
#include "tutti/strategies/kungfu_nccl.hpp"
#include "tutti/strategies/local.hpp"
#include "tutti/strategies/local_sgd.hpp"
#include "tutti/strategies/mean_of_signs.hpp"
#include "tutti/strategies/mg_wfbp.hpp"
#include "tutti/strategies/mxnet.hpp"
#include "tutti/strategies/ok_topk.hpp"
#include "tutti/strategies/omgs.hpp"
#include "tutti/strategies/one_bit_adam.hpp"
#include "tutti/strategies/p3.hpp"
#include "tutti/strategies/power_sgd.hpp"
#include "tutti/strategies/qsgd.hpp"
#include "tutti/strategies/relaxed.hpp"
#include "tutti/strategies/sgp.hpp"
#include "tutti/strategies/sign_sgd.hpp"
#include "tutti/strategies/ssp.hpp"
#include "tutti/strategies/sync_replicas.hpp"
#include "tutti/strategies/tensorpack.hpp"
#include "tutti/strategies/tf_replicated.hpp"
#include "tutti/strategies/top_k.hpp"
#include "tutti/strategies/wfbp.hpp"
#include "tutti/strategies/zero.hpp"
#include "tutti/strategies/zero_plus_plus.hpp"

namespace tutti::strategies {

/// Named strategies, for registries and for tests that try them all: one for each composition, and
/// of several variants of one those that show most. OneBitAdam is left out, because it has an
/// optimizer of its own.
using all = std::tuple<Local, BSP, WFBP, WFBPUnlimited, MGWFBP, MGWFBPExact, ASCWFBP, Horovod,
                       HorovodHierarchical, DDP, BytePS, BSPPS, BytePSOneBit, ByteScheduler, DeAR,
                       TopK, TopK2, gTopKSGD, OkTopk, DGC, OMGS, SignSGD, Signum, EFSignSGD,
                       PowerSGD, QSGD, MXNetDistSync, MXNet2Bit, MXNetDistAsync, P3, KungFu,
                       PairAveraging, SMA, LocalSGD, AdaSGD, DPSGD, SGP, ADPSGD, EASGD, AsyncEASGD,
                       DiLoCo, Relaxed, ZeRO1, ZeRO2, ZeROPlusPlus, Adasum, TFReplicated,
                       DistributedReplicated, BytePSAsync, SSP, SyncReplicas, DCASGD>;

}  // namespace tutti::strategies

// The layers' kernels without nvcc: the same source over a launcher of host threads.
#include "gpu/stand_in/launcher.hpp"
#include "models/cuda/channels_last.cuh"

namespace models {

template struct channels_last<float>;
template struct channels_last<brain>;

}  // namespace models

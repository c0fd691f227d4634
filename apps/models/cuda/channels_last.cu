#include "models/cuda/channels_last.cuh"

namespace models {

template struct channels_last<float>;
template struct channels_last<brain>;

}  // namespace models

#pragma once

#include <array>
#include <string_view>

#include "survey/calibration.hpp"
#include "survey/prediction.hpp"
#include "tutti/base/units.hpp"

namespace survey {

/// What MG-WFBP's authors measured of one DNN on 16 V100s, a batch of 128 each: BSP is the single
/// message that they draw as SyncEASGD.
/// After: Shi et al., "MG-WFBP: merging gradients wisely for efficient communication in distributed
/// deep learning", IEEE TPDS 2021, the figures of its plots' program in HKBU-HPML/MG-WFBP.
struct three_methods {
  std::string_view model;
  std::string_view network;  ///< 10GbE or 56GbIB
  double bytes_an_element;   ///< 4 or 2
  tutti::seconds compute;    ///< of an iteration, on one GPU
  by_method measured;
};

extern const std::array<three_methods, 8> authors_figures;

/// What it takes to copy one tensor into a buffer and out again: by what MG-WFBP is slower than
/// WFBP on 4 GPUs of the survey, where no NIC is passed, over ResNet-50's tensors.
tutti::seconds copy_of_a_tensor();

/// What the simulator says of one: bytes cost what the authors' own table says, an all-reduce
/// starts in what the table says or in the time of the survey's software, whichever is longer, and
/// BSP and MG-WFBP copy every tensor.
by_method predict(const three_methods& row, const calibrated& law);

}  // namespace survey

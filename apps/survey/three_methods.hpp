#pragma once

#include <array>
#include <string_view>

#include "survey/calibration.hpp"
#include "survey/prediction.hpp"
#include "tutti/base/units.hpp"

namespace survey {

/// The iterations that MG-WFBP's authors measured for one DNN on 16 V100s with a batch of 128 each.
/// BSP is the single message that they plot as SyncEASGD.
/// After: Shi et al., "MG-WFBP: merging gradients wisely for efficient communication in distributed
/// deep learning", IEEE TPDS 2021; the figures are from the program of its plots in
/// HKBU-HPML/MG-WFBP.
struct three_methods {
  std::string_view model;
  std::string_view network;  ///< 10GbE or 56GbIB
  double bytes_an_element;   ///< 4 or 2
  tutti::seconds compute;    ///< time of an iteration, on one GPU
  by_method measured;
};

extern const std::array<three_methods, 8> authors_figures;

/// Returns the time to copy one tensor into a buffer and out again: by how much MG-WFBP is slower
/// than WFBP on 4 GPUs of the survey, where no NIC is passed, divided by the number of ResNet-50's
/// tensors.
tutti::seconds copy_of_a_tensor();

/// Returns the predicted iterations. Bytes cost what the authors' table of all-reduces states. The
/// start-up of an all-reduce is the longer of the table's and the survey's software's. BSP and
/// MG-WFBP copy every tensor.
by_method predict(const three_methods& row, const calibrated& law);

}  // namespace survey

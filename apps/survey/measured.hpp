#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "tutti/base/units.hpp"

namespace survey {

/// The survey's methods that exchange gradients by all-reduce. Names are the library's.
enum class method { BSP, WFBP, MGWFBP };

/// The networks between the survey's hosts. 100GbE-TCP is the InfiniBand NIC used through TCP.
enum class network { ethernet10, ethernet100, infiniband100 };

enum class dnn { resnet50, bert_base, bert_large };

inline constexpr std::array methods{method::BSP, method::WFBP, method::MGWFBP};
inline constexpr std::array networks{network::ethernet10, network::ethernet100,
                                     network::infiniband100};
inline constexpr std::array dnns{dnn::resnet50, dnn::bert_base, dnn::bert_large};

/// Return a name as the survey spells it. A DNN has the name that `models::replay` knows.
std::string_view name_of(method which);
std::string_view name_of(network which);
std::string_view name_of(dnn which);

constexpr int per_host = 4;             ///< GPUs behind one NIC
constexpr int calibration_workers = 8;  ///< the smallest job that leaves its host
inline constexpr std::array workers_of_cells{4, 8, 16, 32};

/// Returns the samples of a GPU in one iteration.
int batch_of(dnn which);
/// Returns how long one GPU alone, which communicates nothing, computes for an iteration.
tutti::seconds compute_of(dnn which);

/// One cell of the survey's grid.
struct cell {
  dnn of{};
  network over{};
  method how{};
  int workers{};
  /// Samples a second of all workers, the mean of five runs. Empty if the survey has no figure.
  std::optional<double> samples_per_second{};

  std::optional<tutti::seconds> iteration() const {
    return samples_per_second ? std::optional(batch_of(of) * workers / *samples_per_second)
                              : std::nullopt;
  }
};

/// Returns the survey's grid, in fp32, from 4 to 32 GPUs. ResNet-50 by all three methods and both
/// BERTs by BSP have measured figures. BERTs by the other methods have only the cells that use more
/// than one host, without a figure. After: Shi et al., "A Quantitative Survey of Communication
/// Optimizations in Distributed Deep Learning", IEEE Network 2020 (arXiv 2005.13247); the figures
/// are its code's, HKBU-HPML's ddl-benchmarks, results of 2020-05-29.
const std::vector<cell>& grid();

}  // namespace survey

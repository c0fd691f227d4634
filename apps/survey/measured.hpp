#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "tutti/base/units.hpp"

namespace survey {

/// The methods of the survey that share gradients by all-reduce, as the library names them.
enum class method { BSP, WFBP, MGWFBP };

/// What connected the survey's hosts: 100GbE-TCP is the InfiniBand NIC through TCP.
enum class network { ethernet10, ethernet100, infiniband100 };

enum class dnn { resnet50, bert_base, bert_large };

inline constexpr std::array methods{method::BSP, method::WFBP, method::MGWFBP};
inline constexpr std::array networks{network::ethernet10, network::ethernet100,
                                     network::infiniband100};
inline constexpr std::array dnns{dnn::resnet50, dnn::bert_base, dnn::bert_large};

/// As the survey spells them; a DNN as `models::replay` does.
std::string_view name_of(method which);
std::string_view name_of(network which);
std::string_view name_of(dnn which);

constexpr int per_host = 4;             ///< GPUs behind one NIC
constexpr int calibration_workers = 8;  ///< the smallest job that leaves its host
inline constexpr std::array workers_of_cells{4, 8, 16, 32};

/// Samples a GPU and iteration.
int batch_of(dnn which);
/// How long a GPU that shares nothing computes for one iteration.
tutti::seconds compute_of(dnn which);

/// One cell of the survey's grid.
struct cell {
  dnn of{};
  network over{};
  method how{};
  int workers{};
  /// Of all workers, the mean of five runs; none where no figure is here to compare with.
  std::optional<double> samples_per_second{};

  std::optional<tutti::seconds> iteration() const {
    return samples_per_second ? std::optional(batch_of(of) * workers / *samples_per_second)
                              : std::nullopt;
  }
};

/// The grid, fp32, from 4 to 32 GPUs: ResNet-50 by all three methods and both BERTs by BSP are
/// measured; of BERTs by the others there are the cells that leave a host, without a figure.
/// After: Shi et al., "A Quantitative Survey of Communication Optimizations in Distributed Deep
/// Learning", IEEE Network 2020 (arXiv 2005.13247); the figures are its code's, HKBU-HPML's
/// ddl-benchmarks, results of 2020-05-29.
const std::vector<cell>& grid();

}  // namespace survey

#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "tutti/base/units.hpp"

namespace survey {

/// The methods of the survey that share gradients by all-reduce, as the library names them.
enum class method { BSP, WFBP, MGWFBP };

/// What connected the survey's hosts: 100GbE-TCP is the InfiniBand NIC through TCP.
enum class network { ethernet10, ethernet100, infiniband100 };

inline constexpr std::array methods{method::BSP, method::WFBP, method::MGWFBP};
inline constexpr std::array networks{network::ethernet10, network::ethernet100,
                                     network::infiniband100};

/// As the survey spells them.
std::string_view name_of(method which);
std::string_view name_of(network which);

constexpr int per_host = 4;             ///< GPUs behind one NIC
constexpr int batch = 64;               ///< samples a GPU and iteration
constexpr double one_gpu = 253.1;       ///< samples a second of a GPU that shares nothing
constexpr int calibration_workers = 8;  ///< the smallest job that leaves its host

/// One cell of the survey's ResNet-50 grid.
struct cell {
  network over{};
  method how{};
  int workers{};
  double samples_per_second{};  ///< of all workers, the mean of five runs

  tutti::seconds iteration() const { return batch * workers / samples_per_second; }
};

/// The grid: ResNet-50, fp32, from 4 to 32 GPUs.
/// After: Shi et al., "A Quantitative Survey of Communication Optimizations in Distributed Deep
/// Learning", IEEE Network 2020; the figures are of its code's results of 2020-05-29.
const std::vector<cell>& measured();

}  // namespace survey

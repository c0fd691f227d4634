#include "survey/measured.hpp"

#include <algorithm>
#include <cstddef>

namespace survey {

namespace {

/// Throughputs measured with 4, 8, 16 and 32 GPUs.
struct measured_series {
  dnn of;
  network over;
  method how;
  std::array<double, workers_of_cells.size()> samples_per_second;
};

using enum method;
using enum network;
using enum dnn;

constexpr std::array measured{
    measured_series{resnet50, ethernet10, BSP, {925.02, 1282.28, 2485.12, 4920.82}},
    measured_series{resnet50, ethernet10, WFBP, {1015.40, 1795.74, 3146.78, 5113.18}},
    measured_series{resnet50, ethernet10, MGWFBP, {1003.18, 1980.58, 3784.98, 6883.60}},
    measured_series{resnet50, ethernet100, BSP, {926.00, 1601.36, 3087.16, 5744.76}},
    measured_series{resnet50, ethernet100, WFBP, {1015.10, 1985.74, 3650.74, 6141.38}},
    measured_series{resnet50, ethernet100, MGWFBP, {1002.68, 1990.68, 3945.96, 7540.94}},
    measured_series{resnet50, infiniband100, BSP, {920.28, 1821.20, 3602.90, 7126.52}},
    measured_series{resnet50, infiniband100, WFBP, {1014.28, 2017.12, 3946.06, 7326.56}},
    measured_series{resnet50, infiniband100, MGWFBP, {1003.90, 2001.72, 3987.40, 7876.46}},
    measured_series{bert_base, ethernet10, BSP, {555.52, 518.94, 984.88, 1926.64}},
    measured_series{bert_base, ethernet100, BSP, {555.36, 804.62, 1504.62, 2815.72}},
    measured_series{bert_base, infiniband100, BSP, {555.70, 1082.42, 2112.96, 4184.38}},
    measured_series{bert_large, ethernet10, BSP, {53.04, 28.96, 54.30, 105.10}},
    measured_series{bert_large, ethernet100, BSP, {52.90, 55.80, 103.34, 187.00}},
    measured_series{bert_large, infiniband100, BSP, {53.08, 99.18, 191.64, 375.22}}};

struct on_one_gpu {
  int batch;
  double samples_per_second;
};

constexpr std::array<on_one_gpu, dnns.size()> alone{{{64, 253.1}, {64, 212.8}, {8, 49.0}}};

const on_one_gpu& alone_of(dnn which) { return alone[static_cast<std::size_t>(which)]; }

}  // namespace

std::string_view name_of(method which) {
  constexpr std::array<std::string_view, 3> names{"BSP", "WFBP", "MG-WFBP"};
  return names[static_cast<std::size_t>(which)];
}

std::string_view name_of(network which) {
  constexpr std::array<std::string_view, 3> names{"10GbE", "100GbE-TCP", "100GbIB"};
  return names[static_cast<std::size_t>(which)];
}

std::string_view name_of(dnn which) {
  constexpr std::array<std::string_view, 3> names{"resnet50", "bert_base", "bert_large"};
  return names[static_cast<std::size_t>(which)];
}

int batch_of(dnn which) { return alone_of(which).batch; }

tutti::seconds compute_of(dnn which) {
  return alone_of(which).batch / alone_of(which).samples_per_second;
}

const std::vector<cell>& grid() {
  static const std::vector<cell> all = [] {
    std::vector<cell> made;
    for (const dnn of : dnns) {
      for (const network over : networks) {
        for (const method how : methods) {
          const auto found = std::ranges::find_if(measured, [&](const measured_series& each) {
            return each.of == of && each.over == over && each.how == how;
          });
          for (std::size_t i = 0; i < workers_of_cells.size(); ++i) {
            cell next{of, over, how, workers_of_cells[i]};
            if (found != measured.end()) {
              next.samples_per_second = found->samples_per_second[i];
            }
            if (next.samples_per_second || next.workers > per_host) {
              made.push_back(next);
            }
          }
        }
      }
    }
    return made;
  }();
  return all;
}

}  // namespace survey

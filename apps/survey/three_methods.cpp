#include "survey/three_methods.hpp"

#include <algorithm>
#include <cstddef>
#include <string>

#include "models/replayed/replayed.hpp"
#include "survey/simulation.hpp"

namespace survey {

namespace {

constexpr std::string_view ethernet = "10GbE";
constexpr std::string_view infiniband = "56GbIB";
constexpr int workers = 16;

const all_reduce_cost& table_of(std::string_view network) {
  return network == ethernet ? MGWFBPs_10GbE.back().cost : MGWFBPs_56GbIB.cost;
}

}  // namespace

// Measured times are in the order BSP, WFBP, MG-WFBP.
const std::array<three_methods, 8> authors_figures{
    {{"resnet152", ethernet, 4, 0.8831, {1.3601, 1.2334, 1.1261}},
     {"resnet152", ethernet, 2, 0.3886, {0.6363, 0.7571, 0.6297}},
     {"resnet152", infiniband, 4, 0.8831, {1.1435, 1.0821, 1.0893}},
     {"resnet152", infiniband, 2, 0.3886, {0.5182, 0.5310, 0.4863}},
     {"inception_v4", ethernet, 4, 0.6108, {0.9000, 0.9437, 0.7806}},
     {"inception_v4", ethernet, 2, 0.2797, {0.4771, 0.5910, 0.4232}},
     {"inception_v4", infiniband, 4, 0.6108, {0.7462, 0.7674, 0.6613}},
     {"inception_v4", infiniband, 2, 0.2797, {0.3732, 0.4302, 0.3638}}}};

tutti::seconds copy_of_a_tensor() {
  tutti::seconds merging = 0;
  for (const cell& each : grid()) {
    if (each.of == dnn::resnet50 && each.workers == per_host && each.how != method::BSP) {
      merging += (each.how == method::MGWFBP ? 1 : -1) * *each.iteration();
    }
  }
  return merging / networks.size() / static_cast<double>(model(dnn::resnet50).tensors.size());
}

by_method predict(const three_methods& row, const calibrated& law) {
  const models::replayed trained = models::with_totals(models::replay(std::string(row.model)),
                                                       row.compute / 3, row.compute * 2 / 3);
  const all_reduce_cost& table = table_of(row.network);
  const double elements_of_4_bytes = row.bytes_an_element / sizeof(float);
  const job of{.model = &trained,
               .workers = workers,
               .cost = {std::max(table.startup, law.startup * growth_of_startup(workers)),
                        table.seconds_per_byte * elements_of_4_bytes}};
  by_method made{};
  for (const method how : methods) {
    const auto copied = how == method::WFBP ? 0 : trained.tensors.size();
    made[static_cast<std::size_t>(how)] =
        simulate(how, of) + static_cast<double>(copied) * copy_of_a_tensor();
  }
  return made;
}

}  // namespace survey

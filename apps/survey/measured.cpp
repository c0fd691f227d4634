#include "survey/measured.hpp"

#include <cstddef>

namespace survey {

std::string_view name_of(method which) {
  constexpr std::array<std::string_view, 3> names{"BSP", "WFBP", "MG-WFBP"};
  return names[static_cast<std::size_t>(which)];
}

std::string_view name_of(network which) {
  constexpr std::array<std::string_view, 3> names{"10GbE", "100GbE-TCP", "100GbIB"};
  return names[static_cast<std::size_t>(which)];
}

const std::vector<cell>& measured() {
  using enum method;
  using enum network;
  static const std::vector<cell> all{
      {ethernet10, BSP, 4, 925.02},         {ethernet10, BSP, 8, 1282.28},
      {ethernet10, BSP, 16, 2485.12},       {ethernet10, BSP, 32, 4920.82},
      {ethernet10, WFBP, 4, 1015.40},       {ethernet10, WFBP, 8, 1795.74},
      {ethernet10, WFBP, 16, 3146.78},      {ethernet10, WFBP, 32, 5113.18},
      {ethernet10, MGWFBP, 4, 1003.18},     {ethernet10, MGWFBP, 8, 1980.58},
      {ethernet10, MGWFBP, 16, 3784.98},    {ethernet10, MGWFBP, 32, 6883.60},
      {ethernet100, BSP, 4, 926.00},        {ethernet100, BSP, 8, 1601.36},
      {ethernet100, BSP, 16, 3087.16},      {ethernet100, BSP, 32, 5744.76},
      {ethernet100, WFBP, 4, 1015.10},      {ethernet100, WFBP, 8, 1985.74},
      {ethernet100, WFBP, 16, 3650.74},     {ethernet100, WFBP, 32, 6141.38},
      {ethernet100, MGWFBP, 4, 1002.68},    {ethernet100, MGWFBP, 8, 1990.68},
      {ethernet100, MGWFBP, 16, 3945.96},   {ethernet100, MGWFBP, 32, 7540.94},
      {infiniband100, BSP, 4, 920.28},      {infiniband100, BSP, 8, 1821.20},
      {infiniband100, BSP, 16, 3602.90},    {infiniband100, BSP, 32, 7126.52},
      {infiniband100, WFBP, 4, 1014.28},    {infiniband100, WFBP, 8, 2017.12},
      {infiniband100, WFBP, 16, 3946.06},   {infiniband100, WFBP, 32, 7326.56},
      {infiniband100, MGWFBP, 4, 1003.90},  {infiniband100, MGWFBP, 8, 2001.72},
      {infiniband100, MGWFBP, 16, 3987.40}, {infiniband100, MGWFBP, 32, 7876.46}};
  return all;
}

}  // namespace survey

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

/// What TopKCompressor of hclhkbu/gtopkssgd at commit 6f57343f makes, run with Debian's torch
/// 1.13.1: k for every length and density, and what it sends of gradient_in_512ths(48, step) at a
/// density of 0.125, with indices in order, and the residuals after the sixth step. No magnitude is
/// equal to the last one that is sent, because torch.topk promises no order of equal ones.
namespace tutti::test {

struct selected_of_top_k {
  double density;
  std::array<std::size_t, 7> k;  ///< for each of lengths_of_top_k
};

inline constexpr std::array<std::size_t, 7> lengths_of_top_k{1, 7, 333, 999, 1000, 1001, 30011};
inline constexpr std::array<selected_of_top_k, 5> selections_of_top_k{
    {{0.001, {1, 1, 1, 1, 1, 1, 30}},
     {0.004, {1, 1, 1, 3, 4, 4, 120}},
     {0.05, {1, 1, 16, 49, 50, 50, 1500}},
     {0.1, {1, 1, 33, 99, 100, 100, 3001}},
     {0.25, {1, 1, 83, 249, 250, 250, 7502}}}};

struct step_of_top_k {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
};

inline const std::vector<step_of_top_k>& steps_of_top_k() {
  static const std::vector<step_of_top_k> steps{
      {{0, 1, 23, 24, 46, 47},
       {-0x1.f4p+0f, 0x1.cap+0f, -0x1.ddp+0f, 0x1.e1p+0f, -0x1.c6p+0f, -0x1.f08p+0f}},
      {{8, 9, 10, 22, 32, 33},
       {0x1.49cp+1f, 0x1.1f4p+1f, 0x1.e98p+0f, -0x1.094p+1f, 0x1.364p+1f, 0x1.0bcp+1f}},
      {{7, 15, 16, 31, 39, 40},
       {-0x1.788p+0f, -0x1.8cp+0f, 0x1.ddp+0f, -0x1.b3p+0f, -0x1.c68p+0f, 0x1.a28p+0f}},
      {{2, 3, 21, 25, 26, 45},
       {0x1.59cp+1f, 0x1.04cp+1f, -0x1.0ccp+1f, 0x1.87cp+1f, 0x1.32cp+1f, -0x1.33cp+1f}},
      {{0, 11, 23, 30, 34, 47},
       {-0x1.34p+1f, 0x1.124p+1f, -0x1.06p+1f, -0x1.e78p+0f, 0x1.4bcp+1f, -0x1.2dp+1f}},
      {{8, 14, 17, 18, 38, 41},
       {-0x1.37p+1f, -0x1.ecp+0f, 0x1.74p+1f, 0x1.e9p+0f, -0x1.308p+1f, 0x1.398p+1f}}};
  return steps;
}

inline const std::vector<float> residual_of_top_k{
    0x1.8p-1f,    0x1.6cp+0f,  -0x1.f2p-2f,  -0x1.a3p-1f, 0x1.c8p-3f,   -0x1.8cp-1f, -0x1.c5p+0f,
    -0x1.4b8p+0f, 0x0p+0f,     0x1.a1p-1f,   0x1.34p-3f,  -0x1.138p+0f, 0x1.2p-4f,   -0x1.dap-1f,
    0x0p+0f,      -0x1.5fp+0f, -0x1.de8p+0f, 0x0p+0f,     0x0p+0f,      0x1.d4p-1f,  -0x1.5p-4f,
    0x1.058p+0f,  -0x1p-9f,    0x1.aep-1f,   0x1.dfp+0f,  -0x1.3ap-2f,  -0x1.47p-1f, 0x1.86p-1f,
    -0x1.ep-3f,   -0x1.3bp+0f, -0x1.4ap-2f,  -0x1.86p+0f, 0x1.2c8p+0f,  0x1.05p-1f,  -0x1.f9p-1f,
    0x1.38p-1f,   -0x1.8cp-2f, -0x1.62p+0f,  0x0p+0f,     -0x1.998p+0f, 0x1.cf8p+0f, 0x0p+0f,
    0x1.74p+0f,   0x1.d4p-2f,  -0x1.14p-1f,  0x1.bdp-1f,  -0x1.84p-1f,  0x1.87p-1f};

}  // namespace tutti::test

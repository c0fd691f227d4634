#pragma once

#include <cstddef>
#include <vector>

#include "compression/in_hex.hpp"

/// What OnebitAdam of microsoft/DeepSpeed at commit 38327e07 trains, run as
/// compression/deepspeed_vectors.hpp says, on two ranks: learning rate 0.125, betas 0.75 and 0.875,
/// eps 0.25, weight decay 0.125, freeze_step 4, of which the first moves nothing and is not counted
/// below. It has two parameters of 64 and 32 elements. Their gradients are mirrored, so that both
/// halves, each of which has a scale here, have DeepSpeed's one scale.
namespace tutti::test {

/// Returns both parameters' gradients.
inline std::vector<float> mirrored_gradients(std::size_t rank, std::size_t step) {
  std::vector<float> made;
  for (const std::size_t half : {32u, 16u}) {
    const auto first = gradient_in_512ths(half, 10 + (step * 2 + rank) * 2 + (half == 16 ? 1 : 0));
    made.insert(made.end(), first.begin(), first.end());
    made.insert(made.end(), first.rbegin(), first.rend());
  }
  return made;
}

/// Returns both parameters' initial values.
inline std::vector<float> parameters_for_deepspeed() {
  std::vector<float> made;
  for (const int size : {64, 32}) {
    for (int i = 0; i < size; ++i) {
      made.push_back(static_cast<float>((i * 5 + (size == 32 ? 17 : 0)) % 31 - 15) / 8);
    }
  }
  return made;
}

/// The parameters after three dense steps and four of momenta.
inline const std::vector<float> parameters_by_deepspeed{
    -0x1.7a5428p+0f, -0x1.977204p-1f, -0x1.6b5164p-2f, -0x1.53cbc6p-3f, 0x1.4394e8p-2f,
    0x1.d2d1fep-1f,  0x1.9f1a3cp+0f,  -0x1.02fda8p+0f, -0x1.157e1ap-1f, 0x1.2cdeb8p-3f,
    0x1.9c17dep-2f,  0x1.89ee72p-1f,  0x1.38e9fap+0f,  -0x1.87b614p+0f, -0x1.ea584p-1f,
    -0x1.c3c39cp-3f, 0x1.011056p-1f,  0x1.13ebe8p+0f,  0x1.84796ep+0f,  -0x1.7e4c2cp+0f,
    -0x1.0c32f4p+0f, -0x1.d42d4ap-2f, 0x1.00e784p-2f,  0x1.f16052p-1f,  0x1.8e010cp+0f,
    -0x1.841b94p+0f, -0x1.df7dfp-1f,  -0x1.35018p-1f,  -0x1.dced3cp-4f, 0x1.2de764p-1f,
    0x1.6efec8p+0f,  -0x1.90c3c6p+0f, -0x1.017728p+0f, -0x1.6e3ff2p-2f, -0x1.501d8ep-4f,
    0x1.535376p-2f,  0x1.ed7854p-1f,  0x1.c01732p+0f,  -0x1.2e20cep+0f, -0x1.d77e3ep-2f,
    0x1.368c52p-4f,  0x1.e62ee4p-2f,  0x1.c5bf82p-1f,  0x1.6a515ep+0f,  -0x1.61a34p+0f,
    -0x1.71720ep-1f, -0x1.55aa4p-5f,  0x1.011056p-1f,  0x1.cc418cp-1f,  0x1.480656p+0f,
    -0x1.a45fp+0f,   -0x1.3d9a58p+0f, -0x1.25e7b4p-1f, 0x1.6da0f4p-3f,  0x1.0ae33ap+0f,
    0x1.79219p+0f,   -0x1.58f86cp+0f, -0x1.10bbeap+0f, -0x1.4fa7dep-1f, -0x1.0df3c2p-3f,
    0x1.02f822p-1f,  0x1.6fba6cp+0f,  -0x1.5b05ap+0f,  -0x1.d60f16p-1f, 0x1.1554bcp-2f,
    0x1.ef2588p-1f,  0x1.65141ep+0f,  -0x1.9d5fc4p+0f, -0x1.2d1642p+0f, -0x1.2da42p-1f,
    0x1.6c133p-8f,   0x1.a8cbdp-1f,   0x1.6add44p+0f,  -0x1.59b2ap+0f,  -0x1.d05ed4p-1f,
    -0x1.7a6be4p-1f, -0x1.24e4ccp-3f, 0x1.643d74p-2f,  0x1.32b1dap+0f,  0x1.cbc7cep+0f,
    -0x1.1d6032p+0f, -0x1.2fb9ep-1f,  -0x1.4b98b4p-2f, 0x1.381c5ep-2f,  0x1.a80df6p-1f,
    0x1.c7a6bep+0f,  -0x1.03b7dap+0f, -0x1.3206b6p-1f, -0x1.0e17a4p-4f, 0x1.d5ef6p-3f,
    0x1.82320cp-1f,  0x1.496e1p+0f,   -0x1.80b6d8p+0f, -0x1.b03cb2p-1f, -0x1.3833c2p-3f,
    0x1.1554bcp-2f};

}  // namespace tutti::test

#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

/// What epfml/error-feedback-SGD at commit 0f92041b makes of gradient_in_512ths(45, step) with
/// Debian's torch 1.13.1: ErrorFeedbackSGD with comp='scaled_sign' and memory=True, with a learning
/// rate that is halved after two steps. No element is 0, whose sign torch.sign would make 0.
namespace tutti::test {

struct ef_sign_sgd_step {
  float learning_rate;
  float scale;
  std::string_view signs;
};

inline constexpr std::array<ef_sign_sgd_step, 4> ef_sign_sgd_steps{
    {{0x1p-1f, 0x1.e371c8p-2f, "-+++++++++++------------++++++++++++---------"},
     {0x1p-1f, 0x1.01db08p-1f, "-+------+++++++++++-----+-------+++++++++++--"},
     {0x1p-2f, 0x1.2e0d06p-2f, "--+++---+---++--++-++++--+++----+---+---++-++"},
     {0x1p-2f, 0x1.d88a2ap-3f, "-++++++-+++---+---++----+++++++--++--+-----+-"}}};

/// The residuals after the second step and after the fourth.
inline const std::array<std::vector<float>, 2> ef_sign_sgd_memories{
    {{-0x1.43d828p-2f, -0x1.eb27d8p-2f, 0x1.724448p-2f,  0x1.90889p-3f,   0x1.e4448p-6f,
      -0x1.17777p-3f,  -0x1.35bbb8p-2f, -0x1.dfbbb8p-2f, 0x1.3fd828p-2f,  0x1.2bb05p-3f,
      -0x1.427d8p-6f,  -0x1.7c4fbp-3f,  0x1.2f5ddcp-1f,  0x1.b4bbb8p-2f,  0x1.0abbb8p-2f,
      0x1.82eeep-4f,   -0x1.25112p-4f,  -0x1.e6889p-3f,  -0x1.9d4448p-2f, 0x1.c027d8p-2f,
      0x1.1627d8p-2f,  0x1.b09f6p-4f,   -0x1.eec14p-5f,  -0x1.cfb05p-3f,  -0x1.8f27d8p-2f,
      0x1.ce4448p-2f,  0x1.244448p-2f,  0x1.e9112p-4f,   -0x1.7dddcp-5f,  -0x1.b3777p-3f,
      -0x1.83bbb8p-2f, -0x1.16dddcp-1f, 0x1.e3b05p-3f,   0x1.1f60ap-4f,   -0x1.889f6p-4f,
      -0x1.0c27d8p-2f, 0x1.085ddcp-1f,  0x1.66bbb8p-2f,  0x1.79777p-3f,   0x1.2bbb8p-6f,
      -0x1.2e889p-3f,  -0x1.414448p-2f, -0x1.eb4448p-2f, 0x1.7227d8p-2f,  0x1.904fbp-3f},
     {-0x1.761834p-4f, 0x1.6c4032p-3f,  0x1.62722cp-2f,  0x1.8dc8b4p-4f,  -0x1.371ba6p-3f,
      0x1.831872p-3f,  -0x1.eb9e38p-5f, 0x1.382cc6p-3f,  -0x1.9bf3e6p-3f, 0x1.1e4032p-3f,
      -0x1.bf7f9cp-4f, 0x1.a6a90cp-4f,  0x1.aae78ep-3f,  -0x1.4c61c8p-5f, -0x1.49f8aep-3f,
      0x1.a46e98p-5f,  0x1.83e78ep-3f,  -0x1.e861c8p-5f, -0x1.70f8aep-3f, -0x1.8548ap-7f,
      0x1.9abfcep-3f,  -0x1.8d00c8p-5f, -0x1.30a01cp-2f, 0x1.63cf98p-5f,  0x1.40201cp-2f,
      0x1.ec722cp-2f,  0x1.dae45ap-3f,  -0x1.18dd3p-6f,  0x1.4b8c3cp-2f,  0x1.3230e4p-4f,
      -0x1.64e78ep-3f, 0x1.38b318p-5f,  0x1.2b206ep-3f,  0x1.a2019p-6f,   -0x1.c9bfcep-3f,
      -0x1.6ab7ap-7f,  0x1.81cf1cp-4f,  -0x1.afc57p-6f,  0x1.7d1ba6p-3f,  -0x1.01c8b4p-4f,
      0x1.33cf1cp-4f,  -0x1.641872p-3f, 0x1.561ba6p-3f,  -0x1.025486p-3f, 0x1.617f9cp-4f}}};

/// What EFSignCompressor of HKBU-HPML/ddl-benchmarks at commit 30de09bc sends for
/// gradient_in_512ths(74, 2 * step), run in the same way, with the bit2byte of sign_vectors.hpp,
/// and its residuals after the fifth step. No element is 0 here either.
inline const std::array<std::vector<std::uint32_t>, 5> words_of_efsignum{
    {{0x8f0f0f00, 0x0f0f0f00, 0x0f0f1e00},
     {0xbc3c3c00, 0x38383900, 0x79797800},
     {0x61e1e180, 0xe1e1e280, 0xe2c2c300},
     {0x87870700, 0x03037f00, 0x3f1f0f00},
     {0xbc3c7c00, 0x7c7c1900, 0x19393800}}};
inline const std::vector<float> residual_of_efsignum{
    0x1.1cp-3f,   0x1.2p+0f,   0x1.2ep-2f,   -0x1.12p-1f, 0x1.45p-1f,  -0x1.9p-3f,  0x1.f3p-1f,
    0x1.28p-3f,   -0x1.5fp-1f, 0x1.92p-2f,   -0x1.cp-2f,  0x1.77p-1f,  -0x1.9p-4f,  -0x1.dbp-1f,
    0x1.fp-3f,    -0x1.2dp-1f, -0x1.828p+0f, 0x1.918p+0f, 0x1.7ap-1f,  -0x1.78p-4f, 0x1.14p+0f,
    0x1.fcp-3f,   -0x1.2ap-1f, 0x1.2dp-1f,   -0x1.56p-2f, 0x1.7dp-1f,  -0x1.6p-4f,  -0x1.d5p-1f,
    0x1.04p-2f,   -0x1.27p-1f, 0x1.3p-1f,    -0x1.e4p-3f, 0x1.afp-1f,  0x1.8p-7f,   -0x1.a3p-1f,
    0x1.68p-2f,   -0x1.eap-2f, -0x1.4fp+0f,  -0x1.1cp-3f, -0x1.fp-1f,  -0x1.e4p+0f, 0x1.3p+0f,
    0x1.6ep-2f,   -0x1.e4p-2f, 0x1.65p-1f,   -0x1.1p-3f,  -0x1.edp-1f, 0x1.a8p-3f,  0x1.318p+0f,
    0x1.74p-2f,   -0x1.dep-2f, 0x1.68p-1f,   -0x1.04p-3f, -0x1.eap-1f, 0x1.b4p-3f,  -0x1.3cp-1f,
    0x1.d8p-2f,   -0x1.7ap-2f, 0x1.9ap-1f,   -0x1.ep-6f,  -0x1.b8p-1f, 0x1.3ep-2f,  -0x1.0ap-1f,
    -0x1.598p+0f, 0x1.a3p+0f,  0x1.9dp-1f,   -0x1.8p-6f,  0x1.258p+0f, 0x1.44p-2f,  -0x1.07p-1f,
    0x1.5p-1f,    -0x1.1p-2f,  0x1.ap-1f,    -0x1.2p-6f};

}  // namespace tutti::test

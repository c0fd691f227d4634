#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "tutti/base/tensor.hpp"

/// What PyTorch's powerSGD_hook makes of a matrix on two ranks, run with Debian's torch 1.13.1: a
/// model of that one parameter under DistributedDataParallel over Gloo, with
/// PowerSGDState(start_powerSGD_iter=2, min_compression_rate=0.5, random_seed=1). The hook's first
/// Q was read from its call of _orthogonalize; steps 0 and 1 are its dense steps.
namespace tutti::test {

struct hook_run {
  tensor_shape matrix;
  std::size_t rank;
  std::vector<float> first_q;                   ///< column by column
  std::vector<std::vector<float>> means;        ///< of the last steps, up to step 4
  std::array<std::vector<float>, 2> residuals;  ///< of both ranks, after step 4
};

/// Returns the gradient that the hook was given.
inline std::vector<float> gradient_of_hook(std::size_t elements, int rank, int step) {
  std::vector<float> made(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    made[i] =
        static_cast<float>((static_cast<int>(i) * 37 + step * 101 + rank * 53) % 97 - 48) / 64;
  }
  return made;
}

/// Runs at ranks where the hook uses Gram-Schmidt.
inline const std::vector<hook_run>& hook_runs_of_low_rank() {
  static const std::vector<hook_run> runs{
      {{4, 3},
       1,
       {0x1.1cd776p-1f, -0x1.a6be44p-1f, -0x1.7f735ep-4f},
       {{0x1.816bdap-4f, -0x1.55d17cp-3f, 0x1.bb4ebep-6f, 0x1.bca558p-5f, -0x1.8a57cp-4f,
         0x1.ff6d56p-7f, 0x1.99eabp-5f, -0x1.6b8ae6p-4f, 0x1.d77b64p-7f, -0x1.9c189ap-3f,
         0x1.6d79b2p-2f, -0x1.d9fd18p-5f},
        {-0x1.c96b1cp-6f, -0x1.78becap-2f, 0x1.0a937ap-4f, -0x1.0efc16p-6f, -0x1.be6266p-3f,
         0x1.3bd9dep-5f, 0x1.66b888p-10f, 0x1.277462p-6f, -0x1.a21d0ap-9f, 0x1.efc876p-6f,
         0x1.9857fcp-2f, -0x1.20ef32p-4f},
        {-0x1.3d3d9ap-2f, -0x1.fc04dep-2f, 0x1.ecbddap-2f, 0x1.d91ad6p-7f, 0x1.7aceb8p-6f,
         -0x1.6f6a72p-6f, 0x1.d04dc2p-3f, 0x1.73c2b6p-2f, -0x1.6894bp-2f, 0x1.5d71c6p-5f,
         0x1.17cb68p-4f, -0x1.0f6164p-4f}},
       {{{-0x1.71a1acp+0f, 0x1.13eb1ap+0f, 0x1.353a16p+0f, -0x1.155b72p+0f, 0x1.fd0d1ap-1f,
          -0x1.404p-1f, -0x1.4e6578p-1f, 0x1.112a2ep+0f, -0x1.1cb8bep+0f, 0x1.a3618cp-2f,
          0x1.310edep+0f, -0x1.34561cp-1f},
         {0x1.0a5e56p+0f, -0x1.f829ccp-1f, -0x1.b58bd2p-1f, 0x1.66a48ep+0f, -0x1.117972p+0f,
          0x1.5f8p-2f, 0x1.43351p-2f, -0x1.fdabap-1f, 0x1.5f4744p+0f, -0x1.a7279cp+0f,
          -0x1.bde244p-1f, 0x1.e1d4f2p+0f}}}},
      {{4, 3},
       2,
       {0x1.0babb4p-1f, -0x1.6855d8p-4f, -0x1.b220e8p-1f, -0x1.b3063p-3f, -0x1.f41604p-1f,
        -0x1.e574c6p-6f},
       {{-0x1.a587bp-4f, -0x1.aa353cp-2f, 0x1.06ec2ep-2f, -0x1.a664p-3f, -0x1.f044d6p-4f,
         0x1.13766cp-2f, 0x1.2c10fcp-3f, 0x1.0dae04p-4f, -0x1.791b38p-3f, -0x1.b239cp-3f,
         0x1.ef3f3ap-3f, 0x1.33eecp-3f},
        {-0x1.2d48a2p-2f, -0x1.41e088p-2f, 0x1.2bfa78p-3f, 0x1.55fecap-2f, -0x1.281c58p-3f,
         -0x1.b57442p-4f, 0x1.15c8aep-2f, 0x1.ea2554p-5f, -0x1.b96fccp-4f, -0x1.638798p-2f,
         0x1.696d04p-2f, 0x1.645256p-4f},
        {-0x1.010908p-4f, -0x1.08af44p-2f, 0x1.3adf6p-2f, 0x1.f3829ep-4f, -0x1.999486p-5f,
         -0x1.56603cp-3f, -0x1.fabd24p-3f, 0x1.c6897p-3f, 0x1.f65b4p-3f, -0x1.da4802p-3f,
         0x1.819914p-2f, 0x1.91799p-4f}},
       {{{-0x1.3a44ccp+0f, 0x1.093142p+0f, 0x1.120dccp+0f, -0x1.47eb5cp+0f, 0x1.04d47ep+0f,
          -0x1.2d74ap-1f, -0x1.17394cp-1f, 0x1.0302c6p+0f, -0x1.681104p+0f, 0x1.12721ep+0f,
          0x1.0b5694p+0f, -0x1.21da94p+0f},
         {0x1.41bb34p+0f, -0x1.06cecp+0f, -0x1.fbe466p-1f, 0x1.3414a4p+0f, -0x1.0b2b84p+0f,
          0x1.8516c2p-2f, 0x1.b18d62p-2f, -0x1.0cfd38p+0f, 0x1.13eefcp+0f, -0x1.fb1bc4p-1f,
          -0x1.04a96cp+0f, 0x1.5a256cp+0f}}}}};
  return runs;
}

}  // namespace tutti::test

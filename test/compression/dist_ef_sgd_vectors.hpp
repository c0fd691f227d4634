#pragma once

#include <array>
#include <cstdint>
#include <vector>

/// What the program of Zheng et al. makes, imagenet/ in ZiyueHuang/dist-ef-sgdm at commit 030970a9,
/// run with Debian's torch 1.13.1 on CPUs and the bit2byte of sign_vectors.hpp. SGD_distribute was
/// run on three processes over Gloo with gpus_per_machine=1, with compression and no momentum,
/// under a learning rate that changes. Parameters have 35, 33 and 6 elements, all 0 at first, and
/// their gradients are one gradient_in_512ths(74, 3 * step + rank). All three parameters fit into
/// one bucket and have one scale.
namespace tutti::test {

struct dist_ef_sgd_step {
  float learning_rate;
  std::array<std::vector<std::uint32_t>, 3> sent;  ///< by each rank
  std::array<float, 3> scales;
  std::vector<std::uint32_t> mean;  ///< sent by rank 0
  float mean_scale;
};

inline const std::vector<dist_ef_sgd_step>& dist_ef_sgd_steps() {
  static const std::vector<dist_ef_sgd_step> steps{
      {0x1p-1f,
       {{{0x8f0f0f00, 0x0f0f0f00, 0x0f0f1e00},
         {0xe1e1e180, 0xe1e1e380, 0xc3c3c300},
         {0x3c3c3c00, 0x38787800, 0x78787800}}},
       {{0x1.0335ap+0f, 0x1.f10376p-1f, 0x1.e933e4p-1f}},
       {0xad2d2d00, 0x29696b00, 0x4b4b5a00},
       0x1.4f4c48p-2f},
      {0x1p-1f,
       {{{0x93171700, 0x17171700, 0x17172600},
         {0xe2e2e280, 0xe2e2e180, 0xe5c5c500},
         {0x5c5c5c00, 0x5c38b880, 0xb8b8b800}}},
       {{0x1.437c1cp+0f, 0x1.2b990ep+0f, 0x1.295284p+0f}},
       {0xd2565600, 0x5632b180, 0xb595a400},
       0x1.9b1e0ap-2f},
      {0x1p-2f,
       {{{0x8f0b2b00, 0x2b2b2b00, 0x2b2b1e00},
         {0x65656500, 0x6565e680, 0xe2c2ca00},
         {0xacacbc80, 0xbcd85900, 0x59595900}}},
       {{0x1.0a90aap+1f, 0x1.f11e7cp+0f, 0x1.fd53ccp+0f}},
       {0xad2d2d00, 0x2d696b00, 0x6b4b5a00},
       0x1.adc53ap-1f},
      {0x1p-2f,
       {{{0xa5a50700, 0x07071f00, 0x1f1f4b00},
         {0xe0e0e380, 0xe3e36900, 0x6969c100},
         {0x5c7c6d00, 0x6d2d3800, 0x38383800}}},
       {{0x1.b40f9ep+0f, 0x1.a45862p+0f, 0x1.b3a438p+0f}},
       {0xe4e46700, 0x67273900, 0x39394900},
       0x1.e2e8ecp-1f},
      {0x1p-1f,
       {{{0x878b8f80, 0x9f1f0700, 0x07070f00},
         {0xf1e3e080, 0xe0e0e080, 0xe0e3e300},
         {0x3c1c1c00, 0x1c1c7c80, 0x7cf8f800}}},
       {{0x1.3da5aap+0f, 0x1.3c82dcp+0f, 0x1.32ce0cp+0f}},
       {0xb58b8c80, 0x9c1c6480, 0x64e3eb00},
       0x1.8d6da8p-2f}};
  return steps;
}

/// The residuals of rank 0 after the last step, of its gradients and of means.
inline const std::vector<float> dist_ef_sgd_worker_error{
    -0x1.f6901ep+0f, -0x1.31e48ap+0f, 0x1.859022p+0f,  0x1.b72044p-1f,  0x1.8c811p-3f,
    -0x1.e1bf7cp-2f, 0x1.233f7cp-1f,  0x1.22c5d8p-2f,  -0x1.853a2cp-2f, -0x1.32ef4ep-1f,
    0x1.37d3acp+0f,  -0x1.cb405p-3f,  -0x1.02e34cp+0f, 0x1.9cd012p-1f,  -0x1.45a75ap-1f,
    0x1.2e77a8p+0f,  0x1.ec9d16p-1f,  0x1.313a2cp-2f,  0x1.b021p-7f,    0x1.0d6fep+0f,
    0x1.8dbf7cp-2f,  -0x1.1a4088p-2f, -0x1.e12044p-1f, -0x1.9a901ep+0f, -0x1.1614eep+0f,
    0x1.e1901ep+0f,  0x1.379022p+0f,  0x1.1b2044p-1f,  -0x1.c6fdep-4f,  -0x1.8cdfbep-1f,
    0x1.0e7ef8p-2f,  -0x1.53a28p-6f,  -0x1.5e9d16p-1f, -0x1.ceef4ep-1f, 0x1.d3a75ap-1f,
    -0x1.0ed012p-1f, 0x1.2a6808p+0f,  0x1.00d012p-1f,  -0x1.e1a75ap-1f, -0x1.28fcc8p+0f,
    0x1.509d16p-1f,  -0x1.b176p-8f,   -0x1.2a7ef8p-2f, 0x1.7edfbep-1f,  0x1.56fdep-4f,
    -0x1.292044p-1f, -0x1.3e9022p+0f, -0x1.e8901ep+0f, -0x1.23e48ap+0f, 0x1.939022p+0f,
    0x1.d32044p-1f,  0x1.fc811p-3f,   -0x1.a9bf7cp-2f, 0x1.3f3f7cp-1f,  0x1.5ac5d8p-2f,
    -0x1.4d3a2cp-2f, -0x1.16ef4ep-1f, -0x1.3577a8p+0f, -0x1.5b405p-3f,  -0x1.e9c696p-1f,
    0x1.b8d012p-1f,  -0x1.29a75ap-1f, 0x1.3c77a8p+0f,  0x1.044e8cp+0f,  0x1.693a2cp-2f,
    0x1.16042p-4f,   0x1.1b6fep+0f,   0x1.c5bf7cp-2f,  -0x1.c4811p-3f,  -0x1.c52044p-1f,
    -0x1.8c901ep+0f, -0x1.0814eep+0f, 0x1.04b6e4p-1f,  0x1.459022p+0f};
inline const std::vector<float> dist_ef_sgd_server_error{
    0x1.7da244p-3f,  -0x1.194498p-2f, 0x1.790c3p-2f,   0x1.931a7p-3f,   0x1.931a7p-3f,
    -0x1.2a837p-5f,  0x1.5b1742p-2f,  -0x1.53e67cp-2f, 0x1.516084p-2f,  0x1.7e71aep-2f,
    0x1.192abcp-2f,  0x1.11d68p-3f,   -0x1.3c17ep-4f,  -0x1.06738p-3f,  -0x1.fe2844p-3f,
    -0x1.99a564p-2f, 0x1.e4f44p-3f,   0x1.4dd50cp-2f,  0x1.c7648p-3f,   0x1.9d20dp-5f,
    -0x1.58cc28p-3f, -0x1.bb24c8p-3f, -0x1.5be50ap-2f, 0x1.dffaep-3f,   0x1.9c8c68p-4f,
    -0x1.ca2198p-3f, 0x1.61c20ap-2f,  0x1.931a7p-3f,   -0x1.c0c9p-7f,   -0x1.2a837p-5f,
    -0x1.a4f318p-3f, 0x1.7093f4p-2f,  0x1.d56b1p-4f,   0x1.af9ep-2f,    0x1.192abcp-2f,
    0x1.11d68p-3f,   -0x1.06738p-3f,  -0x1.06738p-3f,  -0x1.fe2844p-3f, 0x1.390148p-2f,
    0x1.05503p-5f,   0x1.651f3p-2f,   0x1.650be4p-3f,  0x1.9d20dp-5f,   -0x1.bb24c8p-3f,
    -0x1.bb24c8p-3f, -0x1.5be50ap-2f, 0x1.7da244p-3f,  -0x1.194498p-2f, 0x1.790c3p-2f,
    -0x1.9d67ap-3f,  0x1.931a7p-3f,   -0x1.2a837p-5f,  0x1.5b1742p-2f,  -0x1.53e67cp-2f,
    0x1.5949cep-2f,  0x1.7e71aep-2f,  0x1.4d5e88p-2f,  0x1.11d68p-3f,   -0x1.3c17ep-4f,
    -0x1.06738p-3f,  -0x1.fe2844p-3f, -0x1.99a564p-2f, 0x1.04cd8p-2f,   -0x1.604cep-2f,
    0x1.c7648p-3f,   0x1.9d20dp-5f,   -0x1.58cc28p-3f, -0x1.bb24c8p-3f, -0x1.5be50ap-2f,
    0x1.dffaep-3f,   0x1.9c8c68p-4f,  -0x1.194498p-2f, 0x1.61c20ap-2f};
inline const std::vector<float> parameters_by_dist_ef_sgd{
    0x1.0110c4p+0f,  -0x1.3b6ab2p-1f, -0x1.349284p-1f, -0x1.0c7834p-3f, -0x1.0c7834p-3f,
    0x1.0c7834p-3f,  0x1.349284p-1f,  0x1.b76ebcp-3f,  0x1.5a7b64p-1f,  -0x1.b76ebcp-3f,
    -0x1.b76ebcp-3f, -0x1.0c7834p-3f, -0x1.07318ep-2f, 0x1.0c7834p-3f,  0x1.b76ebcp-3f,
    0x1.349284p-1f,  0x1.5a7b64p-1f,  -0x1.b76ebcp-3f, -0x1.349284p-1f, -0x1.0c7834p-3f,
    -0x1.07318ep-2f, 0x1.0c7834p-3f,  0x1.b76ebcp-3f,  0x1.3b6ab2p-1f,  -0x1.27d8f4p-3f,
    -0x1.0110c4p+0f, -0x1.b76ebcp-3f, -0x1.0c7834p-3f, -0x1.07318ep-2f, 0x1.0c7834p-3f,
    0x1.b76ebcp-3f,  0x1.3b6ab2p-1f,  -0x1.27d8f4p-3f, -0x1.349284p-1f, -0x1.b76ebcp-3f,
    -0x1.0c7834p-3f, 0x1.0c7834p-3f,  0x1.0c7834p-3f,  0x1.b76ebcp-3f,  0x1.3b6ab2p-1f,
    -0x1.27d8f4p-3f, -0x1.349284p-1f, -0x1.b76ebcp-3f, -0x1.0c7834p-3f, 0x1.0c7834p-3f,
    0x1.0c7834p-3f,  0x1.b76ebcp-3f,  0x1.0110c4p+0f,  -0x1.3b6ab2p-1f, -0x1.349284p-1f,
    -0x1.b76ebcp-3f, -0x1.0c7834p-3f, 0x1.0c7834p-3f,  0x1.349284p-1f,  0x1.b76ebcp-3f,
    0x1.0110c4p+0f,  -0x1.b76ebcp-3f, -0x1.349284p-1f, -0x1.0c7834p-3f, -0x1.07318ep-2f,
    0x1.0c7834p-3f,  0x1.b76ebcp-3f,  0x1.349284p-1f,  0x1.0110c4p+0f,  -0x1.3b6ab2p-1f,
    -0x1.349284p-1f, -0x1.0c7834p-3f, -0x1.07318ep-2f, 0x1.0c7834p-3f,  0x1.b76ebcp-3f,
    0x1.3b6ab2p-1f,  -0x1.27d8f4p-3f, -0x1.3b6ab2p-1f, -0x1.b76ebcp-3f};

}  // namespace tutti::test

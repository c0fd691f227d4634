#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tutti/compression/momentum_correction.hpp"

/// What synxlin/deep-gradient-compression at commit 24673d45 makes of gradient_in_512ths(48, 2 *
/// step + rank) on two ranks, run with Debian's torch 1.13.1 and no Horovod: DGCCompressor with
/// ratio 0.125 and sample_ratio 1, and DGCSGDMemory with momentum 0.9, with momentum_masking and
/// without.
namespace tutti::test {

struct dgc_run {
  compression::factor_masking masking;
  std::array<std::array<std::vector<std::uint32_t>, 2>, 6> sent;  ///< indices, by step and rank
  std::array<std::vector<float>, 2> values;                       ///< of the last step, by rank
  std::vector<float> momenta;     ///< of rank 1, after the last step
  std::vector<float> velocities;  ///< of rank 1, after the last step
};

inline const std::vector<dgc_run>& dgc_runs() {
  static const std::vector<dgc_run> runs{
      {compression::factor_masking::sent,
       {{{{{0, 1, 23, 24, 46, 47}, {7, 8, 9, 31, 32, 33}}},
         {{{2, 3, 15, 25, 26, 39}, {0, 10, 11, 23, 34, 47}}},
         {{{14, 22, 27, 37, 38, 45}, {6, 22, 30, 35, 45, 46}}},
         {{{4, 9, 16, 21, 32, 44}, {5, 12, 17, 24, 29, 40}}},
         {{{1, 8, 13, 17, 28, 33}, {9, 16, 21, 25, 36, 41}}},
         {{{7, 10, 18, 24, 31, 41}, {2, 18, 26, 32, 33, 39}}}}},
       {{{-0x1.ffdc44p+1f, 0x1.1e0da8p+2f, 0x1.0e0dd6p+2f, -0x1.020c36p+2f, -0x1.56d994p+2f,
          0x1.749326p+2f},
         {0x1.5e49a4p+2f, 0x1.175ep+2f, 0x1.075e3p+2f, -0x1.06fa0cp+2f, 0x1.1334bap+2f,
          -0x1.5d893ap+2f}}},
       {-0x1.34181p-1f,  -0x1.b9511p-2f,  0x0p+0f,         0x1.87d87ep+0f,  0x1.816a8ep-1f,
        0x1.353332p+0f,  -0x1.5275bcp-2f, -0x1.0b56e2p-1f, -0x1.33b62p+0f,  -0x1.41p-1f,
        0x1.7cee98p-2f,  -0x1.976568p-3f, -0x1.000cccp+0f, -0x1.8cadfcp-1f, -0x1.8d7a36p+0f,
        -0x1.2a4eb8p+1f, -0x1.cap+0f,     0x1.54b334p+0f,  0x0p+0f,         0x1.50b302p+0f,
        0x1.131f92p-1f,  0x1.4ap+0f,      -0x1.d20a38p-2f, -0x1.2bccc8p-2f, -0x1.c11998p-1f,
        0x1.4p-1f,       0x0p+0f,         0x1.2c7a08p+0f,  0x1.955b42p-2f,  0x1.102666p+0f,
        -0x1.12eb84p-1f, -0x1.ab0c5cp-1f, 0x0p+0f,         0x0p+0f,         0x1.c2c28p-4f,
        0x1.8447a8p-2f,  -0x1.338p+0f,    -0x1.21b576p+0f, -0x1.e8d8aep+0f, 0x0p+0f,
        -0x1.340cccp+1f, 0x1.e08p+0f,     0x1.bc77c2p+0f,  0x1.eaa912p-1f,  0x1.718aap-3f,
        -0x1.b170ap-3f,  -0x1.52b5c4p-1f, -0x1.1c056p-1f},
       {-0x1.5293b8p+0f, 0x1.01f668p+0f,  0x0p+0f,         0x1.41b1c2p+1f,  -0x1.c97e04p-2f,
        0x1.411998p+1f,  -0x1.083b84p+1f, -0x1.d9f202p-1f, -0x1.8dcc68p+1f, -0x1.41p-1f,
        0x1.abe72ap+0f,  0x1.5a9058p-3f,  -0x1.b91998p-1f, 0x1.d10eeep+0f,  -0x1.24b418p+0f,
        -0x1.069dc8p+2f, -0x1.cap+0f,     0x1.476668p-1f,  0x0p+0f,         0x1.67b4fap+0f,
        -0x1.8e0e1p+0f,  0x1.4ap+0f,      -0x1.3bb47cp+1f, -0x1.04e664p-1f, -0x1.5d8666p+1f,
        0x1.4p-1f,       0x0p+0f,         0x1.27b5b8p+0f,  -0x1.ce0d5p+0f,  0x1.24d334p+1f,
        -0x1.3eee14p+1f, -0x1.ed485ap+0f, 0x0p+0f,         0x0p+0f,         0x1.f6e51cp-1f,
        0x1.b8af5cp+1f,  -0x1.338p+0f,    0x1.d58468p-2f,  -0x1.4030f6p+1f, 0x0p+0f,
        -0x1.810cccp+1f, 0x1.e08p+0f,     0x1.80e518p+1f,  0x1.80e46p-5f,   -0x1.74ddeep+1f,
        -0x1.f66148p+0f, -0x1.72670cp+1f, -0x1.32e7dp+0f}},
      {compression::factor_masking::none,
       {{{{{0, 1, 23, 24, 46, 47}, {7, 8, 9, 31, 32, 33}}},
         {{{2, 3, 15, 25, 26, 39}, {0, 10, 11, 23, 34, 47}}},
         {{{1, 14, 22, 24, 27, 38}, {8, 9, 22, 30, 32, 46}}},
         {{{0, 23, 32, 45, 46, 47}, {6, 7, 31, 33, 35, 40}}},
         {{{1, 2, 15, 25, 37, 39}, {0, 9, 10, 23, 45, 47}}},
         {{{8, 17, 26, 31, 33, 41}, {2, 16, 17, 25, 34, 41}}}}},
       {{{-0x1.bd5ee2p+2f, 0x1.cb7e98p+2f, 0x1.8e2098p+2f, -0x1.56d994p+2f, 0x1.8492f4p+2f,
          0x1.749326p+2f},
         {0x1.5e49a4p+2f, -0x1.c40e88p+2f, 0x1.d4cecp+2f, 0x1.c4cefp+2f, 0x1.888758p+2f,
          0x1.7de34cp+2f}}},
       {-0x1.1bcf4ep+1f, -0x1.b9511p-2f,  0x1.277ddcp+1f,  0x1.87d87ep+0f,  0x1.816a8ep-1f,
        -0x1.9b7c4cp-6f, -0x1.9b224ep-1f, -0x1.94b45ep+0f, -0x1.a1d2cp-5f,  0x1.2b1aeep+1f,
        0x1.8f12a8p+0f,  0x1.8fdeep-1f,   0x1.9874p-9f,    -0x1.8cadfcp-1f, -0x1.8d7a36p+0f,
        -0x1.2a4eb8p+1f, -0x1.8de052p+1f, 0x1.6f7cb8p+1f,  0x1.0beb1cp+1f,  0x1.50b302p+0f,
        0x1.131f92p-1f,  -0x1.ec9b7p-3f,  -0x1.04b6a8p+0f, -0x1.cbd9dcp+0f, -0x1.47c18p-7f,
        0x1.5d603ap+1f,  0x1.f39d4p+0f,   0x1.2c7a08p+0f,  0x1.955b42p-2f,  -0x1.87319cp-2f,
        -0x1.28efap+0f,  -0x1.f012d6p+0f, -0x1.a1b434p-2f, 0x1.fad764p+0f,  0x1.33b43p+0f,
        0x1.b243ep-2f,   -0x1.6a48f8p-2f, -0x1.21b576p+0f, -0x1.e8d8aep+0f, -0x1.57fdf2p+1f,
        -0x1.3b83a4p-1f, 0x1.41cd7cp+1f,  0x1.bc77c2p+0f,  0x1.eaa912p-1f,  0x1.718aap-3f,
        -0x1.31e3c8p-1f, -0x1.60151cp+0f, -0x1.139c2cp+1f},
       {-0x1.1bcf4ep+1f, 0x1.01f668p+0f,  0x0p+0f,         0x1.41b1c2p+1f,  -0x1.c97e04p-2f,
        -0x1.b41144p+1f, -0x1.8d4eep+0f,  -0x1.813e64p+1f, 0x1.316ep-6f,    0x1.2b1aeep+1f,
        0x1.8f12a8p+0f,  0x1.32aed8p+2f,  0x1.31b47ep+2f,  0x1.d10eeep+0f,  -0x1.24b418p+0f,
        -0x1.069dc8p+2f, 0x0p+0f,         0x0p+0f,         0x1.175ep+2f,    0x1.67b4fap+0f,
        -0x1.8e0e1p+0f,  -0x1.20f444p+2f, -0x1.167798p+2f, -0x1.cbd9dcp+0f, 0x1.4e05cep+1f,
        0x0p+0f,         0x1.075e3p+2f,   0x1.27b5b8p+0f,  -0x1.ce0d5p+0f,  -0x1.30f414p+2f,
        -0x1.24da98p+2f, -0x1.d6dbp+1f,   -0x1.d305fp-1f,  0x1.3d7fe8p+2f,  0x0p+0f,
        0x1.05d1eap+1f,  0x1.b5921p+1f,   0x1.d58468p-2f,  -0x1.4030f6p+1f, -0x1.5d893ap+2f,
        0x1.8b068cp-1f,  0x0p+0f,         0x1.80e518p+1f,  0x1.80e46p-5f,   -0x1.74ddeep+1f,
        -0x1.31e3c8p-1f, -0x1.5209c2p+2f, -0x1.139c2cp+1f}}};
  return runs;
}

}  // namespace tutti::test

#pragma once

#include <array>
#include <string_view>
#include <vector>

/// What the exchange of 1-bit Adam of microsoft/DeepSpeed at commit 38327e07 makes, run with
/// Debian's torch 1.13.1 on a CPU, with threads as ranks, numpy in place of cupy, and copies as
/// sends.
///
/// NcclBackend.compressed_allreduce was run on three ranks, on gradient_in_512ths(72, 3 * step +
/// rank). It has one scale for all that a rank sends, and a bit that is set where an element is not
/// negative, with the first element in a byte's top bit.
namespace tutti::test {

struct deepspeed_exchange {
  std::array<std::string_view, 3> sent;  ///< bits of each rank
  std::array<float, 3> scales;           ///< of each rank
  std::string_view mean;                 ///< bits that the owners send, one after the other
  std::array<float, 3> mean_scales;      ///< of each owner of 24 elements
};

inline constexpr std::array<deepspeed_exchange, 4> deepspeed_exchanges{
    {{{"7ff000fff000ffe001", "00fff000fff000ffe0", "f800fff000fff000ff"},
      {0x1.25f856p+0f, 0x1.1f2f48p+0f, 0x1.1f2e2ap+0f},
      "78f0f0f0f0f0f0e0e1",
      {0x1.82c4c6p-2f, 0x1.820562p-2f, 0x1.82c484p-2f}},
     {{"7f8f00ff8e00ff1e01", "007f8f00ff8e00ff1e", "87007f8f00ff8e00ff"},
      {0x1.6c1b7p+0f, 0x1.5b6d0cp+0f, 0x1.5b4cc6p+0f},
      "070f0f8f8e8e8e1e1f",
      {0x1.d60858p-2f, 0x1.da3bb6p-2f, 0x1.d7a1d8p-2f}},
     {{"7e70c07e7180fee180", "c07f70c07e7180fee1", "78c07f70c07e7180fe"},
      {0x1.879376p+0f, 0x1.856a5cp+0f, 0x1.85d5a8p+0f},
      "787070707070f0e0e0",
      {0x1.8d9358p-1f, 0x1.71b9e4p-1f, 0x1.4f3e4p-1f}},
     {{"3fee207dcc607ddc40", "203eee207dcc407ddc", "e6207eee207dcc407d"},
      {0x1.8b63bcp+0f, 0x1.85111ep+0f, 0x1.94ea0cp+0f},
      "666e6e6c6c6c4cdcdc",
      {0x1.c6edcp-1f, 0x1.bb7bb8p-1f, 0x1.bad4f6p-1f}}}};

/// The errors of each rank after the last exchange.
inline const std::array<std::vector<float>, 3> deepspeed_worker_errors{
    {{-0x1.d0f504p+0f, 0x1.0b3c7ep+0f,  0x1.32f504p+0f,  0x1.11ea1p-1f,   -0x1.0857cp-3f,
      -0x1.9615fp-1f,  -0x1.750af8p+0f, 0x1.e037e8p-1f,  0x1.186fdp-2f,   -0x1.35a83p-1f,
      -0x1.44d418p+0f, 0x1.27f36p+0f,   -0x1.5f36p-4f,   -0x1.7fe6cp-1f,  -0x1.69f36p+0f,
      0x1.02d418p+0f,  0x1.0f206p-3f,   -0x1.1037e8p-1f, -0x1.39bc8p+0f,  0x1.330af8p+0f,
      0x1.1215fp-1f,   -0x1.07a84p-3f,  -0x1.95ea08p-1f, -0x1.74f504p+0f, 0x1.1bc6d4p-1f,
      0x1.8ef504p+0f,  0x1.c9ea08p-1f,  0x1.d7a84p-3f,   -0x1.bc2bep-2f,  -0x1.190af8p+0f,
      0x1.53bc8p+0f,   0x1.4437e8p-1f,  -0x1.f903p-6f,   -0x1.d1a83p-1f,  0x1.83f36p+0f,
      0x1.b3e6cp-1f,   -0x1.8fcd8p-2f,  -0x1.0df36p+0f,  0x1.5ed418p+0f,  0x1.f7903p-2f,
      -0x1.60dfap-3f,  -0x1.bb79p-1f,   -0x1.87bc8p+0f,  0x1.ca15fp-1f,   0x1.d857cp-3f,
      -0x1.bbd418p-2f, -0x1.18f504p+0f, -0x1.c2f504p+0f, 0x1.193c7ep+0f,  0x1.40f504p+0f,
      0x1.2dea08p-1f,  -0x1.30af8p-4f,  -0x1.7a15fp-1f,  -0x1.670af8p+0f, 0x1.05bc8p+0f,
      0x1.506fdp-2f,   -0x1.19a83p-1f,  -0x1.36d418p+0f, 0x1.35f36p+0f,   -0x1.fcd8p-6f,
      -0x1.63e6cp-1f,  -0x1.5bf36p+0f,  0x1.10d418p+0f,  0x1.7f206p-3f,   -0x1.e86fdp-2f,
      -0x1.2bbc8p+0f,  0x1.410af8p+0f,  0x1.2e15fp-1f,   -0x1.2f508p-4f,  -0x1.79ea08p-1f,
      -0x1.66f504p+0f, 0x1.37c6d4p-1f},
     {0x1.390c58p-2f,  -0x1.6ef3a8p-2f, -0x1.050a6ep+0f, 0x1.5b17cep+0f,  0x1.622f9cp-1f,
      0x1.c5f38p-6f,   -0x1.45d064p-1f, -0x1.4ce832p+0f, -0x1.331b08p-2f, 0x1.188a6ep+0f,
      0x1.4ce832p+0f,  0x1.45d064p-1f,  -0x1.c5f38p-6f,  -0x1.622f9cp-1f, -0x1.5b17cep+0f,
      0x1.050a6ep+0f,  0x1.6ef3a8p-2f,  -0x1.447b6cp-1f, -0x1.4c3db6p+0f, 0x1.13e486p+0f,
      -0x1.bc90cp-5f,  -0x1.6fc90cp-1f, -0x1.61e486p+0f, 0x1.fc7b6cp-1f,  0x1.0c58p-10f,
      -0x1.5379d4p-1f, -0x1.530a6ep+0f, 0x1.0d17cep+0f,  0x1.8c5f38p-2f,  -0x1.1ba0c8p-2f,
      -0x1.e1d064p-1f, -0x1.9ae832p+0f, 0x1.2dbe4cp-1f,  0x1.a8e832p+0f,  0x1.fdd064p-1f,
      0x1.53a0c8p-2f,  -0x1.545f38p-2f, -0x1.fe2f9cp-1f, 0x1.610a6ep+0f,  0x1.6f79d4p-1f,
      0x1.b79d4p-5f,   -0x1.e07b6cp-1f, 0x1.6fe486p+0f,  0x1.8bc90cp-1f,  -0x1.6f9218p-2f,
      -0x1.05e486p+0f, 0x1.5a3db6p+0f,  0x1.710c58p-2f,  -0x1.36f3a8p-2f, -0x1.ee14dcp-1f,
      0x1.6917cep+0f,  0x1.7e2f9cp-1f,  0x1.517cep-4f,   -0x1.29d064p-1f, -0x1.3ee832p+0f,
      -0x1.e8e832p+0f, 0x1.268a6ep+0f,  0x1.5ae832p+0f,  0x1.61d064p-1f,  0x1.ba0c8p-6f,
      -0x1.462f9cp-1f, -0x1.4d17cep+0f, 0x1.130a6ep+0f,  0x1.a6f3a8p-2f,  -0x1.287b6cp-1f,
      -0x1.3e3db6p+0f, 0x1.21e486p+0f,  0x1.b7ap-12f,    -0x1.53c90cp-1f, -0x1.53e486p+0f,
      0x1.0c3db6p+0f,  0x1.c862cp-5f},
     {0x1.28e158p-1f,  -0x1.aa846p-2f,  -0x1.14a118p+0f, 0x1.6b33p+0f,    0x1.8266p-1f,
      -0x1.fcccp-2f,   -0x1.2933p+0f,   0x1.56a118p+0f,  0x1.5e3d5p-2f,   -0x1.49c2bp-2f,
      -0x1.1a9974p+0f, 0x1.653aa4p+0f,  0x1.767548p-1f,  0x1.13aa4p-4f,   -0x1.318ab8p-1f,
      -0x1.42c55cp+0f, -0x1.0a86cp-2f,  0x1.e0c55cp+0f,  0x1.36c55cp+0f,  0x1.198ab8p-1f,
      -0x1.d3aa4p-4f,  -0x1.8e7548p-1f, -0x1.713aa4p+0f, 0x1.0e9974p+0f,  0x1.19c2bp-2f,
      -0x1.71423p-1f,  -0x1.62a118p+0f, 0x1.1d33p+0f,    -0x1.1998p-3f,   -0x1.9a66p-1f,
      -0x1.7733p+0f,   0x1.08a118p+0f,  0x1.31ea8p-5f,   -0x1.40e158p-1f, -0x1.689974p+0f,
      0x1.173aa4p+0f,  0x1.b4ea9p-2f,   -0x1.e62aep-3f,  -0x1.cd8ab8p-1f, -0x1.90c55cp+0f,
      0x1.42898cp-1f,  0x1.92c55cp+0f,  0x1.d18ab8p-1f,  0x1.f62aep-3f,   -0x1.acea9p-2f,
      -0x1.153aa4p+0f, 0x1.6a9974p+0f,  0x1.44e158p-1f,  -0x1.e3d5p-6f,   -0x1.06a118p+0f,
      0x1.7933p+0f,    0x1.9e66p-1f,    -0x1.c4ccp-2f,   -0x1.1b33p+0f,   0x1.64a118p+0f,
      0x1.963d5p-2f,   -0x1.11c2bp-2f,  -0x1.0c9974p+0f, 0x1.733aa4p+0f,  0x1.927548p-1f,
      0x1.f3aa4p-4f,   -0x1.158ab8p-1f, -0x1.34c55cp+0f, -0x1.dec55cp+0f, 0x1.301974p+0f,
      0x1.44c55cp+0f,  0x1.358ab8p-1f,  -0x1.e7548p-5f,  -0x1.727548p-1f, -0x1.633aa4p+0f,
      0x1.1c9974p+0f,  0x1.51c2bp-2f}}};
inline const std::array<std::vector<float>, 3> deepspeed_server_errors{
    {{0x1.47bdd2p-1f,  -0x1.33c8f6p-1f, 0x1.b5df6p-2f,   0x1.189bep-3f,  0x1.189bep-3f,
      -0x1.b8d6ap-5f,  -0x1.b8d6ap-5f,  -0x1.675d3p-2f,  0x1.573534p-1f, -0x1.56b866p-1f,
      0x1.884888p-2f,  0x1.376b2p-4f,   -0x1.e3894p-4f,  -0x1.e3894p-4f, -0x1.e3894p-4f,
      -0x1.890dap-2f,  0x1.31ce06p-1f,  0x1.67072p-2f,   0x1.713288p-2f, 0x1.841cfp-4f,
      -0x1.166598p-3f, -0x1.166598p-3f, -0x1.166598p-3f, -0x1.b4c44p-2f},
     {0x1.335afp-1f,   0x1.052b9p-1f,  0x1.04b49p-1f,   0x1.641f18p-3f,  -0x1.7371cp-4f,
      -0x1.7371cp-4f,  0x1.39599p-1f,  -0x1.bae6fp-2f,  0x1.276372p-1f,  0x1.b39bfp-2f,
      -0x1.214684p-1f, 0x1.ce718p-4f,  -0x1.3d47d8p-3f, -0x1.3d47d8p-3f, -0x1.dc9758p-2f,
      0x1.101916p-1f,  0x1.01d13ep-1f, 0x1.c4bc4p-2f,   -0x1.24635cp-1f, 0x1.0d91bp-3f,
      -0x1.61e8dp-3f,  -0x1.61e8dp-3f, -0x1.0427p-1f,   0x1.222c52p-1f},
     {0x1.f30d7p-3f,   0x1.262a76p-1f,  0x1.e4c0ap-3f,   0x1.e4c0ap-3f,   -0x1.3a5a68p-3f,
      -0x1.3a5a68p-3f, -0x1.03ff0ep-1f, 0x1.116fp-1f,    -0x1.0b7da4p-1f, 0x1.0f5f0ap-1f,
      0x1.67da48p-3f,  -0x1.bde96p-3f,  -0x1.bde96p-3f,  -0x1.bde96p-3f,  -0x1.0fc192p-1f,
      0x1.d812ap-2f,   -0x1.1d2464p-1f, 0x1.03d406p-1f,  0x1.8e3338p-3f,  -0x1.e28a58p-3f,
      -0x1.e28a58p-3f, -0x1.e28a58p-3f, -0x1.259ce2p-1f, 0x1.1125e8p-1f}}};

}  // namespace tutti::test

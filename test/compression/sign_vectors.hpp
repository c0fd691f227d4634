#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

/// What the program of Bernstein et al. makes, jiaweizzhao/signSGD-with-Majority-Vote at commit
/// 5bebcd0f, run with Debian's torch 1.13.1 on a CPU and its bit2byte built for that.
///
/// Votes: compressor.compress of gradient_in_512ths(333, voter), majority_vote of the first
/// voters, and uncompress of the majority of four.
///
/// Momenta: SGD_distribute on four processes over Gloo with gpus_per_machine=1, with compression,
/// momentum 0.9, learning rate and weight decay 0.25. Three parameters of 35, 33 and 6 elements
/// begin as parameters_of_program, and their gradients are one gradient_in_512ths(74, 4 * step +
/// rank). ATEN_CPU_CAPABILITY=default was set, because with AVX2 torch fuses a product and a sum.
/// Momenta then have other last bits, while words and parameters are the same.
namespace tutti::test {

inline const std::array<std::vector<std::uint32_t>, 5> ballots_of_program{
    {{0xaaaa5554, 0x6aaad554, 0x4aaa9554, 0x5aaaa554, 0x56aaad54, 0x54aaa954, 0x55aaaa54,
      0x556aaad4, 0x554aaa94, 0x555aaab4, 0x5552aaac},
     {0xad5552aa, 0xab5556aa, 0xaa5554aa, 0xaad55528, 0xaab55568, 0xaaa55548, 0xaaad5558,
      0xaaab5554, 0x2aaa5554, 0x6aaad554, 0x4aaa9554},
     {0x556aaa94, 0x555aaab4, 0x5552aaa4, 0x5556aaa8, 0x5555aaa8, 0x95552aa8, 0xb5556aa8,
      0xa5554aa8, 0xad5552a8, 0xab5556a8, 0xaa5554a8},
     {0xaaab5554, 0x2aaad554, 0x4aaa9554, 0x5aaab554, 0x52aaa554, 0x54aaa954, 0x55aaab54,
      0x552aaa54, 0x556aaa94, 0x555aaab4, 0x5552aaa4},
     {0xad555aaa, 0xa95556aa, 0xaa5554aa, 0xaad555a8, 0xaa955528, 0xaab55548, 0xaaad5558,
      0xaaa95550, 0xaaab5554, 0x2aaad554, 0x4aaa9554}}};

/// The majority of the first voter, of the first two, and so on.
inline const std::array<std::vector<std::uint32_t>, 5> elected_by_program{
    {{0xaaaa5554, 0x6aaad554, 0x4aaa9554, 0x5aaaa554, 0x56aaad54, 0x54aaa954, 0x55aaaa54,
      0x556aaad4, 0x554aaa94, 0x555aaab4, 0x5552aaac},
     {0xa8005000, 0x2a005400, 0x0a001400, 0x0a800500, 0x02a00540, 0x00a00140, 0x00a80050,
      0x002a0054, 0x000a0014, 0x400a8014, 0x40028004},
     {0xad6a5294, 0x6b5ad6b4, 0x4a5294a4, 0x5ad6a528, 0x56b5ad68, 0x94a52948, 0xb5ad6a58,
      0xa56b4ad4, 0x2d4a5294, 0x6b5ad6b4, 0x4a5294ac},
     {0xa82a5014, 0x2a0ad414, 0x4a029404, 0x5a82a500, 0x52a0a540, 0x14a02940, 0x15a82a50,
      0x052a0a54, 0x054a0294, 0x415a82b4, 0x405280a4},
     {0xad6b5294, 0x2b5ad6b4, 0x4a5294a4, 0x5ad6b528, 0x52b5a568, 0x94a52948, 0xb5ad6b58,
      0xa52b4a54, 0x2d6a5294, 0x6b5ad6b4, 0x4a5294a4}}};

/// The majority of four voters for every element.
inline constexpr std::string_view elected_by_four =
    "-++++++++++++---++++----++++++++++++----++++----++++++++++++----+++----++++++++++++----+++"
    "+----++++++++++++----+++----++++++++++++----++++----++++++++++++----+++----++++++++++++---"
    "-++++----++++++++++++----++++---+++++++++++++---++++----++++++++++++----++++---+++++++++++"
    "++---++++----++++++++++++----++++----++++++++++++---++++----+++";

/// The words for 0, -0, the least number above 0 and below it, both infinities, NaN, 1 and -1,
/// repeated up to 70 elements.
inline const std::vector<std::uint32_t> odd_ballot_of_program{0x49249200, 0x00000000, 0x6db6da00};

inline std::vector<float> parameters_of_program() {
  std::vector<float> made(74);
  for (int i = 0; i < 74; ++i) {
    made[static_cast<std::size_t>(i)] = static_cast<float>(i * 5 % 31 - 15) / 8;
  }
  return made;
}

/// The words that rank 0 sends in each of four steps, and its momenta after them.
inline const std::array<std::vector<std::uint32_t>, 4> momentum_ballots_of_program{
    {{0x8f0f0f00, 0x0f0f0f00, 0x0f0f1e00},
     {0xa3236300, 0x63676700, 0x67474600},
     {0xad2d2d00, 0x2d6d6900, 0x69494a00},
     {0x858daf80, 0xaf2f2b00, 0x2b0b0b00}}};
inline const std::vector<float> momenta_of_program{
    -0x1.26befap-2f, -0x1.ebb4a8p-5f, 0x1.184616p-2f,  0x1.bb9f2p-3f,   0x1.46b212p-3f,
    0x1.a38a08p-4f,  0x1.735fdcp-5f,  -0x1.81518p-7f,  -0x1.1a044ap-4f, 0x1.8663bcp-3f,
    0x1.1176acp-3f,  0x1.39134p-4f,   0x1.3ce48cp-6f,  -0x1.3541f2p-5f, -0x1.847b14p-4f,
    -0x1.372a98p-3f, -0x1.ac17a8p-3f, 0x1.5eaee4p-4f,  0x1.d3532p-6f,   -0x1.d4155p-6f,
    -0x1.5edf7p-4f,  -0x1.245cc4p-3f, -0x1.9949d4p-3f, -0x1.071b7p-2f,  -0x1.dd30cp-6f,
    0x1.37e9ap-2f,   0x1.fae634p-3f,  0x1.85f924p-3f,  0x1.110c16p-3f,  0x1.383e0ep-4f,
    0x1.398fcp-6f,   -0x1.36ec54p-5f, 0x1.c5aaccp-3f,  0x1.50bdcp-3f,   0x1.b7a16p-4f,
    0x1.9b8e8cp-5f,  -0x1.c12d84p-8f, -0x1.05ecf2p-4f, -0x1.efc71p-4f,  -0x1.6cd096p-3f,
    -0x1.e1bda6p-3f, 0x1.e6c5d4p-5f,  0x1.3119cp-9f,   -0x1.c0a29cp-5f, -0x1.ca2b6ap-4f,
    -0x1.5a02c4p-3f, -0x1.ceefd2p-3f, -0x1.21ee7p-2f,  -0x1.c53058p-5f, 0x1.1d16ap-2f,
    0x1.c54036p-3f,  0x1.505328p-3f,  0x1.b6cc32p-4f,  0x1.99e428p-5f,  -0x1.ce80ap-8f,
    -0x1.06c226p-4f, 0x1.9004dp-3f,   0x1.1b17cp-3f,   0x1.4c5566p-4f,  0x1.89ed1cp-6f,
    -0x1.0ebda8p-5f, -0x1.7138fp-4f,  -0x1.2d8986p-3f, -0x1.a27694p-3f, 0x1.71f10ep-4f,
    0x1.102de4p-5f,  -0x1.870cbp-6f,  -0x1.4b9d48p-4f, -0x1.1abbb4p-3f, -0x1.8fa8c4p-3f,
    -0x1.024ae8p-2f, -0x1.90284p-6f,  -0x1.4de42ap-4f, 0x1.0243a2p-2f};

/// The parameters of every rank after four steps.
inline const std::vector<float> parameters_by_program{
    -0x1.139bcp-1f, -0x1.602d4p+0f, -0x1.6494ap+0f, -0x1.d1f8p-1f,  -0x1.b58d8p-2f, 0x1.ed6a8p-1f,
    0x1.724dep+0f,  -0x1.20cacp-1f, -0x1.0a998p-1f, -0x1.01b42p+0f, -0x1.0c37p-1f,  -0x1.505cp-5f,
    0x1.c457p-2f,   -0x1.604bp-1f,  -0x1.a467p-3f,  0x1.1c2fp-2f,   0x1.64b18p-2f,  -0x1.19d8p-3f,
    0x1.61768p-2f,  -0x1.152adp+1f, -0x1.a98ap-1f,  0x1.3da74p-1f,  0x1.1a6c4p+0f,  0x1.9604ep+0f,
    0x1.7f4bp-1f,   -0x1.2186ep+1f, -0x1.c7752p+0f, -0x1.4bdc8p+0f, -0x1.7f0f8p-2f, 0x1.27a98p-1f,
    0x1.0f6d6p+0f,  -0x1.e68bcp-1f, -0x1.602d4p+0f, -0x1.6494ap+0f, -0x1.d1f8p-1f,  -0x1.b58d8p-2f,
    0x1.df5a8p-1f,  0x1.eb45ep+0f,  -0x1.2edacp-1f, -0x1.bd4cp-4f,  -0x1.03684p-1f, -0x1.0c37p-1f,
    -0x1.505cp-5f,  0x1.c457p-2f,   -0x1.6f4bp-1f,  0x1.df99p-3f,   0x1.6f178p-1f,  0x1.33246p+0f,
    0x1.7314p-2f,   0x1.61768p-2f,  -0x1.152adp+1f, -0x1.aebdp+0f,  -0x1.2a918p-2f, 0x1.87a2p-3f,
    0x1.2c8cep+0f,  0x1.a8258p+0f,  -0x1.2186ep+1f, -0x1.c7752p+0f, -0x1.4bdc8p+0f, -0x1.a087cp-1f,
    0x1.0ccccp+0f,  0x1.88656p+0f,  -0x1.f49bcp-1f, -0x1.fad5p-2f,  -0x1.6494ap+0f, -0x1.d1f8p-1f,
    -0x1.b58d8p-2f, 0x1.d05a8p-1f,  0x1.2de2fp+1f,  -0x1.376bp-3f,  0x1.52adp-2f,   -0x1.03684p-1f,
    -0x1.0c37p-1f,  -0x1.505cp-5f};

}  // namespace tutti::test

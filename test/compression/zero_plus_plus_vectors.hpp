#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

/// What ZeRO++ makes of parameters. The codes are from cached_quantization of
/// csrc/quantization/quantize.cu, symmetric with 8 bits, and the headers that it includes, of
/// deepspeedai/DeepSpeed at commit edaa7221, run on a host. There g++ 12's _Float16 takes the place
/// of __half, a block is one thread whose shuffles return its own value, and launchers are left
/// out. Its dequantize_kernel decodes each as code * scale, in floats and rounded to halves.
namespace tutti {

/// 256 elements of gradient_in_512ths, which are exact in half precision, and zeros behind them.
struct zero_plus_plus_blocks {
  std::size_t block;
  std::size_t elements;
  std::size_t step;
  std::vector<float> scales;
  std::string_view codes;
};

inline const std::array<zero_plus_plus_blocks, 2>& blocks_by_zero_plus_plus() {
  static const std::array<zero_plus_plus_blocks, 2> blocks{{
      {64,
       320,
       1,
       {0x1.f3p-7f, 0x1.ee8p-7f, 0x1.eafffep-7f, 0x1.ed7ffep-7f, 0x1p+0f},
       "d7ccc1b6aba0958a7f756a5f54493f34291e1308fdf2e7dcd2c7bcb1a69b9085"
       "7b70655a4f443a2f24190e03f8ede2d7cdc2b7aca1968b80766b60554a3f352a"
       "1f1409fef3e8ddd2c7bcb1a69b90857d72675c51463b30251a0f04f9eee3d8cd"
       "c2b7aca1968b80786d62574c41362b20150afff4e9ded3c8bdb2a79c91867e73"
       "695e53473c31261b1005faefe4d9cec2b7aca1968b807a6f64594d42372c2116"
       "0b00f5eadfd4c8bdb2a79c91867f756a5f53483d32271c1106fbf0e5dacec3b8"
       "aea3988d827a6f64594e43382d22170c01f6ebe0d5cabfb4a99e93887f756a5f"
       "54493e33281d1207fcf1e6dbd0c5baafa4998d827b70655a4f44392e23180d02"},
      {256,
       256,
       5,
       {0x1.f3fffep-7f},
       "31261b1106fbf0e5dacfc4b9afa4998e83786d63584d42372c21160c01f6ebe0"
       "d5cabfb4aa9f94897e73685e53483d32271c1107fcf1e6dbd0c5baafa59a8f84"
       "796e63594e43382d22170c02f7ece1d6cbc0b5aaa0958a7f74695e54493e3328"
       "1d1207fdf2e7dcd1c6bbb0a69b90857a6f64594f44392e23180d02f8ede2d7cc"
       "c1b6aba1968b7f756a5f544a3f34291e1308fdf3e8ddd2c7bcb1a69c91867b70"
       "655a4f453a2f24190e03f8eee3d8cdc2b7aca1978c81766b60554a40352a1f14"
       "09fef3e9ded3c8bdb2a79c92877c71665b50463b30251a0f04f9eee4d9cec3b8"
       "ada2978d82776c61564b41362b20150afff4e9dfd4c9beb3a89d92887d72675c"},
  }};
  return blocks;
}

}  // namespace tutti

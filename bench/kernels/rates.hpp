#pragma once

namespace bench {

/// Registers rows `rates/COMPRESSOR` for the compressors of all named strategies, with their
/// options. `tutti-compare --kernels FILE` charges these times on this machine.
void add_rates();

}  // namespace bench

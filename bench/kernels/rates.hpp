#pragma once

namespace bench {

/// Registers rows `rates/COMPRESSOR` for the compressors of all named strategies, with their
/// options. `tutti-compare --kernels FILE` charges the times that FILE has of them.
void add_rates();

}  // namespace bench

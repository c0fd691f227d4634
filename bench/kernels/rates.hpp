#pragma once

namespace bench {

/// Rows `rates/COMPRESSOR` of the compressors that named strategies have, with their options: what
/// `tutti-compare --kernels FILE` charges on this machine.
void add_rates();

}  // namespace bench

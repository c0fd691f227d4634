#include "data/fashion_mnist.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>
#include <zlib.h>

#include "tutti/base/error.hpp"

namespace data {
namespace {

namespace fs = std::filesystem;
using bytes = std::vector<std::uint8_t>;

constexpr std::size_t side = 28;
constexpr std::size_t classes = 10;

[[noreturn]] void reject(const fs::path& file, const std::string& what) {
  throw tutti::usage_error(file.string() + ": " + what +
                           ". Fix: apt-get install --reinstall dataset-fashion-mnist, or --data "
                           "fashion-mnist:DIR with the four idx files");
}

/// Returns the whole file, decompressed. Memory grows with the bytes that are read, because a size
/// stated in a header may be wrong.
bytes read(const fs::path& file) {
  struct close {
    void operator()(gzFile open) const { gzclose_r(open); }
  };
  const std::unique_ptr<gzFile_s, close> in(gzopen(file.c_str(), "rb"));
  if (!in) {
    throw tutti::usage_error(file.string() +
                             ": cannot be opened. Fix: apt-get install dataset-fashion-mnist, or "
                             "--data fashion-mnist:DIR");
  }
  bytes all;
  int got = 0;
  do {
    constexpr std::size_t piece = std::size_t{1} << 20;
    const std::size_t before = all.size();
    all.resize(before + piece);
    got = gzread(in.get(), all.data() + before, static_cast<unsigned>(piece));
    all.resize(before + static_cast<std::size_t>(std::max(got, 0)));
  } while (got > 0);
  int code = Z_OK;
  const char* text = gzerror(in.get(), &code);
  if (code == Z_BUF_ERROR) {
    reject(file, "truncated: the gzip stream breaks off after " + std::to_string(all.size()) +
                     " bytes of data");
  }
  if (code != Z_OK) {
    reject(file, std::string("corrupt gzip data, ") + text);
  }
  return all;
}

std::size_t big_endian(std::span<const std::uint8_t> from) {
  return std::size_t{from[0]} << 24 | std::size_t{from[1]} << 16 | std::size_t{from[2]} << 8 |
         std::size_t{from[3]};
}

/// Returns the values after an idx header of unsigned bytes in `dimensions` dimensions. Each entry
/// of the first dimension has `item` values. Throws tutti::usage_error if the header and the values
/// do not match.
bytes read_idx(const fs::path& file, std::size_t dimensions, std::size_t item) {
  bytes all = read(file);
  const std::size_t header = 4 * (1 + dimensions);
  if (all.size() < header) {
    reject(file, "truncated: expected an idx header of " + std::to_string(header) +
                     " bytes, found " + std::to_string(all.size()));
  }
  const auto word = [&](std::size_t i) { return big_endian(std::span(all).subspan(4 * i, 4)); };
  if (word(0) != (0x800 | dimensions)) {
    reject(file, "expected idx magic " + std::to_string(0x800 | dimensions) + ", found " +
                     std::to_string(word(0)));
  }
  for (std::size_t i = 2; i <= dimensions; ++i) {
    if (word(i) != side) {
      reject(file, "expected images of 28 x 28 pixels, found a side of " + std::to_string(word(i)));
    }
  }
  if (word(1) == 0 || all.size() != header + word(1) * item) {
    reject(file, "expected " + std::to_string(header + word(1) * item) + " bytes for " +
                     std::to_string(word(1)) + " entries, found " + std::to_string(all.size()));
  }
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(header));
  return all;
}

/// Returns the path of the gzipped file, or of the plain one if only that exists.
fs::path find(const fs::path& directory, const std::string& name) {
  const fs::path zipped = directory / (name + ".gz");
  const fs::path plain = directory / name;
  return !fs::exists(zipped) && fs::exists(plain) ? plain : zipped;
}

dataset read_split(const fs::path& directory, const std::string& split) {
  const fs::path images = find(directory, split + "-images-idx3-ubyte");
  const fs::path labels = find(directory, split + "-labels-idx1-ubyte");
  dataset made{.image = {1, side, side},
               .classes = classes,
               .mean = 0.2860F,  // over the 60,000 training images
               .deviation = 0.3530F,
               .pixels = read_idx(images, 3, side * side),
               .labels = read_idx(labels, 1, 1)};
  if (made.pixels.size() != made.labels.size() * side * side) {
    reject(labels, "expected a label for each of the " +
                       std::to_string(made.pixels.size() / (side * side)) + " images, found " +
                       std::to_string(made.labels.size()));
  }
  const auto largest = *std::max_element(made.labels.begin(), made.labels.end());
  if (largest >= classes) {
    reject(labels, "expected labels from 0 to 9, found " + std::to_string(largest));
  }
  return made;
}

}  // namespace

splits fashion_mnist(const fs::path& directory) {
  return {.train = read_split(directory, "train"), .test = read_split(directory, "t10k")};
}

}  // namespace data

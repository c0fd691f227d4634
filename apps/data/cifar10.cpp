#include "data/cifar10.hpp"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"

namespace data {
namespace {

namespace fs = std::filesystem;
using bytes = std::vector<std::uint8_t>;

constexpr shape photograph{3, 32, 32};
constexpr std::size_t record = 1 + photograph.size();
constexpr std::size_t classes = 10;

[[noreturn]] void reject(const fs::path& file, const std::string& what) {
  throw tutti::usage_error(file.string() + ": " + what +
                           ". Fix: --data cifar10:DIR with the six .bin files of CIFAR-10's binary "
                           "version");
}

bytes read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in || fs::is_directory(file)) {
    reject(file, "cannot be opened");
  }
  bytes all{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (all.empty() || all.size() % record != 0) {
    reject(file, "expected records of " + std::to_string(record) + " bytes, found " +
                     std::to_string(all.size()) + " bytes");
  }
  return all;
}

void append(dataset& to, const fs::path& file) {
  const bytes all = read(file);
  for (std::size_t at = 0; at < all.size(); at += record) {
    if (all[at] >= classes) {
      reject(file, "expected labels from 0 to 9, found " + std::to_string(all[at]) + " in record " +
                       std::to_string(at / record));
    }
    const auto pixels = all.begin() + static_cast<std::ptrdiff_t>(at + 1);
    to.labels.push_back(all[at]);
    to.pixels.insert(to.pixels.end(), pixels,
                     pixels + static_cast<std::ptrdiff_t>(photograph.size()));
  }
}

}  // namespace

splits cifar10(const fs::path& directory) {
  const fs::path inside = directory / "cifar-10-batches-bin";
  const fs::path& folder = fs::is_directory(inside) ? inside : directory;
  dataset train{.image = photograph,
                .classes = classes,
                .mean = 0.4734F,  // over all colours of the 50,000 training images
                .deviation = 0.2516F};
  dataset test = train;
  for (int batch = 1; batch <= 5; ++batch) {
    append(train, folder / ("data_batch_" + std::to_string(batch) + ".bin"));
  }
  append(test, folder / "test_batch.bin");
  return {.train = std::move(train), .test = std::move(test)};
}

}  // namespace data

#pragma once

#include <map>
#include <string>

#include "common/described.hpp"
#include "tutti/base/type_name.hpp"

namespace compare {

/// The times that a compressor's two kernels took on a device for each element, and the bytes that
/// a simulated device is charged for them.
struct kernel_times {
  double encode_seconds{};
  double encode_bytes{};
  double add_seconds{};
  double add_bytes{};
};

/// Returns the memory bandwidth, in bytes a second, at which a simulated device takes as long for
/// one encoding and the addition of the payloads of `workers` as the measured device took.
constexpr double rate_of(const kernel_times& each, int workers) {
  return (each.encode_bytes + workers * each.add_bytes) /
         (each.encode_seconds + workers * each.add_seconds);
}

/// Returns the name under which a compressor's times are listed in a file.
template <class Compression>
std::string filed_as() {
  return common::without_namespace(tutti::type_name<Compression>());
}

/// The kernel times that bench-kernels measured on one device and wrote with --benchmark_out, in
/// rows `rates/COMPRESSOR`.
class kernel_file {
 public:
  /// Reads the file. Throws common::flag_error, naming the file, if it has no such rows.
  explicit kernel_file(const std::string& name);

  /// Returns a compressor's times. Throws common::flag_error if the file has no row for it.
  const kernel_times& of(const std::string& compressor) const;
  const std::map<std::string, kernel_times>& all() const { return all_; }

 private:
  std::string name_;
  std::map<std::string, kernel_times> all_{};
};

}  // namespace compare

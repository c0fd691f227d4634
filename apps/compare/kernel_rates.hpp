#pragma once

#include <map>
#include <string>

#include "common/described.hpp"
#include "tutti/base/type_name.hpp"

namespace compare {

/// What a compressor's two kernels took on a device for each element, and what a simulated device
/// is charged for that.
struct kernel_times {
  double encode_seconds{};
  double encode_bytes{};
  double add_seconds{};
  double add_bytes{};
};

/// Bytes a second that a device is charged at where gradients are encoded once and payloads of
/// `workers` are added.
constexpr double rate_of(const kernel_times& each, int workers) {
  return (each.encode_bytes + workers * each.add_bytes) /
         (each.encode_seconds + workers * each.add_seconds);
}

/// The name under which a compressor's times are filed.
template <class Compression>
std::string filed_as() {
  return common::without_namespace(tutti::type_name<Compression>());
}

/// What bench-kernels measured on one device, as it wrote it with --benchmark_out: rows
/// `rates/COMPRESSOR`.
class kernel_file {
 public:
  /// Throws common::flag_error, naming the file, if it has none.
  explicit kernel_file(const std::string& name);

  /// Throws common::flag_error if the file has no row of that compressor.
  const kernel_times& of(const std::string& compressor) const;
  const std::map<std::string, kernel_times>& all() const { return all_; }

 private:
  std::string name_;
  std::map<std::string, kernel_times> all_{};
};

}  // namespace compare

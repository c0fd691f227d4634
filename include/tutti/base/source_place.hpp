#pragma once

namespace tutti {

/// Where a call stands, for error messages. std::source_location is missing from clang 14's view of
/// libstdc++; these built-ins are in every compiler that tutti supports.
struct source_place {
  const char* file;
  int line;

  static constexpr source_place current(const char* its_file = __builtin_FILE(),
                                        int its_line = __builtin_LINE()) {
    return {its_file, its_line};
  }
};

}  // namespace tutti

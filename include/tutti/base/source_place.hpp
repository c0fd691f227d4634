#pragma once

namespace tutti {

/// The file and line of a call, for error messages. clang 14 does not see libstdc++'s
/// std::source_location; every compiler that tutti supports has these built-ins.
struct source_place {
  const char* file;
  int line;

  static constexpr source_place current(const char* its_file = __builtin_FILE(),
                                        int its_line = __builtin_LINE()) {
    return {its_file, its_line};
  }
};

}  // namespace tutti

#include "models/replayed/csv.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"

namespace models {
namespace {

constexpr std::string_view header = "name,elements,forward_us,backward_us";
constexpr std::string_view header_with_shapes = "name,elements,forward_us,backward_us,shape";

/// Removes blanks at both ends, and the carriage return of a file from Windows.
std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t\r";
  const std::size_t first = text.find_first_not_of(blank);
  return first == text.npos ? "" : text.substr(first, text.find_last_not_of(blank) - first + 1);
}

std::vector<std::string_view> split(std::string_view line, char at) {
  std::vector<std::string_view> fields;
  for (std::size_t end = 0; end != line.npos;) {
    end = line.find(at);
    fields.push_back(trimmed(line.substr(0, end)));
    line.remove_prefix(end == line.npos ? 0 : end + 1);
  }
  return fields;
}

template <class T>
bool is_number(std::string_view text, T& value) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc{} && end == text.data() + text.size();
}

/// Reads a file line by line, and counts lines for error messages.
class reader {
 public:
  explicit reader(const std::string& file) : read_{.name = file, .batch = 1, .device = file} {}

  replayed read() && {
    std::ifstream in(read_.name);
    for (std::string line; std::getline(in, line);) {
      ++line_;
      take(trimmed(line_ == 1 ? without_mark(line) : line));
    }
    if (!in.eof()) {
      throw tutti::usage_error(read_.name + ": cannot be read. Fix: the path of a CSV file");
    }
    if (read_.tensors.empty()) {
      line_ = std::max<std::size_t>(line_, 1);
      reject(!header_.empty() ? "no tensor follows the header" : "there is no header",
             header_and_lines());
    }
    return std::move(read_);
  }

 private:
  void take(std::string_view line) {
    if (line.starts_with('#')) {
      comment(trimmed(line.substr(1)));
    } else if (!line.empty() && !header_.empty()) {
      tensor(split(line, ','));
    } else if (!line.empty()) {
      if (line != header && line != header_with_shapes) {
        reject("the header is '" + std::string(line) + "'", header_and_lines());
      }
      header_ = line;
    }
  }

  /// Takes the batch from a comment such as `batch 8`, `Batch: 8` or `batch size = 8`.
  void comment(std::string_view text) {
    constexpr std::string_view between = " \t:=";
    const auto take = [&](std::string_view wanted) {
      const std::string_view word = text.substr(0, text.find_first_of(between));
      const bool found = std::ranges::equal(word, wanted, [](char a, char b) {
        return std::tolower(static_cast<unsigned char>(a)) == b;
      });
      if (found) {
        text.remove_prefix(std::min(text.find_first_not_of(between, word.size()), text.size()));
      }
      return found;
    };
    if (!take("batch")) {
      return;
    }
    const bool is_size = take("size");
    const bool is_number = !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) != 0;
    if (is_size || is_number || text.find_first_of(" \t") == text.npos) {
      read_.batch = whole("batch", trimmed(text));
    }  // otherwise the comment is prose
  }

  void tensor(const std::vector<std::string_view>& fields) {
    const std::size_t columns = split(header_, ',').size();
    if (fields.size() != columns) {
      reject("there are " + std::to_string(fields.size()) + " columns",
             std::to_string(columns) + " of them, " + header_ + ", and no comma in a name");
    }
    const std::size_t elements = whole("elements", fields[1]);
    elements_ += std::min(elements, 2 * most_elements);
    if (elements_ > most_elements) {
      reject("there are more than " + std::to_string(most_elements) + " elements in all",
             "a smaller model");
    }
    read_.tensors.push_back({std::string(fields[0]), elements, seconds("forward_us", fields[2]),
                             seconds("backward_us", fields[3]),
                             shape(fields.size() == 4 ? "" : fields[4], elements)});
  }

  /// Returns an empty shape if the field is empty.
  tutti::tensor_shape shape(std::string_view text, std::size_t elements) const {
    if (text.empty()) {
      return {};
    }
    std::vector<std::size_t> lengths;
    std::size_t left = elements;
    for (const auto each : split(text, 'x')) {
      lengths.push_back(whole("a length of the shape", each));
      left = left % lengths.back() == 0 ? left / lengths.back() : 0;
    }
    if (left != 1 || lengths.size() > tutti::tensor_shape::most_dimensions) {
      reject("shape is '" + std::string(text) + "'",
             "at most 8 lengths whose product is elements, as 64x3x7x7");
    }
    return tutti::tensor_shape(lengths);
  }

  std::size_t whole(const std::string& what, std::string_view text) const {
    std::size_t value = 0;
    if (!is_number(text, value) || value == 0) {
      reject(what + " is '" + std::string(text) + "'", "a whole number of 1 or more");
    }
    return value;
  }

  double seconds(const std::string& what, std::string_view text) const {
    double microseconds = 0;
    if (!is_number(text, microseconds) || !(microseconds >= 0 && microseconds <= longest)) {
      reject(what + " is '" + std::string(text) + "'", "microseconds, a number from 0 to 1e12");
    }
    return microseconds * 1e-6;
  }

  static std::string header_and_lines() {
    return "begin with the line " + std::string(header) + ", then a line for each tensor";
  }

  [[noreturn]] void reject(const std::string& what, const std::string& fix) const {
    throw tutti::usage_error(read_.name + ":" + std::to_string(line_) + ": " + what +
                             ". Fix: " + fix);
  }

  static constexpr std::size_t most_elements = std::size_t{1} << 40;  // 4 TiB of floats
  static constexpr double longest = 1e12;  // microseconds, as long as a link's latency may be

  replayed read_;
  std::size_t elements_{};
  std::size_t line_{};
  std::string header_{};
};

}  // namespace

std::string_view without_mark(std::string_view line) {
  constexpr std::string_view mark = "\xEF\xBB\xBF";
  return line.starts_with(mark) ? line.substr(mark.size()) : line;
}

replayed read_csv(const std::string& file) { return reader(file).read(); }

}  // namespace models

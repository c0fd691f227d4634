#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

// Runs programs as a user does, each test in a directory of its own.
namespace tutti::test {

struct outcome {
  int status;
  std::string out;
  std::string err;
};

inline std::string read(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// Returns the number of names in a list: lines that do not begin with a space.
inline std::size_t listed(const std::string& text) {
  std::size_t names = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    names += (i == 0 || text[i - 1] == '\n') && text[i] != ' ' ? 1 : 0;
  }
  return names;
}

/// Runs every test in a directory of its own.
class Apps : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "tutti-apps-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    here_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(here_); }

  outcome shell(const std::string& command) const {
    const int status = std::system(
        ("cd " + here_.string() + " && timeout 120 " + command + " >out 2>err </dev/null").c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(here_ / "out"), read(here_ / "err")};
  }
  /// Runs tutti-train on a small model and data set, unless the flags choose others.
  outcome train(const std::string& flags) const {
    const auto unless_said = [&flags](const std::string& flag, const std::string& value) {
      return flags.find(flag) == std::string::npos ? flag + " " + value + " " : "";
    };
    return shell(TUTTI_APPS_DIRECTORY "/tutti-train " + unless_said("--model", "mlp") +
                 unless_said("--data", "synthetic") + flags);
  }
  /// Returns the JSON row of each epoch.
  std::vector<nlohmann::json> epochs(const std::string& flags) const {
    std::filesystem::remove(here_ / "epochs");
    const auto got = train(flags + " --json epochs");
    EXPECT_EQ(got.status, 0) << got.err;
    std::ifstream in(here_ / "epochs");
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(in, line);) {
      if (auto each = nlohmann::json::parse(line); !each["epoch"].is_null()) {
        all.push_back(std::move(each));
      }
    }
    return all;
  }
  outcome cell(const std::string& name, const std::string& flags,
               const std::string& device = "cpu") const {
    return shell(TUTTI_APPS_DIRECTORY "/combination-" + device + "-" + name + " " + flags);
  }

  /// Expects one line, which names the program and contains `sentence`, and the exit status of bad
  /// usage.
  void refuses(const outcome& got, const std::string& sentence) const {
    EXPECT_EQ(got.status, 2) << got.out << got.err;
    EXPECT_EQ(lines(got.err), 1U) << got.err;
    EXPECT_NE(got.err.find(sentence), std::string::npos) << got.err;
  }
  void train_refuses(const std::string& flags, const std::string& sentence) const {
    SCOPED_TRACE(flags);
    const auto got = train("--steps 1 " + flags);
    refuses(got, "tutti-train: " + sentence);
    EXPECT_EQ(got.out, "") << "before a table";
  }

  std::filesystem::path here_;
};

}  // namespace tutti::test

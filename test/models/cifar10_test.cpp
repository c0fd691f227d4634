// CIFAR-10's binary format, and windows that are shifted over images and mirrored.
#include "data/cifar10.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

#include "data/augmentation.hpp"
#include "data/loader.hpp"
#include "tutti/base/error.hpp"

namespace {

namespace fs = std::filesystem;
using bytes = std::vector<std::uint8_t>;
constexpr std::size_t pixels = 3 * 32 * 32;

/// Returns the byte of pixel `i` of record `r` of file `f`.
std::uint8_t pixel(std::size_t f, std::size_t r, std::size_t i) {
  return static_cast<std::uint8_t>(f * 31 + r * 7 + i * 13 % 251);
}

/// A folder with six small, valid files, which each test spoils in its own way.
class cifar10 : public testing::Test {
 protected:
  cifar10()
      : directory_(fs::temp_directory_path() /
                   ("tutti-cifar10-" + std::to_string(getpid()) + "-" +
                    testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::create_directories(directory_);
    for (std::size_t file = 0; file < 6; ++file) {
      write(file, records(file, file == 5 ? 3 : 2));
    }
  }
  ~cifar10() override { fs::remove_all(directory_); }

  static bytes records(std::size_t file, std::size_t count) {
    bytes all;
    for (std::size_t r = 0; r < count; ++r) {
      all.push_back(static_cast<std::uint8_t>((file + r) % 10));
      for (std::size_t i = 0; i < pixels; ++i) {
        all.push_back(pixel(file, r, i));
      }
    }
    return all;
  }
  fs::path path(std::size_t file) const {
    return directory_ /
           (file == 5 ? "test_batch.bin" : "data_batch_" + std::to_string(file + 1) + ".bin");
  }
  void write(std::size_t file, const bytes& content) const {
    std::ofstream(path(file), std::ios::binary)
        .write(reinterpret_cast<const char*>(content.data()),
               static_cast<std::streamsize>(content.size()));
  }
  /// Expects loading to fail with one line that names the file and contains `words`.
  void expect_refusal(std::size_t file, const std::string& words) const {
    try {
      data::cifar10(directory_);
      FAIL() << "loaded";
    } catch (const tutti::usage_error& problem) {
      const std::string text = problem.what();
      EXPECT_EQ(text.find(path(file).string()), 0U) << text;
      EXPECT_NE(text.find(words), std::string::npos) << text;
      EXPECT_NE(text.find("Fix: "), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
  }
  void expect_sound(const data::splits& read) const {
    ASSERT_EQ(read.train.size(), 10U);
    ASSERT_EQ(read.test.size(), 3U);
    EXPECT_EQ(read.train.image, (data::shape{3, 32, 32}));
    for (std::size_t which = 0; which < 10; ++which) {
      EXPECT_EQ(read.train.labels[which], which / 2 + which % 2);
      for (const std::size_t i :
           {std::size_t{0}, std::size_t{1023}, std::size_t{1024}, pixels - 1}) {
        EXPECT_EQ(read.train.pixels[which * pixels + i], pixel(which / 2, which % 2, i));
      }
    }
    EXPECT_EQ(read.test.labels, (bytes{5, 6, 7}));
    EXPECT_EQ(read.test.pixels.back(), pixel(5, 2, pixels - 1));
  }

  fs::path directory_;
};

TEST_F(cifar10, sound_files_load_from_the_folder_or_the_archives_own) {
  expect_sound(data::cifar10(directory_));
  const fs::path inside = directory_ / "cifar-10-batches-bin";
  fs::create_directories(inside);
  for (std::size_t file = 0; file < 6; ++file) {
    fs::rename(path(file), inside / path(file).filename());
  }
  expect_sound(data::cifar10(directory_));
}

TEST_F(cifar10, a_missing_file_is_named) {
  fs::remove(path(3));
  expect_refusal(3, "cannot be opened");
  fs::create_directory(path(3));
  expect_refusal(3, "cannot be opened");
}

TEST_F(cifar10, short_long_and_empty_files_are_noticed) {
  auto content = records(1, 2);
  content.pop_back();
  write(1, content);
  expect_refusal(1, "expected records of 3073 bytes, found 6145 bytes");
  content = records(1, 2);
  content.push_back(0);
  write(1, content);
  expect_refusal(1, "expected records of 3073 bytes, found 6147 bytes");
  write(1, {});
  expect_refusal(1, "found 0 bytes");
}

TEST_F(cifar10, a_label_that_cannot_be_is_noticed) {
  auto content = records(5, 3);
  content[2 * 3073] = 10;
  write(5, content);
  expect_refusal(5, "expected labels from 0 to 9, found 10 in record 2");
}

// ---- windows

constexpr std::size_t side = 5;
constexpr std::size_t padding = 2;

/// Pixel (c, y, x) is 1 + 100 c + 10 y + x, of 5 by 4 pixels; the padding is 0.
data::dataset grid() {
  data::dataset made{.image = {2, 5, 4}, .classes = 1, .mean = 0, .deviation = 1.0F / 255.0F};
  for (std::size_t image = 0; image < 50; ++image) {
    for (std::size_t c = 0; c < 2; ++c) {
      for (std::size_t y = 0; y < 5; ++y) {
        for (std::size_t x = 0; x < 4; ++x) {
          made.pixels.push_back(static_cast<std::uint8_t>(1 + 100 * c + 10 * y + x));
        }
      }
    }
    made.labels.push_back(0);
  }
  return made;
}

std::vector<float> window(std::size_t top, std::size_t left, bool mirrored) {
  std::vector<float> out;
  for (std::size_t c = 0; c < 2; ++c) {
    for (std::size_t row = 0; row < side; ++row) {
      for (std::size_t column = 0; column < side; ++column) {
        const std::size_t y = top + row;
        const std::size_t x = left + (mirrored ? side - 1 - column : column);
        const bool inside = y >= padding && y < padding + 5 && x >= padding && x < padding + 4;
        out.push_back(inside ? static_cast<float>(1 + 100 * c + 10 * (y - padding) + x - padding)
                             : 0.0F);
      }
    }
  }
  return out;
}

TEST(augmentation, shows_every_window_both_ways_and_nothing_else) {
  const auto from = grid();
  const data::augmentation shown{side, padding};
  std::map<std::vector<float>, int> windows;
  for (std::size_t top = 0; top < 5; ++top) {
    for (std::size_t left = 0; left < 4; ++left) {
      windows[window(top, left, false)];
      windows[window(top, left, true)];
    }
  }
  ASSERT_EQ(windows.size(), 40U);
  std::vector<float> out(shown.of(from.image).size());
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    for (std::size_t which = 0; which < from.size(); ++which) {
      shown.standardise(from, which, 7, epoch, out);
      const auto found = windows.find(out);
      ASSERT_NE(found, windows.end()) << "image " << which << " in epoch " << epoch;
      ++found->second;
    }
  }
  for (const auto& [each, times] : windows) {
    EXPECT_GT(times, 5) << "1000 draws of 40";
    EXPECT_LT(times, 60);
  }
  shown.standardise_centre(from, 3, out);
  EXPECT_EQ(out, window(2, 1, false));
}

TEST(augmentation, of_an_image_is_the_same_whoever_has_it_and_whenever_it_is_asked_for) {
  const auto from = grid();
  const auto batches = [&](std::size_t workers, std::size_t worker, std::size_t epoch) {
    data::loader images(from, {.batch_size = 12 / workers,
                               .worker = worker,
                               .workers = workers,
                               .seed = 3,
                               .shown = {side, padding}});
    std::vector<std::vector<float>> all;
    for (const auto& batch : images.epoch(epoch)) {
      const std::size_t size = batch.images.size() / batch.labels.size();
      for (std::size_t i = 0; i < batch.labels.size(); ++i) {
        const auto first = batch.images.begin() + static_cast<std::ptrdiff_t>(i * size);
        all.emplace_back(first, first + static_cast<std::ptrdiff_t>(size));
      }
    }
    return all;
  };
  const auto alone = batches(1, 0, 4);
  EXPECT_EQ(batches(1, 0, 4), alone) << "a resumed epoch";
  EXPECT_NE(batches(1, 0, 5), alone);
  const auto first = batches(2, 0, 4);
  const auto second = batches(2, 1, 4);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    const auto& mine = i / 6 % 2 == 0 ? first : second;
    EXPECT_EQ(mine[i / 12 * 6 + i % 6], alone[i]) << i;
  }
}

TEST(augmentation, without_a_window_images_are_as_they_are) {
  const auto from = grid();
  const data::augmentation none;
  std::vector<float> out(from.image.size());
  std::vector<float> plain(from.image.size());
  none.standardise(from, 2, 1, 1, out);
  from.standardise(2, plain);
  EXPECT_EQ(out, plain);
  none.standardise_centre(from, 2, out);
  EXPECT_EQ(out, plain);
}

}  // namespace

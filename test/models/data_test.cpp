#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>
#include <zlib.h>

#include "data/fashion_mnist.hpp"
#include "data/loader.hpp"
#include "data/synthetic.hpp"
#include "tutti/base/error.hpp"

namespace {

namespace fs = std::filesystem;
using bytes = std::vector<std::uint8_t>;

/// Pixel 0 of image i is i, so that a batch shows which images it holds.
data::dataset numbered(std::size_t count) {
  data::dataset made{.image = {1, 1, 2}, .classes = 10, .mean = 0, .deviation = 1.0F / 255.0F};
  for (std::size_t i = 0; i < count; ++i) {
    made.pixels.push_back(static_cast<std::uint8_t>(i));
    made.pixels.push_back(0);
    made.labels.push_back(static_cast<std::uint8_t>(i % 10));
  }
  return made;
}

/// Returns the images of each of one worker's batches of an epoch.
std::vector<std::vector<std::size_t>> seen(const data::dataset& from, data::loader::options options,
                                           std::size_t epoch) {
  std::vector<std::vector<std::size_t>> all;
  data::loader images(from, options);
  for (const auto& batch : images.epoch(epoch)) {
    EXPECT_EQ(batch.images.size(), batch.labels.size() * from.image.size());
    all.emplace_back();
    for (std::size_t i = 0; i < batch.labels.size(); ++i) {
      const float pixel = batch.images[i * from.image.size()];
      const auto which = static_cast<std::size_t>(pixel + 0.5F);
      EXPECT_EQ(batch.labels[i], which % 10) << "labels travel with their images";
      all.back().push_back(which);
    }
  }
  EXPECT_EQ(all.size(), images.steps());
  return all;
}

TEST(loader, workers_share_each_epoch_without_overlap) {
  const auto from = numbered(247);
  for (std::size_t workers = 1; workers <= 5; ++workers) {
    std::multiset<std::size_t> all;
    std::size_t steps = 0;
    for (std::size_t worker = 0; worker < workers; ++worker) {
      const auto mine = seen(from, {.batch_size = 8, .worker = worker, .workers = workers}, 2);
      EXPECT_TRUE(steps == 0 || steps == mine.size()) << "equal steps, or a collective hangs";
      steps = mine.size();
      for (const auto& batch : mine) {
        all.insert(batch.begin(), batch.end());
      }
    }
    EXPECT_EQ(all.size(), 247 / (8 * workers) * 8 * workers);
    EXPECT_EQ(std::set(all.begin(), all.end()).size(), all.size()) << "no image twice";
  }
}

TEST(loader, the_global_batch_does_not_depend_on_how_many_workers_cut_it) {
  const auto from = numbered(240);
  const auto alone = seen(from, {.batch_size = 24}, 1);
  for (const std::size_t workers : {2U, 3U, 4U}) {
    for (std::size_t worker = 0; worker < workers; ++worker) {
      const std::size_t size = 24 / workers;
      const auto mine = seen(from, {.batch_size = size, .worker = worker, .workers = workers}, 1);
      ASSERT_EQ(mine.size(), alone.size());
      for (std::size_t step = 0; step < alone.size(); ++step) {
        EXPECT_TRUE(std::equal(mine[step].begin(), mine[step].end(),
                               alone[step].begin() + static_cast<std::ptrdiff_t>(worker * size)));
      }
    }
  }
}

TEST(loader, an_epoch_and_a_seed_fix_the_order) {
  const auto from = numbered(200);
  EXPECT_EQ(seen(from, {.batch_size = 10}, 3), seen(from, {.batch_size = 10}, 3));
  EXPECT_NE(seen(from, {.batch_size = 10}, 3), seen(from, {.batch_size = 10}, 4));
  EXPECT_NE(seen(from, {.batch_size = 10, .seed = 1}, 3),
            seen(from, {.batch_size = 10, .seed = 2}, 3));
}

TEST(loader, impossible_shares_are_refused) {
  const auto from = numbered(10);
  EXPECT_THROW(data::loader(from, {.batch_size = 0}), tutti::usage_error);
  EXPECT_THROW(data::loader(from, {.batch_size = 6, .workers = 2}), tutti::usage_error);
  EXPECT_THROW(data::loader(from, {.batch_size = 1, .worker = 2, .workers = 2}),
               tutti::usage_error);
  EXPECT_THROW(data::loader(from, {.batch_size = 1, .workers = 0}), tutti::usage_error);
}

TEST(synthetic, same_options_give_the_same_bytes) {
  const auto one = data::synthetic({.train = 20, .test = 10});
  const auto same = data::synthetic({.train = 20, .test = 10});
  EXPECT_EQ(one.train.pixels, same.train.pixels);
  EXPECT_EQ(one.test.pixels, same.test.pixels);
  EXPECT_NE(one.train.pixels, data::synthetic({.train = 20, .test = 10, .seed = 2}).train.pixels);
  EXPECT_EQ(one.test.size(), 10U);
}

/// A directory with a small, valid data set, which each test spoils in its own way.
class fashion_mnist : public testing::Test {
 protected:
  fashion_mnist()
      : directory_(fs::temp_directory_path() /
                   ("tutti-fashion-mnist-" + std::to_string(getpid()) + "-" +
                    testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::create_directories(directory_);
    for (const std::string split : {"train", "t10k"}) {
      write(split + "-images-idx3-ubyte.gz", images(3));
      write(split + "-labels-idx1-ubyte.gz", labels(3));
    }
  }
  ~fashion_mnist() override { fs::remove_all(directory_); }

  static void put(bytes& to, std::uint32_t word) {
    for (const int shift : {24, 16, 8, 0}) {
      to.push_back(static_cast<std::uint8_t>(word >> shift));
    }
  }
  static bytes images(std::uint32_t count) {
    bytes all;
    for (const std::uint32_t word : {0x803U, count, 28U, 28U}) {
      put(all, word);
    }
    for (std::size_t i = 0; i < std::size_t{count} * 784; ++i) {
      all.push_back(static_cast<std::uint8_t>(i * 7919 >> 3));
    }
    return all;
  }
  static bytes labels(std::uint32_t count) {
    bytes all;
    put(all, 0x801);
    put(all, count);
    for (std::uint32_t i = 0; i < count; ++i) {
      all.push_back(static_cast<std::uint8_t>(i));
    }
    return all;
  }
  void write(const std::string& name, const bytes& content) const {
    gzFile out = gzopen((directory_ / name).c_str(), "wb");
    gzwrite(out, content.data(), static_cast<unsigned>(content.size()));
    gzclose(out);
  }
  fs::path path(const std::string& name) const { return directory_ / name; }

  /// Expects loading to fail with one line that names `file` and contains `words`.
  void expect_refusal(const std::string& file, const std::string& words) const {
    try {
      data::fashion_mnist(directory_);
      FAIL() << "loaded";
    } catch (const tutti::usage_error& problem) {
      const std::string text = problem.what();
      EXPECT_EQ(text.find(path(file).string()), 0U) << text;
      EXPECT_NE(text.find(words), std::string::npos) << text;
      EXPECT_NE(text.find("Fix: "), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
  }

  fs::path directory_;
};

constexpr auto train_images = "train-images-idx3-ubyte.gz";
constexpr auto train_labels = "train-labels-idx1-ubyte.gz";

TEST_F(fashion_mnist, sound_files_load_zipped_or_plain) {
  const auto zipped = data::fashion_mnist(directory_);
  EXPECT_EQ(zipped.train.size(), 3U);
  EXPECT_EQ(zipped.test.labels, (bytes{0, 1, 2}));
  fs::remove(path(train_images));
  const auto content = images(3);
  std::ofstream(path("train-images-idx3-ubyte"), std::ios::binary)
      .write(reinterpret_cast<const char*>(content.data()),
             static_cast<std::streamsize>(content.size()));
  EXPECT_EQ(data::fashion_mnist(directory_).train.pixels, zipped.train.pixels);
}

TEST_F(fashion_mnist, a_missing_file_names_the_package) {
  fs::remove(path(train_labels));
  expect_refusal(train_labels, "apt-get install dataset-fashion-mnist");
}

TEST_F(fashion_mnist, a_truncated_gzip_is_noticed) {
  fs::resize_file(path(train_images), fs::file_size(path(train_images)) / 2);
  expect_refusal(train_images, "truncated");
}

TEST_F(fashion_mnist, a_flipped_byte_is_noticed) {
  std::fstream file(path(train_images), std::ios::binary | std::ios::in | std::ios::out);
  const auto middle = static_cast<std::streamoff>(fs::file_size(path(train_images)) / 2);
  file.seekg(middle);
  const char byte = static_cast<char>(file.get() ^ 0x55);
  file.seekp(middle);
  file.put(byte);
  file.close();
  expect_refusal(train_images, "corrupt");
}

TEST_F(fashion_mnist, too_few_and_too_many_bytes_are_noticed) {
  auto content = images(3);
  content.pop_back();
  write(train_images, content);
  expect_refusal(train_images, "expected 2368 bytes for 3 entries, found 2367");
  content.resize(content.size() + 2);
  write(train_images, content);
  expect_refusal(train_images, "found 2369");
  write(train_images, {0, 0, 8});
  expect_refusal(train_images, "expected an idx header of 16 bytes, found 3");
  write(train_images, {});
  expect_refusal(train_images, "found 0");
}

TEST_F(fashion_mnist, a_header_that_lies_is_noticed) {
  auto content = images(3);
  content[4] = 0xFF;  // 4 billion images, refused before memory of that size is allocated
  write(train_images, content);
  expect_refusal(train_images, "entries, found 2368");
  content = images(3);
  content[11] = 27;
  write(train_images, content);
  expect_refusal(train_images, "found a side of 27");
  write(train_images, labels(3));
  expect_refusal(train_images, "found");
}

TEST_F(fashion_mnist, labels_must_match_their_images) {
  write(train_labels, labels(2));
  expect_refusal(train_labels, "a label for each of the 3 images, found 2");
  auto content = labels(3);
  content.back() = 10;
  write(train_labels, content);
  expect_refusal(train_labels, "expected labels from 0 to 9, found 10");
  write(train_labels, images(3));
  expect_refusal(train_labels, "expected idx magic 2049, found 2051");
}

TEST_F(fashion_mnist, debians_package_is_complete) {
  if (!fs::exists("/usr/share/datasets/fashion-mnist")) {
    GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  }
  const auto sets = data::fashion_mnist();
  EXPECT_EQ(sets.train.size(), 60000U);
  EXPECT_EQ(sets.test.size(), 10000U);
  double sum = 0;
  double squares = 0;
  std::vector<float> image(784);
  for (std::size_t i = 0; i < sets.train.size(); ++i) {
    sets.train.standardise(i, image);
    for (const float each : image) {
      sum += each;
      squares += static_cast<double>(each) * each;
    }
  }
  EXPECT_NEAR(sum / (784 * 60000.0), 0, 1e-3);
  EXPECT_NEAR(squares / (784 * 60000.0), 1, 2e-3);
}

}  // namespace

#include "models/replayed/replayed.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <unistd.h>
#include <vector>

#include "tutti/base/error.hpp"

namespace {

namespace fs = std::filesystem;

/// The facts of a network's definition: published counts, and a hash of the order and name of every
/// tensor.
struct facts {
  const char* name;
  std::size_t elements, tensors, largest, small;
  std::uint64_t hash;
};

constexpr facts known[] = {
    {"resnet50", 25557032, 161, 2359296, 108, 0x85c111f6d517ef85},
    {"resnet152", 60192808, 467, 2359296, 312, 0x014c1bf6c1d3aece},
    {"vgg16", 138357544, 32, 102760448, 17, 0x91e4bca3f1a33bb1},
    {"densenet201", 20013928, 604, 1920000, 403, 0x7a1ce0363985631e},
    {"inception_v4", 42679816, 449, 1536000, 300, 0x4695e9ac9d7b4327},
    {"inception_bn", 11295240, 278, 1024000, 210, 0xf898585b62b7ef94},
    {"mobilenet_v2", 3504872, 158, 1280000, 132, 0x9116a05887f95678},
    {"bert_base", 110111042, 206, 23445504, 129, 0x3994606f93defb47},
    {"bert_large", 336232258, 398, 31260672, 249, 0xd67c93647c09f472},
    {"kungfu_resnet50", 25583592, 214, 2359296, 161, 0x4127bbe4f6c9b130},
    {"kungfu_vgg16", 138357544, 32, 102760448, 17, 0xea19340d7e6f0677},
    {"kungfu_bert", 327270150, 599, 23440896, 376, 0x311284ef3b86e72b},
};

/// Returns FNV-1a over lines of a name, a blank and a size.
std::uint64_t hash(const models::replayed& network) {
  std::uint64_t state = 14695981039346656037U;
  for (const auto& each : network.tensors) {
    for (const char letter : each.name + " " + std::to_string(each.elements) + "\n") {
      state = (state ^ static_cast<unsigned char>(letter)) * 1099511628211U;
    }
  }
  return state;
}

void expect_is(const facts& wanted) {
  const auto network = models::replay(wanted.name);
  EXPECT_EQ(network.name, wanted.name);
  EXPECT_EQ(network.elements(), wanted.elements);
  EXPECT_EQ(network.tensors.size(), wanted.tensors);
  EXPECT_EQ(std::ranges::max(network.tensors, {}, &models::replayed_tensor::elements).elements,
            wanted.largest);
  EXPECT_EQ(
      std::ranges::count_if(network.tensors, [](const auto& each) { return each.elements < 8192; }),
      static_cast<std::ptrdiff_t>(wanted.small));
  EXPECT_EQ(hash(network), wanted.hash) << "another order, name or size";
}

TEST(replayed, networks_are_tensor_for_tensor_their_definitions) {
  std::vector<std::string> names;
  for (const auto& each : known) {
    SCOPED_TRACE(each.name);
    names.emplace_back(each.name);
    expect_is(each);
  }
  EXPECT_EQ(models::replayed_names(), names) << "every network has its line here";
}

TEST(replayed, tensors_stand_where_the_network_has_them) {
  const auto expect = [](const char* network, std::size_t index, const std::string& name,
                         std::size_t elements) {
    const auto tensor = models::replay(network).tensors.at(index);
    EXPECT_EQ(tensor.name, name) << network;
    EXPECT_EQ(tensor.elements, elements) << network << " " << name;
  };
  expect("resnet50", 12, "layer1.0.downsample.0.weight", 256 * 64);
  expect("resnet152", 465, "fc.weight", 2048 * 1000);
  expect("vgg16", 26, "classifier.0.weight", 25088 * 4096);
  expect("densenet201", 41, "features.transition1.conv.weight", 256 * 128);
  expect("inception_v4", 375, "features.19.branch2_2.conv.weight", 448 * 512 * 3);
  expect("inception_bn", 68, "3c_3x3_reduce_weight", 320 * 128);
  expect("mobilenet_v2", 3, "features.1.conv.0.0.weight", 32 * 3 * 3);
  expect("bert_base", 199, "cls.predictions.bias", 30528);
  expect("bert_large", 1, "bert.embeddings.position_embeddings.weight", 512 * 1024);
  expect("kungfu_resnet50", 0, "t213", 64 * 3 * 7 * 7);
  expect("kungfu_resnet50", 213, "t0", 1000);
  expect("kungfu_bert", 598, "t598", 2);
}

TEST(replayed, weights_are_matrices_of_a_row_an_output) {
  const auto expect = [](const char* network, std::size_t index, const tutti::tensor_shape& shape) {
    EXPECT_EQ(models::replay(network).tensors.at(index).shape, shape) << network << " " << index;
  };
  expect("resnet50", 0, {64, 3 * 7 * 7});
  expect("resnet50", 1, {});
  expect("resnet50", 12, {256, 64});
  expect("mobilenet_v2", 3, {32, 3 * 3});
  expect("vgg16", 26, {4096, 25088});
  expect("bert_base", 0, {30528, 768});
  for (const auto& name : models::replayed_names()) {
    for (const auto& each : models::replay(name).tensors) {
      EXPECT_TRUE(each.shape.dimensions() == 0 || each.shape.elements() == each.elements)
          << name << " " << each.name;
    }
  }
}

TEST(replayed, totals_are_the_measured_ones_and_every_tensor_has_a_share) {
  const auto expect = [](const char* name, std::size_t batch, double seconds) {
    const auto network = models::replay(name);
    EXPECT_EQ(network.batch, batch) << name;
    EXPECT_NEAR(network.forward(), seconds / 3, 1e-12) << name;
    EXPECT_NEAR(network.backward(), seconds * 2 / 3, 1e-12) << name;
  };
  expect("resnet50", 64, 0.2529);
  expect("resnet152", 128, 0.8831);
  expect("vgg16", 64, 0.416);
  expect("densenet201", 64, 0.3609);
  expect("inception_v4", 128, 0.6108);
  expect("bert_base", 64, 0.3008);
  expect("bert_large", 8, 0.1633);
  for (const auto& name : models::replayed_names()) {
    const auto network = models::replay(name);
    EXPECT_FALSE(network.device.empty()) << name;
    EXPECT_TRUE(std::ranges::all_of(network.tensors, [](const auto& each) {
      return each.forward_seconds > 0 && each.backward_seconds > 0;
    })) << name;
  }
}

/// Expects costs that were not measured to follow from the forward operations of a sample, in 1e9,
/// which are computed from the multiply-adds in the literature.
TEST(replayed, what_nobody_measured_follows_from_its_operations) {
  const double resnet50 = models::replay("resnet50").forward() / 8.2;
  EXPECT_NEAR(models::replay("mobilenet_v2").forward() / resnet50, 0.6, 0.02);
  EXPECT_NEAR(models::replay("inception_bn").forward() / resnet50, 4.1, 0.1);
  EXPECT_NEAR(models::replay("kungfu_resnet50").forward() / resnet50, 7.75, 0.1);
  EXPECT_NEAR(models::replay("kungfu_vgg16").forward() / resnet50, 31.0, 0.1);
}

TEST(replayed, shares_are_of_operations) {
  const auto tensors = models::replay("vgg16").tensors;
  const auto& first = tensors[0];  // 64 filters of 3 x 3 x 3 over 224 x 224 pixels
  const auto& bias = tensors[1];
  const auto& matrix = tensors[26];
  EXPECT_NEAR(first.forward_seconds / bias.forward_seconds, 2 * 3 * 3 * 3, 1e-9);
  EXPECT_NEAR(first.forward_seconds / matrix.forward_seconds,
              64.0 * 27 * 224 * 224 / (25088.0 * 4096), 1e-9);
  EXPECT_NEAR(first.backward_seconds, 2 * first.forward_seconds, 1e-12);
}

TEST(replayed, other_totals_keep_the_shares) {
  const auto before = models::replay("bert_base");
  const auto after = models::with_totals(before, 0.5, 0.25);
  EXPECT_NEAR(after.forward(), 0.5, 1e-12);
  EXPECT_NEAR(after.backward(), 0.25, 1e-12);
  EXPECT_NEAR(after.tensors[5].forward_seconds / before.tensors[5].forward_seconds,
              0.5 / before.forward(), 1e-9);
  EXPECT_EQ(hash(after), hash(before));
}

template <class Call>
void expect_refusal(Call call, const std::string& sentence) {
  try {
    call();
    FAIL() << "not refused: " << sentence;
  } catch (const tutti::usage_error& refusal) {
    EXPECT_EQ(refusal.what(), sentence);
  }
}

TEST(replayed, totals_that_cannot_be_are_refused) {
  const models::replayed idle{.name = "idle", .tensors = {{"a", 1, 0, 1}}};
  EXPECT_EQ(models::with_totals(idle, 0, 3).backward(), 3);
  expect_refusal([&] { models::with_totals(idle, 1, 1); },
                 "idle: the forward pass takes no time, so its tensors cannot share 1.000000 s. "
                 "Fix: give its tensors times");
  expect_refusal(
      [&] { models::with_totals(idle, 0, -1); },
      "idle: the backward pass cannot take -1.000000 s. Fix: a finite time of 0 or more");
  EXPECT_THROW(models::with_totals(idle, std::numeric_limits<double>::quiet_NaN(), 1),
               tutti::usage_error);
}

TEST(replayed, unknown_names_suggest_the_nearest) {
  expect_refusal([] { models::replay("resnet51"); },
                 "no model to replay is named 'resnet51'. Did you mean resnet50? A file of your "
                 "own must end in .csv");
}

/// A user's file in a directory of its own.
class replayed_csv : public testing::Test {
 protected:
  replayed_csv()
      : directory_(fs::temp_directory_path() /
                   ("tutti-replayed-" + std::to_string(getpid()) + "-" +
                    testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::create_directories(directory_);
  }
  ~replayed_csv() override { fs::remove_all(directory_); }

  std::string path() const { return (directory_ / "mine.csv").string(); }

  models::replayed read(const std::string& text) const {
    std::ofstream(path(), std::ios::binary) << text;
    return models::replay(path());
  }
  void expect_refused(const std::string& text, const std::string& behind_the_path) const {
    expect_refusal([&] { read(text); }, path() + behind_the_path);
  }
  void expect_line_refused(const std::string& line, const std::string& why) const {
    expect_refused(header + "a,1,2,3\n" + line + "\n", ":3: " + why);
  }

  const std::string header = "name,elements,forward_us,backward_us\n";

 private:
  fs::path directory_;
};

TEST_F(replayed_csv, is_read_in_forward_order) {
  const auto network = read("\xEF\xBB\xBF# my profile, from Excel\n\n" + header +
                            "conv.weight,864,1.5,3\r\n# batch 64\n  fc.bias , 10, 0, 2e3");
  EXPECT_EQ(network.name, path());
  EXPECT_EQ(network.device, path());
  EXPECT_EQ(network.batch, 64U);
  ASSERT_EQ(network.tensors.size(), 2U);
  EXPECT_EQ(network.tensors[0].name, "conv.weight");
  EXPECT_EQ(network.tensors[0].elements, 864U);
  EXPECT_DOUBLE_EQ(network.tensors[0].forward_seconds, 1.5e-6);
  EXPECT_DOUBLE_EQ(network.tensors[0].backward_seconds, 3e-6);
  EXPECT_EQ(network.tensors[1].name, "fc.bias");
  EXPECT_DOUBLE_EQ(network.forward(), 1.5e-6);
  EXPECT_DOUBLE_EQ(network.backward(), 2003e-6);
  EXPECT_EQ(network.elements(), 874U);
}

TEST_F(replayed_csv, is_of_one_sample_unless_it_says_otherwise) {
  EXPECT_EQ(read(header + "# batch norm was folded\na,1,2,3\n").batch, 1U);
  EXPECT_EQ(read(header + "# batches 8\na,1,2,3\n").batch, 1U);
  for (const std::string line :
       {"#batch 8", "# Batch: 8", "# BATCH = 8", "# Batch size: 8", "# batch:8\r", "#\tbatch\t8"}) {
    EXPECT_EQ(read(header + line + "\na,1,2,3\n").batch, 8U) << line;
  }
}

TEST_F(replayed_csv, may_say_shapes) {
  const std::string shapes = "name,elements,forward_us,backward_us,shape\n";
  const auto network = read(shapes + "weight,24,1,2,4x 3x2\nbias,4,1,2,\n");
  EXPECT_EQ(network.tensors[0].shape, (tutti::tensor_shape{4, 3, 2}));
  EXPECT_EQ(network.tensors[1].shape, tutti::tensor_shape());
  expect_refused(shapes + "a,4,1,2\n",
                 ":2: there are 4 columns. Fix: 5 of them, "
                 "name,elements,forward_us,backward_us,shape, and no comma in a name");
  expect_refused(shapes + "a,4,1,2,2x0\n",
                 ":2: a length of the shape is '0'. Fix: a whole number of 1 or more");
  for (const std::string shape :
       {"2x3", "2", "8", "1x1x1x1x1x1x1x1x4", "4294967296x4294967296x4"}) {
    expect_refused(shapes + "a,4,1,2," + shape + "\n",
                   ":2: shape is '" + shape +
                       "'. Fix: at most 8 lengths whose product is elements, as 64x3x7x7");
  }
}

TEST_F(replayed_csv, files_that_are_no_table_are_refused) {
  expect_refusal([&] { models::replay(path()); },
                 path() + ": cannot be read. Fix: the path of a CSV file");
  fs::create_directory(path());
  expect_refusal([&] { models::replay(path()); },
                 path() + ": cannot be read. Fix: the path of a CSV file");
  fs::remove(path());
  const std::string fix =
      ". Fix: begin with the line name,elements,forward_us,backward_us, then a line for each "
      "tensor";
  expect_refused("", ":1: there is no header" + fix);
  expect_refused("# a comment\n\n", ":2: there is no header" + fix);
  expect_refused(header, ":1: no tensor follows the header" + fix);
  expect_refused("\nname,numel\n", ":2: the header is 'name,numel'" + fix);
  expect_refused("a,1,2,3\n", ":1: the header is 'a,1,2,3'" + fix);
}

TEST_F(replayed_csv, lines_that_are_no_tensor_are_refused) {
  const std::string columns =
      ". Fix: 4 of them, name,elements,forward_us,backward_us, and no comma in a name";
  expect_line_refused("a,1,2", "there are 3 columns" + columns);
  expect_line_refused("a,1,2,3,", "there are 5 columns" + columns);
  const std::string whole = ". Fix: a whole number of 1 or more";
  expect_line_refused("a,0,2,3", "elements is '0'" + whole);
  expect_line_refused("a,-5,2,3", "elements is '-5'" + whole);
  expect_line_refused("a,1e6,2,3", "elements is '1e6'" + whole);
  expect_line_refused("a,,2,3", "elements is ''" + whole);
  const std::string many =
      "there are more than 1099511627776 elements in all. Fix: a smaller model";
  expect_line_refused("a,4611686018427387904,2,3", many);
  expect_line_refused("a,18446744073709551615,2,3", many);
  EXPECT_EQ(read(header + "a,1099511627776,2,3\n").elements(), std::size_t{1} << 40);
  expect_refused(header + "a,1099511627775,2,3\nb,1,2,3\nc,1,2,3\n", ":4: " + many);
  expect_line_refused("# batch 0", "batch is '0'" + whole);
  expect_line_refused("# batch: 8 per GPU", "batch is '8 per GPU'" + whole);
  expect_line_refused("# batch size:", "batch is ''" + whole);
  const std::string time = ". Fix: microseconds, a number from 0 to 1e12";
  expect_line_refused("a,1,fast,3", "forward_us is 'fast'" + time);
  expect_line_refused("a,1,2,3ms", "backward_us is '3ms'" + time);
  expect_line_refused("a,1,-2,3", "forward_us is '-2'" + time);
  expect_line_refused("a,1,2,nan", "backward_us is 'nan'" + time);
  expect_line_refused("a,1,inf,3", "forward_us is 'inf'" + time);
  expect_line_refused("a,1,2,1e16", "backward_us is '1e16'" + time);
}

}  // namespace

// tutti-train's optimizers by name, and densities of the first epochs.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

// Sanitized builds have no apps.
#ifdef TUTTI_APPS_DIRECTORY

#include "apps/running.hpp"

namespace tutti::test {
namespace {

class Optimizers : public Apps {};

TEST_F(Optimizers, HelpNamesTheFlagsOfTheOptimizer) {
  const auto flags = [this](const std::string& asked) { return train("--help " + asked).out; };
  EXPECT_NE(flags("").find("--optimizer.momentum"), std::string::npos);
  EXPECT_EQ(flags("").find("--optimizer.beta1"), std::string::npos);
  EXPECT_NE(flags("--optimizer adamw").find("--optimizer.decay"), std::string::npos);
  EXPECT_EQ(flags("--optimizer adamw").find("--optimizer.momentum"), std::string::npos);
  EXPECT_NE(flags("--strategy OneBitAdam").find("--optimizer.freeze_step"), std::string::npos);
}

TEST_F(Optimizers, AnOptimizerRefusesWhatIsAnothers) {
  train_refuses("--optimizer adm", "no optimizer is named 'adm'. Did you mean adam?");
  train_refuses("--optimizer adam --momentum 0.9",
                "--momentum is not this optimizer's. Fix: leave it out");
  train_refuses("--optimizer adam --optimizer.beta 0.9",
                "this optimizer has no --optimizer.beta. Did you mean --optimizer.beta1?");
  train_refuses("--optimizer adam --optimizer.decay couple",
                "--optimizer.decay couple cannot be. Did you mean coupled?");
  train_refuses("--strategy ZeRO1 --optimizer lamb",
                "--optimizer lamb looks at whole tensors, and ZeRO1 updates parts of them. Fix: "
                "sgd, adam or adamw");
  train_refuses("--optimizer.learning_rate -1",
                "--optimizer.learning_rate -1 cannot be. Fix: a number that is not negative");
  train_refuses("--optimizer lamb --optimizer.trust 1", "this optimizer has no --optimizer.trust");
  train_refuses("--strategy OneBitAdam --optimizer sgd",
                "no optimizer of OneBitAdam is named 'sgd'. Did you mean one_bit_adam?");
  refuses(cell("none-off-none-all-reduce", "--optimizer adam"), "there is no flag --optimizer");
}

TEST_F(Optimizers, DensitiesOfTheFirstEpochsAreShares) {
  for (const char* list : {"0", "1.5", "0.25,", "0.25;0.1", "all"}) {
    train_refuses(std::string("--strategy DGC --density-warm-up '") + list + "'",
                  std::string("--density-warm-up ") + list + " is no list of shares. Fix: as ");
  }
  train_refuses("--strategy BSP --density-warm-up 0.25",
                "--density-warm-up 0.25: BSP selects no share of its elements. Fix: leave it out");
}

/// With the mlp, k elements are sent to each of two others, an index and a value each. DGC selects
/// k elements of each tensor, TopK of all together.
TEST_F(Optimizers, ADensityWarmsUpByEpochs) {
  const std::vector<double> tensors{784.0 * 512, 512, 512.0 * 256, 256, 256.0 * 10, 10};
  const auto sent = [](const std::vector<double>& chunks, double density) {
    double bytes = 0;
    for (const double elements : chunks) {
      bytes += 2 * 8 * std::max(std::floor(elements * density), 1.0);
    }
    return bytes;
  };
  const auto of_dgc = [&](double density) { return sent(tensors, density); };
  const auto of_top_k = [&](double density) {
    return sent({std::accumulate(tensors.begin(), tensors.end(), 0.0)}, density);
  };
  const auto by_epoch = [this](const std::string& flags) {
    std::vector<double> bytes;
    for (const auto& each :
         epochs("--ranks 3 --batch-size 200 --epochs 3 --compression.density 0.01 " + flags)) {
      bytes.push_back(each["bytes_sent_per_rank"]);
    }
    return bytes;
  };
  using steps = std::vector<double>;
  EXPECT_EQ(by_epoch("--strategy TopK"), (steps{of_top_k(0.01), of_top_k(0.01), of_top_k(0.01)}));
  EXPECT_EQ(by_epoch("--strategy TopK --density-warm-up 0.5,0.005"),
            (steps{of_top_k(0.5), of_top_k(0.01), of_top_k(0.01)}));
  EXPECT_EQ(by_epoch("--strategy DGC"), (steps{of_dgc(0.25), of_dgc(0.0625), of_dgc(0.015625)}));
  EXPECT_EQ(by_epoch("--strategy DGC --density-warm-up none"),
            (steps{of_dgc(0.01), of_dgc(0.01), of_dgc(0.01)}));
}

/// A run that stops in the second epoch continues with that epoch's density.
TEST_F(Optimizers, ADensityThatWarmsUpIsResumed) {
  // Ten steps an epoch.
  const std::string flags =
      "--strategy DGC --ranks 3 --batch-size 200 --epochs 3 --density-warm-up 0.1,0.03 "
      "--checkpoint ";
  ASSERT_EQ(train(flags + "whole --steps 25").status, 0);
  ASSERT_EQ(train(flags + "part --steps 14").status, 0);
  ASSERT_EQ(train(flags + "part --steps 25 --resume part").status, 0);
  for (const char* rank : {".0", ".1", ".2"}) {
    EXPECT_FALSE(read(here_ / (std::string("whole") + rank)).empty());
    EXPECT_EQ(read(here_ / (std::string("whole") + rank)),
              read(here_ / (std::string("part") + rank)));
  }
}

/// SGD keeps one float for each parameter, Adam two. OneBitAdam first sends floats, and then one
/// bit each.
TEST_F(Optimizers, TrainByTheOptimizerThatIsNamed) {
  constexpr double parameters = 784 * 512 + 512 + 512 * 256 + 256 + 256 * 10 + 10;
  for (const auto& [flags, floats] :
       {std::pair{"--optimizer sgd", 1.0}, std::pair{"--optimizer sgd --momentum 0", 0.0},
        std::pair{"--optimizer adam", 2.0},
        std::pair{"--optimizer adamw --learning-rate 0.002 --optimizer.beta2 0.99", 2.0},
        std::pair{"--optimizer lars --learning-rate 10 --momentum 0.5", 1.0},
        std::pair{"--optimizer lamb --learning-rate 0.01", 2.0}}) {
    SCOPED_TRACE(flags);
    const auto found = epochs(std::string("--ranks 2 --batch-size 64 --epochs 2 ") + flags);
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found.back()["optimizer_bytes"], 4 * floats * parameters);
    EXPECT_GT(found.back()["test_accuracy"], 0.9);
  }
  const auto loss = [this](const std::string& flags) {
    return epochs("--ranks 2 --steps 5 " + flags).back()["loss"];
  };
  EXPECT_NE(loss("--optimizer adam --optimizer.beta1 0.5"), loss("--optimizer adam"));
  EXPECT_NE(loss("--optimizer adamw --weight-decay 1"), loss("--optimizer adam"));
  EXPECT_NE(loss("--optimizer lars --optimizer.trust 0.01"), loss("--optimizer lars"));

  const auto bits = epochs("--strategy OneBitAdam --epochs 2 --optimizer.freeze_step 46");
  ASSERT_EQ(bits.size(), 2U);
  EXPECT_NEAR(bits[0]["bytes_sent_per_rank"].get<double>(), 1.5 * 4 * parameters, 64);
  EXPECT_NEAR(bits[1]["bytes_sent_per_rank"].get<double>(), 1.5 * parameters / 8, 400);
  EXPECT_GT(bits[1]["test_accuracy"], 0.9);
}

}  // namespace
}  // namespace tutti::test

#endif

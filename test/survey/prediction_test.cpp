// The survey's grid compared with its prediction: laws of both, and how far they may differ.
#include "survey/prediction.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "survey/calibration.hpp"
#include "survey/measured.hpp"
#include "survey/simulation.hpp"
#include "survey/three_methods.hpp"
#include "tutti/base/error.hpp"

namespace survey {
namespace {

using tutti::seconds;

/// Returns the prediction for cells that have a figure. Cells without one take long and are not
/// needed.
const prediction& predicted() {
  static const prediction made = [] {
    auto cells = grid();
    std::erase_if(cells, [](const cell& each) { return !each.samples_per_second; });
    return predict(cells);
  }();
  return made;
}

/// Computes wait-free back-propagation by hand. `ends` are the tensors, in backward order, after
/// which a message is sent, once its gradients are ready and the message before it has arrived.
/// While a message is under way, computing takes 1 + slowdown times as long.
seconds by_hand(const job& of, const std::vector<std::size_t>& ends) {
  const auto& tensors = of.model->tensors;
  seconds now = of.model->forward();
  seconds arrived = 0;
  double bytes = 0;
  auto end = ends.begin();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& each = tensors[tensors.size() - 1 - i];
    const seconds beside = std::max(0.0, arrived - now);
    const seconds slowed = each.backward_seconds * (1 + of.slowdown);
    now += slowed <= beside ? slowed : beside + each.backward_seconds - beside / (1 + of.slowdown);
    bytes += 4 * static_cast<double>(each.elements);
    if (i + 1 == *end) {
      arrived = std::max(now, arrived) + of.cost.startup + of.cost.seconds_per_byte * bytes;
      bytes = 0;
      ++end;
    }
  }
  return std::max(now, arrived);
}

/// Returns MG-WFBP's groups by its published rule: a message is held back if the next gradient is
/// ready before the message could have been sent, plus one start-up.
std::vector<std::size_t> merged(const job& of) {
  const auto& tensors = of.model->tensors;
  std::vector<std::size_t> ends;
  seconds ready = 0;
  seconds link_free = 0;
  double bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t at = tensors.size() - 1 - i;
    ready += tensors[at].backward_seconds;
    bytes += 4 * static_cast<double>(tensors[at].elements);
    const seconds start = std::max(link_free, ready);
    if (at == 0 || ready + tensors[at - 1].backward_seconds >= start + of.cost.startup) {
      ends.push_back(i + 1);
      link_free = start + of.cost.startup + of.cost.seconds_per_byte * bytes;
      bytes = 0;
    }
  }
  return ends;
}

std::vector<std::size_t> one_by_one(const job& of) {
  std::vector<std::size_t> ends;
  while (ends.size() < of.model->tensors.size()) {
    ends.push_back(ends.size() + 1);
  }
  return ends;
}

TEST(SurveyGrid, HoldsEveryCellOnce) {
  std::set<std::tuple<dnn, network, method, int>> cells;
  std::size_t measured = 0;
  for (const cell& each : grid()) {
    EXPECT_TRUE(cells.emplace(each.of, each.over, each.how, each.workers).second);
    if (each.samples_per_second) {
      ++measured;
      EXPECT_GT(*each.samples_per_second, 0);
      EXPECT_GT(*each.iteration(), 0.99 * compute_of(each.of));
    }
  }
  EXPECT_EQ(cells.size(), 96U) << "3 DNNs, 3 networks, 3 methods, P = 8, 16, 32; 15 of P = 4";
  EXPECT_EQ(measured, 60U);
}

TEST(SurveyGrid, TheModelsComputeWhatOneGPUDoes) {
  const seconds expected[] = {64 / 253.1, 64 / 212.8, 8 / 49.0};
  for (const dnn each : dnns) {
    const auto& its = model(each);
    EXPECT_NEAR(its.forward() + its.backward(), expected[static_cast<std::size_t>(each)], 1e-9);
    EXPECT_NEAR(its.backward(), 2 * its.forward(), 1e-9);
  }
  EXPECT_EQ(model(dnn::resnet50).elements(), 25'557'032U);
  EXPECT_EQ(model(dnn::bert_base).elements(), 110'111'042U);
  EXPECT_EQ(model(dnn::bert_large).elements(), 336'232'258U);
}

TEST(SurveySimulation, IsTheMethodsRecurrence) {
  for (const all_reduce_cost cost : {all_reduce_cost{3e-4, 1.4e-9}, {0, 7e-10}, {1e-3, 3e-10}}) {
    for (const int workers : {8, 16}) {
      for (const double slowdown : {0.0, 0.05}) {
        const job of{&model(dnn::resnet50), workers, cost, slowdown};
        const seconds bsp = by_hand(of, {of.model->tensors.size()});
        const seconds wfbp = by_hand(of, one_by_one(of));
        const seconds mg = by_hand(of, merged(of));
        EXPECT_NEAR(simulate(method::BSP, of), bsp, 0.001 * bsp);
        EXPECT_NEAR(simulate(method::WFBP, of), wfbp, 0.002 * wfbp);
        EXPECT_NEAR(simulate(method::MGWFBP, of), mg, 0.002 * mg);
      }
    }
  }
}

/// Two all-reduces share the NIC's rate, so the second one slows down the first by less than the
/// start-up that it hides.
TEST(SurveySimulation, TwoAtOnceAreNeverSlowerAndHideStartUps) {
  for (const all_reduce_cost cost : {all_reduce_cost{1e-3, 1.4e-9}, {2e-3, 3e-10}, {0, 1.4e-9}}) {
    for (const method how : methods) {
      job of{&model(dnn::resnet50), 8, cost};
      const seconds one = simulate(how, of);
      of.exchanges = 2;
      const seconds two = simulate(how, of);
      EXPECT_LE(two, one * (1 + 1e-9));
      if (how == method::WFBP && cost.startup > 0) {
        EXPECT_LT(two, 0.9 * one);
      }
    }
  }
}

TEST(SurveyLaw, StartUpsGrowAsMGWFBPsAuthorsMeasuredThem) {
  EXPECT_DOUBLE_EQ(growth_of_startup(8), 1);
  EXPECT_NEAR(growth_of_startup(16), 9.0809810e-4 / 5.2302728e-4, 1e-9);
  EXPECT_NEAR(growth_of_startup(32), growth_of_startup(16) * growth_of_startup(16), 1e-9);
}

TEST(SurveyLaw, ARateDoesNotDependOnTheWorkers) {
  const calibrated law{.bytes_per_second = {{{1e9, 2e9, 4e9}, {9e8, 2e9, 4e9}, {1e9, 2e9, 3e9}}}};
  const auto few = law.cost(dnn::bert_base, network::ethernet10, 8).seconds_per_byte;
  const auto many = law.cost(dnn::bert_base, network::ethernet10, 32).seconds_per_byte;
  EXPECT_NEAR(many / few, (2.0 * 31 / 32) / (2.0 * 7 / 8), 1e-9);
}

TEST(SurveyPrediction, ReproducesWhatItWasCalibratedOn) {
  std::size_t calibrations = 0;
  for (const row& each : predicted().rows) {
    if (each.what == standing::calibration) {
      ++calibrations;
      EXPECT_EQ(each.of.workers, calibration_workers);
      EXPECT_NEAR(*each.error(), 0, 0.05);
    }
  }
  EXPECT_EQ(calibrations, 11U) << "BSP of every DNN on every network, and two more of ResNet-50";
}

TEST(SurveyPrediction, DependsOnNoOtherCell) {
  auto perturbed = grid();
  for (cell& each : perturbed) {
    const bool calibration =
        each.workers == 8 &&
        (each.how == method::BSP || (each.of == dnn::resnet50 && each.over == network::ethernet10));
    if (!calibration && each.samples_per_second) {
      *each.samples_per_second *= 0.7;
    }
  }
  const calibrated law = calibrate(perturbed);
  const calibrated original = calibrate(grid());
  EXPECT_EQ(law.startup, original.startup);
  EXPECT_EQ(law.slowdown, original.slowdown);
  EXPECT_EQ(law.bytes_per_second, original.bytes_per_second);
}

TEST(SurveyPrediction, FindsTheLawThatMadeTheFigures) {
  auto made = grid();
  const calibrated law{.startup = 5e-4,
                       .slowdown = 0.08,
                       .bytes_per_second = {{{1e9, 2e9, 4e9}, {9e8, 2e9, 4e9}, {1e9, 2e9, 3e9}}}};
  for (cell& each : made) {
    if (each.workers == calibration_workers) {
      each.samples_per_second =
          batch_of(each.of) * each.workers / simulate(each.how, law.job_of(each));
    }
  }
  const calibrated found = calibrate(made);
  EXPECT_NEAR(found.startup, law.startup, 1e-3 * law.startup);
  EXPECT_NEAR(found.slowdown, law.slowdown, 1e-2 * law.slowdown);
  EXPECT_NEAR(found.rate(dnn::bert_large, network::infiniband100), 3e9, 3e7);
}

TEST(SurveyPrediction, RefusesWhatNoNetworkDoes) {
  const auto with = [](method how, double samples_per_second) {
    auto changed = grid();
    for (cell& each : changed) {
      if (each.of == dnn::resnet50 && each.how == how && each.workers == calibration_workers) {
        each.samples_per_second = samples_per_second;
      }
    }
    return changed;
  };
  EXPECT_THROW(calibrate(with(method::BSP, 8 * 253.1)), tutti::usage_error);
  EXPECT_THROW(calibrate(with(method::WFBP, 8)), tutti::usage_error);
  EXPECT_THROW(calibrate(with(method::MGWFBP, 8)), tutti::usage_error);
  EXPECT_THROW(calibrate(with(method::BSP, std::numeric_limits<double>::quiet_NaN())),
               tutti::usage_error);
  EXPECT_THROW(calibrate({}), tutti::usage_error);
}

// ---- how far the prediction may be from what was measured

TEST(SurveyErrors, StayWithinTheirLimits) {
  std::size_t rows = 0;
  for (const row& each : predicted().rows) {
    if (each.of.how == method::BSP && each.what == standing::predicted) {
      ++rows;
      EXPECT_LE(std::abs(*each.error()), each.of.over == network::ethernet100 ? 9 : 3)
          << name_of(each.of.of) << " " << name_of(each.of.over) << " " << each.of.workers;
    }
  }
  EXPECT_EQ(rows, 18U);
  const auto errors =
      summarize(chosen(predicted().rows, [](const cell& each) { return each.how != method::BSP; }));
  EXPECT_EQ(errors.rows, 16U);
  EXPECT_LE(errors.median, 8);
  EXPECT_LE(errors.worst, 20);

  // The order of the methods is wrong in one place, with eight GPUs.
  const auto all = rankings(predicted().rows);
  EXPECT_EQ(all.size(), 9U);
  for (const ranking& each : all) {
    EXPECT_EQ(each.right(), !(each.over == network::infiniband100 && each.workers == 8))
        << name_of(each.over) << " " << each.workers;
  }
}

TEST(SurveyErrors, AreOfWhatWasMeasured) {
  EXPECT_NEAR(error_percent(0.330, 0.300), 10, 1e-9);
  EXPECT_NEAR(error_percent(0.270, 0.300), -10, 1e-9);
  const cell one{dnn::resnet50, network::ethernet10, method::BSP, 8, 1280.0};
  const row fast{one, standing::predicted, 0.3};
  EXPECT_DOUBLE_EQ(*fast.of.iteration(), 0.4);  // 64 samples x 8 workers / 1280 per second
  EXPECT_NEAR(*fast.error(), -25, 1e-9);
  EXPECT_FALSE((row{one, standing::inside_one_host, {}}.error()));
  const cell unknown{dnn::resnet50, network::ethernet10, method::BSP, 8};
  EXPECT_FALSE((row{unknown, standing::predicted, 0.3}.error()));
}

TEST(SurveyErrors, AreSummedUpOverPredictedCellsAlone) {
  const cell measured_04{dnn::resnet50, network::ethernet10, method::BSP, 8, 1280.0};
  std::vector<row> rows{{measured_04, standing::calibration, 4.0},
                        {measured_04, standing::inside_one_host, {}},
                        {measured_04, standing::predicted, 0.3},    // -25 %
                        {measured_04, standing::predicted, 0.44},   // +10 %
                        {measured_04, standing::predicted, 0.36}};  // -10 %
  EXPECT_EQ(summarize(rows).rows, 3U);
  EXPECT_NEAR(summarize(rows).median, 10, 1e-9);
  EXPECT_NEAR(summarize(rows).worst, 25, 1e-9);
  rows.push_back({measured_04, standing::predicted, 0.6});  // +50 %
  EXPECT_NEAR(summarize(rows).median, 17.5, 1e-9);
  EXPECT_EQ(summarize({}).rows, 0U);
}

// ---- what MG-WFBP's authors measured

/// Merging loses on ResNet-152 over InfiniBand. The backward pass hides every message but the last,
/// which is one tensor in either case, and merging copies. The authors measured a loss of 7.2 ms.
TEST(SurveyThreeMethods, InceptionOfFourBytesIsTheOnlyOrderNotReproduced) {
  const calibrated law = calibrate(grid());
  const auto wfbp = static_cast<std::size_t>(method::WFBP);
  const auto merged = static_cast<std::size_t>(method::MGWFBP);
  std::size_t losses = 0;
  for (const three_methods& each : authors_figures) {
    SCOPED_TRACE(std::string(each.model) + " " + std::string(each.network));
    const by_method made = predict(each, law);
    EXPECT_EQ(same_order(each.measured, made),
              !(each.model == "inception_v4" && each.bytes_an_element == 4));
    if (each.measured[merged] > each.measured[wfbp]) {
      ++losses;
      EXPECT_EQ(each.model, "resnet152");
      EXPECT_NEAR(made[merged] - made[wfbp], each.measured[merged] - each.measured[wfbp], 2e-3);
    }
  }
  EXPECT_EQ(losses, 1U);
}

TEST(SurveyErrors, ATiePredictsNoOrder) {
  EXPECT_TRUE(same_order({3, 1, 2}, {6, 4, 5}));
  EXPECT_FALSE(same_order({3, 1, 2}, {6, 5, 4}));
  EXPECT_FALSE(same_order({3, 1, 2}, {6, 4, 4}));
  EXPECT_TRUE(same_order({3, 1, 1}, {6, 4, 5})) << "nor does one that was measured";
  EXPECT_EQ(fastest_first({3, 1, 2}), (std::array{method::WFBP, method::MGWFBP, method::BSP}));
}

}  // namespace
}  // namespace survey

// Laws of the survey's grid and its prediction; what the prediction comes to is no law.
#include "survey/prediction.hpp"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <limits>
#include <set>
#include <tuple>
#include <vector>

#include "survey/calibration.hpp"
#include "survey/measured.hpp"
#include "survey/simulation.hpp"
#include "tutti/base/error.hpp"

namespace survey {
namespace {

using tutti::seconds;
using tutti::transport::link;

/// Wait-free back-propagation by hand: a group goes when its gradients are there and the one before
/// it has arrived. `tensors_a_group` neighbours go together.
seconds by_hand(int workers, link nic, std::size_t tensors_a_group) {
  const auto& tensors = model().tensors;
  const double p = workers;
  seconds computed = model().forward();
  seconds arrived = 0;
  double bytes = 0;
  for (std::size_t left = tensors.size(); left-- > 0;) {
    computed += tensors[left].backward_seconds;
    bytes += 4 * static_cast<double>(tensors[left].elements);
    if (left % tensors_a_group == 0) {
      arrived = std::max(computed, arrived) + 2 * (p - 1) * nic.latency +
                2 * (p - 1) / p * bytes / nic.bytes_per_second;
      bytes = 0;
    }
  }
  return std::max(computed, arrived);
}

const link nics[] = {{1.2e9, 5e-5}, {2.5e9, 0}, {6.5e9, 2e-4}};

TEST(SurveyGrid, HoldsEveryCellOnce) {
  std::set<std::tuple<network, method, int>> cells;
  for (const cell& each : measured()) {
    EXPECT_TRUE(cells.emplace(each.over, each.how, each.workers).second);
    EXPECT_GT(each.samples_per_second, 0);
    EXPECT_LT(each.samples_per_second, 1.01 * one_gpu * each.workers);
  }
  EXPECT_EQ(cells.size(), 36U);
}

TEST(SurveyGrid, TheModelComputesWhatOneGPUDoes) {
  EXPECT_NEAR(model().forward() + model().backward(), batch / one_gpu, 1e-4);
  EXPECT_NEAR(model().backward(), 2 * model().forward(), 1e-12);
}

TEST(SurveySimulation, BSPIsTheRingsFormula) {
  for (const link nic : nics) {
    for (const int workers : {8, 16, 32}) {
      const seconds expected = by_hand(workers, nic, model().tensors.size());
      EXPECT_NEAR(simulate(method::BSP, traffic::all_at_once, workers, nic), expected,
                  0.01 * expected);
    }
  }
}

TEST(SurveySimulation, WFBPOneAtATimeIsTheRecurrence) {
  for (const link nic : nics) {
    for (const int workers : {8, 16, 32}) {
      const seconds expected = by_hand(workers, nic, 1);
      EXPECT_NEAR(simulate(method::WFBP, traffic::one_at_a_time, workers, nic), expected,
                  0.01 * expected);
    }
  }
}

TEST(SurveySimulation, LatenciesOverlapWhereTrafficMay) {
  const link slow_to_start{6.5e9, 2e-4};
  EXPECT_LT(simulate(method::WFBP, traffic::all_at_once, 32, slow_to_start),
            simulate(method::WFBP, traffic::one_at_a_time, 32, slow_to_start));
}

class SurveyPrediction : public ::testing::TestWithParam<traffic> {};

TEST_P(SurveyPrediction, ReproducesWhatItWasCalibratedOn) {
  std::size_t calibrations = 0;
  for (const row& each : predict(measured(), GetParam()).rows) {
    if (each.what == standing::calibration) {
      ++calibrations;
      EXPECT_EQ(each.of.workers, calibration_workers);
      EXPECT_NEAR(*each.error(), 0, 0.5);
    }
  }
  EXPECT_EQ(calibrations, 2 * networks.size());
}

TEST_P(SurveyPrediction, DependsOnNoOtherCell) {
  auto grid = measured();
  for (cell& each : grid) {
    if (each.workers != calibration_workers || each.how == method::MGWFBP) {
      each.samples_per_second *= 0.7;
    }
  }
  const auto original = predict(measured(), GetParam());
  const auto perturbed = predict(grid, GetParam());
  for (const network each : networks) {
    EXPECT_EQ(original.nic(each).nic.bytes_per_second, perturbed.nic(each).nic.bytes_per_second);
    EXPECT_EQ(original.nic(each).nic.latency, perturbed.nic(each).nic.latency);
  }
  for (std::size_t i = 0; i < grid.size(); ++i) {
    EXPECT_EQ(original.rows[i].predicted, perturbed.rows[i].predicted);
  }
}

TEST_P(SurveyPrediction, DependsOnTheCalibrationCells) {
  const auto cells = calibration_cells_of(measured(), network::ethernet10);
  const auto found = calibrate(cells, GetParam()).nic;
  const auto slower = calibrate({cells.BSP + 0.010, cells.WFBP}, GetParam()).nic;
  const auto later = calibrate({cells.BSP, cells.WFBP + 0.005}, GetParam()).nic;
  EXPECT_LT(slower.bytes_per_second, found.bytes_per_second);
  EXPECT_GT(later.latency, found.latency);
}

TEST_P(SurveyPrediction, FindsTheNicThatMadeTheFigures) {
  const link nic{2e9, 3e-5};
  const calibration_cells made{simulate(method::BSP, GetParam(), calibration_workers, nic),
                               simulate(method::WFBP, GetParam(), calibration_workers, nic)};
  const auto found = calibrate(made, GetParam());
  EXPECT_EQ(found.source, latency_from::WFBP);
  EXPECT_NEAR(found.nic.bytes_per_second, nic.bytes_per_second, 1e-3 * nic.bytes_per_second);
  EXPECT_NEAR(found.nic.latency, nic.latency, 1e-2 * nic.latency);
}

TEST_P(SurveyPrediction, ALatencyBelow0Is0AndSaysSo) {
  const seconds compute = model().forward() + model().backward();
  const auto found = calibrate({compute + 0.1, compute}, GetParam());
  EXPECT_EQ(found.source, latency_from::nothing);
  EXPECT_EQ(found.nic.latency, 0);
  EXPECT_NEAR(simulate(method::BSP, GetParam(), calibration_workers, found.nic), compute + 0.1,
              0.005 * compute);
}

TEST_P(SurveyPrediction, RefusesWhatNoNicDoes) {
  const seconds compute = model().forward() + model().backward();
  EXPECT_THROW(calibrate({compute, compute}, GetParam()), tutti::usage_error);
  EXPECT_THROW(calibrate({compute + 0.1, compute + 60}, GetParam()), tutti::usage_error);
  const double nothing = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(calibrate({nothing, compute}, GetParam()), tutti::usage_error);
  EXPECT_THROW(calibration_cells_of({}, network::ethernet10), tutti::usage_error);
}

INSTANTIATE_TEST_SUITE_P(EveryTraffic, SurveyPrediction, ::testing::ValuesIn(traffics),
                         [](const auto& each) {
                           return each.param == traffic::all_at_once ? "AllAtOnce" : "OneAtATime";
                         });

TEST(SurveyErrors, AreOfWhatWasMeasured) {
  EXPECT_NEAR(error_percent(0.330, 0.300), 10, 1e-9);
  EXPECT_NEAR(error_percent(0.270, 0.300), -10, 1e-9);
  const row fast{{network::ethernet10, method::BSP, 8, 1280}, standing::predicted, 0.3};
  EXPECT_DOUBLE_EQ(fast.of.iteration(), 0.4);  // 64 samples x 8 workers / 1280 a second
  EXPECT_NEAR(*fast.error(), -25, 1e-9);
  EXPECT_FALSE((row{fast.of, standing::inside_one_host, {}}.error()));
}

TEST(SurveyErrors, AreSummedUpOverPredictedCellsAlone) {
  const cell measured_04{network::ethernet10, method::BSP, 8, 1280};
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

}  // namespace
}  // namespace survey

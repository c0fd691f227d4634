// tutti-survey as a user runs it: its tables, its file, and its refusals.
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

// Sanitized builds have no apps.
#ifdef TUTTI_APPS_DIRECTORY

#include "apps/running.hpp"

namespace tutti::test {
namespace {

class Survey : public Apps {
 protected:
  outcome survey(const std::string& flags) const {
    return shell(TUTTI_APPS_DIRECTORY "/tutti-survey " + flags);
  }
  void survey_refuses(const std::string& flags, const std::string& sentence) const {
    SCOPED_TRACE(flags);
    refuses(survey(flags), "tutti-survey: " + sentence);
  }
};

TEST_F(Survey, SaysItsLawBeforeItsTablesAndWritesALineARow) {
  const auto got = survey("--json rows");
  ASSERT_EQ(got.status, 0) << got.err;
  EXPECT_LT(got.out.find("Law of extrapolation"), got.out.find("samples/s"));
  EXPECT_NE(got.out.find("not reproduced: 100GbIB with 8"), std::string::npos);
  EXPECT_EQ(got.out.find("NOT HELD"), std::string::npos);
  ASSERT_EQ(lines(read(here_ / "rows")), 96U);
  std::ifstream in(here_ / "rows");
  for (std::string line; std::getline(in, line);) {
    const auto row = nlohmann::json::parse(line);
    EXPECT_EQ(row["predicted_ms"].is_null(), row["cell"] == "inside one host") << row;
    if (row["predicted_ms"].is_number() && row["measured_ms"].is_number()) {
      const double measured = row["measured_ms"];
      const double predicted = row["predicted_ms"];
      EXPECT_NEAR(row["error_percent"].get<double>(), 100 * (predicted - measured) / measured, 1e-9)
          << row;
    }
  }
}

TEST_F(Survey, HelpsWithWhatItHas) {
  const auto got = survey("--help");
  EXPECT_EQ(got.status, 0);
  EXPECT_NE(got.out.find("--json"), std::string::npos);
  EXPECT_EQ(got.out.find("ROLE.OPTION"), std::string::npos);
}

TEST_F(Survey, RefusesInOneLine) {
  survey_refuses("--jsn rows", "there is no flag --jsn. Did you mean --json?");
  survey_refuses("--epochs 3", "there is no flag --epochs");
  survey_refuses("--fusion.rule exact", "there is no flag --fusion.rule");
  survey_refuses("rows", "there is no flag rows");
  survey_refuses("--json", "the required argument for option '--json' is missing");
  survey_refuses("--json /nowhere/rows", "cannot write /nowhere/rows");
}

}  // namespace
}  // namespace tutti::test

#endif

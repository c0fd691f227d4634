// Compares the simulator's iterations with those that others measured on a cluster.
#include <cstdio>

#include "common/job.hpp"
#include "common/output.hpp"
#include "survey/measured.hpp"
#include "survey/prediction.hpp"
#include "survey/table.hpp"

int main(int argc, char** argv) {
  return common::guarded("tutti-survey", [&] {
    const common::job asked = common::parse(argc, argv, common::app::survey);
    if (asked.help) {
      std::fputs(common::help(common::app::survey).c_str(), stdout);
      return;
    }
    if (!asked.json.empty()) {
      common::check_writable(asked.json, asked.json);
    }
    survey::print_law();
    const auto made = survey::predict(survey::grid());
    survey::print(made);
    survey::print_three_methods(made.law);
    if (!asked.json.empty()) {
      survey::append_json(asked.json, made);
    }
  });
}

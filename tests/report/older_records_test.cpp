// Records of schemas 1 and 2, as older rooflms wrote them: they open, and show the numbers that these
// printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "record/reader.h"
#include "report/page/document.h"
#include "report/tables/compare.h"
#include "report/verify/verify.h"
#include "report/views/views.h"

namespace rooflm::report {
namespace {

std::filesystem::path data(const std::string& name) {
  return std::filesystem::path(ROOFLM_TESTS_DIR) / "report" / "data" / name;
}

RecordSet load_older(const std::string& name) { return load(std::vector<std::filesystem::path>{data(name)}); }

/// The rows of a table, of what the older rooflm printed with --format json and of what this one makes.
void expect_same_rows(const nlohmann::json& printed, const Table& made) {
  const nlohmann::json rows = nlohmann::json::parse(format_table(made, Format::json));
  ASSERT_EQ(rows.size(), printed.size());
  for (std::size_t i = 0; i < printed.size(); ++i) {
    for (const auto& [key, value] : printed.at(i).items()) {
      if (key == "outliers") continue;  // that rooflm counted none, whatever the samples
      if (value.is_number()) {
        const double wanted = value.get<double>();
        EXPECT_NEAR(rows.at(i).at(key).get<double>(), wanted, 1e-12 * std::abs(wanted))
            << key << ", row " << i;
      } else {
        EXPECT_EQ(rows.at(i).at(key), value) << key << ", row " << i;
      }
    }
  }
}

void expect_same_view(const std::string& name, const RecordSet& set, const std::string& printed_file) {
  const nlohmann::json printed = nlohmann::json::parse(std::ifstream(data(printed_file))).at(0);
  const View view = make_view(name, set);
  // A table that came later is behind those.
  ASSERT_GE(view.tables.size(), printed.at("tables").size()) << name;
  for (std::size_t i = 0; i < printed.at("tables").size(); ++i) {
    expect_same_rows(printed.at("tables").at(i).at("rows"), view.tables[i].table);
  }
}

TEST(Version1, TheNumbersAreThoseThatItsWriterPrinted) {
  const RecordSet profile = load_older("v1_profile.rooflm");
  ASSERT_EQ(profile.runs.size(), 2U);
  expect_same_view("phases", profile, "v1_phases.json");
  expect_same_view("blocks", profile, "v1_blocks.json");
  expect_same_view("sweep", load_older("v1_bench.rooflm"), "v1_sweep.json");
}

TEST(Version1, TheRolesThatHoldMostMemoryStandFirst) {
  const Table table = make_view("memory", load_older("v1_profile.rooflm")).tables.at(0).table;
  double before = HUGE_VAL;
  std::size_t roles = 0;
  for (const Column& column : table.columns) {
    if (column.key == "phase" || column.key == "live_bytes" || column.key == "which") continue;
    double most = 0;
    for (const Row& row : table.rows) most = std::max(most, row.number(column.key));
    EXPECT_LE(most, before) << column.key << " is cut last in a narrow terminal";
    before = most;
    ++roles;
  }
  EXPECT_GT(roles, 2U);
}

TEST(Version1, ConfigurationsAreFieldsByKey) {
  const RecordSet set = load_older("v1_bench.rooflm");
  const record::Run& run = set.runs.at(0).run;
  EXPECT_EQ(run.kind, "step");
  EXPECT_EQ(run.status, "success");
  EXPECT_EQ(run.config.text("model"), "tiny");
  EXPECT_EQ(run.config.integer("seq"), 16);
  EXPECT_EQ(run.config.integer("d_model"), 64);
  EXPECT_EQ(run.config.find("clip"), nullptr);
  // A record of today says what was the default then: it is the same configuration.
  record::Config today = run.config;
  today.set("clip", 1.0);
  today.set("deterministic", true);
  EXPECT_EQ(record::identity_of(today), record::identity_of(run.config));
  today.set("clip", 0.5);
  EXPECT_NE(record::identity_of(today), record::identity_of(run.config));
}

TEST(Version1, EveryViewTheDocumentCompareAndVerifyWork) {
  for (const char* name : {"v1_profile.rooflm", "v1_bench.rooflm"}) {
    const RecordSet set = load_older(name);
    for (const ViewInfo& info : all_views()) EXPECT_NO_THROW(make_view(info.name, set)) << info.name;
    EXPECT_FALSE(make_document(set, nullptr).empty());
    const record::Reader record(data(name));
    EXPECT_EQ(record.meta("schema"), "4");
    EXPECT_FALSE(compare(record, record, {}).rows.empty()) << name;
    for (const LawResult& result : verify(record)) {
      // Its writer measured on a busy machine: the only law that it found broken itself.
      if (result.law == "no time beats its roof") continue;
      EXPECT_EQ(result.violated, 0U) << name << ": " << result.law << ", " << result.what;
    }
  }
}

TEST(Version2, LaunchesOfActivitiesAreThoseThatItsWriterPrinted) {
  const RecordSet set = load_older("v2_recorded.rooflm");
  expect_same_view("kernels", set, "v2_kernels.json");
  const auto has_launch = [](const record::Activity& activity) {
    return activity.extra.starts_with(R"({"grid":[8,1,1],"block":[256,1,1])");
  };
  EXPECT_EQ(std::ranges::count_if(set.runs.at(0).activities, has_launch), 54);
  for (const LawResult& result : verify(record::Reader(data("v2_recorded.rooflm")))) {
    EXPECT_EQ(result.violated, 0U) << result.law;
  }
}

}  // namespace
}  // namespace rooflm::report

// A record in ten lines: the verdict, what could be gained and how sure, the next command; of every kind of
// record.
#include "report/findings/brief.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "record/rows.h"
#include "record/writer.h"
#include "report/findings/advice.h"
#include "report/findings/headline.h"
#include "tests/record/record_testing.h"
#include "tests/report/made_up_run.h"

namespace rooflm::report {
namespace {

RecordSet load_kept(const char* name) {
  const auto folder = std::filesystem::path(__FILE__).parent_path() / "data";
  return load(std::vector<std::filesystem::path>{folder / name});
}

RecordSet written(const record::TemporaryFolder& folder, const std::string& command,
                  const std::vector<MadeUpRun>& runs) {
  record::Writer writer(folder / "a.rooflm", command);
  for (const MadeUpRun& run : runs) run.write(writer);
  writer.finish();
  return load(std::vector<std::filesystem::path>{folder / "a.rooflm"});
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void expect_brief(const Brief& brief) {
  const auto lines = lines_of(brief_text(brief, 80));
  EXPECT_LE(lines.size(), 10U) << brief_text(brief, 80);
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) EXPECT_LE(lines[i].size(), 80U) << lines[i];
  EXPECT_TRUE(lines.back().starts_with("next: rooflm ")) << lines.back();
  const auto json = nlohmann::json::parse(brief_json(brief));
  EXPECT_EQ(json.at("verdict"), brief.verdict);
  EXPECT_EQ(json.at("next"), brief.next);
  EXPECT_LE(json.at("findings").size(), 3U);
}

TEST(Brief, FindingsAreThoseOfTheOneList) {
  const RecordSet set = load_kept("v1_profile.rooflm");
  const Brief brief = brief_of(set);
  expect_brief(brief);
  EXPECT_EQ(brief.run, "tiny B=2 T=32 fp32 fused flash") << "the fastest of two";
  const auto advice = advise(set, set.runs[1], 3);
  ASSERT_EQ(brief.findings.size(), advice.size());
  ASSERT_FALSE(advice.empty());
  for (std::size_t i = 0; i < advice.size(); ++i) {
    EXPECT_EQ(brief.findings[i].subject, advice[i].subject);
    EXPECT_EQ(brief.findings[i].gain_s, advice[i].gain_s);
    EXPECT_EQ(brief.findings[i].text, advice[i].text);
    EXPECT_EQ(brief.findings[i].certainty, "unsure: 4 steps");
  }
  EXPECT_EQ(brief.verdict, findings_of(set.runs[1], advice).headline);
  EXPECT_EQ(brief.bound, "latency");
  EXPECT_NE(brief.caution.find("71.8 %"), std::string::npos);
}

TEST(Brief, TheNextCommandTriesTheOptionOfTheLargestGain) {
  const record::TemporaryFolder folder;
  MadeUpRun run = made_up_run();
  run.run.config.set("attention", "batched");
  for (record::Op& op : run.ops) {
    if (op.scope.ends_with("attention/qkv")) op.scope.replace(op.scope.size() - 3, 3, "softmax");
  }
  const Brief brief = brief_of(
      written(folder, "rooflm profile --model tiny --attention batched -o a.rooflm --overwrite", {run}));
  expect_brief(brief);
  const auto with_option =
      std::ranges::find_if(brief.findings, [](const auto& one) { return !one.option.empty(); });
  ASSERT_NE(with_option, brief.findings.end());
  EXPECT_EQ(with_option->option, "--attention flash");
  EXPECT_EQ(brief.next, "rooflm profile --model tiny --attention flash -o changed.rooflm");
  EXPECT_EQ(with_option->certainty, "upper bound");
  const record::TemporaryFolder other;
  const Brief quoted =
      brief_of(written(other, "rooflm profile --data 'my texts' --attention batched", {run}));
  EXPECT_TRUE(quoted.next.starts_with("rooflm report ")) << "what a shell may read otherwise is not repeated";
}

TEST(Brief, OfAProgramOfOthers) {
  const Brief brief = brief_of(load_kept("v2_recorded.rooflm"));
  expect_brief(brief);
  EXPECT_EQ(brief.kind, "foreign");
  EXPECT_TRUE(brief.verdict.starts_with("A recorded step takes 225 us, the median")) << brief.verdict;
  ASSERT_FALSE(brief.findings.empty());
  EXPECT_EQ(brief.findings[0].subject, "device idle: host");
  EXPECT_NEAR(brief.findings[0].gain_s, 216e-6, 1e-6);
  EXPECT_EQ(brief.findings[0].certainty, "upper bound, of traced steps");
  EXPECT_TRUE(brief.next.ends_with(" --view why,gaps")) << brief.next;
  EXPECT_TRUE(nlohmann::json::parse(brief_json(brief)).at("step_s").is_null());
}

TEST(Brief, OfABenchmarkAndOfTraining) {
  const Brief bench = brief_of(load_kept("v1_bench.rooflm"));
  expect_brief(bench);
  EXPECT_TRUE(bench.findings.empty());
  EXPECT_TRUE(bench.next.starts_with("rooflm compare ")) << "two runs: " << bench.next;
  const record::TemporaryFolder folder;
  MadeUpRun run = made_up_run();
  run.run.kind = "train";
  run.events.clear();
  const Brief training = brief_of(written(folder, "rooflm train", {run}));
  expect_brief(training);
  EXPECT_EQ(training.kind, "train");
  EXPECT_TRUE(training.verdict.starts_with("A step takes ")) << training.verdict;
  EXPECT_TRUE(training.next.ends_with(" --view training,phases")) << training.next;
}

TEST(Brief, OfRequestsAndOfWhatHasNoStep) {
  const record::TemporaryFolder folder;
  std::vector<record::Cell> cells;
  const auto add = [&](const char* series, const char* column, double value) {
    cells.push_back({series, 0, column, value, "", ""});
  };
  cells.push_back({record::kServingSeries, 0, "model", {}, "tiny", ""});
  const std::vector<std::pair<const char*, double>> request = {
      {"load", 0},      {"user", 0},       {"prompt_tokens", 10}, {"new_tokens", 5},
      {"arrival_s", 0}, {"admitted_s", 0}, {"first_token_s", 1},  {"finish_s", 4}};
  for (const auto& [column, value] : request) add(record::kServingRequestSeries, column, value);
  record::Writer writer(folder / "served.rooflm", "rooflm serve");
  writer.add(cells);
  writer.finish();
  const Brief served = brief_of(load(std::vector<std::filesystem::path>{folder / "served.rooflm"}));
  expect_brief(served);
  EXPECT_EQ(served.kind, "serving");
  EXPECT_TRUE(
      served.verdict.starts_with("1 requests in 4.00 s: 0.25 requests/s, 1.25 tokens/s, median time to "
                                 "first token 1.00 s"))
      << served.verdict;
  record::Writer snapshot(folder / "memory.rooflm", "rooflm import");
  const std::int64_t memory = snapshot.begin_run({.label = "memory", .kind = "foreign"});
  const std::vector<record::MemoryEvent> events = {
      {.seq = 0, .bytes = 2000, .live_bytes = 2000, .time_ns = 1},
      {.seq = 1, .bytes = 3000, .live_bytes = 5000, .time_ns = 2},
      {.seq = 2, .bytes = -2000, .live_bytes = 3000, .time_ns = 3}};
  snapshot.add(memory, events);
  snapshot.finish();
  const Brief allocated = brief_of(load(std::vector<std::filesystem::path>{folder / "memory.rooflm"}));
  expect_brief(allocated);
  EXPECT_EQ(allocated.verdict, "Memory alone was recorded: at most 5.00 kB at once, in 3 events.");
  EXPECT_NE(allocated.next.find("--view memory"), std::string::npos) << allocated.next;
  record::Writer nothing(folder / "odd name.rooflm", "rooflm peaks");
  nothing.finish();
  const Brief empty = brief_of(load(std::vector<std::filesystem::path>{folder / "odd name.rooflm"}));
  expect_brief(empty);
  EXPECT_TRUE(empty.verdict.starts_with("No step was timed: 0 runs")) << empty.verdict;
  EXPECT_NE(empty.next.find("odd name.rooflm' --view"), std::string::npos) << "quoted: " << empty.next;
}

}  // namespace
}  // namespace rooflm::report

// A program that is not ours: activities and memory, no model, no ops, no configuration.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "record/reader.h"
#include "record/writer.h"
#include "report/findings/advice.h"
#include "report/findings/advice_recorded.h"
#include "report/findings/glance.h"
#include "report/findings/headline.h"
#include "report/page/document.h"
#include "report/verify/verify.h"
#include "report/views/views.h"
#include "tests/record/record_testing.h"

namespace rooflm::report {
namespace {

/// Two steps of a script: a range each, kernels on a stream, a copy on another, calls on a thread.
void write_foreign(const std::filesystem::path& path) {
  record::Writer writer(path, "rooflm record -- python train.py");
  const std::int64_t run = writer.begin_run({.label = "train.py", .kind = "foreign"});
  writer.add(run, std::vector<record::Lane>{
                      {.lane = 0, .device = "cuda:0", .stream = 7, .name = "stream 7"},
                      {.lane = 1, .device = "cuda:0", .stream = 8, .name = "stream 8"},
                      {.lane = 2, .kind = "host", .device = "cpu", .thread = 1234, .name = "thread 1234"}});
  writer.add(run, std::vector<record::ActivityName>{{.name = 0, .kind = "kernel", .text = "void gemm<float>"},
                                                    {.name = 1, .kind = "copy", .text = "host to device"},
                                                    {.name = 2, .kind = "api", .text = "cudaLaunchKernel"},
                                                    {.name = 3, .kind = "range", .text = "step"}});
  std::vector<record::Activity> activities;
  const auto add = [&](std::int64_t name, std::int64_t lane, std::int64_t start, std::int64_t end) {
    activities.push_back({.id = static_cast<std::int64_t>(activities.size()),
                          .name = name,
                          .lane = lane,
                          .start_ns = start,
                          .end_ns = end});
  };
  for (const std::int64_t begin : {0, 1000}) {
    add(3, 2, begin, begin + 900);
    add(2, 2, begin + 10, begin + 20);
    add(0, 0, begin + 100, begin + 400);
    add(0, 0, begin + 400, begin + 500);
    add(1, 1, begin + 300, begin + 500);
    activities.back().bytes = 4000;
  }
  writer.add(run, activities);
  writer.add(
      run, std::vector<record::MemoryEvent>{
               {.seq = 0, .bytes = 512, .live_bytes = 512, .time_ns = 5, .device = "cuda:0", .address = 64},
               {.seq = 1, .bytes = 100, .live_bytes = 612, .time_ns = 6, .device = "cuda:0", .address = 640},
               {.seq = 2, .bytes = -100, .live_bytes = 512, .time_ns = 7, .device = "cuda:0", .address = 640},
               {.seq = 3, .bytes = -512, .live_bytes = 0, .time_ns = 8, .device = "cuda:0", .address = 64}});
  writer.end_run(run, "success");
  writer.finish();
}

RecordSet foreign_set() {
  const record::TemporaryFolder folder;
  write_foreign(folder / "a.rooflm");
  return load(std::vector<std::filesystem::path>{folder / "a.rooflm"});
}

TEST(Foreign, ActivitiesAreShownByNameAndByLane) {
  const View view = make_view("activities", foreign_set());
  ASSERT_EQ(view.tables.size(), 2U);
  const Table& names = view.tables[0].table;
  ASSERT_EQ(names.rows.size(), 4U);
  EXPECT_EQ(names.rows[0].text("name"), "step") << "the largest total first";
  const Row& kernel = names.rows[1];
  EXPECT_EQ(kernel.text("kind") + " " + kernel.text("name"), "kernel void gemm<float>");
  EXPECT_EQ(kernel.number("instances"), 4);
  EXPECT_NEAR(kernel.number("total_s"), 800e-9, 1e-15);
  EXPECT_NEAR(kernel.number("med_s"), 200e-9, 1e-15);
  EXPECT_DOUBLE_EQ(kernel.number("time_share"), 1) << "of all kernels";
  const Row& copy = names.rows[2];
  EXPECT_EQ(copy.number("bytes"), 8000);
  EXPECT_NEAR(copy.number("byte_per_s"), 8000 / 400e-9, 1);
  const Table& lanes = view.tables[1].table;
  ASSERT_EQ(lanes.rows.size(), 3U);
  EXPECT_EQ(lanes.rows[0].text("lane"), "stream 7");
  EXPECT_NEAR(lanes.rows[0].number("busy_s"), 800e-9, 1e-15);
  EXPECT_NEAR(lanes.rows[2].number("busy_s"), 1800e-9, 1e-15) << "a call within a range is not counted twice";
}

/// Steps of foreign_set() as traced ones: 900 ns of which kernels run 400, the first 100 after the step
/// began, when its call returns.
RecordSet traced_set() {
  RecordSet set = foreign_set();
  for (record::Activity& activity : set.runs[0].activities) {
    activity.step = activity.start_ns < 1000 ? 1 : 2;
    const std::int64_t begin_ns = activity.start_ns / 1000 * 1000;
    if (activity.name == 2) activity.end_ns = begin_ns + 100;
    if (activity.name == 2 || (activity.name == 0 && activity.start_ns == begin_ns + 100))
      activity.correlation = activity.step;
  }
  for (const std::int64_t step : {1, 2}) {
    set.runs[0].samples.push_back({.step = step, .phase = "step", .seconds = 900e-9, .kind = "traced"});
  }
  return set;
}

TEST(Foreign, AdviceBeginsWithWhatKeepsTheDeviceWaiting) {
  RecordSet set = traced_set();
  const auto advice = advise(set);
  ASSERT_FALSE(advice.empty());
  const auto host = std::ranges::find(advice, "device idle: host", &Advice::subject);
  ASSERT_NE(host, advice.end());
  EXPECT_NEAR(host->gain_s, 100e-9, 1e-15) << "until the first kernel of the step";
  EXPECT_NEAR(host->step_share.value_or(0), 100.0 / 900, 1e-9) << "of the step, not of the time in kernels";
  EXPECT_NE(host->text.find("torch.compile launches fewer kernels"), std::string::npos) << host->text;
  EXPECT_EQ(host->text.find("--"), std::string::npos) << "no option of ours: " << host->text;
  const auto sync = std::ranges::find(advice, "device idle: sync", &Advice::subject);
  ASSERT_NE(sync, advice.end());
  EXPECT_NE(sync->text.find(".item()"), std::string::npos);
  // Steps that were timed alone are shorter, and it is the host that the recorder had made slower.
  RecordSet timed = set;
  for (const std::int64_t step : {3, 4, 5}) {
    timed.runs[0].samples.push_back({.step = step, .phase = "step", .seconds = 850e-9, .kind = "plain"});
  }
  const auto less = advise(timed);
  const auto left = std::ranges::find(less, "device idle: host", &Advice::subject);
  ASSERT_NE(left, less.end());
  EXPECT_NEAR(left->gain_s, 50e-9, 1e-15);
  EXPECT_NEAR(left->step_share.value_or(0), 50.0 / 850, 1e-9);
  // What was compiled is not told to be.
  set.runs[0].activity_names[0].text = "triton_poi_fused_add_0";
  const auto compiled = advise(set);
  const auto replay = std::ranges::find(compiled, "device idle: host", &Advice::subject);
  ASSERT_NE(replay, compiled.end());
  EXPECT_NE(replay->text.find("replay the step as a CUDA graph"), std::string::npos) << replay->text;
  EXPECT_EQ(replay->text.find("launches fewer kernels"), std::string::npos) << replay->text;
}

TEST(Foreign, TheHeadlineSaysHowMuchOfAStepAKernelRuns) {
  const RecordSet set = traced_set();
  const std::string text = findings_of(set.runs[0], advise(set)).headline;
  EXPECT_NE(text.find("A recorded step takes 900 ns on average, and kernels run for 44.4% of it"),
            std::string::npos)
      << text;
  const std::string whole = findings_of(foreign_set().runs[0], {}).headline;
  EXPECT_NE(whole.find("No step with kernels is known"), std::string::npos) << whole;
  EXPECT_NE(whole.find("it takes 1.40 us, and kernels run for 57.1% of it"), std::string::npos) << whole;
}

/// A trace of a processor alone: there is no device that could be idle.
TEST(Foreign, WithoutKernelsNoDeviceIsIdle) {
  RecordSet set = traced_set();
  std::erase_if(set.runs[0].activities, [](const record::Activity& one) { return one.name < 2; });
  EXPECT_EQ(findings_of(set.runs[0], advise(set)).headline, "A recorded step takes 900 ns on average.");
  const Glance glance = glance_of(set.runs[0], {});
  EXPECT_TRUE(glance.idle.parts.empty());
  EXPECT_NE(glance.idle.of.find("no kernels"), std::string::npos) << glance.idle.of;
  EXPECT_FALSE(glance_of(traced_set().runs[0], {}).idle.parts.empty());
}

TEST(Foreign, WithoutKernelsTheHeadlineSaysWhatTheHostDoes) {
  RunData run;
  run.run.kind = "foreign";
  run.lanes = {{.lane = 0, .kind = "host", .device = "cpu", .thread = 1}};
  run.activity_names = {{.name = 0, .kind = "op", .text = "aten::mm"},
                        {.name = 1, .kind = "op", .text = "aten::relu"}};
  run.activities = {{.id = 0, .name = 0, .lane = 0, .start_ns = 0, .end_ns = 750},
                    {.id = 1, .name = 1, .lane = 0, .start_ns = 800, .end_ns = 1050}};
  RunData stepped = run;
  EXPECT_EQ(findings_of(run, {}).headline,
            "No work of a device was traced; operators on the host take 1.00 us, 75.0% of it in aten::mm.");
  for (const std::int64_t step : {1, 2, 3})
    stepped.samples.push_back({.step = step, .phase = "step", .seconds = 1100e-9, .kind = "traced"});
  EXPECT_EQ(findings_of(stepped, {}).headline,
            "A recorded step takes 1.10 us, the median of 3; operators on the host take 1.00 us, 75.0% of it "
            "in aten::mm.");
}

TEST(Foreign, RemediesArePyTorchsWords) {
  RunData run;
  const auto remedy = [&run](const char* phase, const char* bound, std::int64_t launches,
                             std::int64_t bytes = 0) {
    Group part{.phase = phase, .name = "x", .work = {}};
    part.work.bound = bound;
    part.work.launches = launches;
    part.work.bytes = bytes;
    part.work.roof_s = 1e-3;
    return recorded_remedy(run, part);
  };
  EXPECT_NE(remedy("optimizer", "DRAM", 400).find("fused=True"), std::string::npos);
  EXPECT_EQ(remedy("optimizer", "DRAM", 4).find("fused=True"), std::string::npos) << "it is";
  EXPECT_NE(remedy("forward", "matmul bf16", 4).find("multiples of 64"), std::string::npos);
  EXPECT_NE(remedy("forward", "DRAM", 4).find("torch.compile fuses"), std::string::npos);
  // A short matmul among kernels that move ten times what it takes.
  run.ceilings.push_back({.what = "copy", .level = "DRAM", .value = 1e12, .unit = "byte/s"});
  EXPECT_NE(remedy("forward", "matmul bf16", 4, 900'000'000).find("multiples of 64"), std::string::npos);
  EXPECT_NE(remedy("forward", "matmul bf16", 4, 10'000'000'000).find("torch.compile fuses"),
            std::string::npos);
  run.activity_names.push_back({.kind = "kernel", .text = "triton_poi_fused_add_0"});
  EXPECT_EQ(remedy("forward", "DRAM", 4).find("torch.compile fuses"), std::string::npos);
  run.activity_names.push_back(
      {.kind = "kernel",
       .text = "void at::native::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>>"});
  EXPECT_EQ(remedy("optimizer", "DRAM", 101).find("fused=True"), std::string::npos)
      << "a large model takes many of them";
}

TEST(Foreign, CopiesAreSummedUpPerStep) {
  RecordSet set = foreign_set();
  EXPECT_TRUE(make_view("input", set).tables.empty()) << "of no step";
  for (record::Activity& activity : set.runs[0].activities) activity.step = activity.start_ns < 1000 ? 1 : 2;
  const View view = make_view("input", set);
  ASSERT_EQ(view.tables.size(), 1U) << "nobody loaded data";
  const Row& copies = view.tables[0].table.rows.at(0);
  EXPECT_EQ(copies.text("way"), "host to device");
  EXPECT_DOUBLE_EQ(copies.number("count"), 1);
  EXPECT_DOUBLE_EQ(copies.number("bytes"), 4000);
  EXPECT_NEAR(copies.number("seconds"), 200e-9, 1e-15);
  EXPECT_NEAR(copies.number("byte_per_s"), 4000 / 200e-9, 1);
  // Of steps of several kinds, those count that ran as the engine runs them.
  set.runs[0].samples.push_back({.step = 2, .phase = "step", .seconds = 1e-6, .kind = "traced"});
  set.runs[0].samples.push_back({.step = 1, .phase = "step", .seconds = 1e-6, .kind = "in_order"});
  set.runs[0].activities.erase(set.runs[0].activities.begin());
  EXPECT_DOUBLE_EQ(make_view("input", set).tables[0].table.rows.at(0).number("bytes"), 4000);
}

TEST(Foreign, CopiesOfOwnStepsAreOfThoseThatBeganWithTheirInputs) {
  RecordSet set = foreign_set();
  RunData& run = set.runs[0];
  const auto copy = std::ranges::find(run.activities, 4000, &record::Activity::bytes);
  ASSERT_NE(copy, run.activities.end());
  const record::Activity one = *copy;
  run.activities.assign(3, one);
  run.activities[0].step = 7;  // of a step whose inputs were there before: what its ops copied
  run.activities[1].step = run.activities[2].step = 8;
  for (const auto& [step, kind] : {std::pair{7, "traced"}, std::pair{8, "inputs"}})
    run.samples.push_back({.step = step, .phase = "step", .seconds = 1e-6, .kind = kind});
  EXPECT_DOUBLE_EQ(make_view("input", set).tables[0].table.rows.at(0).number("count"), 2);
  run.samples.pop_back();
  EXPECT_DOUBLE_EQ(make_view("input", set).tables[0].table.rows.at(0).number("count"), 1)
      << "an older record";
}

TEST(Foreign, EveryViewIsMadeOrSaysWhatIsMissing) {
  const RecordSet set = foreign_set();
  for (const ViewInfo& info : all_views()) {
    const View view = make_view(info.name, set);
    const bool is_empty = view.tables.empty() && view.charts.empty();
    const bool says_why = view.note.find("this view needs") != std::string::npos ||
                          view.note.find("No advice: nothing") != std::string::npos;
    EXPECT_EQ(is_empty, says_why) << info.name;
    for (const ViewTable& table : view.tables) {
      for (const Format format : {Format::table, Format::md, Format::csv, Format::json}) {
        EXPECT_FALSE(format_table(table.table, format).empty()) << info.name;
      }
    }
  }
  EXPECT_TRUE(make_view("blocks", set).tables.empty());
  const View memory = make_view("memory", set);
  ASSERT_FALSE(memory.tables.empty());
  EXPECT_EQ(memory.tables[0].table.rows.at(0).number("live_bytes"), 612);
}

TEST(Foreign, TheDocumentHasActivitiesAndNoInventedNumbers) {
  const auto document = nlohmann::json::parse(make_document(foreign_set(), nullptr));
  const auto& run = document.at("runs").at(0);
  EXPECT_EQ(run.at("kind"), "foreign");
  EXPECT_TRUE(run.at("config").empty());
  EXPECT_TRUE(run.at("step").is_null());
  EXPECT_TRUE(run.at("kernels").empty());
  for (const char* key : {"mfu", "tokens_per_s", "peak_flop_per_s", "datasheet_mfu", "roof_share"}) {
    EXPECT_TRUE(run.at("figures").at(key).is_null()) << key;
  }
  EXPECT_EQ(run.at("figures").at("peak_bytes"), 612);
  EXPECT_EQ(run.at("memory").at("peak_bytes"), 612);
  bool has_activities = false;
  for (const auto& table : document.at("tables")) has_activities |= table.at("id") == "activities";
  EXPECT_TRUE(has_activities);
}

TEST(Foreign, TheLawsThatApplyHold) {
  const record::TemporaryFolder folder;
  write_foreign(folder / "a.rooflm");
  const auto results = verify(record::Reader(folder / "a.rooflm"));
  EXPECT_TRUE(all_hold(results));
  EXPECT_FALSE(results.empty());
}

}  // namespace
}  // namespace rooflm::report

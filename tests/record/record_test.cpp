// What is written to a record is what is read, row by row; op times; order.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "record/database.h"
#include "record/op_times.h"
#include "record/reader.h"
#include "record/rows.h"
#include "record/writer.h"
#include "tests/record/record_testing.h"

namespace rooflm::record {
namespace {

TEST(Record, MetaSaysWhatRanAndThatItFinished) {
  const TemporaryFolder folder;
  Writer writer(folder / "a.rooflm", "rooflm profile --model 'tiny'");
  writer.finish();
  EXPECT_EQ(folder.file_count(), 1U) << "a -wal or -shm is left";
  const Reader reader(folder / "a.rooflm");
  EXPECT_EQ(reader.path(), folder / "a.rooflm");
  EXPECT_TRUE(reader.is_complete());
  EXPECT_EQ(reader.meta("command"), "rooflm profile --model 'tiny'");
  EXPECT_EQ(reader.meta("schema"), "4");
  EXPECT_FALSE(reader.meta("rooflm_version").empty());
  EXPECT_FALSE(reader.meta("revision").empty());
  EXPECT_EQ(reader.meta("started_utc").size(), std::string_view("2026-01-31T12:00:00Z").size());
  EXPECT_LE(reader.meta("started_utc"), reader.meta("finished_utc"));
  EXPECT_EQ(reader.meta("no such key"), "");
}

TEST(Record, EnvironmentCeilingsAndCellsComeBack) {
  const TemporaryFolder folder;
  {
    Writer writer(folder / "a.rooflm", "c");
    writer.add(Environment{.key = "cores", .value = "2", .unit = "cores"});
    writer.add(Environment{.key = "cores", .value = "4", .unit = "cores"});  // replaces
    writer.add(Ceiling{.device = "cpu",
                       .what = "read",
                       .level = "L2",
                       .dtype = "fp32",
                       .threads = 2,
                       .value = 1.25e11,
                       .unit = "byte/s",
                       .ci_low = 1.2e11,
                       .ci_high = 1.3e11,
                       .samples = 40,
                       .problem = "256 KiB",
                       .source = "measured",
                       .measured_utc = "2026-01-31T12:00:00Z"});
    const std::vector<Cell> cells = {{.series = "gemm", .row = 1, .col = "n", .value = 64, .unit = "rows"},
                                     {.series = "gemm", .row = 1, .col = "who", .text = "oneDNN, \"fast\""}};
    writer.add(cells);
    writer.finish();
  }
  const Reader reader(folder / "a.rooflm");
  ASSERT_EQ(reader.environment().size(), 1U);
  EXPECT_EQ(reader.environment()[0].value, "4");
  EXPECT_EQ(reader.environment()[0].unit, "cores");
  ASSERT_EQ(reader.ceilings().size(), 1U);
  const Ceiling ceiling = reader.ceilings()[0];
  EXPECT_EQ(ceiling.device + ceiling.what + ceiling.level + ceiling.dtype, "cpureadL2fp32");
  EXPECT_EQ(ceiling.threads, 2);
  EXPECT_EQ(ceiling.value, 1.25e11);
  EXPECT_EQ(ceiling.unit + ceiling.problem + ceiling.source, "byte/s256 KiBmeasured");
  EXPECT_EQ(ceiling.ci_low, 1.2e11);
  EXPECT_EQ(ceiling.ci_high, 1.3e11);
  EXPECT_EQ(ceiling.samples, 40);
  EXPECT_EQ(ceiling.measured_utc, "2026-01-31T12:00:00Z");
  ASSERT_EQ(reader.cells().size(), 2U);
  EXPECT_EQ(reader.cells()[0].value, 64);
  EXPECT_EQ(reader.cells()[0].unit, "rows");
  EXPECT_EQ(reader.cells()[1].value, std::nullopt);
  EXPECT_EQ(reader.cells()[1].text, "oneDNN, \"fast\"");
}

TEST(Record, ARunComesBackColumnByColumn) {
  const TemporaryFolder folder;
  Writer writer(folder / "a.rooflm", "c");
  const std::int64_t id = writer.begin_run(example_run());
  writer.end_run(id, "success");
  writer.finish();
  const auto runs = Reader(folder / "a.rooflm").runs();
  ASSERT_EQ(runs.size(), 1U);
  const record::Run want = example_run();
  const record::Run& run = runs[0];
  EXPECT_EQ(run.id, id);
  EXPECT_EQ(run.status, "success");
  EXPECT_EQ(run.label, want.label);
  EXPECT_EQ(run.kind, "step");
  EXPECT_EQ(run.config, want.config);
  EXPECT_EQ(run.config.integer("params"), 70'000);
  EXPECT_EQ(run.config.number("clip"), 0.5);
  EXPECT_FALSE(run.config.flag("deterministic"));
  EXPECT_EQ(run.config.text("color"), "green");
  EXPECT_EQ(run.config.entries().back().first, "color") << "after the fields of the table";
}

/// Three samples, of which two have the same callers.
std::filesystem::path with_stacks(const TemporaryFolder& folder) {
  const std::filesystem::path path = folder / "stacks.rooflm";
  Writer writer(path, "c");
  const std::int64_t id = writer.begin_run({.label = "train.py", .kind = "foreign"});
  writer.add(id, std::vector<ActivityName>{{.name = 0, .kind = "sample", .text = "main;step;mul"},
                                           {.name = 1, .kind = "sample", .text = "main;step;add"},
                                           {.name = 2, .kind = "range", .text = "a;b"}});
  writer.add(id, std::vector<ActivityName>{{.name = 3, .kind = "sample", .text = "main"}});
  writer.end_run(id, "success");
  writer.finish();
  return path;
}

std::vector<std::string> texts_in(const std::filesystem::path& path) {
  std::vector<std::string> texts;
  for (const ActivityName& name : Reader(path).rows<ActivityName>(1)) texts.push_back(name.text);
  return texts;
}

TEST(Record, StacksShareTheirCallers) {
  const TemporaryFolder folder;
  const auto path = with_stacks(folder);
  const std::vector<std::string> texts = {"main;step;mul", "main;step;add", "a;b", "main"};
  EXPECT_EQ(texts_in(path), texts);
  const Database database(path, Database::Mode::write, std::chrono::milliseconds(0));
  EXPECT_EQ(database.query_integer("SELECT COUNT(*) FROM stack"), 4);
  EXPECT_EQ(database.query_integer("SELECT COUNT(*) FROM stack_frame"), 4);
  EXPECT_EQ(database.query_integer("SELECT COUNT(*) FROM sample_stack WHERE (name, text) IN "
                                   "(VALUES (0, 'main;step;mul'), (1, 'main;step;add'), (3, 'main'))"),
            3);
}

TEST(Record, StacksOfSchema3AreTexts) {
  const TemporaryFolder folder;
  const auto path = with_stacks(folder);
  Database(path, Database::Mode::write, std::chrono::milliseconds(0))
      .execute(
          "DROP VIEW sample_stack; DROP TABLE stack; DROP TABLE stack_frame; PRAGMA user_version = 3;"
          "UPDATE activity_name SET text = 'outer;inner' WHERE kind = 'sample'");
  const std::vector<std::string> texts = {"outer;inner", "outer;inner", "a;b", "outer;inner"};
  EXPECT_EQ(texts_in(path), texts);
}

TEST(Record, StacksWithLiesEnd) {
  const TemporaryFolder folder;
  const auto path = with_stacks(folder);
  Database(path, Database::Mode::write, std::chrono::milliseconds(0))
      .execute(
          "UPDATE stack SET caller = 4 WHERE place = 1; UPDATE stack SET caller = 4 WHERE place = 2;"
          "UPDATE activity_name SET text = 'nonsense' WHERE name = 3; DELETE FROM stack_frame WHERE text = "
          "'add'");
  const std::vector<std::string> texts = {"step;mul", "step", "a;b", "[unknown]"};
  EXPECT_EQ(texts_in(path), texts);
}

TEST(Record, AForeignRunNeedsNoConfiguration) {
  const TemporaryFolder folder;
  Writer writer(folder / "a.rooflm", "c");
  const std::int64_t id = writer.begin_run({.label = "train.py", .kind = "foreign"});
  writer.add(id, std::vector<Lane>{{.lane = 0, .device = "cuda:0", .stream = 7, .name = "stream 7"},
                                   {.lane = 1, .kind = "host", .device = "cpu", .thread = 1234}});
  writer.add(id, std::vector<ActivityName>{{.name = 0, .kind = "kernel", .text = "void gemm<float>"},
                                           {.name = 1, .kind = "api", .text = "cudaLaunchKernel"}});
  std::vector<Activity> many;
  for (std::int64_t i = 0; i < 100; ++i) {
    many.push_back({.id = i,
                    .name = i % 2,
                    .lane = i % 2,
                    .start_ns = 10 * i,
                    .end_ns = 10 * i + 5,
                    .correlation = i / 2,
                    .extra = i == 99 ? "{\"grid\": [1, 2, 3]}" : ""});
  }
  many[98].bytes = 4096;
  many[98].step = 3;
  many[98].op = 12;
  writer.add(id, many);
  writer.add(id, std::vector<Counter>{
                     {.name = "dram_bytes", .value = 7, .unit = "B", .source = "cupti", .activity = 98}});
  writer.add(id, std::vector<MemoryEvent>{
                     {.seq = 0, .bytes = 512, .live_bytes = 512, .device = "cuda:0", .address = 0x7f00}});
  writer.add(id, std::vector<Gauge>{
                     {.device = "cuda:0", .name = "power_w", .time_ns = 17, .value = 640.5, .unit = "W"}});
  writer.end_run(id, "success");
  writer.finish();

  const Reader reader(folder / "a.rooflm");
  EXPECT_TRUE(reader.runs().at(0).config.empty());
  EXPECT_EQ(reader.runs().at(0).kind, "foreign");
  EXPECT_FALSE(reader.meta("epoch_utc_ns").empty());
  ASSERT_EQ(reader.rows<Lane>(id).size(), 2U);
  EXPECT_EQ(reader.rows<Lane>(id)[0].stream, 7);
  EXPECT_EQ(reader.rows<Lane>(id)[1].thread, 1234);
  EXPECT_EQ(reader.rows<Lane>(id)[1].stream, std::nullopt);
  EXPECT_EQ(reader.rows<ActivityName>(id).at(0).text, "void gemm<float>");
  const auto activities = reader.rows<Activity>(id);
  ASSERT_EQ(activities.size(), 100U);
  EXPECT_EQ(activities[98].id, 98);
  EXPECT_EQ(activities[98].bytes, 4096);
  EXPECT_EQ(activities[98].step, 3);
  EXPECT_EQ(activities[98].op, 12);
  EXPECT_EQ(activities[97].op, std::nullopt);
  EXPECT_EQ(activities[97].correlation, 48);
  EXPECT_EQ(activities[99].end_ns, 995);
  EXPECT_EQ(activities[99].extra, "{\"grid\": [1, 2, 3]}");
  EXPECT_EQ(reader.rows<Counter>(id).at(0).activity, 98);
  EXPECT_EQ(reader.rows<Counter>(id).at(0).op, std::nullopt);
  EXPECT_EQ(reader.rows<MemoryEvent>(id).at(0).address, 0x7f00);
  EXPECT_EQ(reader.rows<MemoryEvent>(id).at(0).tensor, std::nullopt);
  EXPECT_EQ(reader.rows<MemoryEvent>(id).at(0).device, "cuda:0");
  ASSERT_EQ(reader.rows<Gauge>(id).size(), 1U);
  EXPECT_EQ(reader.rows<Gauge>(id)[0].device, "cuda:0");
  EXPECT_EQ(reader.rows<Gauge>(id)[0].name, "power_w");
  EXPECT_EQ(reader.rows<Gauge>(id)[0].time_ns, 17);
  EXPECT_EQ(reader.rows<Gauge>(id)[0].value, 640.5);
  EXPECT_EQ(reader.rows<Gauge>(id)[0].unit, "W");
}

TEST(Record, AnEarlierRecordOfSchema2HasNoGauges) {
  const TemporaryFolder folder;
  const auto path = folder / "a.rooflm";
  Writer writer(path, "c");
  const std::int64_t id = writer.begin_run({.label = "x"});
  writer.finish();
  Database(path, Database::Mode::write, std::chrono::milliseconds(0))
      .execute(
          "DROP TABLE gauge; DROP TABLE activity_extra; DROP VIEW sample_stack; "
          "DROP TABLE stack; DROP TABLE stack_frame; PRAGMA user_version = 2");
  EXPECT_TRUE(Reader(path).rows<Gauge>(id).empty());
}

TEST(Record, RowsOfExpertsAreKeptAndEarlierRecordsHaveNone) {
  const TemporaryFolder folder;
  const auto path = folder / "a.rooflm";
  Writer writer(path, "c");
  const std::int64_t id = writer.begin_run({.label = "x"});
  writer.add(id, std::vector<ExpertRows>{{.step = 4, .layer = 3, .micro_batch = 1, .expert = 7, .rows = 99}});
  writer.finish();
  const auto rows = Reader(path).rows<ExpertRows>(id);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].step, 4);
  EXPECT_EQ(rows[0].layer, 3);
  EXPECT_EQ(rows[0].micro_batch, 1);
  EXPECT_EQ(rows[0].expert, 7);
  EXPECT_EQ(rows[0].rows, 99);
  Database(path, Database::Mode::write, std::chrono::milliseconds(0)).execute("DROP TABLE expert_rows");
  EXPECT_TRUE(Reader(path).rows<ExpertRows>(id).empty());
}

TEST(Record, AWallTimeThatWasNotMeasuredIsAbsent) {
  const TemporaryFolder folder;
  Writer writer(folder / "a.rooflm", "c");
  const std::int64_t run = writer.begin_run(example_run());
  writer.add(run,
             std::vector<Event>{{.step = 0, .op = 0, .device_ns = 4}, {.step = 1, .op = 0, .device_ns = 6}});
  writer.finish();
  const Reader reader(folder / "a.rooflm");
  EXPECT_EQ(reader.rows<Event>(run).at(0).wall_ns, std::nullopt);
  EXPECT_EQ(reader.op_times(run).at(0).wall_s, std::nullopt);
  EXPECT_DOUBLE_EQ(reader.op_times(run).at(0).device_s, 5e-9);
}

TEST(Record, FactsAreReplacedAndMayBeSentences) {
  const TemporaryFolder folder;
  Writer writer(folder / "a.rooflm", "c");
  const std::int64_t run = writer.begin_run(example_run());
  writer.add(run, Fact{.key = "loss", .value = 5.5, .unit = "nat"});
  writer.add(run, Fact{.key = "loss", .value = 5.25, .unit = "nat"});
  writer.add(run, Fact{.key = "stop_reason", .text = "200 samples"});
  writer.add(run, Fact{.key = "diverged", .value = std::nan("")});
  writer.finish();
  const Reader reader(folder / "a.rooflm");
  EXPECT_EQ(reader.rows<Fact>(run).size(), 3U);
  EXPECT_EQ(reader.fact(run, "loss")->value, 5.25);
  EXPECT_EQ(reader.fact(run, "loss")->unit, "nat");
  EXPECT_EQ(reader.fact(run, "stop_reason")->value, std::nullopt);
  EXPECT_EQ(reader.fact(run, "stop_reason")->text, "200 samples");
  EXPECT_EQ(reader.fact(run, "diverged")->value, std::nullopt) << "what is no number is absent";
  EXPECT_FALSE(reader.fact(run, "nothing"));
  EXPECT_FALSE(reader.fact(run + 1, "loss"));
}

/// By what summaries count, in the column for those who ask in SQL, and in records of runs that never ended.
TEST(Record, OutliersOfEachPhaseAndKindAreMarked) {
  const TemporaryFolder folder;
  const auto path = folder / "a.rooflm";
  std::int64_t ended = 0;
  std::int64_t killed = 0;
  {
    Writer writer(path, "c");
    ended = writer.begin_run(example_run());
    killed = writer.begin_run(example_run());
    std::vector<Sample> samples;
    for (std::int64_t step = 0; step < 9; ++step) {
      const double noise = 0.001 * static_cast<double>(step % 3);
      samples.push_back({.step = step, .phase = "step", .seconds = step == 4 ? 3 : 1 + noise});
      samples.push_back({.step = step, .phase = "forward", .seconds = 0.5 + noise});
    }
    samples.push_back({.step = 9, .phase = "step", .seconds = 3, .kind = "traced"});
    writer.add(ended, samples);
    writer.add(killed, samples);
    writer.end_run(ended, "success");
  }
  const Reader reader(path);
  for (const std::int64_t run : {ended, killed}) {
    for (const Sample& sample : reader.rows<Sample>(run))
      EXPECT_EQ(sample.outlier, sample.phase == "step" && sample.step == 4) << sample.step << sample.phase;
  }
  const Database database(path, Database::Mode::read, kPatience);
  EXPECT_EQ(database.query_integer("SELECT sum(outlier) FROM sample WHERE run = " + std::to_string(ended)),
            1);
  EXPECT_EQ(database.query_integer("SELECT step FROM sample WHERE outlier"), 4);
}

TEST(Record, RowsOfARunComeBack) {
  const TemporaryFolder folder;
  Writer writer(folder / "a.rooflm", "c");
  const std::int64_t run = writer.begin_run(example_run());
  writer.add(run, std::vector<Sample>{{.step = 1, .phase = "step", .seconds = 0.5, .kind = "observed"},
                                      {.step = 0, .phase = "step", .seconds = 2, .kind = "warmup"}});
  writer.add(run, std::vector<Op>{{.op = 3,
                                   .kind = "matmul",
                                   .op_class = "matmul",
                                   .kernel = "dnnl",
                                   .name = "logits",
                                   .phase = "forward",
                                   .scope = "lm_head",
                                   .dtype = "fp32",
                                   .shapes = "[2,3] x [3,4] -> [2,4]",
                                   .micro_batch = 1,
                                   .recomputed = true,
                                   .matmul_flop = 48,
                                   .elementwise_flop = 1,
                                   .bytes_read = 72,
                                   .bytes_written = 32,
                                   .launches = 2}});
  writer.add(run, std::vector<Counter>{{.phase = "forward",
                                        .scope = "",
                                        .name = "cycles",
                                        .value = 1e9,
                                        .unit = "cycles",
                                        .source = "perf_event"}});
  writer.add(
      run, std::vector<Tensor>{
               {.tensor = 0, .name = "wte", .role = "weight", .dtype = "fp32", .shape = "[4,3]", .bytes = 48},
               {.tensor = 1,
                .name = "x",
                .role = "activation",
                .dtype = "bf16",
                .shape = "[2,3]",
                .bytes = 12,
                .first_op = 2,
                .last_op = 5,
                .offset = 128}});
  writer.add(run, std::vector<MemoryEvent>{
                      {.seq = 0, .op = -1, .tensor = 0, .bytes = 48, .live_bytes = 48, .time_ns = 9}});
  writer.add(
      run, std::vector<Prediction>{
               {.subject = "op:3", .quantity = "roof_s", .value = 1e-6, .unit = "s", .bound = "DRAM copy"}});
  writer.finish();

  const Reader reader(folder / "a.rooflm");
  const auto samples = reader.rows<Sample>(run);
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(samples[0].kind, "warmup") << "by step";
  EXPECT_EQ(samples[1].seconds, 0.5);
  const auto ops = reader.rows<Op>(run);
  ASSERT_EQ(ops.size(), 1U);
  EXPECT_EQ(ops[0].op, 3);
  EXPECT_EQ(ops[0].kind + ops[0].op_class + ops[0].kernel + ops[0].name, "matmulmatmuldnnllogits");
  EXPECT_EQ(ops[0].phase + ops[0].scope + ops[0].dtype + ops[0].shapes,
            "forwardlm_headfp32[2,3] x [3,4] -> [2,4]");
  EXPECT_TRUE(ops[0].recomputed);
  const std::vector<std::int64_t> numbers = {ops[0].micro_batch,      ops[0].matmul_flop,
                                             ops[0].elementwise_flop, ops[0].bytes_read,
                                             ops[0].bytes_written,    ops[0].launches};
  EXPECT_EQ(numbers, (std::vector<std::int64_t>{1, 48, 1, 72, 32, 2}));
  ASSERT_EQ(reader.rows<Counter>(run).size(), 1U);
  EXPECT_EQ(reader.rows<Counter>(run)[0].value, 1e9);
  EXPECT_EQ(reader.rows<Counter>(run)[0].source, "perf_event");
  const auto tensors = reader.rows<Tensor>(run);
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_FALSE(tensors[0].offset);
  EXPECT_EQ(tensors[0].first_op, -1);
  EXPECT_EQ(tensors[1].offset, 128);
  EXPECT_EQ(tensors[1].last_op, 5);
  EXPECT_EQ(tensors[1].shape, "[2,3]");
  ASSERT_EQ(reader.rows<MemoryEvent>(run).size(), 1U);
  EXPECT_EQ(reader.rows<MemoryEvent>(run)[0].live_bytes, 48);
  EXPECT_EQ(reader.rows<MemoryEvent>(run)[0].op, -1);
  EXPECT_EQ(reader.rows<MemoryEvent>(run)[0].time_ns, 9);
  ASSERT_EQ(reader.rows<Prediction>(run).size(), 1U);
  EXPECT_EQ(reader.rows<Prediction>(run)[0].bound, "DRAM copy");
  EXPECT_EQ(reader.rows<Prediction>(run)[0].value, 1e-6);
  EXPECT_TRUE(reader.rows<Sample>(run + 1).empty());
}

TEST(Record, EventsOfInterleavedRunsComeBackByStepAndOp) {
  const TemporaryFolder folder;
  Writer writer(folder / "a.rooflm", "c");
  const std::int64_t first = writer.begin_run(example_run());
  const std::int64_t second = writer.begin_run(example_run());
  const std::int64_t third = writer.begin_run(example_run());
  writer.add(first, std::vector<Event>{{.step = 5, .op = 1, .start_ns = 50, .device_ns = 4, .wall_ns = 6}});
  writer.add(second, std::vector<Event>{{.step = 0, .op = 0, .start_ns = 1, .device_ns = 2, .wall_ns = 3}});
  writer.add(first, std::vector<Event>{{.step = 5, .op = 0, .start_ns = 40, .device_ns = 5, .wall_ns = 7},
                                       {.step = 4, .op = 1, .start_ns = 30, .device_ns = 1, .wall_ns = 2}});
  writer.finish();
  const Reader reader(folder / "a.rooflm");
  const auto events = reader.rows<Event>(first);
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].start_ns, 30);
  EXPECT_EQ(events[1].start_ns, 40);
  EXPECT_EQ(events[2].start_ns, 50);
  EXPECT_EQ(reader.rows<Event>(second).size(), 1U);
  EXPECT_TRUE(reader.rows<Event>(third).empty());
  EXPECT_EQ(reader.op_times(second).size(), 1U);
}

TEST(Record, AHundredThousandEventsComeBack) {
  const TemporaryFolder folder;
  Writer writer(folder / "a.rooflm", "c");
  const std::int64_t run = writer.begin_run(example_run());
  constexpr std::int64_t kEvents = 100'003;
  writer.add(run, example_events(kEvents));
  writer.finish();
  const Reader reader(folder / "a.rooflm");
  const auto events = reader.rows<Event>(run);
  ASSERT_EQ(events.size(), static_cast<std::size_t>(kEvents));
  for (std::int64_t i = 0; i < kEvents; ++i) {
    const Event& event = events[static_cast<std::size_t>(i)];
    ASSERT_TRUE(event.step == i && event.op == 0 && event.start_ns == 10 * i && event.device_ns == i + 1 &&
                event.wall_ns == i + 2)
        << i;
  }
}

TEST(Record, TimesOfAnOpAreMediansOfItsSumsPerStep) {
  // Op 7 runs once in steps 0, 1 and 2; op 9 runs twice in step 1 and once in step 2.
  const std::vector<Event> events = {{.step = 0, .op = 7, .device_ns = 100, .wall_ns = 110},
                                     {.step = 1, .op = 7, .device_ns = 300, .wall_ns = 330},
                                     {.step = 2, .op = 7, .device_ns = 110, .wall_ns = 120},
                                     {.step = 1, .op = 9, .device_ns = 40, .wall_ns = 50},
                                     {.step = 1, .op = 9, .device_ns = 20, .wall_ns = 30},
                                     {.step = 2, .op = 9, .device_ns = 20, .wall_ns = 20}};
  const auto times = summarise_ops(events);
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[0].op, 7);
  EXPECT_EQ(times[0].instances, 3);
  EXPECT_DOUBLE_EQ(times[0].device_s, 110e-9);
  EXPECT_DOUBLE_EQ(times[0].wall_s.value(), 120e-9);
  EXPECT_DOUBLE_EQ(times[0].mean_s, 170e-9);
  EXPECT_NEAR(times[0].std_s, std::sqrt((70.0 * 70 + 130.0 * 130 + 60.0 * 60) / 2) * 1e-9, 1e-15);
  EXPECT_DOUBLE_EQ(times[0].min_s, 100e-9);
  EXPECT_DOUBLE_EQ(times[0].max_s, 300e-9);
  EXPECT_EQ(times[1].op, 9);
  EXPECT_EQ(times[1].instances, 3);
  EXPECT_DOUBLE_EQ(times[1].device_s, 40e-9) << "the mean of 20 and 60";
  EXPECT_TRUE(summarise_ops({}).empty());
  EXPECT_EQ(summarise_ops(std::vector<Event>{{.op = 1, .device_ns = 5}})[0].std_s, 0);
}

TEST(Record, WhatBreaksTheSchemaIsOurMistake) {
  const TemporaryFolder folder;
  Writer writer(folder / "a.rooflm", "c");
  const std::int64_t run = writer.begin_run(example_run());
  writer.add(run, std::vector<Sample>{{.step = 0, .phase = "step", .seconds = 1}});
  EXPECT_THROW(writer.add(run, std::vector<Sample>{{.step = 0, .phase = "step", .seconds = 2}}),
               std::logic_error);
  EXPECT_THROW(writer.add(run, std::vector<Sample>{{.step = 1, .phase = "step", .seconds = std::nan("")}}),
               std::logic_error);
  EXPECT_THROW(writer.add(run + 1, std::vector<Sample>{{.step = 0, .phase = "step", .seconds = 1}}),
               std::logic_error);
  writer.add(run, std::vector<Sample>{
                      {.step = 1, .phase = "step", .seconds = std::numeric_limits<double>::infinity()}});
  writer.finish();
  EXPECT_THROW(writer.finish(), std::logic_error);
  EXPECT_EQ(Reader(folder / "a.rooflm").rows<Sample>(run).size(), 2U) << "the rest is there";
}

}  // namespace
}  // namespace rooflm::record

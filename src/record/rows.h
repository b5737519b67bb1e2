// The rows of a run record and the tables that hold them; schema.sql explains each column. Every member has
// an initialiser, so designated initialisers may name only some.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "record/config.h"
#include "record/table.h"

namespace rooflm::record {

struct Environment {
  std::string key{};
  std::string value{};
  std::string unit{};
};
template <>
struct Table<Environment> : Columns<&Environment::key, &Environment::value, &Environment::unit> {
  static constexpr std::string_view kName = "environment", kOrder = "key";
};

struct Ceiling {
  std::string device = "cpu";
  std::string
      what{};  ///< "matmul", "instruction", "read", "write", "saxpy", "update", "copy", "triad", "adamw"
  std::string level{};  ///< "L1", "L2", "L3", "DRAM"; "" for arithmetic
  std::string dtype{};
  int threads = 0;
  double value = 0;    ///< per second
  std::string unit{};  ///< "flop/s", "byte/s"
  double ci_low = 0, ci_high = 0;
  std::int64_t samples = 0;
  std::string problem{};
  std::string source = "measured";
  std::string measured_utc{};
};
template <>
struct Table<Ceiling>
    : Columns<&Ceiling::device, &Ceiling::what, &Ceiling::level, &Ceiling::dtype, &Ceiling::threads,
              &Ceiling::value, &Ceiling::unit, &Ceiling::ci_low, &Ceiling::ci_high, &Ceiling::samples,
              &Ceiling::problem, &Ceiling::source, &Ceiling::measured_utc> {
  static constexpr std::string_view kName = "ceiling", kOrder = "id";
};

/// Something that was run, planned, or did not fit in memory.
struct Run {
  std::int64_t id = 0;  ///< set by the writer
  std::string label{};
  std::string kind = "step";  ///< "step", "train", "generate", "gemm", "attention", "foreign", "plan", "rank"
  std::string status = "running";
  Config config{};
};
template <>
struct Table<Run> : Columns<&Run::label, &Run::kind, &Run::status> {
  static constexpr std::string_view kName = "run", kOrder = "id";
};

/// A number with its unit, or a sentence.
struct Fact {
  std::string key{};
  std::optional<double> value{};
  std::string unit{};
  std::string text{};
};
template <>
struct Table<Fact> : Columns<&Fact::key, &Fact::value, &Fact::unit, &Fact::text> {
  static constexpr std::string_view kName = "fact", kOrder = "key";
};

struct Sample {
  std::int64_t step = 0;
  std::string phase{};  ///< "step", "forward", "backward", "optimizer", ...
  double seconds = 0;
  std::string kind = "plain";  ///< "warmup", "plain", "observed", "traced", "untraced", "in_order",
                               ///< "allocations", "inputs", "counted", "alone"
  /// Further than core::outlier_distance from the median of its phase and kind; readers compute it, and so
  /// does a writer when a run ends.
  bool outlier = false;
};
template <>
struct Table<Sample> : Columns<&Sample::step, &Sample::phase, &Sample::seconds, &Sample::kind> {
  static constexpr std::string_view kName = "sample", kOrder = "step, phase";
};

struct Op {
  std::int64_t op = 0;
  std::string kind{}, op_class{}, kernel{}, name{}, phase{}, scope{}, dtype{}, shapes{};
  std::int64_t micro_batch = 0;
  bool recomputed = false;
  std::int64_t matmul_flop = 0, elementwise_flop = 0, bytes_read = 0, bytes_written = 0, launches = 1;
  std::string library{}, variant{};  ///< of the kernel: "cuBLASLt 12.8", "algo 66, tile 256x128"
  std::int64_t workspace_bytes = 0;
  std::string lane = "compute";  ///< of another lane: it may run beside ops of other phases
};
template <>
struct Table<Op> : Columns<&Op::op, &Op::kind, &Op::op_class, &Op::kernel, &Op::name, &Op::phase, &Op::scope,
                           &Op::dtype, &Op::shapes, &Op::micro_batch, &Op::recomputed, &Op::matmul_flop,
                           &Op::elementwise_flop, &Op::bytes_read, &Op::bytes_written, &Op::launches,
                           &Op::library, &Op::variant, &Op::workspace_bytes, &Op::lane> {
  static constexpr std::string_view kName = "op", kOrder = "op";
};

/// One execution of an op. Plain numbers, so a million of them are cheap.
struct Event {
  std::int64_t step = 0, op = 0, start_ns = 0, device_ns = 0;
  std::optional<std::int64_t> wall_ns{};  ///< nothing if not measured
};
template <>
struct Table<Event>
    : Columns<&Event::step, &Event::op, &Event::start_ns, &Event::device_ns, &Event::wall_ns> {
  static constexpr std::string_view kName = "event";
};

/// Statistics over the events of one op.
struct OpTime {
  std::int64_t op = 0;
  std::int64_t instances = 0;  ///< number of whole executions
  double device_s = 0;         ///< median over the observed steps
  /// The same; nothing unless every event has a wall time.
  std::optional<double> wall_s{};
  double mean_s = 0, std_s = 0, min_s = 0, max_s = 0;  ///< of the device time
};

/// The timeline of an activity: a device stream, a host thread or a link.
struct Lane {
  std::int64_t lane = 0;
  std::string kind = "device";  ///< "device", "host", "link"
  std::string device{};         ///< "cuda:0", "cpu"
  std::optional<std::int64_t> stream{}, thread{};
  std::string name{};
};
template <>
struct Table<Lane>
    : Columns<&Lane::lane, &Lane::kind, &Lane::device, &Lane::stream, &Lane::thread, &Lane::name> {
  static constexpr std::string_view kName = "lane", kOrder = "lane";
};

/// Names of activities, each kind and name once.
struct ActivityName {
  std::int64_t name = 0;
  std::string kind{};  ///< "kernel", "copy", "memset", "collective", "api", "range", "sync", "memory", "op",
                       ///< "communication", "pass", "idle", "overhead", "sample"
  std::string text{};
};
template <>
struct Table<ActivityName> : Columns<&ActivityName::name, &ActivityName::kind, &ActivityName::text> {
  static constexpr std::string_view kName = "activity_name", kOrder = "name";
};

/// Anything that took time on a device or a host, by the record's clock.
struct Activity {
  std::int64_t id = 0, name = 0, lane = 0;
  std::int64_t start_ns = 0, end_ns = 0;
  std::optional<std::int64_t> correlation{}, bytes{}, step{}, op{};
  std::string extra{};                 ///< JSON
  std::optional<std::int64_t> work{};  ///< of KernelWork
};
template <>
struct Table<Activity>
    : Columns<&Activity::id, &Activity::name, &Activity::lane, &Activity::start_ns, &Activity::end_ns,
              &Activity::correlation, &Activity::bytes, &Activity::step, &Activity::op> {
  static constexpr std::string_view kName = "activity";
};

/// What one execution of a kernel of a foreign program has to do: its part of one call of an operator.
struct KernelWork {
  std::int64_t work = 0;
  std::string call{}, shapes{}, dtype{};
  double matmul_flop = 0, needed_flop = 0;
  double bytes = 0, far_bytes = 0;  ///< read and written; of them, those that no cache can hold
};
template <>
struct Table<KernelWork> : Columns<&KernelWork::work, &KernelWork::call, &KernelWork::shapes,
                                   &KernelWork::dtype, &KernelWork::matmul_flop, &KernelWork::needed_flop,
                                   &KernelWork::bytes, &KernelWork::far_bytes> {
  static constexpr std::string_view kName = "kernel_work", kOrder = "work";
  static constexpr bool kIsLater = true;
};

struct Counter {
  std::string phase{}, scope{}, name{};
  double value = 0;  ///< per step; per execution if `op` or `activity` is set
  std::string unit{}, source{};
  std::optional<std::int64_t> op{}, activity{};
};
template <>
struct Table<Counter> : Columns<&Counter::phase, &Counter::scope, &Counter::name, &Counter::value,
                                &Counter::unit, &Counter::source, &Counter::op, &Counter::activity> {
  static constexpr std::string_view kName = "counter";
};

/// What a device reported at one moment, by the record's clock.
struct Gauge {
  std::string device{}, name{};  ///< "cuda:0"; "power_w", "sm_clock_hz", "temperature_c", "throttle", ...
  std::int64_t time_ns = 0;
  double value = 0;
  std::string unit{};  ///< "W", "Hz", "C", "share", "bits"
};
template <>
struct Table<Gauge> : Columns<&Gauge::device, &Gauge::name, &Gauge::time_ns, &Gauge::value, &Gauge::unit> {
  static constexpr std::string_view kName = "gauge";
};

/// Rows that an expert had in a step: tokens that took it.
struct ExpertRows {
  std::int64_t step = 0, layer = 0, micro_batch = 0, expert = 0, rows = 0;
};
template <>
struct Table<ExpertRows> : Columns<&ExpertRows::step, &ExpertRows::layer, &ExpertRows::micro_batch,
                                   &ExpertRows::expert, &ExpertRows::rows> {
  static constexpr std::string_view kName = "expert_rows";
  static constexpr bool kIsLater = true;
};

struct Tensor {
  std::int64_t tensor = 0;
  std::string name{}, role{}, dtype{}, shape{};
  std::int64_t bytes = 0, first_op = -1, last_op = -1;
  std::optional<std::int64_t> offset{};
};
template <>
struct Table<Tensor> : Columns<&Tensor::tensor, &Tensor::name, &Tensor::role, &Tensor::dtype, &Tensor::shape,
                               &Tensor::bytes, &Tensor::first_op, &Tensor::last_op, &Tensor::offset> {
  static constexpr std::string_view kName = "tensor", kOrder = "tensor";
};

struct MemoryEvent {
  std::int64_t seq = 0;
  std::optional<std::int64_t> op{}, tensor{};  ///< op -1: before the step; nothing in a foreign program
  std::int64_t bytes = 0, live_bytes = 0, time_ns = 0;
  std::string device{};  ///< "": the device of the run
  std::optional<std::int64_t> address{};
};
template <>
struct Table<MemoryEvent>
    : Columns<&MemoryEvent::seq, &MemoryEvent::op, &MemoryEvent::tensor, &MemoryEvent::bytes,
              &MemoryEvent::live_bytes, &MemoryEvent::time_ns, &MemoryEvent::device, &MemoryEvent::address> {
  static constexpr std::string_view kName = "memory_event", kOrder = "seq";
};

struct Prediction {
  std::string subject{}, quantity{};
  double value = 0;
  std::string unit{}, bound{};
};
template <>
struct Table<Prediction> : Columns<&Prediction::subject, &Prediction::quantity, &Prediction::value,
                                   &Prediction::unit, &Prediction::bound> {
  static constexpr std::string_view kName = "prediction", kOrder = "subject, quantity";
};

struct Cell {
  std::string series{};
  std::int64_t row = 0;
  std::string col{};
  std::optional<double> value{};
  std::string text{}, unit{};
};
template <>
struct Table<Cell> : Columns<&Cell::series, &Cell::row, &Cell::col, &Cell::value, &Cell::text, &Cell::unit> {
  static constexpr std::string_view kName = "cell";
};

/// Kind of the run that holds the simulated step of a plan.
inline constexpr const char* kPlanKind = "plan";
/// Facts of such runs: what their timeline omits, and the op of peak memory.
inline constexpr const char* kTimelineNote = "timeline_note";
inline constexpr const char* kPeakAt = "peak_at";
/// Series of the cells of a plan: its rows, the terms of the displayed step, memory by kind of rank, searched
/// splits, notes, and the comparison with a measurement.
inline constexpr const char* kPlanSeries = "plan";
inline constexpr const char* kPlanTermsSeries = "plan_terms";
inline constexpr const char* kPlanMemorySeries = "plan_memory";
inline constexpr const char* kPlanSearchSeries = "plan_search";
inline constexpr const char* kPlanNotesSeries = "plan_notes";
inline constexpr const char* kPlanAgainstSeries = "plan_against";

/// Fact whose text is JSON about the model's blocks: their dataflow, and where each is defined.
inline constexpr const char* kModelFact = "model_blocks";

/// Activities of kind "range" that are steps of a foreign program during which no device activity was
/// recorded.
inline constexpr const char* kTimedStep = "step, timed alone";

/// Kind of a run that holds some steps of another rank of a split step. Facts "rank" (its number) and
/// "rank_of" (the run of the first rank). Its events use that run's clock, and so do its ops if it has none
/// of its own. Only Reader::rank_runs returns it.
inline constexpr const char* kRankRun = "rank";

/// Series of cells with the log of a training run: one row per step, columns "loss", "lr", ...
inline constexpr const char* kTrainingSeries = "training";

/// Kind of the samples, and source of the counters, of steps in which each op was submitted and waited for
/// alone; and the counter that holds an op's median wall time in them.
inline constexpr const char* kAloneSource = "alone";
inline constexpr const char* kAloneWall = "wall_s";

/// Series of cells of served loads. One row per load: schedule, slots, request rate (absent if all arrived at
/// once). One row per request: its load's row, user, tokens, and the times of arrival, slot, first token and
/// last token, and why it ended (`finish`); a request that ended before has no time of it. One row per batch
/// (a server's record): its load's row, begin and end, steps, texts, and the tokens of prompts and new ones.
/// The load of a server is whatever arrived: `arrivals` is kObserved, and there is no rate.
inline constexpr const char* kServingSeries = "serving";
inline constexpr const char* kServingRequestSeries = "serving_requests";
inline constexpr const char* kServingBatchSeries = "serving_batches";
inline constexpr const char* kObserved = "observed";

}  // namespace rooflm::record

// The rows of a run record, as in schema.sql, where each column is explained. Every member has an
// initialiser, so that a row may name only what it has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "record/config.h"

namespace rooflm::record {

struct Environment {
  std::string key{};
  std::string value{};
  std::string unit{};
};

struct Ceiling {
  std::string device = "cpu";
  std::string what{};   ///< "matmul", "instruction", "read", "write", "update", "copy", "triad", "adamw"
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

/// Something that was run, planned, or did not fit.
struct Run {
  std::int64_t id = 0;  ///< given by the writer
  std::string label{};
  std::string kind = "step";  ///< "step", "train", "gemm", "attention", "foreign", ...
  std::string status = "running";
  Config config{};
};

/// A number with its unit, or a sentence.
struct Fact {
  std::string key{};
  std::optional<double> value{};
  std::string unit{};
  std::string text{};
};

struct Sample {
  std::int64_t step = 0;
  std::string phase{};  ///< "forward", "backward", "optimizer", "step"
  double seconds = 0;
  std::string kind = "plain";  ///< "warmup", "plain", "observed", "traced", "untraced", "in_order",
                               ///< "allocations", "inputs", "counted", "alone"
  bool outlier = false;
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

/// One execution of an op; plain numbers, so that a million of them cost little.
struct Event {
  std::int64_t step = 0, op = 0, start_ns = 0, device_ns = 0;
  std::optional<std::int64_t> wall_ns{};  ///< nothing where it was not measured
};

/// Sums over the events of one op.
struct OpTime {
  std::int64_t op = 0;
  std::int64_t instances = 0;                          ///< executions, whole ones
  double device_s = 0;                                 ///< median over the observed steps
  std::optional<double> wall_s{};                      ///< the same; nothing unless every event has it
  double mean_s = 0, std_s = 0, min_s = 0, max_s = 0;  ///< of the device time
};

/// Where activities happen.
struct Lane {
  std::int64_t lane = 0;
  std::string kind = "device";  ///< "device", "host", "link"
  std::string device{};         ///< "cuda:0", "cpu"
  std::optional<std::int64_t> stream{}, thread{};
  std::string name{};
};

/// What activities are called: each kind and name once.
struct ActivityName {
  std::int64_t name = 0;
  std::string kind{};  ///< "kernel", "copy", "memset", "collective", "api", "range", "sync", "memory", "op"
  std::string text{};
};

/// Anything that took time on a device or a host, in the record's clock.
struct Activity {
  std::int64_t id = 0, name = 0, lane = 0;
  std::int64_t start_ns = 0, end_ns = 0;
  std::optional<std::int64_t> correlation{}, bytes{}, step{}, op{};
  std::string extra{};  ///< JSON
};

struct Counter {
  std::string phase{}, scope{}, name{};
  double value = 0;  ///< per step; of one execution where `op` or `activity` is set
  std::string unit{}, source{};
  std::optional<std::int64_t> op{}, activity{};
};

/// What a device told of itself at one moment, in the record's clock.
struct Gauge {
  std::string device{}, name{};  ///< "cuda:0"; "power_w", "sm_clock_hz", "temperature_c", "throttle", ...
  std::int64_t time_ns = 0;
  double value = 0;
  std::string unit{};  ///< "W", "Hz", "C", "share", "bits"
};

struct Tensor {
  std::int64_t tensor = 0;
  std::string name{}, role{}, dtype{}, shape{};
  std::int64_t bytes = 0, first_op = -1, last_op = -1;
  std::optional<std::int64_t> offset{};
};

struct MemoryEvent {
  std::int64_t seq = 0;
  std::optional<std::int64_t> op{}, tensor{};  ///< op -1: before the step; nothing in a foreign program
  std::int64_t bytes = 0, live_bytes = 0, time_ns = 0;
  std::string device{};  ///< "" is that of the run
  std::optional<std::int64_t> address{};
};

struct Prediction {
  std::string subject{}, quantity{};
  double value = 0;
  std::string unit{}, bound{};
};

struct Cell {
  std::string series{};
  std::int64_t row = 0;
  std::string col{};
  std::optional<double> value{};
  std::string text{}, unit{};
};

/// The kind of runs that hold the simulated step of a plan.
inline constexpr const char* kPlanKind = "plan";
/// Facts of such runs: what their timeline leaves out, and at which op their tensors take most.
inline constexpr const char* kTimelineNote = "timeline_note";
inline constexpr const char* kPeakAt = "peak_at";
/// Series of cells of a plan: its rows, the terms of the step that is shown, memory by kind of rank, splits
/// that were searched, notes, and a plan beside a measurement.
inline constexpr const char* kPlanSeries = "plan";
inline constexpr const char* kPlanTermsSeries = "plan_terms";
inline constexpr const char* kPlanMemorySeries = "plan_memory";
inline constexpr const char* kPlanSearchSeries = "plan_search";
inline constexpr const char* kPlanNotesSeries = "plan_notes";
inline constexpr const char* kPlanAgainstSeries = "plan_against";

/// The fact whose text is JSON about the blocks of the model: which reads which, and where each is defined.
inline constexpr const char* kModelFact = "model_blocks";

/// Activities of kind "range" that are steps of somebody else's program in which nothing of the device was
/// recorded.
inline constexpr const char* kTimedStep = "step, timed alone";

/// Kind of a run that is what another rank of a split step did in some of the steps of the first: facts
/// "rank" (its number) and "rank_of" (the run of the first). Its events are on the clock of that run's, and
/// so are the ops where it has none of its own. It is in Reader::rank_runs only.
inline constexpr const char* kRankRun = "rank";

/// Series of the cells that are the log of a training run: a row per step, columns "loss", "lr", ...
inline constexpr const char* kTrainingSeries = "training";

/// Kind of the samples, and source of the counters, of steps in which each op was submitted alone and waited
/// for; and the name of the counter that is the wall time of an op in them, median over those steps.
inline constexpr const char* kAloneSource = "alone";
inline constexpr const char* kAloneWall = "wall_s";

/// Series of the cells of served loads: a row for each load (schedule, slots, the rate at which requests
/// arrived: absent where all came at once), and one for each request: its load's row, user, tokens, and when
/// it arrived, got a slot, had its first token and its last.
inline constexpr const char* kServingSeries = "serving";
inline constexpr const char* kServingRequestSeries = "serving_requests";

}  // namespace rooflm::record

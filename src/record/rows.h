// The rows of a run record, as in schema.sql, where each column is explained. Every member has an
// initialiser, so that a row may name only what it has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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

/// A configuration that was run, planned, or did not fit.
struct Run {
  std::int64_t id = 0;  ///< given by the writer
  std::string label{};
  std::string status = "running";
  std::string model{}, arch{}, engine{}, attention{}, device{}, dtype{}, recompute{};
  std::int64_t batch = 0, seq = 0, vocab = 0, layers = 0, heads = 0, kv_heads = 0, d_model = 0, d_ff = 0;
  std::int64_t params = 0, grad_accum = 1, threads = 0, seed = 0, warmup = 0;
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
  std::string kind = "plain";  ///< "warmup", "plain", "observed"
  bool outlier = false;
};

struct Op {
  std::int64_t op = 0;
  std::string kind{}, op_class{}, kernel{}, name{}, phase{}, scope{}, dtype{}, shapes{};
  std::int64_t micro_batch = 0;
  bool recomputed = false;
  std::int64_t matmul_flop = 0, elementwise_flop = 0, bytes_read = 0, bytes_written = 0, launches = 1;
};

/// One execution of an op; plain numbers, so that a million of them cost little.
struct Event {
  std::int64_t step = 0, op = 0, start_ns = 0, device_ns = 0, wall_ns = 0;
};

/// Sums over the events of one op.
struct OpTime {
  std::int64_t op = 0, instances = 0;
  double device_s = 0, wall_s = 0;                     ///< medians over the observed steps
  double mean_s = 0, std_s = 0, min_s = 0, max_s = 0;  ///< of the device time
};

struct Counter {
  std::string phase{}, scope{}, name{};
  double value = 0;  ///< per step
  std::string unit{}, source{};
};

struct Tensor {
  std::int64_t tensor = 0;
  std::string name{}, role{}, dtype{}, shape{};
  std::int64_t bytes = 0, first_op = -1, last_op = -1;
  std::optional<std::int64_t> offset{};
};

struct MemoryEvent {
  std::int64_t seq = 0, op = 0, tensor = 0, bytes = 0, live_bytes = 0, time_ns = 0;
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

}  // namespace rooflm::record

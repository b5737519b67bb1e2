// A made-up step whose times follow from T by formulas, so that tests can say what reports must find.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "record/rows.h"
#include "record/writer.h"
#include "report/model/run_data.h"
#include "tests/record/record_testing.h"

namespace rooflm::report {

struct StepSpec {
  std::int64_t seq = 10;
  std::string dtype = "fp32";
  double speed = 1;  ///< divides every time
  std::string attention = "batched";
  std::string status = "success";
  std::int64_t gradients_ns = 0;  ///< of an all-reduce of gradients for each layer; 0: there is none
  double exposed_s = 0;           ///< of them, as a fact; 0: it is not known
};

inline constexpr std::int64_t kStepLayers = 2;
/// Device time of the observed steps against the formulas: the median is 1, the mean 4/3.
inline const std::vector<double> kStepFactors = {1, 2, 1};
/// Seconds of whole plain steps; forward takes 30 %, backward 60 %, the optimizer 10 %.
inline const std::vector<double> kPlainSteps = {1.0e-3, 1.1e-3, 0.9e-3, 1.0e-3, 1.2e-3, 1.0e-3, 1.0e-3};

/// One op of a layer: nanoseconds linear and quadratic in T, for forward; backward takes twice that.
struct LayerOp {
  const char* scope;
  const char* kind;
  const char* op_class;
  std::int64_t linear_ns, square_ns;
};
inline const std::vector<LayerOp> kLayerOps = {
    {"ln1", "layernorm", "norm", 10, 0},        {"attention/qkv", "matmul", "matmul", 100, 0},
    {"attention/qk", "matmul", "matmul", 0, 1}, {"attention/softmax", "softmax", "softmax", 0, 2},
    {"attention/v", "matmul", "matmul", 0, 1},  {"attention/proj", "matmul", "matmul", 30, 0},
};

struct StepRows {
  std::vector<record::Op> ops;
  std::vector<std::int64_t> ns;
};

inline void add_op(StepRows& rows, const std::string& scope, const LayerOp& from, const std::string& phase,
                   std::int64_t ns, const std::string& dtype) {
  const bool is_matmul = std::string(from.op_class) == "matmul";
  rows.ops.push_back({.op = static_cast<std::int64_t>(rows.ops.size()),
                      .kind = from.kind,
                      .op_class = from.op_class,
                      .kernel = std::string(from.kind) + "_" + dtype,
                      .name = scope + "." + phase,
                      .phase = phase,
                      .scope = scope,
                      .dtype = dtype,
                      .shapes = "[2] -> [2]",
                      .matmul_flop = is_matmul ? 10 * ns : 0,
                      .elementwise_flop = is_matmul ? 0 : ns,
                      .bytes_read = 2 * ns,
                      .bytes_written = ns});
  rows.ns.push_back(ns);
}

inline StepRows step_rows(const StepSpec& spec) {
  StepRows rows;
  for (const char* phase : {"forward", "backward"}) {
    const std::int64_t factor = std::string(phase) == "forward" ? 1 : 2;
    for (std::int64_t layer = 0; layer < kStepLayers; ++layer) {
      for (const LayerOp& op : kLayerOps) {
        const std::int64_t ns = factor * (op.linear_ns * spec.seq + op.square_ns * spec.seq * spec.seq);
        add_op(rows, "h." + std::to_string(layer) + "/" + op.scope, op, phase, ns, spec.dtype);
      }
    }
  }
  for (std::int64_t layer = 0; layer < kStepLayers && spec.gradients_ns > 0; ++layer) {
    add_op(rows, "h." + std::to_string(layer) + "/gradients", {"", "all_reduce", "collective", 0, 0},
           "backward", spec.gradients_ns, spec.dtype);
  }
  add_op(rows, "optimizer", {"", "adamw", "optimizer", 0, 0}, "optimizer", 500, spec.dtype);
  return rows;
}

/// Times, roofs (half of the time) and what lies between kernels (100 ns per op).
inline void add_times(record::Writer& writer, std::int64_t id, const StepSpec& spec, const StepRows& rows) {
  std::vector<record::Event> events;
  for (std::size_t step = 0; step < kStepFactors.size(); ++step) {
    for (std::size_t i = 0; i < rows.ops.size(); ++i) {
      const auto ns =
          static_cast<std::int64_t>(static_cast<double>(rows.ns[i]) * kStepFactors[step] / spec.speed);
      events.push_back({.step = static_cast<std::int64_t>(step),
                        .op = rows.ops[i].op,
                        .device_ns = ns,
                        .wall_ns = ns + 100});
    }
  }
  writer.add(id, events);
  std::vector<record::Prediction> roofs;
  for (std::size_t i = 0; i < rows.ops.size(); ++i) {
    roofs.push_back({.subject = "op:" + std::to_string(i),
                     .quantity = "roof_s",
                     .value = 0.5e-9 * static_cast<double>(rows.ns[i]),
                     .unit = "s",
                     .bound = rows.ops[i].matmul_flop > 0 ? "matmul " + spec.dtype : "DRAM"});
  }
  writer.add(id, roofs);
}

inline void add_samples(record::Writer& writer, std::int64_t id, const StepSpec& spec) {
  std::vector<record::Sample> samples;
  const auto add = [&](std::int64_t step, double seconds, const char* kind) {
    samples.push_back({step, "forward", 0.3 * seconds, kind});
    samples.push_back({step, "backward", 0.6 * seconds, kind});
    samples.push_back({step, "optimizer", 0.1 * seconds, kind});
    samples.push_back({step, "step", seconds, kind});
  };
  add(0, 9e-3, "warmup");
  std::int64_t step = 1;
  for (const double seconds : kPlainSteps) add(step++, seconds / spec.speed, "plain");
  for (int i = 0; i < 3; ++i) add(step++, 1.1e-3 / spec.speed, "observed");
  writer.add(id, samples);
}

/// w persistent; "kept" lives from the first op to the first backward op, "scratch" inside forward.
inline void add_memory(record::Writer& writer, std::int64_t id) {
  const std::int64_t backward = kStepLayers * static_cast<std::int64_t>(kLayerOps.size());
  writer.add(
      id,
      std::vector<record::Tensor>{
          {.tensor = 7, .name = "w", .role = "weight", .bytes = 100},
          {.tensor = 8,
           .name = "kept",
           .role = "activation",
           .bytes = 40,
           .first_op = 1,
           .last_op = backward},
          {.tensor = 9, .name = "scratch", .role = "workspace", .bytes = 60, .first_op = 2, .last_op = 3}});
  writer.add(id, std::vector<record::MemoryEvent>{
                     {.seq = 0, .op = -1, .tensor = 7, .bytes = 100, .live_bytes = 100},
                     {.seq = 1, .op = 1, .tensor = 8, .bytes = 40, .live_bytes = 140},
                     {.seq = 2, .op = 2, .tensor = 9, .bytes = 60, .live_bytes = 200},
                     {.seq = 3, .op = 3, .tensor = 9, .bytes = -60, .live_bytes = 140},
                     {.seq = 4, .op = backward, .tensor = 8, .bytes = -40, .live_bytes = 100}});
}

inline void add_step(record::Writer& writer, const StepSpec& spec) {
  record::Run run{.label = "made-up T=" + std::to_string(spec.seq) + " " + spec.dtype};
  run.config.set("model", "made-up");
  run.config.set("arch", "gpt2");
  run.config.set("engine", "eager");
  run.config.set("attention", spec.attention);
  run.config.set("device", "cpu");
  run.config.set("dtype", spec.dtype);
  run.config.set("recompute", "none");
  run.config.set("batch", 2);
  run.config.set("seq", spec.seq);
  run.config.set("layers", kStepLayers);
  run.config.set("heads", 4);
  run.config.set("kv_heads", 4);
  const std::int64_t id = writer.begin_run(run);
  if (spec.status == "success") {
    const StepRows rows = step_rows(spec);
    writer.add(id, rows.ops);
    add_times(writer, id, spec, rows);
    add_samples(writer, id, spec);
    add_memory(writer, id);
    writer.add(id, record::Fact{.key = "model_flop", .value = 4e6, .unit = "flop"});
    writer.add(id, record::Fact{.key = "peak_flop_per_s", .value = 1e10, .unit = "flop/s"});
    writer.add(id, record::Fact{.key = "stop_reason", .text = "interval within 1 %"});
    writer.add(id, record::Fact{.key = "loader_wait_s", .value = 1e-5, .unit = "s"});
    writer.add(id, record::Fact{.key = "needed_bytes", .value = 228, .unit = "B"});
    if (spec.exposed_s > 0) {
      writer.add(id, record::Fact{.key = "exposed_s", .value = spec.exposed_s, .unit = "s"});
    }
  }
  writer.end_run(id, spec.status);
}

/// A finished record of these runs.
inline void write_steps(const std::filesystem::path& path, const std::vector<StepSpec>& specs) {
  record::Writer writer(path, "rooflm profile --made-up");
  writer.add(record::Environment{.key = "cpu", .value = "imaginary & <fast>"});
  writer.add(
      record::Ceiling{.what = "matmul", .dtype = "fp32", .threads = 2, .value = 1e10, .unit = "flop/s"});
  writer.add(record::Ceiling{.what = "copy", .level = "DRAM", .threads = 2, .value = 1e9, .unit = "byte/s"});
  for (const StepSpec& spec : specs) add_step(writer, spec);
  writer.finish();
}

/// What the record of these steps says.
inline RecordSet load_steps(const std::vector<StepSpec>& specs) {
  const record::TemporaryFolder folder;
  write_steps(folder / "a.rooflm", specs);
  return load(std::vector<std::filesystem::path>{folder / "a.rooflm"});
}

}  // namespace rooflm::report

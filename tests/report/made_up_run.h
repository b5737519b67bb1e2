// A run that was never measured, whose numbers fit: tests of reports change one of them and see what is said.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "record/rows.h"
#include "record/writer.h"

namespace rooflm::report {

/// Everything of one run.
struct MadeUpRun {
  record::Run run;
  std::vector<record::Op> ops;
  std::vector<record::Tensor> tensors;
  std::vector<record::Sample> samples;
  std::vector<record::Event> events;
  std::vector<record::MemoryEvent> memory;
  std::vector<record::Prediction> predictions;
  std::vector<record::Fact> facts;

  void write(record::Writer& writer) const {
    const std::int64_t id = writer.begin_run(run);
    writer.add(id, ops);
    writer.add(id, tensors);
    writer.add(id, samples);
    writer.add(id, events);
    writer.add(id, memory);
    writer.add(id, predictions);
    for (const record::Fact& fact : facts) writer.add(id, fact);
    writer.end_run(id, run.status);
  }
};

/// Ops of the made-up program: scope, phase and nanoseconds that one takes.
struct MadeUpOp {
  const char* scope;
  const char* phase;
  std::int64_t ns;
};
inline constexpr std::array<MadeUpOp, 7> kMadeUpOps{{{"h.0/attention/qkv", "forward", 400'000},
                                                     {"h.1/attention/qkv", "forward", 400'000},
                                                     {"h.0/feed_forward/fc1", "forward", 700'000},
                                                     {"loss", "forward", 100'000},
                                                     {"h.0/feed_forward/fc1", "backward", 1'500'000},
                                                     {"h.0/attention/qkv", "backward", 900'000},
                                                     {"optimizer", "optimizer", 500'000}}};

struct MadeUpOptions {
  double scale = 1;         ///< of every time
  double noise = 0.004;     ///< share by which steps differ
  std::int64_t steps = 40;  ///< plain and observed ones in turn
  std::uint64_t seed = 1;
  /// Factor on the time of an op.
  std::function<double(const MadeUpOp&)> factor = [](const MadeUpOp&) { return 1.0; };
};

/// A number in [-1, 1) that depends on both arguments only (splitmix64).
inline double made_up_noise(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed * 0x9E3779B97F4A7C15ULL + (index + 1) * 0xD1B54A32D192ED03ULL;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
  return static_cast<double>((z ^ (z >> 31U)) >> 11U) * 0x1p-52 - 1;
}

inline void add_made_up_step(MadeUpRun& made, std::int64_t step, const MadeUpOptions& options) {
  const bool is_observed = step % 2 == 1;
  const double slow =
      options.scale * (1 + options.noise * made_up_noise(options.seed, static_cast<std::uint64_t>(step)));
  std::vector<std::pair<std::string, double>> phases = {{"forward", 0}, {"backward", 0}, {"optimizer", 0}};
  std::int64_t now_ns = step * 10'000'000;
  double step_s = 5e-6;  // to submit and to wait
  for (std::size_t i = 0; i < kMadeUpOps.size(); ++i) {
    const auto wall_ns =
        std::llround(static_cast<double>(kMadeUpOps[i].ns) * slow * options.factor(kMadeUpOps[i]));
    for (auto& [phase, seconds] : phases) {
      if (phase == kMadeUpOps[i].phase) seconds += static_cast<double>(wall_ns) * 1e-9;
    }
    step_s += static_cast<double>(wall_ns) * 1e-9;
    if (is_observed) {
      made.events.push_back({.step = step,
                             .op = static_cast<std::int64_t>(i),
                             .start_ns = now_ns,
                             .device_ns = wall_ns - 1000,
                             .wall_ns = wall_ns});
    }
    now_ns += wall_ns;
  }
  phases.emplace_back("step", step_s);
  for (const auto& [phase, seconds] : phases) {
    made.samples.push_back(
        {.step = step, .phase = phase, .seconds = seconds, .kind = is_observed ? "observed" : "plain"});
  }
}

inline MadeUpRun made_up_run(const MadeUpOptions& options = {}) {
  MadeUpRun made;
  made.run = {.label = "tiny made up", .status = "success"};
  for (const auto& [key, value] : {std::pair{"model", "tiny"},
                                   {"arch", "gpt2"},
                                   {"engine", "fused"},
                                   {"attention", "flash"},
                                   {"device", "cpu"},
                                   {"dtype", "fp32"},
                                   {"recompute", "none"}}) {
    made.run.config.set(key, value);
  }
  made.run.config.set("batch", 2);
  made.run.config.set("seq", 64);
  made.run.config.set("layers", 2);
  double flop = 0;
  std::vector<std::pair<std::string, double>> roofs;
  for (std::size_t i = 0; i < kMadeUpOps.size(); ++i) {
    const auto op = static_cast<std::int64_t>(i);
    const MadeUpOp& from = kMadeUpOps[i];
    made.ops.push_back({.op = op,
                        .kind = "matmul",
                        .op_class = "matmul",
                        .kernel = "fused::matmul",
                        .name = fmt::format("t{}", i),
                        .phase = from.phase,
                        .scope = from.scope,
                        .dtype = "fp32",
                        .matmul_flop = 1000 * (op + 1)});
    flop += static_cast<double>(1000 * (op + 1));
    const double roof_s = 0.5e-9 * static_cast<double>(from.ns) * options.scale;
    made.predictions.push_back(
        {.subject = fmt::format("op:{}", i), .quantity = "roof_s", .value = roof_s, .unit = "s"});
    if (roofs.empty() || roofs.back().first != from.phase) roofs.emplace_back(from.phase, 0);
    roofs.back().second += roof_s;
  }
  double step_roof_s = 0;
  for (const auto& [phase, roof_s] : roofs) {
    made.predictions.push_back(
        {.subject = fmt::format("phase:{}", phase), .quantity = "roof_s", .value = roof_s, .unit = "s"});
    step_roof_s += roof_s;
  }
  made.predictions.push_back({.subject = "step", .quantity = "roof_s", .value = step_roof_s, .unit = "s"});
  for (std::int64_t step = 0; step < options.steps; ++step) add_made_up_step(made, step, options);
  made.tensors = {{.tensor = 0, .name = "w", .role = "weight", .bytes = 100},
                  {.tensor = 1, .name = "x", .role = "activation", .bytes = 40, .first_op = 0, .last_op = 5},
                  {.tensor = 2, .name = "y", .role = "activation", .bytes = 60, .first_op = 1, .last_op = 2}};
  made.memory = {{.seq = 0, .op = -1, .tensor = 0, .bytes = 100, .live_bytes = 100},
                 {.seq = 1, .op = 0, .tensor = 1, .bytes = 40, .live_bytes = 140},
                 {.seq = 2, .op = 1, .tensor = 2, .bytes = 60, .live_bytes = 200},
                 {.seq = 3, .op = 2, .tensor = 2, .bytes = -60, .live_bytes = 140},
                 {.seq = 4, .op = 5, .tensor = 1, .bytes = -40, .live_bytes = 100}};
  // Facts of plans count whole lines of 64 bytes: 100 are 128, 40 and 60 are 64.
  made.facts = {{.key = "matmul_flop", .value = flop, .unit = "flop"},
                {.key = "state_bytes", .value = 128, .unit = "B"},
                {.key = "plan_bytes", .value = 128, .unit = "B"},
                {.key = "needed_bytes", .value = 256, .unit = "B"},
                {.key = "plan_peak_bytes", .value = 256, .unit = "B"},
                {.key = "live_bytes_peak", .value = 128, .unit = "B"}};
  return made;
}

}  // namespace rooflm::report

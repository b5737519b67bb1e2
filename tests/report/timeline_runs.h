// Made-up runs for tests of timelines, and the other direction of pack().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/model/run_data.h"

namespace rooflm::report {

inline constexpr std::size_t kAnyEvents = 60'000;

inline std::string bytes_of_base64(const std::string& text) {
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char letter : text) {
    if (letter == '=') break;
    bits = bits << 6U | static_cast<std::uint32_t>(letters.find(letter));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> static_cast<unsigned>(count) & 0xFFU);
  }
  return bytes;
}

/// The other direction of pack().
inline std::vector<std::int64_t> unpack(const std::string& text) {
  std::vector<std::int64_t> values;
  std::uint64_t coded = 0;
  std::uint64_t value = 0;
  unsigned shift = 0;
  for (const char letter : bytes_of_base64(text)) {
    const auto byte = static_cast<unsigned char>(letter);
    coded |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
    shift += 7;
    if (byte >= 0x80) continue;
    value += coded >> 1U ^ (~(coded & 1U) + 1U);
    values.push_back(static_cast<std::int64_t>(value));
    coded = 0;
    shift = 0;
  }
  return values;
}

/// Forward and backward of two layers, an update beside them, as a program.
inline RunData program_of_timeline() {
  RunData run;
  run.run.label = "made up";
  run.run.config.set("device", "cpu");
  const auto add = [&](const char* phase, const char* scope, const char* op_class, const char* lane) {
    TimedOp timed;
    timed.op = {.op = static_cast<std::int64_t>(run.ops.size()) + 2,  // two of the set-up are left out
                .kind = "kind",
                .op_class = op_class,
                .kernel = std::string("kernel_") + op_class,
                .phase = phase,
                .scope = scope};
    timed.op.lane = lane;
    run.ops.push_back(timed);
  };
  add("forward", "h.0/attention/qk", "matmul", "compute");
  add("forward", "h.0/feed_forward/fc1", "matmul", "compute");
  add("forward", "h.1/attention/qk", "matmul", "compute");
  add("backward", "h.1/attention/qk", "matmul", "compute");
  add("optimizer", "optimizer", "optimizer", "background");
  add("backward", "h.0/attention/qk", "norm", "compute");
  return run;
}

/// Events of ops back to back, 100 ns each, in steps of the lengths given (the last op takes what is left).
inline void add_op_steps(RunData& run, const std::vector<std::int64_t>& lengths) {
  std::int64_t now = 5'000;
  for (std::size_t step = 0; step < lengths.size(); ++step) {
    for (const TimedOp& timed : run.ops) {
      const bool is_last = &timed == &run.ops.back();
      const std::int64_t before = 100 * static_cast<std::int64_t>(run.ops.size() - 1);
      run.events.push_back({.step = static_cast<std::int64_t>(step),
                            .op = timed.op.op,
                            .start_ns = now + 100 * (timed.op.op - 2),
                            .device_ns = is_last ? lengths[step] - before : 100});
    }
    run.samples.push_back({static_cast<std::int64_t>(step), "step", 1e-3, "observed"});
    now += lengths[step] + 10'000;
  }
}

/// Two traced steps of kernels on a stream and calls on a thread, a call before each, one range of no step.
inline RunData traced_run() {
  RunData run = program_of_timeline();
  run.run.config.set("device", "cuda:0");
  run.lanes = {{.lane = 5, .kind = "host", .device = "cpu", .thread = 9, .name = "main thread"},
               {.lane = 3, .kind = "device", .device = "cuda:0", .stream = 7, .name = "stream 7"}};
  run.activity_names = {{.name = 0, .kind = "kernel", .text = "void gemm<float>(int)"},
                        {.name = 1, .kind = "api", .text = "cudaGraphLaunch"},
                        {.name = 2, .kind = "copy", .text = "host to device"},
                        {.name = 3, .kind = "range", .text = "training"}};
  std::int64_t id = 0;
  for (std::int64_t step = 0; step < 2; ++step) {
    const std::int64_t begin = 1'000'000 + 10'000 * step;
    run.activities.push_back({.id = id++,
                              .name = 1,
                              .lane = 5,
                              .start_ns = begin - 50,
                              .end_ns = begin - 20,
                              .correlation = 70 + step});
    for (std::int64_t i = 0; i < 6; ++i) {
      run.activities.push_back({.id = id++,
                                .name = 0,
                                .lane = 3,
                                .start_ns = begin + 100 * i,
                                .end_ns = begin + 100 * i + 90 + 5 * step,
                                .correlation = 70 + step,
                                .step = step,
                                .op = 2 + i,
                                .extra = R"({"grid":[8,1,1],"node":)" + std::to_string(i) + "}"});
    }
    run.activities.push_back({.id = id++,
                              .name = 2,
                              .lane = 3,
                              .start_ns = begin + 600,
                              .end_ns = begin + 700,
                              .bytes = 4096,
                              .step = step});
  }
  run.activities.push_back({.id = id++, .name = 3, .lane = 5, .start_ns = 0, .end_ns = 2'000'000});
  run.samples = {{0, "step", 1e-3, "traced"}, {1, "step", 1e-3, "traced"}};
  return run;
}

}  // namespace rooflm::report

// The step of a run under a GPU's hardware counters, in the record.
#include "lab/counted_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/registry.h"
#include "core/error.h"
#include "core/names.h"
#include "core/stop_signals.h"
#include "lab/notes.h"
#include "trace/counted_step.h"
#include "trace/counter_metrics.h"

namespace rooflm::lab {
namespace {

double value_of(const std::vector<trace::CountedValue>& values, std::string_view name) {
  const auto found = std::ranges::find(values, name, &trace::CountedValue::name);
  return found == values.end() ? 0 : found->value;
}

/// Known work, counted: whether the counters count what they are taken for, and a multiply-add as 2.
class CounterChecks {
 public:
  CounterChecks(trace::DeviceCounters& counters, const Point& point, record::Writer& record, std::int64_t run)
      : counters_(&counters), point_(&point), record_(&record), run_(run) {}

  void run() {
    check_memory();
    check_products();
  }

 private:
  void fact(const std::string& key, double counted, double known, const std::string& what) {
    record_->add(run_,
                 record::Fact{.key = "counter_check_" + key,
                              .value = counted / known,
                              .unit = "",
                              .text = fmt::format("{}: {:.6g} counted, {:.6g} known", what, counted, known)});
  }

  /// A copy and the optimizer's own kernel over memory much larger than the caches.
  void check_memory() {
    constexpr double kLeast = 500e6;  // dirty lines of the caches are noise below
    for (const backends::TimedLoop& loop :
         backends::provider_of(point_->device).memory_loops(point_->device)) {
      if (loop.level != "DRAM" || loop.amount < kLeast || (loop.what != "copy" && loop.what != "adamw"))
        continue;
      const auto counted = count(loop);
      const double read = value_of(counted, "dram_read_bytes");
      const double written = value_of(counted, "dram_written_bytes");
      fact(loop.what + "_bytes", read + written, loop.amount,
           fmt::format("DRAM bytes of {}, {}", loop.what, loop.problem));
    }
  }

  void check_products() {
    const auto found = backends::provider_of(point_->device).instruction_loops(point_->device, "bf16");
    for (const backends::TimedLoop& loop : found.loops) {
      if (loop.problem.find("mma") == std::string::npos) continue;  // of the tensor cores
      fact(loop.problem.starts_with("w") ? "wgmma_flop" : "mma_flop",
           value_of(count(loop), "tensor_bf16_flop"), loop.amount, "bf16 " + loop.problem);
    }
  }

  std::vector<trace::CountedValue> count(const backends::TimedLoop& loop) {
    return trace::count_work(*counters_, trace::counter_sets().front(),
                             [&] { static_cast<void>(loop.run_s()); });
  }

  trace::DeviceCounters* counters_;
  const Point* point_;
  record::Writer* record_;
  std::int64_t run_;
};

std::vector<record::Counter> rows_of(const program::Program& program, const trace::CountedStep& step,
                                     const std::map<std::int64_t, std::int64_t>& kernel_of_op) {
  std::vector<record::Counter> rows;
  for (const trace::CountedRange& counted : step.ops) {
    const program::Op& op = program.ops.at(counted.id);
    const auto number = static_cast<std::int64_t>(counted.id);
    const auto kernel = kernel_of_op.find(number);
    for (const trace::CountedValue& value : counted.values) {
      rows.push_back(
          {.phase = std::string(program::name_of(op.phase)),
           .scope = op.scope,
           .name = value.name,
           .value = value.value,
           .unit = value.unit,
           .source = "cupti",
           .op = number,
           .activity = kernel == kernel_of_op.end() ? std::nullopt : std::optional(kernel->second)});
    }
  }
  return rows;
}

}  // namespace

void count_run(engines::Engine& engine, StepInputs& inputs, const Point& point, std::int64_t run,
               const TracedRun& traced, record::Writer& record) {
  const auto say_missing = [&](const std::string& why) {
    note("  no hardware counters: {}", why);
    record.add(
        run, record::Fact{
                 .key = "counters_missing",
                 .value = {},
                 .unit = {},
                 .text = why + "; only NVML's utilization, clocks and power are known, with lower fidelity"});
  };
  std::unique_ptr<trace::DeviceCounters> counters;
  try {
    counters = trace::open_device_counters();
    CounterChecks(*counters, point, record, run).run();
  } catch (const core::Unavailable& error) {
    return say_missing(error.what());
  } catch (const core::OutOfMemory& error) {
    note("  counters are not checked against known work: {}", error.what());
  }
  const trace::CountedStep step = trace::count_step(engine, *counters, trace::counter_sets(), [&] {
    if (core::StopSignals::received() != 0) return false;
    inputs.hold();
    return true;
  });
  for (const std::string& missing : step.missing) note("  not counted: {}", missing);
  if (!step.has_counted()) return say_missing(fmt::format("{}", fmt::join(step.missing, "; ")));
  std::vector<record::Sample> samples;
  for (const engines::StepTimes& times : step.times) {
    samples.push_back({.step = traced.next_step + static_cast<std::int64_t>(samples.size()),
                       .phase = "step",
                       .seconds = times.step_s,
                       .kind = "counted"});
  }
  record.add(run, samples);
  record.add(run, rows_of(engine.program(), step, traced.kernel_of_op));
  record.add(run, record::Fact{.key = "counter_passes",
                               .value = static_cast<double>(step.times.size()),
                               .unit = "",
                               .text = fmt::format("{}; CUPTI range profiler, {}, each op a range{}{}",
                                                   fmt::join(step.sets, ", "), counters->chip(),
                                                   step.missing.empty() ? "" : "; not counted: ",
                                                   fmt::join(step.missing, "; "))});
}

}  // namespace rooflm::lab

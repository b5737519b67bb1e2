// One configuration taken apart: measured with and without an observer, priced, and written to a record.
#include "cli/profile_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "cli/devices.h"
#include "cli/output.h"
#include "cli/profile_roofs.h"
#include "cli/program_totals.h"
#include "cli/run_record.h"
#include "cli/step_inputs.h"
#include "core/error.h"
#include "core/statistics.h"
#include "measure/counters.h"
#include "measure/drift.h"
#include "measure/machine.h"
#include "model/forward.h"
#include "trace/memory_recorder.h"
#include "trace/op_recorder.h"
#include "trace/program_rows.h"
#include "train/signals.h"

namespace rooflm::cli {
namespace {

using measure::StepKind;

/// Events are kept for this many observed steps at most before memory is taken for more.
constexpr std::size_t kExpectedSteps = 64;

/// A run on its way into the record.
class Profile {
 public:
  Profile(const Point& point, const ProfileSettings& settings, CeilingBook& ceilings, record::Writer& record)
      : point_(&point), settings_(&settings), ceilings_(&ceilings), record_(&record) {
    outcome_.run = record.begin_run(run_row(
        point, {.threads = settings.threads, .seed = settings.seed, .warmup = settings.steps.warmup}));
  }

  ProfileOutcome take() {
    const program::Program program =
        compile::training_step(model::forward(point_->config, point_->batch, point_->seq), point_->step);
    write_program(program);
    const auto backend = make_backend(point_->device, point_->step.engine, settings_->threads);
    const bool is_plan = point_->device == "null";
    const double free_bytes = is_plan ? planning_memory_bytes() : backend->free_bytes();
    fact("free_bytes", free_bytes, "B");
    // Asked before: an operating system that promises more than it has ends the process instead.
    if (outcome_.needed_bytes > std::min(free_bytes, memory_limit())) {
      return end_oom(program, outcome_.needed_bytes);
    }
    if (is_plan) {
      write_ops(program, {});
      write_roofs(program, {});
      return end("planned");
    }
    try {
      measure(program, *backend);
    } catch (const core::OutOfMemory& error) {
      return end_oom(program, error.needed_bytes());
    } catch (const std::bad_alloc&) {
      return end_oom(program, outcome_.needed_bytes);
    }
    return outcome_;
  }

 private:
  void fact(const std::string& key, double value, const std::string& unit, const std::string& text = "") {
    record_->add(outcome_.run, record::Fact{.key = key, .value = value, .unit = unit, .text = text});
  }
  void sentence(const std::string& key, const std::string& text) {
    record_->add(outcome_.run, record::Fact{.key = key, .value = {}, .unit = {}, .text = text});
  }

  ProfileOutcome end(const std::string& status) {
    outcome_.status = status;
    record_->end_run(outcome_.run, status);
    record_->commit();
    return outcome_;
  }

  ProfileOutcome end_oom(const program::Program& program, double needed_bytes) {
    write_ops(program, {});
    outcome_.needed_bytes = std::max(needed_bytes, outcome_.needed_bytes);
    fact("needed_bytes", outcome_.needed_bytes, "B");
    return end("oom");
  }

  [[nodiscard]] bool has_arena() const { return point_->step.engine == compile::EngineKind::fused; }

  [[nodiscard]] double memory_limit() const {
    return settings_->memory_limit_bytes.value_or(std::numeric_limits<double>::infinity());
  }
  /// What a plan has to fit: the limit that was given, or the free memory of this machine.
  [[nodiscard]] double planning_memory_bytes() const {
    const auto available = measure::query_memory().available_bytes;
    if (settings_->memory_limit_bytes || !available) return memory_limit();
    return static_cast<double>(*available);
  }

  /// The ops, with what runs them where that is known, once.
  void write_ops(const program::Program& program, std::span<const backends::KernelInfo> kernels) {
    if (has_ops_) return;
    has_ops_ = true;
    record_->add(outcome_.run, trace::op_rows(program, kernels));
  }

  /// What is known before anything runs.
  void write_program(const program::Program& program) {
    const passes::MemoryPlan plan = passes::plan_memory(program);
    const engines::MemoryNeed need = engines::memory_need(program, point_->step.engine);
    const std::int64_t run = outcome_.run;
    outcome_.needed_bytes = static_cast<double>(need.total());
    record_->add(run, trace::tensor_rows(program, plan, has_arena()));
    const auto tokens = static_cast<double>(point_->tokens());
    fact("tokens", tokens, "tokens");
    fact("model_flop", static_cast<double>(model::model_flop_per_token(point_->config, point_->seq)) * tokens,
         "flop", "(6 N + 12 L C T) tokens (PaLM, appendix B)");
    fact("matmul_flop", static_cast<double>(step_totals(program).cost.matmul_flop), "flop");
    fact("plan_bytes", static_cast<double>(need.transient_bytes), "B");
    fact("state_bytes", static_cast<double>(need.persistent_bytes), "B");
    fact("needed_bytes", outcome_.needed_bytes, "B");
    fact("arena_bytes", static_cast<double>(plan.arena_bytes), "B");
    fact("live_bytes_peak", static_cast<double>(plan.peak_live_bytes), "B");
    if (has_arena()) record_->add(run, trace::planned_memory_events(program, plan));
    record_->commit();
  }

  /// Roofs are lower bounds: ceilings that the measured times beat were measured in a worse moment than the
  /// steps, and are measured again beside them.
  void write_roofs(const program::Program& program, const MeasuredTimes& measured) {
    constexpr int kAttempts = 2;
    auto machine = machine_of(ceilings_->rows(), point_->device, settings_->threads);
    // Without ceilings nothing is predicted: a roof of no height would be a claim.
    if (machine.levels.empty()) return;
    auto roofs = perfmodel::predict_roofs(machine, program);
    for (int i = 0; i < kAttempts && point_->device == "cpu"; ++i) {
      const auto bounds = beaten_bounds(roofs, measured);
      if (bounds.empty()) break;
      const auto higher = ceilings_->raise(bounds);
      if (higher.empty()) break;
      note("  faster than the ceilings of {}: measured again", fmt::join(bounds, ", "));
      for (const record::Ceiling& ceiling : higher) record_->add(ceiling);
      machine = machine_of(ceilings_->rows(), point_->device, settings_->threads);
      roofs = perfmodel::predict_roofs(machine, program);
    }
    record_->add(outcome_.run, roofs);
    const auto peak = machine.flop_per_s.find(std::string(compile::dtype_name(point_->step)));
    if (peak != machine.flop_per_s.end()) fact("peak_flop_per_s", peak->second, "flop/s");
  }

  void measure(program::Program program, backends::Backend& backend) {
    measure::reset_peak_resident();
    const auto resident_before = measure::resident_bytes();
    engines::TensorStore store(backend);
    engines::Engine engine(std::move(program), point_->step.engine, store,
                           settings_->memory_limit_bytes.value_or(0));
    write_ops(engine.program(), engine.kernels());
    StepInputs inputs(engine, *point_, settings_->seed, settings_->shards);
    trace::OpRecorder recorder(engine.program(), backend, kExpectedSteps);
    const auto clock_before = measure::clock_hz();
    const auto result =
        measure::run_interleaved(engine, recorder, settings_->steps, [&](int step, StepKind /*kind*/) {
          if (train::StopSignals::received() != 0) return false;
          inputs.write(step);
          recorder.set_step(step);
          return true;
        });
    write_samples(result);
    record_->add(outcome_.run, recorder.events());
    write_roofs(engine.program(), measured_times(recorder.events(), result));
    write_uncertainty(result, {.before_hz = clock_before, .after_hz = measure::clock_hz()});
    const auto resident_peak = measure::peak_resident_bytes();
    if (resident_before && resident_peak) {
      fact("rss_increase_bytes", static_cast<double>(*resident_peak - *resident_before), "B");
    }
    if (!settings_->shards.empty()) fact("loader_wait_s", inputs.loader_wait_s(), "s");
    if (!result.steps.empty()) fact("loss", engine.io().read<float>("loss").at(0), "nats");
    const bool interrupted = result.stop_reason == "interrupted";
    if (!interrupted && !has_arena()) {
      inputs.write(static_cast<int>(result.steps.size()));
      write_allocations(engine);
    }
    if (!interrupted && point_->device == "cpu") write_counters(engine, inputs);
    end(interrupted ? "interrupted" : "success");
  }

  /// A few more steps under hardware counters, beside what is counted from shapes.
  void write_counters(engines::Engine& engine, StepInputs& inputs) {
    constexpr int kSteps = 3;
    measure::Counters counters;
    if (!counters.is_available()) return;  // the session says why, once
    std::map<std::string, record::Counter> sums;
    for (int i = 0; i < kSteps; ++i) {
      inputs.write(i);
      counters.start();
      engine.run();
      counters.stop();
      for (const measure::CounterValue& value : counters.read()) {
        record::Counter& sum = sums[value.name];
        sum = {.phase = "step",
               .scope = "",
               .name = value.name,
               .value = sum.value + value.value / kSteps,
               .unit = value.unit,
               .source = "perf_event"};
      }
    }
    const program::Cost cost = step_totals(engine.program()).cost;
    std::vector<record::Counter> rows;
    std::transform(sums.begin(), sums.end(), std::back_inserter(rows),
                   [](const auto& sum) { return sum.second; });
    const auto counted = [&](const char* name, std::int64_t value, const char* unit) {
      rows.push_back({.phase = "step",
                      .scope = "",
                      .name = name,
                      .value = static_cast<double>(value),
                      .unit = unit,
                      .source = "shapes"});
    };
    counted("flop", cost.matmul_flop + cost.elementwise_flop, "flop");
    counted("bytes_read", cost.bytes_read, "B");
    counted("bytes_written", cost.bytes_written, "B");
    record_->add(outcome_.run, rows);
  }

  void write_samples(const measure::InterleaveResult& result) {
    std::vector<record::Sample> rows;
    for (std::size_t i = 0; i < result.steps.size(); ++i) {
      add_samples(rows, static_cast<std::int64_t>(i), result.steps[i].times,
                  measure::name_of(result.steps[i].kind));
    }
    record_->add(outcome_.run, rows);
  }

  void write_uncertainty(const measure::InterleaveResult& result, const measure::ClockChange& clock) {
    sentence("stop_reason", result.stop_reason);
    if (result.others_share) record_->add(outcome_.run, others_fact(*result.others_share));
    const auto plain = result.step_seconds(StepKind::plain);
    const auto observed = result.step_seconds(StepKind::observed);
    if (plain.empty() || observed.empty()) return;
    sentence("drift", measure::drift_sentence(core::summarise(plain), clock));
    const double plain_s = core::median(plain);
    outcome_.step_s = plain_s;
    const double cost = core::median(observed) / plain_s - 1;
    fact("observer_cost", cost, "",
         fmt::format("observed steps take {:+.2f} % (medians of {} observed and {} plain steps, run in turn)",
                     100 * cost, observed.size(), plain.size()));
  }

  /// One more step of an engine that allocates as it goes, to see what.
  void write_allocations(engines::Engine& engine) {
    trace::MemoryRecorder memory(engine.program());
    engine.run(&memory);
    record_->add(outcome_.run, memory.events());
    fact("allocations", static_cast<double>(memory.allocations()), "", "per step");
    fact("allocator_peak_bytes", static_cast<double>(engine.peak_transient_bytes()), "B");
  }

  const Point* point_;
  const ProfileSettings* settings_;
  CeilingBook* ceilings_;
  record::Writer* record_;
  ProfileOutcome outcome_;
  bool has_ops_ = false;
};

}  // namespace

ProfileOutcome profile_point(const Point& point, const ProfileSettings& settings, CeilingBook& ceilings,
                             record::Writer& record) {
  return Profile(point, settings, ceilings, record).take();
}

}  // namespace rooflm::cli

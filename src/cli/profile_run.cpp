// One configuration taken apart: measured with and without an observer, priced, and written to a record.
#include "cli/profile_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "backends/cuda/peaks.h"
#include "cli/devices.h"
#include "cli/program_totals.h"
#include "cli/step_inputs.h"
#include "core/error.h"
#include "core/statistics.h"
#include "measure/counters.h"
#include "measure/drift.h"
#include "measure/machine.h"
#include "model/forward.h"
#include "perfmodel/roofline.h"
#include "trace/memory_recorder.h"
#include "trace/op_recorder.h"
#include "trace/program_rows.h"
#include "train/signals.h"

namespace rooflm::cli {
namespace {

using measure::StepKind;

/// Events are kept for this many observed steps at most before memory is taken for more.
constexpr std::size_t kExpectedSteps = 64;

record::Run run_row(const Point& point, const ProfileSettings& settings) {
  const model::ModelConfig& config = point.config;
  return {.label = describe(point),
          .model = config.name,
          .arch = std::string(model::name_of(config.arch)),
          .engine = std::string(engines::name_of(point.step.engine)),
          .attention = std::string(passes::name_of(point.step.attention)),
          .device = point.device,
          .dtype = std::string(engines::dtype_name(point.step)),
          .recompute = std::string(passes::name_of(point.step.recompute)),
          .batch = point.batch,
          .seq = point.seq,
          .vocab = config.padded_vocab,
          .layers = config.layers,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .d_model = config.d_model,
          .d_ff = config.d_ff,
          .params = model::parameter_count(config),
          .grad_accum = point.step.micro_batches,
          .threads = resolve_threads(settings.threads),
          .seed = static_cast<std::int64_t>(settings.seed),
          .warmup = settings.steps.warmup};
}

/// Capacity of each level for all threads together: caches of their own count once per core. Of a GPU the
/// second level, which all multiprocessors share.
std::map<std::string, double> cache_capacities(const std::string& device, int threads) {
  std::map<std::string, double> capacities;
  if (is_cuda(device)) return {{"L2", backends::cuda::l2_bytes(cuda_index(device))}};
  for (const measure::Cache& cache : measure::query_processor().caches) {
    if (cache.type == "Instruction") continue;
    const bool is_shared = cache.level >= 3;
    capacities[fmt::format("L{}", cache.level)] =
        static_cast<double>(cache.bytes) * (is_shared ? 1.0 : static_cast<double>(threads));
  }
  return capacities;
}

/// A run on its way into the record.
class Profile {
 public:
  Profile(const Point& point, const ProfileSettings& settings, record::Writer& record)
      : point_(&point), settings_(&settings), record_(&record) {
    outcome_.run = record.begin_run(run_row(point, settings));
  }

  ProfileOutcome take() {
    program::Program program =
        engines::training_step(model::forward(point_->config, point_->batch, point_->seq), point_->step);
    write_program(program);
    const auto backend = make_backend(point_->device, point_->step.engine, settings_->threads);
    const bool is_plan = point_->device == "null";
    const double free_bytes = is_plan ? planning_memory_bytes() : backend->free_bytes();
    fact("free_bytes", free_bytes, "B");
    if (is_plan) return outcome_.needed_bytes > free_bytes ? end_oom(outcome_.needed_bytes) : end("planned");
    try {
      measure(std::move(program), *backend);
    } catch (const core::OutOfMemory& error) {
      return end_oom(error.needed_bytes());
    } catch (const std::bad_alloc&) {
      return end_oom(outcome_.needed_bytes);
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

  ProfileOutcome end_oom(double needed_bytes) {
    outcome_.needed_bytes = std::max(needed_bytes, outcome_.needed_bytes);
    fact("needed_bytes", outcome_.needed_bytes, "B");
    return end("oom");
  }

  [[nodiscard]] bool has_arena() const { return point_->step.engine == engines::EngineKind::fused; }

  /// What a plan has to fit: the limit that was given, or the free memory of this machine.
  [[nodiscard]] double planning_memory_bytes() const {
    constexpr double kEndless = 1e300;
    if (settings_->memory_limit_bytes) return *settings_->memory_limit_bytes;
    const auto available = measure::query_memory().available_bytes;
    return available ? static_cast<double>(*available) : kEndless;
  }

  /// What is known before anything runs.
  void write_program(const program::Program& program) {
    const passes::MemoryPlan plan = passes::plan_memory(program);
    const engines::MemoryNeed need = engines::memory_need(program, point_->step.engine);
    const std::int64_t run = outcome_.run;
    outcome_.needed_bytes = static_cast<double>(need.total());
    record_->add(run, trace::op_rows(program, std::string(engines::name_of(point_->step.engine))));
    record_->add(run, trace::tensor_rows(program, plan, has_arena()));
    const auto machine = perfmodel::Machine::from_ceilings(
        settings_->ceilings, point_->device, resolve_threads(settings_->threads),
        cache_capacities(point_->device, resolve_threads(settings_->threads)));
    // Without ceilings nothing is predicted: a roof of no height would be a claim.
    if (!machine.levels.empty()) record_->add(run, perfmodel::predict_roofs(machine, program));
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
    const auto peak = machine.flop_per_s.find(std::string(engines::dtype_name(point_->step)));
    if (peak != machine.flop_per_s.end()) fact("peak_flop_per_s", peak->second, "flop/s");
    if (has_arena()) record_->add(run, trace::planned_memory_events(program, plan));
    record_->commit();
  }

  void measure(program::Program program, backends::Backend& backend) {
    measure::reset_peak_resident();
    const auto resident_before = measure::resident_bytes();
    engines::TensorStore store(backend);
    engines::Engine engine(std::move(program), point_->step.engine, store,
                           settings_->memory_limit_bytes.value_or(0));
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
      const engines::StepTimes& times = result.steps[i].times;
      const auto add = [&](const char* phase, double seconds) {
        rows.push_back({.step = static_cast<std::int64_t>(i),
                        .phase = phase,
                        .seconds = seconds,
                        .kind = measure::name_of(result.steps[i].kind)});
      };
      add("forward", times.forward_s);
      add("backward", times.backward_s);
      add("optimizer", times.optimizer_s);
      add("step", times.step_s);
    }
    record_->add(outcome_.run, rows);
  }

  void write_uncertainty(const measure::InterleaveResult& result, const measure::ClockChange& clock) {
    sentence("stop_reason", result.stop_reason);
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
  record::Writer* record_;
  ProfileOutcome outcome_;
};

}  // namespace

ProfileOutcome profile_point(const Point& point, const ProfileSettings& settings, record::Writer& record) {
  return Profile(point, settings, record).take();
}

}  // namespace rooflm::cli

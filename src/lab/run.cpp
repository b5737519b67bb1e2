// One run: built, checked against memory, measured, priced and recorded.
#include "lab/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "compile/planning.h"
#include "core/error.h"
#include "core/statistics.h"
#include "core/stop_signals.h"
#include "lab/allocations.h"
#include "lab/alone_steps.h"
#include "lab/block_graph.h"
#include "lab/ceilings/disk_rate.h"
#include "lab/ceilings/roofs.h"
#include "lab/counted_run.h"
#include "lab/device_watch.h"
#include "lab/devices.h"
#include "lab/expert_rows.h"
#include "lab/forward_alone.h"
#include "lab/host_counters.h"
#include "lab/kept_work.h"
#include "lab/memory_need.h"
#include "lab/notes.h"
#include "lab/op_moments.h"
#include "lab/rank_order.h"
#include "lab/rank_steps.h"
#include "lab/run_record.h"
#include "lab/step_inputs.h"
#include "lab/step_watch.h"
#include "lab/traced_steps.h"
#include "measure/bench_runner.h"
#include "measure/counters.h"
#include "measure/drift.h"
#include "measure/interleave.h"
#include "measure/machine.h"
#include "program/ops.h"
#include "trace/memory_recorder.h"
#include "trace/op_recorder.h"
#include "trace/program_rows.h"

namespace rooflm::lab {
namespace {

using measure::StepKind;

/// Events are kept for this many observed steps at most before memory is taken for more.
constexpr std::size_t kExpectedSteps = 64;
/// A run on its way into the record.
class Run {
 public:
  Run(const Point& point, const RunSettings& settings, CeilingBook& ceilings, record::Writer& record)
      : point_(&point),
        settings_(&settings),
        ceilings_(&ceilings),
        record_(&record),
        provider_(&backends::provider_of(point.device)),
        watch_(settings) {
    outcome_.run = record.begin_run(run_row(point));
    outcome_.limit_bytes = settings.memory_limit_bytes.value_or(std::numeric_limits<double>::infinity());
  }

  RunOutcome take() {
    try {
      return plan_and_measure();
    } catch (const core::Stopped& stopped) {
      outcome_.signal = stopped.signal;
    } catch (const engines::StepLeft&) {  // one that nothing is timed of
      outcome_.signal = core::StopSignals::received();
    }
    return end("interrupted");
  }

 private:
  RunOutcome plan_and_measure() {
    const program::Program program =
        compile::program_of(point_->phase, point_->config, point_->batch, point_->own_seq(), point_->step,
                            core::StopSignals::check);
    write_program(program);
    const auto backend = make_backend(*point_);
    if (!all_can(fits(program, *backend))) return end_oom(program, outcome_.needed_bytes);
    if (!provider_->runs()) {
      write_ops(program, {});
      return end("planned");
    }
    try {
      measure(program, *backend);
    } catch (const core::OutOfMemory& error) {
      if (settings_->ranks) throw;  // the others wait for this one, and have to be told
      return end_oom(program, error.needed_bytes());
    } catch (const std::bad_alloc&) {
      if (settings_->ranks) throw;
      return end_oom(program, outcome_.needed_bytes);
    }
    return outcome_;
  }

  void fact(const std::string& key, double value, const std::string& unit, const std::string& text = "") {
    record_->add(outcome_.run, record::Fact{.key = key, .value = value, .unit = unit, .text = text});
  }
  void sentence(const std::string& key, const std::string& text) {
    if (text.empty()) return;
    record_->add(outcome_.run, record::Fact{.key = key, .value = {}, .unit = {}, .text = text});
  }

  RunOutcome end(const std::string& status) {
    outcome_.status = status;
    outcome_.steps = steps_run_;
    record_->end_run(outcome_.run, status);
    record_->commit();
    return outcome_;
  }

  RunOutcome end_oom(const program::Program& program, double needed_bytes) {
    write_ops(program, {});
    outcome_.needed_bytes = std::max(needed_bytes, outcome_.needed_bytes);
    fact("needed_bytes", outcome_.needed_bytes, "B");
    const auto forward = time_forward_alone(*point_, *settings_);
    if (!forward.empty()) {
      record_->add(outcome_.run, forward);
      sentence("forward_alone", "the forward pass alone fits: timed with nothing kept for a backward pass");
    }
    return end("oom");
  }

  [[nodiscard]] bool has_arena() const { return point_->step.engine == compile::EngineKind::fused; }

  /// Asked before anything large is allocated: a system that promises more than it has ends the process
  /// instead. A plan has to fit the memory of its device; one for this machine has the user's limit alone.
  bool fits(const program::Program& program, const backends::Backend& backend) {
    outcome_.free_bytes = backend.free_bytes();
    if (std::isfinite(outcome_.free_bytes)) fact("free_bytes", outcome_.free_bytes, "B");
    const MemoryNeed need = memory_need(program, outcome_.needed_bytes, *provider_, backend);
    outcome_.workspace_bytes = need.workspace_bytes;
    return need.fits(outcome_.limit_bytes, outcome_.free_bytes);
  }

  /// Where one rank does not fit, or cannot, none begins.
  [[nodiscard]] bool all_can(bool can) const {
    return settings_->ranks == nullptr ? can : ranks::most(*settings_->ranks, can ? 0 : 1) == 0;
  }

  /// What is known before anything runs.
  void write_program(const program::Program& program) {
    for (const record::Fact& known : step_facts(*point_, program)) {
      if (known.key == "needed_bytes") outcome_.needed_bytes = known.value.value_or(0);
      record_->add(outcome_.run, known);
    }
    fact("max_steps", settings_->max_steps, "");
    if (settings_->observe) {
      write_tensors(program);
      record_->add(outcome_.run, model_fact(program, model::block_sources(point_->config)));
    }
    record_->commit();
  }

  /// The ops, with what runs them where that is known, once.
  void write_ops(const program::Program& program, std::span<const backends::KernelInfo> kernels) {
    if (has_ops_ || !settings_->observe) return;
    has_ops_ = true;
    record_->add(outcome_.run, trace::op_rows(program, kernels));
    write_unknown_launches(program, kernels);
  }

  /// Rows of ops have a number of launches in any case: of these it is a guess.
  void write_unknown_launches(const program::Program& program,
                              std::span<const backends::KernelInfo> kernels) {
    std::vector<std::size_t> unknown;
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      if (program.ops[i].phase != program::Phase::setup && !kernels[i].launches) unknown.push_back(i);
    }
    if (unknown.empty()) return;
    fact("unknown_launches", static_cast<double>(unknown.size()), "ops",
         fmt::format("{}", fmt::join(unknown, ",")));
  }

  void write_tensors(const program::Program& program) {
    const passes::MemoryPlan plan = passes::plan_memory(program);
    const std::int64_t run = outcome_.run;
    record_->add(run, trace::tensor_rows(program, plan, has_arena()));
    // The eager engine allocates tensor by tensor: what its allocator counts is written after the steps.
    if (!has_arena()) return;
    fact("arena_bytes", static_cast<double>(plan.arena_bytes), "B");
    fact("live_bytes_peak", static_cast<double>(plan.peak_live_bytes), "B");
    if (plan.arena_bytes > 0) {
      fact("fragmentation",
           1 - static_cast<double>(plan.peak_live_bytes) / static_cast<double>(plan.arena_bytes), "share",
           "of the arena");
    }
    record_->add(run, trace::planned_memory_events(program, plan));
  }

  /// The rate that MFU divides by, and the ceilings that roofs need.
  void find_ceilings() {
    const bool is_first = ranks::is_first(settings_->ranks);
    if ((!settings_->measure_peak && !settings_->observe) || !is_first) return;
    const std::size_t known = ceilings_->rows().size();
    const bool wants_all = settings_->observe || is_generation(point_->phase);  // memory binds decoding
    ceilings_->measure({point_, 1}, wants_all ? CeilingBook::Wanted::all : CeilingBook::Wanted::products);
    for (std::size_t i = known; i < ceilings_->rows().size(); ++i) record_->add(ceilings_->rows()[i]);
    ceilings_->priced().push_back({.run = outcome_.run, .point = *point_, .has_roofs = false});
    write_peak(*record_, ceilings_->priced().back(), *ceilings_);
  }

  /// Roofs are lower bounds: ceilings that the measured times beat were measured in a worse moment than the
  /// steps, and are measured again beside them.
  void write_roofs(const program::Program& program, const MeasuredTimes& measured) {
    constexpr int kAttempts = 2;
    auto machine = machine_of(ceilings_->rows(), point_->device, point_->threads);
    // Without ceilings nothing is predicted: a roof of no height would be a claim.
    if (machine.levels.empty()) return;
    auto roofs = perfmodel::predict_roofs(machine, program);
    bool has_changed = false;
    for (int i = 0; i < kAttempts && provider_->is_host(); ++i) {
      const auto bounds = beaten_bounds(roofs, measured);
      if (bounds.empty() || core::StopSignals::received() != 0) break;
      note("  measured times beat the ceilings of {}", fmt::join(bounds, ", "));
      std::vector<record::Ceiling> changed;
      try {
        changed = ceilings_->raise(*point_, bounds);
      } catch (const core::Stopped&) {  // the steps were measured: only the ceilings stay as they are
        break;
      }
      if (changed.empty()) break;
      has_changed = true;
      for (const record::Ceiling& ceiling : changed) record_->replace(ceiling);
      machine = machine_of(ceilings_->rows(), point_->device, point_->threads);
      roofs = perfmodel::predict_roofs(machine, program);
    }
    record_->add(outcome_.run, roofs);
    if (!ceilings_->priced().empty()) ceilings_->priced().back().has_roofs = true;
    if (has_changed) price_again(*record_, *ceilings_);
  }

  void measure(program::Program program, backends::Backend& backend) {
    find_ceilings();
    join_backend(backend, *point_, settings_->ranks);
    measure::reset_peak_resident();
    const auto resident_before = measure::resident_bytes();
    engines::TensorStore store(backend);
    engines::Engine engine(std::move(program), point_->step.engine, store,
                           settings_->memory_limit_bytes.value_or(0));
    write_ops(engine.program(), engine.kernels());
    if (is_generation(point_->phase)) {
      write_kept_work(*record_, outcome_.run, std::string(name_of(point_->phase)), engine.program(),
                      machine_of(ceilings_->rows(), point_->device, point_->threads));
    }
    engine.set_check([this] { return watch_.goes_on(); });
    StepInputs inputs(engine, *point_, point_->seed, settings_->shards);
    meet();
    choose_order(engine, *point_, settings_->ranks, outcome_.run, *record_, [&](int step) {
      if (const int signal = watch_.asked_to_stop(step); signal != 0) throw core::Stopped{signal};
      inputs.write(step);
    });
    DeviceWatch watch(point_->device, record_->epoch());
    const bool interrupted =
        settings_->observe ? take_apart(engine, backend, inputs, watch) : time_steps(engine, inputs, watch);
    watch.write_samples(*record_, outcome_.run);
    for (const record::Fact& known : watch.facts(static_cast<double>(point_->tokens()))) {
      record_->add(outcome_.run, known);
    }
    write_memory(engine, store, resident_before);
    write_kernels(engine, backend);
    if (!settings_->shards.empty()) write_input(inputs);
    if (settings_->observe && !interrupted) look_closer(engine, backend, inputs);
    // Last: a profiler that was attached stays, and steps after it are no plain ones. Counters after that:
    // some are read by instrumented kernels.
    TracedRun traced{.next_step = steps_run_};
    if (settings_->trace && !interrupted && is_traceable(*point_)) {
      traced = trace_steps(engine, inputs, *point_, outcome_.run, steps_run_, *record_, outcome_.step_s,
                           settings_->ranks);
    }
    if (traces_ranks())
      write_collectives(engine, traced.observed,
                        {.origin_ns = nanoseconds_of(record_->epoch()), .has_first = true});
    steps_run_ = traced.next_step;
    if (settings_->count && !interrupted && is_traceable(*point_)) {
      count_run(engine, inputs, *point_, outcome_.run, traced, *record_);
    }
    end(interrupted ? "interrupted" : "success");
  }

  /// As StepWatch::end. Throws core::Stopped where there is nothing to go on with.
  bool end_steps(bool has_any, std::string& reason) {
    if (!watch_.end(reason)) return false;
    outcome_.signal = watch_.signal();
    if (has_any && (!watch_.is_left() || settings_->ranks == nullptr)) return true;
    sentence("stop_reason", reason);
    throw core::Stopped{outcome_.signal};
  }

  /// After what takes ranks unequal times: the first measures ceilings and writes, another may have had more
  /// to search.
  void meet() const {
    if (settings_->ranks == nullptr) return;
    const ranks::Patience patience(settings_->ranks.get());
    ranks::meet(*settings_->ranks);
  }

  void write_exposed(const std::vector<engines::StepTimes>& steps) {
    if (const auto exposed = exposed_fact(*point_, steps)) record_->add(outcome_.run, *exposed);
  }

  /// Whether what ranks did is taken from traced steps, in which collectives run beside computation, and not
  /// from observed ones, in which a GPU runs one op after the other.
  [[nodiscard]] bool traces_ranks() const {
    return settings_->ranks != nullptr && settings_->trace && is_traceable(*point_);
  }

  void write_collectives(const engines::Engine& engine, const ObservedSteps& observed, RankSteps where) {
    if (observed.steps.empty()) return;
    where.run = outcome_.run;
    share_ranks(*settings_->ranks, point_->step.sharding.mesh(), engine, observed, where, point_->device,
                *record_);
  }

  /// Plain steps alone. Whether it was told to stop; throws core::Stopped if that was before the first step.
  bool time_steps(engines::Engine& engine, StepInputs& inputs, DeviceWatch& watch) {
    const measure::BenchOptions options{.warmup = point_->warmup,
                                        .steps = settings_->max_steps,
                                        .precision = settings_->precision,
                                        .max_seconds = settings_->max_seconds};
    const ExpertReader experts(engine, settings_->max_steps);
    std::vector<record::ExpertRows> expert_rows;
    measure::BenchResult result = measure::run_bench(engine, options, [&](int step) {
      if (watch_.asked_to_stop(step) != 0) return false;
      if (step > point_->warmup) experts.read(step - point_->warmup - 1, expert_rows);
      inputs.write(step);
      if (step >= point_->warmup) watch.begin();
      return true;
    });
    const bool is_interrupted = end_steps(!result.samples.empty(), result.stop_reason);
    watch.end(static_cast<std::int64_t>(result.samples.size()));
    resident_peak_ = measure::peak_resident_bytes();
    if (!provider_->is_host()) result.clock = {};
    std::vector<record::Sample> rows;
    for (std::size_t i = 0; i < result.samples.size(); ++i) {
      add_samples(rows, static_cast<std::int64_t>(i), result.samples[i], measure::name_of(StepKind::plain));
    }
    if (!is_interrupted) experts.read(static_cast<std::int64_t>(result.samples.size()) - 1, expert_rows);
    record_->add(outcome_.run, rows);
    record_->add(outcome_.run, expert_rows);
    write_exposed(result.samples);
    write_uncertainty(result.stop_reason, result.others_share, result.step, result.clock);
    outcome_.step_s = result.step.median;
    return is_interrupted;
  }

  /// Plain and observed steps in turn.
  bool take_apart(engines::Engine& engine, backends::Backend& backend, StepInputs& inputs,
                  DeviceWatch& watch) {
    const measure::InterleaveOptions options{.warmup = point_->warmup,
                                             .precision = settings_->precision,
                                             .min_steps = settings_->min_steps,
                                             .max_steps = settings_->max_steps,
                                             .max_seconds = settings_->max_seconds};
    trace::OpRecorder recorder(engine.program(), backend, kExpectedSteps);
    const ExpertReader experts(engine, std::int64_t{2} * settings_->max_steps);
    std::vector<record::ExpertRows> expert_rows;
    const auto clock_before = host_clock();
    auto result = measure::run_interleaved(engine, recorder, options, [&](int step, StepKind kind) {
      if (watch_.asked_to_stop(step) != 0) return false;
      if (step > 0) experts.read(step - 1, expert_rows);
      inputs.write(step);
      recorder.set_step(step);
      if (kind != StepKind::warmup) watch.begin();
      return true;
    });
    const bool is_interrupted = end_steps(true, result.stop_reason);
    recorder.forget_from(std::ssize(result.steps));
    watch.end(std::ranges::count_if(
        result.steps, [](const measure::TimedStep& step) { return step.kind != StepKind::warmup; }));
    std::vector<record::Sample> rows;
    for (std::size_t i = 0; i < result.steps.size(); ++i) {
      add_samples(rows, static_cast<std::int64_t>(i), result.steps[i].times,
                  measure::name_of(result.steps[i].kind));
    }
    write_exposed(result.times_of(StepKind::plain));
    steps_run_ = static_cast<std::int64_t>(result.steps.size());
    if (!is_interrupted && !result.steps.empty())
      experts.read(static_cast<std::int64_t>(result.steps.size()) - 1, expert_rows);
    record_->add(outcome_.run, rows);
    record_->add(outcome_.run, expert_rows);
    record_->add(outcome_.run, recorder.events());
    if (settings_->ranks != nullptr && !traces_ranks())
      write_collectives(engine, observed_steps(recorder, result), {.origin_ns = recorder.origin_ns()});
    resident_peak_ = measure::peak_resident_bytes();  // before ceilings are measured again
    write_roofs(engine.program(), measured_times(recorder.events(), result));
    const std::vector<double> plain_s = result.step_seconds(StepKind::plain);  // none when stopped at once
    const core::Summary plain = plain_s.empty() ? core::Summary{} : core::summarise(plain_s);
    write_uncertainty(result.stop_reason, result.others_share, plain,
                      {.before_hz = clock_before, .after_hz = host_clock()});
    write_observer_cost(plain, result.step_seconds(StepKind::observed));
    meet();
    return is_interrupted;
  }

  [[nodiscard]] std::optional<double> host_clock() const {
    return provider_->is_host() ? measure::clock_hz() : std::nullopt;
  }

  void write_uncertainty(const std::string& stop_reason, std::optional<double> others_share,
                         const core::Summary& plain, const measure::ClockChange& clock) {
    sentence("stop_reason", stop_reason);
    // The other ranks of a job are no strangers, and are not told from them.
    if (others_share && settings_->ranks == nullptr) record_->add(outcome_.run, others_fact(*others_share));
    if (plain.count == 0) return;
    sentence("drift", measure::drift_sentence(plain, clock));
  }

  void write_observer_cost(const core::Summary& plain, const std::vector<double>& observed) {
    if (plain.count == 0) return;
    outcome_.step_s = plain.median;
    if (observed.empty()) return;
    const double cost = core::median(observed) / plain.median - 1;
    fact("observer_cost", cost, "",
         fmt::format(
             "observing changes a step by {:+.2f} % (medians of {} observed and {} plain steps, run in turn)",
             100 * cost, observed.size(), plain.count));
  }

  void write_memory(engines::Engine& engine, const engines::TensorStore& store,
                    std::optional<std::int64_t> resident_before) {
    const auto peak_bytes =
        static_cast<double>(store.bytes() + engine.io().bytes() + engine.peak_transient_bytes() +
                            store.backend().workspace_bytes());
    fact("peak_bytes", peak_bytes, "B", "tensors, inputs and kernel workspaces");
    if (provider_->is_host() && resident_before && resident_peak_) {
      fact("rss_increase_bytes", static_cast<double>(*resident_peak_ - *resident_before), "B");
    }
    if (outcome_.step_s > 0 && !is_generation(point_->phase) && !watch_.is_left())
      fact("loss", loss_of(engine), "nats");
  }

  /// The last rank of every split has it.
  double loss_of(engines::Engine& engine) const {
    const bool is_here = engine.program().find("loss") != program::kNone;
    const double own = is_here ? engine.io().read<float>("loss").at(0) : 0;
    const Ranks& ranks = settings_->ranks;
    return ranks == nullptr ? own : ranks::from_rank(*ranks, ranks->size() - 1, own);
  }

  /// Which kernels a choice among several fell on.
  void write_kernels(const engines::Engine& engine, const backends::Backend& backend) {
    sentence("attention_forward", engine.library_of(program::ops::kFlashAttention));
    sentence("attention_backward", engine.library_of(program::ops::kFlashAttentionBackward));
    if (const auto searched = gemm_fact(provider_->gemm_choices(backend))) {
      record_->add(outcome_.run, *searched);
    }
  }

  /// Waiting for text, and how fast the disk would give it.
  void write_input(const StepInputs& inputs) {
    fact("loader_wait_s", inputs.loader_wait_s(), "s");
    if (!settings_->observe) return;
    for (const record::Fact& known : disk_facts(settings_->shards, point_->tokens()))
      record_->add(outcome_.run, known);
  }

  void look_closer(engines::Engine& engine, backends::Backend& backend, StepInputs& inputs) {
    if (!has_arena()) {
      inputs.write(0);
      write_allocations(engine, backend, outcome_.run, *record_);
    }
    if (!provider_->is_host() && settings_->ranks == nullptr)
      steps_run_ = time_alone(engine, backend, inputs, outcome_.step_s, outcome_.run, steps_run_, *record_);
    if (!provider_->is_host()) return;
    measure::Counters counters;  // where there are none the command says why, once
    if (all_can(counters.is_available())) record_->add(outcome_.run, count_steps(counters, engine, inputs));
  }

  const Point* point_;
  const RunSettings* settings_;
  CeilingBook* ceilings_;
  record::Writer* record_;
  const backends::Provider* provider_;
  RunOutcome outcome_;
  std::int64_t steps_run_ = 0;                 ///< warm-up, plain and observed ones
  std::optional<std::int64_t> resident_peak_;  ///< when the steps had run
  bool has_ops_ = false;
  StepWatch watch_;
};

}  // namespace

RunOutcome run_point(const Point& point, const RunSettings& settings, CeilingBook& ceilings,
                     record::Writer& record) {
  return Run(point, settings, ceilings, record).take();
}

}  // namespace rooflm::lab

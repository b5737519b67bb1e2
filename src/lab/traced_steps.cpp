// A few steps under a profiler of the device, kernel by kernel.
#include "lab/traced_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/registry.h"
#include "core/error.h"
#include "core/statistics.h"
#include "core/stop_signals.h"
#include "core/units.h"
#include "devices/device.h"
#include "lab/notes.h"
#include "lab/run_record.h"
#include "ranks/transport.h"
#include "trace/activity_tracer.h"
#include "trace/op_spans.h"
#include "trace/step_trace.h"

namespace rooflm::lab {
namespace {

/// Steps whose activities are kept, and of those in which nothing runs beside anything else.
constexpr int kKept = 4;
constexpr int kKeptInOrder = 2;
/// Steps of which the copies of their inputs are traced, too.
constexpr int kKeptWithInputs = 2;
/// Of several ranks, which do not stop when one of them is asked to, nor by their own clocks.
constexpr int kPairsOfRanks = 3;
/// Steps with the profiler attached that take so much longer than plain ones are not the step that runs.
constexpr double kOtherStep = 1.15;
/// Pairs of a traced and an untraced step, from which the cost of tracing comes: as many as this time allows.
constexpr int kMostPairs = 20;
constexpr double kPairSeconds = 2;

double device_s(const engines::StepTimes& times) {
  return times.forward_s + times.backward_s + times.optimizer_s;
}

/// Runs the steps, traced and not, and collects what came of them.
class StepTracer {
 public:
  StepTracer(engines::Engine& engine, StepInputs& inputs, trace::ActivityTracer& tracer,
             std::int64_t first_step, double plain_step_s, bool has_others)
      : has_others_(has_others),
        plain_step_s_(plain_step_s),
        engine_(&engine),
        inputs_(&inputs),
        tracer_(&tracer),
        first_step_(first_step),
        next_step_(first_step) {
    fill(plain_nodes_, engine.recording(false));
    fill(ordered_nodes_, engine.recording(true));
  }

  /// Everything. A signal ends it early: what was kept until then is whole steps.
  void run() {
    warm_up();
    if (go_on()) {
      traced({.kind = "allocations", .keep = true, .with_memory = true}, plain_nodes_,
             [&] { return run_step(); });
    }
    // One after the other: a replay that is not traced writes its times over those of the traced one before
    // it, which CUPTI fetches when it collects.
    for (int i = 0; i < kKept && go_on(); ++i) {
      const std::int64_t step = next_step_;
      const double step_s =
          traced({.kind = "traced", .keep = true}, plain_nodes_, [&] { return run_step(); }).step_s;
      as_untraced_.push_back({step, step_s});
    }
    for (int i = 0; i < kKeptWithInputs && go_on(); ++i)
      traced({.kind = "inputs", .keep = true, .with_inputs = true}, plain_nodes_, [&] { return run_step(); });
    if (engine_->recording(true) != nullptr) {
      for (int i = 0; i < kKeptInOrder && go_on(); ++i) in_order();
    }
    collect();
    warm_up();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < (has_others_ ? kPairsOfRanks : kMostPairs) && go_on(); ++i) {
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      if (!has_others_ && elapsed.count() > kPairSeconds) break;
      pair(i);
    }
    lost_ += tracer_->take().dropped;
  }

  /// Takes what was traced so far, also when a step failed.
  void collect() {
    trace_ = tracer_->take();
    lost_ = trace_.dropped;
  }

  [[nodiscard]] const trace::DeviceTrace& trace() const { return trace_; }
  [[nodiscard]] std::span<const trace::TracedStep> steps() const { return steps_; }
  [[nodiscard]] const std::vector<record::Sample>& samples() const { return samples_; }
  /// Of those the ones that ran as they do untraced.
  [[nodiscard]] const std::vector<ObservedStep>& as_untraced() const { return as_untraced_; }
  [[nodiscard]] std::int64_t lost() const { return lost_; }
  /// Steps that have run.
  [[nodiscard]] std::int64_t count() const { return next_step_ - first_step_; }

  /// What tracing costs, by pairs; nothing when there are none.
  [[nodiscard]] std::optional<record::Fact> cost() const {
    if (wall_ratios_.empty()) return std::nullopt;
    const double wall = core::median(wall_ratios_) - 1;
    const double on_device = core::median(device_ratios_) - 1;
    constexpr double kPercent = 100;
    return record::Fact{
        .key = "tracing_cost",
        .value = wall,
        .unit = "share",
        .text =
            fmt::format("traced steps take {:+.2f} %, {:+.2f} % on the device (medians of {} pairs of a "
                        "traced and an untraced step, run in turn{}){}",
                        kPercent * wall, kPercent * on_device, wall_ratios_.size(), submission(), slowed())};
  }

  /// Whether steps that are not traced take longer now that the profiler is attached; "" where they do not.
  [[nodiscard]] std::string slowed() const {
    const double attached_s = core::median(untraced_s_);
    if (plain_step_s_ <= 0 || attached_s < kOtherStep * plain_step_s_) return {};
    return fmt::format(
        ". With the profiler attached a step takes {}, {:.1f} times as long as before ({}): traced times are "
        "not those of the step",
        core::format_seconds(attached_s), attached_s / plain_step_s_, core::format_seconds(plain_step_s_));
  }

 private:
  void fill(trace::NodeOps& nodes, const backends::Recording* recording) const {
    if (recording == nullptr) return;
    for (const backends::NodeOp& node : recording->nodes()) {
      if (const auto id = tracer_->node_id(node.node)) nodes.add(*id, node.op, node.part);
    }
  }

  /// What a held device did not wait for.
  [[nodiscard]] std::string submission() const {
    if (!are_held_ || traced_submit_s_.empty()) return {};
    constexpr double kMs = 1e3;
    return fmt::format(
        "; the device starts when a step is submitted, which takes the host {:.2f} ms, {:.2f} ms untraced",
        kMs * core::median(traced_submit_s_), kMs * core::median(untraced_submit_s_));
  }

  [[nodiscard]] bool go_on() const { return has_others_ || core::StopSignals::received() == 0; }

  /// Runs a step as it runs without observers; of an engine that submits op by op, watching when.
  engines::StepTimes run_step() {
    if (engine_->recording(false) != nullptr) return engine_->run({}, engines::Start::when_submitted);
    return engine_->run(&spans_);
  }

  engines::StepTimes untraced() {
    inputs_->write(static_cast<int>(next_step_));
    const engines::StepTimes times = run_step();
    static_cast<void>(spans_.take());
    add_samples(samples_, next_step_++, times, "untraced");
    return times;
  }

  /// Of what kind a step is as a sample (nullptr: none), and what is kept and traced of it.
  struct How {
    const char* kind = nullptr;
    bool keep = false, with_memory = false;
    bool with_inputs = false;  ///< the step begins with the copies of its inputs
  };

  template <class Run>
  engines::StepTimes traced(const How& how, const trace::NodeOps& nodes, const Run& run) {
    if (!how.with_inputs) inputs_->write(static_cast<int>(next_step_));
    tracer_->start(how.with_memory);
    const std::int64_t asked_ns = trace::steady_ns();
    if (how.with_inputs) inputs_->write(static_cast<int>(next_step_));
    const engines::StepTimes times = run();
    tracer_->stop();
    trace::TracedStep step{.step = next_step_,
                           .begin_ns = times.begin_ns,
                           .end_ns = times.begin_ns + std::llround(core::kGiga * times.step_s),
                           .asked_ns = asked_ns};
    if (how.with_inputs) step.begin_ns = asked_ns;
    step.ops = spans_.take();
    if (step.ops.empty()) step.nodes = &nodes;
    if (how.keep) steps_.push_back(std::move(step));
    if (how.kind != nullptr) add_samples(samples_, next_step_++, times, how.kind);
    return times;
  }

  /// The first step after collecting is slower, and no sample: the profiler takes memory of the device
  /// anew.
  void warm_up() {
    traced({}, plain_nodes_, [&] { return run_step(); });
  }

  void pair(int number) {
    const auto with = [&] { return traced({.kind = "traced"}, plain_nodes_, [&] { return run_step(); }); };
    engines::StepTimes traced_times;
    engines::StepTimes plain_times;
    if (number % 2 == 0) {
      traced_times = with();
      plain_times = untraced();
    } else {
      plain_times = untraced();
      traced_times = with();
    }
    are_held_ = traced_times.was_held && plain_times.was_held;
    traced_submit_s_.push_back(traced_times.submit_s);
    untraced_submit_s_.push_back(plain_times.submit_s);
    untraced_s_.push_back(plain_times.step_s);
    if (plain_times.step_s > 0) wall_ratios_.push_back(traced_times.step_s / plain_times.step_s);
    if (device_s(plain_times) > 0) device_ratios_.push_back(device_s(traced_times) / device_s(plain_times));
  }

  void in_order() {
    traced({.kind = "in_order", .keep = true}, ordered_nodes_,
           [&] { return engine_->run(&in_order_, engines::Start::when_submitted); });
  }

  bool has_others_;
  double plain_step_s_;
  engines::Engine* engine_;
  StepInputs* inputs_;
  trace::ActivityTracer* tracer_;
  std::int64_t first_step_, next_step_;
  trace::NodeOps plain_nodes_, ordered_nodes_;
  trace::OpSpans spans_;
  trace::InOrder in_order_;
  std::vector<trace::TracedStep> steps_;
  std::vector<ObservedStep> as_untraced_;
  trace::DeviceTrace trace_;
  std::vector<record::Sample> samples_;
  std::vector<double> wall_ratios_, device_ratios_;
  std::vector<double> traced_submit_s_, untraced_submit_s_, untraced_s_;
  bool are_held_ = false;
  std::int64_t lost_ = 0;
};

/// Fills in kernel_of_op of the last step, which is one in order where there is any, and `observed`.
void write(const StepTracer& steps, const std::string& version, const program::Program& program,
           const Point& point, std::int64_t run, record::Writer& record, TracedRun& traced) {
  const auto epoch_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(record.epoch().time_since_epoch()).count();
  const std::string device = point.device.substr(0, point.device.find(':'));
  const trace::TraceRows rows = trace::rows_of(steps.trace(), steps.steps(), epoch_ns, device);
  record.add(run, steps.samples());
  record.add(run, rows.lanes);
  record.add(run, rows.names);
  record.add(run, rows.activities);
  const auto fact = [&](const char* key, double value, const char* unit, std::string text = "") {
    record.add(run, record::Fact{.key = key, .value = value, .unit = unit, .text = std::move(text)});
  };
  if (const auto cost = steps.cost()) record.add(run, *cost);
  fact("traced_kernels", static_cast<double>(rows.kernels), "", version);
  fact("trace_lost", static_cast<double>(steps.lost()), "records");
  fact("trace_without_op", static_cast<double>(rows.without_op), "kernels");
  if (!steps.trace().devices.empty()) {
    fact("multiprocessors", static_cast<double>(steps.trace().devices.front().multiprocessors), "");
  }
  if (steps.lost() > 0) note("  tracing: {} records were lost because no buffer was free", steps.lost());
  if (rows.without_op > 0) {
    note("  tracing: {} of {} kernels belong to no known op", rows.without_op, rows.kernels);
  }
  if (steps.steps().empty()) return;
  traced.kernel_of_op = trace::kernels_alone(rows, steps.steps().back().step);
  traced.observed = {.steps = steps.as_untraced(),
                     .moments = moments_of(rows, epoch_ns, program, steps.as_untraced())};
}

/// Where one rank has no tracer, none traces: each step is of all.
std::unique_ptr<trace::ActivityTracer> open_for_all(const Ranks& ranks, const trace::OpenTracer& open) {
  if (ranks == nullptr) return open();
  try {
    std::unique_ptr<trace::ActivityTracer> tracer = open();
    if (ranks::most(*ranks, 0) == 0) return tracer;
  } catch (const ranks::RankLost&) {
    throw;
  } catch (const core::Unavailable&) {
    ranks::most(*ranks, 1);
    throw;
  }
  throw core::Unavailable("another rank cannot trace");
}

}  // namespace

bool is_traceable(const Point& point) {
  const backends::Provider& provider = backends::provider_of(point.device);
  return provider.runs() && provider.describe(point.device).kind == devices::Kind::gpu;
}

TracedRun trace_steps(engines::Engine& engine, StepInputs& inputs, const Point& point, std::int64_t run,
                      std::int64_t first_step, record::Writer& record, double plain_step_s,
                      const Ranks& ranks, const trace::OpenTracer& open) {
  TracedRun traced{.next_step = first_step};
  const auto say = [&](const char* what, const core::Unavailable& error) {
    const std::string text = fmt::format("{}: {}", what, error.what());
    note("  {}", text);
    record.add(run, record::Fact{.key = "tracing", .value = {}, .unit = {}, .text = text});
  };
  bool is_of_all = false;  // from here on each step is one of all ranks: none leaves alone
  try {
    const std::unique_ptr<trace::ActivityTracer> tracer = open_for_all(ranks, open);
    is_of_all = ranks != nullptr;
    engine.run();  // what is replayed must have been recorded
    StepTracer steps(engine, inputs, *tracer, first_step, plain_step_s, ranks != nullptr);
    try {
      steps.run();
    } catch (const core::Unavailable& error) {
      if (is_of_all || steps.steps().empty()) throw;
      say("tracing ended early", error);
      if (steps.trace().activities.empty()) steps.collect();
    }
    write(steps, tracer->version(), engine.program(), point, run, record, traced);
    traced.next_step = first_step + steps.count();
  } catch (const ranks::RankLost&) {
    throw;
  } catch (const core::Unavailable& error) {
    if (is_of_all) throw;
    say("not traced", error);
  }
  return traced;
}

}  // namespace rooflm::lab

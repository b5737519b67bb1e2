// The simulated step of a plan as runs of a record.
#include "lab/plan_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/units.h"
#include "perfmodel/role.h"
#include "trace/program_rows.h"

namespace rooflm::lab {
namespace {

using perfmodel::Plan;
using perfmodel::PlanPoint;
using perfmodel::Setting;

constexpr int kMostMicroBatches = 2;
constexpr int kMostStages = 16;

std::int64_t nanoseconds(double seconds) { return std::llround(seconds * core::kGiga); }

/// Lanes, names and activities of one run, all in its step 0.
class ActivityRows {
 public:
  std::int64_t lane_of(const std::string& kind, const std::string& device, const std::string& name) {
    const auto [entry, is_new] = known_lanes_.try_emplace({kind, device, name}, lanes_.size());
    if (is_new) lanes_.push_back({.lane = entry->second, .kind = kind, .device = device, .name = name});
    return entry->second;
  }
  record::Activity& add(std::int64_t lane, const std::string& kind, const std::string& text, double start_s,
                        double end_s) {
    const auto [entry, is_new] = known_names_.try_emplace({kind, text}, names_.size());
    if (is_new) names_.push_back({.name = entry->second, .kind = kind, .text = text});
    activities_.push_back({.id = static_cast<std::int64_t>(activities_.size()),
                           .name = entry->second,
                           .lane = lane,
                           .start_ns = nanoseconds(start_s),
                           .end_ns = nanoseconds(end_s),
                           .step = 0});
    return activities_.back();
  }
  void write(record::Writer& writer, std::int64_t run) const {
    writer.add(run, lanes_);
    writer.add(run, names_);
    writer.add(run, activities_);
  }

 private:
  std::map<std::tuple<std::string, std::string, std::string>, std::int64_t> known_lanes_;
  std::map<std::pair<std::string, std::string>, std::int64_t> known_names_;
  std::vector<record::Lane> lanes_;
  std::vector<record::ActivityName> names_;
  std::vector<record::Activity> activities_;
};

record::Run run_of(const PlanPoint& point, const Setting& setting, const std::string& ranks) {
  const compile::Sharding& sharding = point.step.sharding;
  record::Run run{.label = ranks, .kind = record::kPlanKind, .status = "planned"};
  record::Config& config = run.config;
  config.set("model", point.config.name);
  config.set("device", setting.device.key);
  config.set("dtype", std::string(compile::dtype_name(point.step)));
  config.set("recompute", std::string(passes::name_of(point.step.recompute)));
  config.set("batch", point.micro_batch);
  config.set("seq", point.seq);
  config.set("arch", model::name_of(point.config.arch));
  config.set("vocab", point.config.padded_vocab);
  config.set("layers", point.config.layers);
  config.set("heads", point.config.heads);
  config.set("kv_heads", point.config.kv_heads);
  config.set("d_model", point.config.d_model);
  config.set("d_ff", point.config.d_ff);
  config.set("params", model::parameter_count(point.config));
  config.set("padding", model::padding_count(point.config));
  config.set("grad_accum", point.micro_batches);
  config.set("dp", std::int64_t{sharding.data});
  config.set("zero", std::int64_t{sharding.zero});
  config.set("cp", std::int64_t{sharding.context});
  if (sharding.expert > 1) config.set("ep", std::int64_t{sharding.expert});
  config.set("tp", std::int64_t{sharding.tensor});
  config.set("pp", std::int64_t{sharding.pipeline});
  config.set("interleave", std::int64_t{sharding.interleave});
  config.set("framework", setting.framework.name);
  return run;
}

void add_note(record::Writer& writer, std::int64_t run, std::string text) {
  writer.add(run, record::Fact{.key = record::kTimelineNote, .text = std::move(text)});
}

/// A lane per stage: its passes, the bubbles between them, and what follows them.
class PipelineRun {
 public:
  PipelineRun(const PlanPoint& point, const Setting& setting, const Plan& plan)
      : point_(&point), setting_(&setting), plan_(&plan), stages_(point.step.sharding.pipeline) {
    for (int stage = 0; stage < stages_; ++stage) times_.push_back(times_of(stage));
    const compile::Sharding& sharding = point.step.sharding;
    perfmodel::pipeline_times(times_, point.micro_batches, sharding.schedule, sharding.interleave, &spans_);
  }

  void write(record::Writer& writer) {
    std::ranges::stable_sort(spans_, {}, &perfmodel::StageSpan::start_s);
    std::erase_if(spans_, [&](const auto& span) { return !is_shown(span.stage); });
    const std::size_t all = spans_.size();
    if (all > kMostPlanPasses) spans_.resize(kMostPlanPasses);
    ActivityRows rows;
    for (int stage = 0; stage < stages_; ++stage)
      if (is_shown(stage)) add_stage(rows, stage, spans_.size() == all);
    const std::int64_t run = writer.begin_run(run_of(*point_, *setting_, "all stages"));
    rows.write(writer, run);
    add_note(writer, run, note(all));
    writer.end_run(run, "planned");
  }

 private:
  [[nodiscard]] perfmodel::StageTimes times_of(int stage) const {
    const auto& roles = plan_->roles;
    if (stage == 0) return roles.front().times;
    return stage == stages_ - 1 ? roles.back().times : roles.at(1).times;
  }
  /// Of many stages the first and the last.
  [[nodiscard]] bool is_shown(int stage) const {
    return stages_ <= kMostStages || stage < kMostStages / 2 || stage >= stages_ - kMostStages / 2;
  }
  void add_stage(ActivityRows& rows, int stage, bool is_whole) const {
    const std::int64_t lane = rows.lane_of("device", fmt::format("stage {}", stage), "passes");
    double now_s = 0;
    for (const perfmodel::StageSpan& span : spans_) {
      if (span.stage != stage) continue;
      // Sums of times differ in their last bits.
      if (span.start_s - now_s > 0.5 / core::kGiga) rows.add(lane, "idle", "bubble", now_s, span.start_s);
      rows.add(lane, "pass", name_of(span), span.start_s, span.end_s);
      now_s = span.end_s;
    }
    const double tail_s = times_[static_cast<std::size_t>(stage)].tail_s;
    if (is_whole && tail_s > 0) rows.add(lane, "pass", "optimizer, sums over ranks", now_s, now_s + tail_s);
  }
  [[nodiscard]] std::string name_of(const perfmodel::StageSpan& span) const {
    std::string name = fmt::format("{} {}", span.is_forward ? "forward" : "backward", span.micro_batch);
    if (point_->step.sharding.interleave > 1) name += fmt::format(", part {}", span.part);
    return name;
  }
  [[nodiscard]] std::string note(std::size_t all) const {
    std::string text = fmt::format(
        "Simulated, not measured: the passes of each stage over its {} micro-batches, each with the times of "
        "a later one, and the bubbles between them.",
        point_->micro_batches);
    if (stages_ > kMostStages)
      text += fmt::format(" Shown are the first and the last {} of {} stages.", kMostStages / 2, stages_);
    if (all > spans_.size()) text += fmt::format(" Shown are the first {} of {} passes.", spans_.size(), all);
    if (const int parts = point_->step.sharding.interleave; parts > 1)
      text += fmt::format(" Each stage has {} model chunks, which take turns.", parts);
    return text;
  }

  const PlanPoint* point_;
  const Setting* setting_;
  const Plan* plan_;
  int stages_;
  std::vector<perfmodel::StageTimes> times_;
  std::vector<perfmodel::StageSpan> spans_;
};

/// One kind of rank: the ops of its program on their lanes.
class RoleRun {
 public:
  RoleRun(const PlanPoint& point, const Setting& setting, const perfmodel::TimedRole& role)
      : point_(&point), setting_(&setting), role_(&role) {}

  /// Returns at which op its tensors take most.
  std::string write(record::Writer& writer, const Plan& plan, const std::string& label) {
    add_ops();
    add_host();
    add_idle();
    const std::int64_t run = writer.begin_run(run_of(*point_, *setting_, label));
    writer.add(run, trace::op_rows(role_->program, {}));
    rows_.write(writer, run);
    std::string peak = add_memory(writer, run);
    add_note(writer, run, note(plan));
    writer.end_run(run, "planned");
    return peak;
  }

 private:
  std::int64_t lane_of(const program::Op& op) {
    const std::string& device = setting_->device.key;
    if (op.lane == program::Lane::communication)
      return rows_.lane_of("link", "", link_of(op, *point_, setting_->cluster).name);
    if (op.lane == program::Lane::copy) return rows_.lane_of("device", device, "copy engine");
    return rows_.lane_of("device", device, std::string(program::name_of(op.lane)));
  }

  void add_ops() {
    const program::Program& program = role_->program;
    // The lane of the device stands first, whatever runs first.
    rows_.lane_of("device", setting_->device.key, std::string(program::name_of(program::Lane::compute)));
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      const program::Op& op = program.ops[i];
      const perfmodel::Span& span = role_->timeline.spans[i];
      // What was sent is on its way at once: it takes no time here.
      if (op.phase == program::Phase::setup || span.end_s <= span.start_s) continue;
      const bool talks = perfmodel::moves_between_ranks(op);
      record::Activity& activity = rows_.add(lane_of(op), talks ? "collective" : "op",
                                             std::string(op.def->name), span.start_s, span.end_s);
      activity.op = static_cast<std::int64_t>(i);
      if (setting_->framework.launch_host_s > 0) activity.correlation = activity.op;
      if (talks) activity.bytes = perfmodel::moved_bytes(program, op);
    }
  }

  /// When the host submits each op: it does nothing else.
  void add_host() {
    const double each_s = setting_->framework.launch_host_s;
    if (each_s <= 0) return;
    const std::int64_t lane = rows_.lane_of("host", "cpu", "host");
    double now_s = 0;
    for (std::size_t i = 0; i < role_->program.ops.size(); ++i) {
      if (role_->program.ops[i].phase == program::Phase::setup) continue;
      record::Activity& call = rows_.add(lane, "api", "submit", now_s, now_s + each_s);
      call.correlation = static_cast<std::int64_t>(i);
      now_s += each_s;
    }
  }

  void add_idle() {
    if (role_->timeline.idle.empty()) return;
    const std::int64_t lane = rows_.lane_of("idle", setting_->device.key, "idle, by cause");
    for (const perfmodel::IdleSpan& idle : role_->timeline.idle)
      rows_.add(lane, "idle", std::string(name_of(idle.cause)), idle.start_s, idle.end_s);
  }

  std::string add_memory(record::Writer& writer, std::int64_t run) const {
    const perfmodel::MemoryCourse course = perfmodel::memory_course(role_->program, point_->step.engine);
    std::vector<record::MemoryEvent> events;
    std::int64_t live = 0;
    const auto add = [&](std::int64_t op, std::int64_t bytes) {
      if (bytes == live) return;
      events.push_back({.seq = static_cast<std::int64_t>(events.size()),
                        .op = op,
                        .bytes = bytes - live,
                        .live_bytes = bytes});
      live = bytes;
    };
    add(-1, course.persistent_bytes);
    for (std::size_t i = 0; i < course.alive_bytes.size(); ++i)
      add(static_cast<std::int64_t>(i), course.alive_bytes[i]);
    add(static_cast<std::int64_t>(course.alive_bytes.size()) - 1, course.persistent_bytes);
    writer.add(run, events);
    const program::Op& peak = role_->program.ops[course.peak_op];
    std::string text = fmt::format("{}, {}", program::name_of(peak.phase), peak.scope);
    writer.add(run, record::Fact{.key = record::kPeakAt, .text = text});
    return text;
  }

  [[nodiscard]] std::string note(const Plan& plan) const {
    std::string text = "Simulated, not measured: the program of one such rank.";
    const std::int64_t layers = point_->step.sharding.layers_per_part(point_->config.layers);
    const bool is_folded = role_->layers < layers;
    const bool is_cut = role_->micro_batches < point_->micro_batches;
    if (is_folded)
      text += fmt::format(" Shown are {} of its {} layers; the others are like the middle ones.",
                          role_->layers, layers);
    if (is_cut)
      text +=
          fmt::format(" Shown are {} of its {} micro-batches; each further one takes as long as the last.",
                      role_->micro_batches, point_->micro_batches);
    if (is_folded || is_cut)
      text += fmt::format(" Together they take {} of a step of {}.",
                          core::format_seconds(role_->timeline.step_s), core::format_seconds(plan.step_s));
    if (point_->step.sharding.pipeline > 1)
      text += " The run of all stages shows how long this stage waits for others.";
    if (setting_->framework.launch_host_s <= 0)
      text += " The step is replayed as a whole, so there is no host lane with one submission per op.";
    return text;
  }

  const PlanPoint* point_;
  const Setting* setting_;
  const perfmodel::TimedRole* role_;
  ActivityRows rows_;
};

}  // namespace

std::string ranks_label(int stage, int stages) {
  if (stages == 1) return "every rank";
  if (stages > 3 && stage > 0 && stage < stages - 1) return fmt::format("stages 1 to {}", stages - 2);
  return fmt::format("stage {}", stage);
}

std::vector<std::string> record_plan(record::Writer& writer, const PlanPoint& point, const Setting& setting,
                                     const Plan& plan) {
  const int stages = point.step.sharding.pipeline;
  if (stages > 1) PipelineRun(point, setting, plan).write(writer);
  const perfmodel::OpTimes times = op_times_of(setting);
  perfmodel::Forwards forwards;
  // Interleaved parts take turns in the order of their schedule, which asks for as many as there are stages.
  const std::int64_t wanted = point.step.sharding.interleave > 1
                                  ? perfmodel::built_sharding(point.step.sharding).pipeline
                                  : kMostMicroBatches;
  const auto micro_batches = static_cast<int>(std::min(point.micro_batches, wanted));
  std::vector<std::string> peaks;
  for (const perfmodel::PlannedRole& role : plan.roles) {
    const perfmodel::TimedRole timed =
        time_role(point, setting, times, forwards, role.stage, micro_batches, kMostPlanOps);
    peaks.push_back(RoleRun(point, setting, timed).write(writer, plan, ranks_label(role.stage, stages)));
  }
  return peaks;
}

}  // namespace rooflm::lab

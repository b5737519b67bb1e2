// What `rooflm plan` prints: a row per way to run a model, and how a step's time came about.
#include "cli/plan_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/ratio.h"
#include "core/units.h"
#include "lab/plan_record.h"
#include "model/flop_conventions.h"
#include "perfmodel/op_times.h"
#include "report/plan_rows.h"

namespace rooflm::cli {
namespace {

constexpr double kHour = 3600;
constexpr double kDay = 86400;

/// Where the times of collectives are from.
std::string collectives_of(const perfmodel::Cluster& cluster) {
  if (cluster.basis == perfmodel::Basis::calibrated) return cluster.source;
  std::vector<int> ranks;
  for (const perfmodel::MeasuredRing& ring : cluster.inside.measured) ranks.push_back(ring.ranks);
  const std::string measured =
      ranks.empty() ? "" : fmt::format("as measured on {} H200 and ", fmt::join(ranks, " and "));
  return fmt::format("collectives {}by NCCL's cost model, assumed ({})", measured, cluster.source);
}

std::int64_t whole(double bytes) { return static_cast<std::int64_t>(bytes); }

void set_memory(Row& row, const perfmodel::RankMemory& memory, const PlannedRun& run) {
  const perfmodel::Framework& framework = run.setting->framework;
  const double limit = run.plan->memory_limit_bytes;
  // What is beside tensors is assumed: half of it more or less.
  constexpr double kAssumed = 0.5;
  const double beside = memory.context_bytes + memory.buffer_bytes;
  const double spread = framework.memory_spread * (memory.total() - beside) + kAssumed * beside;
  row.set("peak_bytes", whole(memory.total()));
  row.set("peak_low_bytes", whole(memory.total() - spread));
  row.set("peak_high_bytes", whole(memory.total() + spread));
  row.set("weight_bytes", whole(memory.weight_bytes));
  row.set("optimizer_bytes", whole(memory.optimizer_bytes));
  row.set("gradient_bytes", whole(memory.gradient_bytes));
  row.set("activation_bytes", whole(memory.activation_bytes));
  row.set("workspace_bytes", whole(memory.workspace_bytes));
  row.set("buffer_bytes", whole(memory.buffer_bytes));
  row.set("gap_bytes", whole(memory.gap_bytes));
  row.set("context_bytes", whole(memory.context_bytes));
  row.set("memory_limit_bytes", whole(limit));
  row.set("memory_left_bytes", whole(limit - memory.total()));
  row.set("memory_kind", std::string(name_of(framework.basis)));
}

void set_times(Row& row, const perfmodel::Plan& plan) {
  row.set("step_s", plan.step_s);
  row.set("step_low_s", plan.low_s);
  row.set("step_high_s", plan.high_s);
  row.set("step_kind", std::string(name_of(plan.basis)));
  row.set("compute_s", plan.compute_s);
  row.set("slowed_s", plan.slowed_s);
  row.set("exposed_s", plan.exposed_s);
  row.set("host_s", plan.host_s);
  row.set("waiting_s", plan.waiting_s);
  row.set("bubble_s", plan.bubble_s);
  row.set("communication_s", plan.communication_s);
  if (plan.clock_hz > 0) row.set("clock_hz", plan.clock_hz);
}

/// A number that follows from the time of a step, with the ends of its interval.
void set_with_interval(Row& row, const std::string& key, double value, double low, double high) {
  row.set(key, value);
  row.set(key + "_low", std::min(low, high));
  row.set(key + "_high", std::max(low, high));
}

void set_rates(Row& row, const PlannedRun& run) {
  const perfmodel::PlanPoint& point = *run.point;
  const perfmodel::Plan& plan = *run.plan;
  const double gpus = point.gpus();
  const auto tokens = static_cast<double>(point.tokens());
  set_with_interval(row, "tokens_per_s", tokens / plan.step_s, tokens / plan.low_s, tokens / plan.high_s);
  row.set("model_flop_per_s_per_gpu", plan.model_flop / plan.step_s / gpus);
  const auto peak = run.setting->device.peak(compile::dtype_name(point.step));
  if (!peak) return;
  const double rate = *peak * run.setting->what_if.compute;
  const double mfu = plan.model_flop / (rate * gpus);
  set_with_interval(row, "mfu", mfu / plan.step_s, mfu / plan.low_s, mfu / plan.high_s);
  const double hfu = plan.executed_flop / (rate * gpus);
  set_with_interval(row, "hfu", hfu / plan.step_s, hfu / plan.low_s, hfu / plan.high_s);
}

void set_run(Row& row, const PlannedRun& run, const perfmodel::RunBudget& budget) {
  const perfmodel::RunCost cost = perfmodel::run_cost(*run.point, *run.setting, *run.plan, budget);
  const auto set = [&](const char* key, double value) {
    set_with_interval(row, key, value, value * cost.low_s / cost.seconds, value * cost.high_s / cost.seconds);
  };
  row.set("tokens", cost.tokens);
  set("days", cost.seconds / kDay);
  set("gpu_hours", cost.gpu_hours);
  if (cost.price) set("price", *cost.price);
  if (cost.energy_kwh) set("energy_kwh", *cost.energy_kwh);
  if (cost.goodput) {
    row.set("goodput", cost.goodput->share);
    row.set("goodput_kind", std::string(name_of(perfmodel::Basis::assumed)));
    row.set("cluster_mtbf_s", cost.goodput->mtbf_s);
    row.set("checkpoint_s", cost.goodput->checkpoint_s);
    row.set("checkpoint_interval_s", cost.goodput->interval_s);
  }
}

Row term(const std::string& name, double seconds, double step_s, const std::string& how) {
  Row row;
  row.set("term", name);
  row.set("seconds", seconds);
  row.set("share", step_s > 0 ? seconds / step_s : 0);
  row.set("how", how);
  return row;
}

}  // namespace

Row plan_row(const PlannedRun& run, const perfmodel::RunBudget& budget) {
  const perfmodel::PlanPoint& point = *run.point;
  const compile::Sharding& sharding = point.step.sharding;
  Row row;
  row.set("model", point.config.name);
  row.set("device", run.setting->device.key);
  row.set("framework", run.setting->framework.name);
  row.set("dtype", std::string(compile::dtype_name(point.step)));
  row.set("gpus", std::int64_t{point.gpus()});
  row.set("dp", std::int64_t{sharding.data});
  row.set("cp", std::int64_t{sharding.context});
  row.set("tp", std::int64_t{sharding.tensor});
  row.set("pp", std::int64_t{sharding.pipeline});
  row.set("zero", std::int64_t{sharding.zero});
  row.set("interleave", std::int64_t{sharding.interleave});
  row.set("short_ends", std::int64_t{sharding.short_ends ? 1 : 0});
  row.set("micro_batch", point.micro_batch);
  row.set("global_batch", point.global_batch());
  row.set("seq", point.seq);
  row.set("recompute", std::string(passes::name_of(point.step.recompute)));
  row.set("params", model::parameter_count(point.config));
  row.set("active_params", model::active_parameter_count(point.config));
  for (const model::FlopConvention& each : model::flop_conventions(point.config, point.seq))
    row.set(fmt::format("flop_per_token_{}", each.name), each.training);
  if (run.setting->what_if.is_any()) row.set("what_if", text_of(run.setting->what_if));
  row.set("status", std::string(run.plan->fits ? "planned" : "oom"));
  if (run.plan->fits) {
    set_times(row, *run.plan);
    set_rates(row, run);
    set_run(row, run, budget);
    if (run.speed_up) row.set("speed_up", *run.speed_up);
    if (run.efficiency) row.set("efficiency", *run.efficiency);
  }
  set_memory(row, run.plan->memory, run);
  row.set("memory_stage", std::int64_t{run.plan->memory_stage});
  if (!run.reason.empty()) row.set("reason", run.reason);
  return row;
}

/// What of a plan is not as its options say.
std::vector<std::string> point_notes(const PlannedRun& run) {
  const perfmodel::PlanPoint& point = *run.point;
  const compile::Sharding& sharding = point.step.sharding;
  std::vector<std::string> notes;
  const std::int64_t vocab = perfmodel::planned_vocabulary(point.config, sharding);
  if (vocab != point.config.padded_vocab) {
    notes.push_back(fmt::format(
        "Framework {} pads the vocabulary of {} to {} with --tp {}: memory and times have all rows, "
        "parameters and MFU those of the model.",
        run.setting->framework.name, point.config.padded_vocab, vocab, sharding.tensor));
  }
  if (sharding.context > 1 && point.step.fp32_products != program::Fp32Products::plain) {
    notes.push_back(
        fmt::format("--cp: blocks of ring attention have kernels for fp32 only, and take its time with "
                    "--dtype {}, too.",
                    compile::dtype_name(point.step)));
  }
  return notes;
}

std::vector<std::string> plan_notes(const std::vector<PlannedRun>& runs) {
  std::vector<std::string> notes = {
      "This is a plan: nothing was run. The interval (from, to) takes all ops to be wrong in the same "
      "direction: calibrated "
      "ones by as much as about 90 % of the measured ops were, assumed ones by a guess that may be too small "
      "(docs/accuracy.md)."};
  std::set<std::string> lines;
  for (const PlannedRun& run : runs) {
    const devices::Device& device = run.setting->device;
    const std::string_view dtype = compile::dtype_name(run.point->step);
    if (const auto peak = device.peak(dtype)) {
      lines.insert(
          fmt::format("MFU = {}, peak: {}FLOP/s, dense {} of the datasheet of {}; HFU counts all "
                      "GEMMs, including recomputed ones and those that several ranks repeat.",
                      core::kMfuFormula, core::format_si(*peak), dtype, device.key));
    }
    for (std::string& note : point_notes(run)) lines.insert(std::move(note));
    if (!run.setting->calibration.empty()) {
      std::string factors;
      for (const auto& [work, factor] : run.setting->calibration)
        factors += fmt::format("{}{} {:.2f}", factors.empty() ? "" : ", ", work, factor);
      lines.insert(fmt::format("Calibrated by a record, times the tables: {}.", factors));
    }
    lines.insert(fmt::format("Times: {}; {}.", op_times_of(*run.setting).provenance(),
                             collectives_of(run.setting->cluster)));
    lines.insert(fmt::format(
        "Framework {}: {} of host time per op, {} of CUDA context ({}).", run.setting->framework.name,
        core::format_seconds(run.setting->framework.launch_host_s),
        core::format_bytes(run.setting->framework.context_bytes), name_of(run.setting->framework.basis)));
  }
  notes.insert(notes.end(), lines.begin(), lines.end());
  return notes;
}

Row memory_row(const PlannedRun& run, const perfmodel::PlannedRole& role) {
  Row row;
  row.set("ranks", lab::ranks_label(role.stage, run.point->step.sharding.pipeline));
  row.set("stage", std::int64_t{role.stage});
  set_memory(row, role.memory, run);
  return row;
}

Table plan_example() {
  const perfmodel::PlanPoint point{
      .config = model::preset("tiny"), .step = {.dtype = core::DType::bf16}, .micro_batch = 1, .seq = 1};
  perfmodel::Setting setting{.device = devices::find_device("h100-sxm"),
                             .framework = perfmodel::frameworks().front(),
                             .what_if = {.compute = 2}};
  setting.cluster = perfmodel::cluster_of(setting.device);
  const perfmodel::Plan plan{.step_s = 1, .low_s = 1, .high_s = 1, .model_flop = 1, .clock_hz = 1};
  const std::vector<PlannedRun> runs = {{.point = &point,
                                         .setting = &setting,
                                         .plan = &plan,
                                         .reason = "it is an example",
                                         .speed_up = 1,
                                         .efficiency = 1}};
  Table table =
      plan_table({plan_row(runs.front(), {.price_per_gpu_hour = 1, .mtbf_s = 1, .checkpoint_s = 1})}, runs);
  const auto is_column = [&](const std::string& key) {
    return std::ranges::any_of(table.columns, [&](const Column& column) { return column.key == key; });
  };
  for (const auto& [key, cell] : table.rows.front().cells())
    if (!is_column(key)) table.columns.push_back({.key = key, .title = key, .show = Show::brief});
  return table;
}

Table plan_table(std::vector<Row> rows, const std::vector<PlannedRun>& runs) {
  Table table;
  table.columns = report::plan_columns(rows);
  table.rows = std::move(rows);
  table.notes = plan_notes(runs);
  for (const Row& row : table.rows) {
    if (row.find("goodput") == nullptr || row.number("goodput") > 0) continue;
    table.notes.push_back(
        fmt::format("Goodput 0: with a failure every {} and {} to save a checkpoint, the run never ends.",
                    core::format_seconds(row.number("cluster_mtbf_s")),
                    core::format_seconds(row.number("checkpoint_s"))));
    break;
  }
  return table;
}

Table explain_step(const PlannedRun& run) {
  const perfmodel::Plan& plan = *run.plan;
  Table table;
  table.columns = report::term_columns();
  if (!plan.fits) {
    table.notes.push_back(fmt::format("It does not fit: it needs {} of {}, so there is no step to explain.",
                                      core::format_bytes(plan.memory.total()),
                                      core::format_bytes(plan.memory_limit_bytes)));
    return table;
  }
  double priced = 0;
  for (const auto& [name, work] : plan.work) {
    if (name == "collective") continue;
    priced += work.seconds;
    std::string how = fmt::format("{} ops, {} moved", work.ops, core::format_bytes(work.bytes));
    if (work.matmul_flop > 0) {
      how += fmt::format(", {}FLOP at {}FLOP/s", core::format_si(work.matmul_flop),
                         core::format_si(work.matmul_flop / work.seconds));
    }
    table.rows.push_back(term(name, work.seconds, plan.step_s, how));
  }
  table.rows.push_back(term("beside collectives", plan.slowed_s, plan.step_s,
                            "what ops lose while a collective runs beside them"));
  table.rows.push_back(term(
      "exposed communication", plan.exposed_s, plan.step_s,
      fmt::format("of {} of collectives, what nothing hides", core::format_seconds(plan.communication_s))));
  table.rows.push_back(term("host", plan.host_s, plan.step_s, "the host has not submitted the next op yet"));
  table.rows.push_back(term("waiting", plan.waiting_s, plan.step_s, "copies that nothing hides"));
  table.rows.push_back(term("bubble", plan.bubble_s, plan.step_s, "the stage waits for other stages"));
  table.rows.push_back(
      term("step_s", plan.step_s, plan.step_s,
           fmt::format("of stage {}; {} to {}, {}", plan.slowest_stage, core::format_seconds(plan.low_s),
                       core::format_seconds(plan.high_s), name_of(plan.basis))));
  table.notes.push_back(fmt::format("Times of ops add up to {}, busy is {}.", core::format_seconds(priced),
                                    core::format_seconds(plan.compute_s)));
  if (plan.clock_hz > 0) {
    table.notes.push_back(fmt::format("GEMMs and attention at {}Hz, which {:.0f} W leave to this mix of ops.",
                                      core::format_si(plan.clock_hz),
                                      run.setting->device.power_w.value_or(0)));
  }
  return table;
}

}  // namespace rooflm::cli

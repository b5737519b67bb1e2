// What `rooflm plan` prints: a row per way to run a model, and how a step's time came about.
#include "cli/plans/plan_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <utility>

#include "core/ratio.h"
#include "core/units.h"
#include "lab/plan_record.h"
#include "model/flop_conventions.h"
#include "perfmodel/op_times.h"
#include "report/tables/plan_rows.h"
#include "report/tables/typed_columns.h"

namespace rooflm::cli {
namespace {

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

/// A plan, and what a whole run costs. Times of plans that do not fit are left out: they cannot be.
struct PlanRow {
  const PlannedRun* run = nullptr;
  std::optional<perfmodel::RunCost> cost{};  ///< of plans that fit
  std::array<model::FlopConvention, 5> flop{};

  [[nodiscard]] const perfmodel::Plan& plan() const { return *run->plan; }
  /// FLOP/s of all GPUs.
  [[nodiscard]] std::optional<double> peak() const {
    const auto peak = run->setting->device.peak(compile::dtype_name(run->point->step));
    if (!peak) return std::nullopt;
    return *peak * run->setting->what_if.compute * run->point->gpus();
  }
};

/// Memory of a rank.
struct MemoryRow {
  const PlannedRun* run = nullptr;
  const perfmodel::RankMemory* memory = nullptr;
  int stage = 0;

  /// What is beside tensors is assumed: half of it more or less.
  [[nodiscard]] double spread() const {
    constexpr double kAssumed = 0.5;
    const double beside = memory->context_bytes + memory->buffer_bytes;
    return run->setting->framework.memory_spread * (memory->total() - beside) + kAssumed * beside;
  }
};

const report::TypedColumns<MemoryRow>& memory_columns_of_plan() {
  using Of = const MemoryRow&;
  using perfmodel::RankMemory;
  const auto bytes = [](auto value) {
    return [value](Of of) { return static_cast<std::int64_t>(std::invoke(value, of)); };
  };
  const auto part = [&](auto member) { return bytes([member](Of of) { return of.memory->*member; }); };
  static const report::TypedColumns<MemoryRow> columns = {
      {"peak_bytes", bytes([](Of of) { return of.memory->total(); })},
      {"peak_low_bytes", bytes([](Of of) { return of.memory->total() - of.spread(); })},
      {"peak_high_bytes", bytes([](Of of) { return of.memory->total() + of.spread(); })},
      {"weight_bytes", part(&RankMemory::weight_bytes)},
      {"optimizer_bytes", part(&RankMemory::optimizer_bytes)},
      {"gradient_bytes", part(&RankMemory::gradient_bytes)},
      {"activation_bytes", part(&RankMemory::activation_bytes)},
      {"workspace_bytes", part(&RankMemory::workspace_bytes)},
      {"buffer_bytes", part(&RankMemory::buffer_bytes)},
      {"gap_bytes", part(&RankMemory::gap_bytes)},
      {"context_bytes", part(&RankMemory::context_bytes)},
      {"memory_limit_bytes", bytes([](Of of) { return of.run->plan->memory_limit_bytes; })},
      {"memory_left_bytes",
       bytes([](Of of) { return of.run->plan->memory_limit_bytes - of.memory->total(); })},
      {"memory_kind", [](Of of) { return of.run->setting->framework.basis; }}};
  return columns;
}

using PlanColumns = report::TypedColumns<PlanRow>;

/// A column of plans that fit.
template <class Value>
auto if_fits(Value value) {
  return [value](const PlanRow& row) {
    return row.plan().fits ? report::cell_from(std::invoke(value, row)) : Cell();
  };
}

/// A number that follows from the time of a step, with the ends of its interval. `at`: of a row and seconds.
template <class At>
void add_rate(PlanColumns& columns, const std::string& key, At at) {
  using Of = const PlanRow&;
  const auto low = [at](Of of) { return at(of, of.plan().low_s); };
  const auto high = [at](Of of) { return at(of, of.plan().high_s); };
  columns.add({key.c_str(), if_fits([at](Of of) { return at(of, of.plan().step_s); })});
  columns.add({(key + "_low").c_str(), if_fits([=](Of of) { return std::min(low(of), high(of)); })});
  columns.add({(key + "_high").c_str(), if_fits([=](Of of) { return std::max(low(of), high(of)); })});
}

/// A part of the cost of a run, with the ends of its interval.
template <class Value>
void add_cost(PlanColumns& columns, const std::string& key, Value value) {
  const auto scaled = [value](double perfmodel::RunCost::*seconds) {
    return if_fits([value, seconds](const PlanRow& row) -> std::optional<double> {
      const std::optional<double> of = value(*row.cost);
      if (!of) return std::nullopt;
      return *of * ((*row.cost).*seconds) / row.cost->seconds;
    });
  };
  columns.add({key.c_str(), if_fits([value](const PlanRow& row) { return value(*row.cost); })});
  columns.add({(key + "_low").c_str(), scaled(&perfmodel::RunCost::low_s)});
  columns.add({(key + "_high").c_str(), scaled(&perfmodel::RunCost::high_s)});
}

/// FLOP per token by each convention.
void add_flop_conventions(PlanColumns& columns) {
  const auto conventions = model::flop_conventions(model::preset("tiny"), 1);
  for (std::size_t i = 0; i < conventions.size(); ++i) {
    columns.add({fmt::format("flop_per_token_{}", conventions[i].name).c_str(),
                 [i](const PlanRow& row) { return row.flop.at(i).training; }});
  }
}

const PlanColumns& plan_columns() {
  static const PlanColumns columns = [] {
    using Of = const PlanRow&;
    using perfmodel::Goodput;
    using perfmodel::Plan;
    using perfmodel::RunCost;
    const auto degree = [](auto member) {
      return [member](Of of) { return of.run->point->step.sharding.*member; };
    };
    const auto time = [](auto member) { return if_fits([member](Of of) { return of.plan().*member; }); };
    const auto goodput = [](auto member) {
      return if_fits([member](Of of) {
        return of.cost->goodput ? std::optional((*of.cost->goodput).*member) : std::nullopt;
      });
    };
    PlanColumns all = {
        {"model", [](Of of) { return of.run->point->config.name; }},
        {"device", [](Of of) { return of.run->setting->device.key; }},
        {"framework", [](Of of) { return of.run->setting->framework.name; }},
        {"dtype", [](Of of) { return compile::dtype_name(of.run->point->step); }},
        {"gpus", [](Of of) { return of.run->point->gpus(); }},
        {"dp", degree(&compile::Sharding::data)},
        {"cp", degree(&compile::Sharding::context)},
        {"tp", degree(&compile::Sharding::tensor)},
        {"pp", degree(&compile::Sharding::pipeline)},
        {"zero", degree(&compile::Sharding::zero)},
        {"interleave", degree(&compile::Sharding::interleave)},
        {"short_ends", [](Of of) { return of.run->point->step.sharding.short_ends ? 1 : 0; }},
        {"micro_batch", [](Of of) { return of.run->point->micro_batch; }},
        {"global_batch", [](Of of) { return of.run->point->global_batch(); }},
        {"seq", [](Of of) { return of.run->point->seq; }},
        {"recompute", [](Of of) { return passes::name_of(of.run->point->step.recompute); }},
        {"params", [](Of of) { return model::parameter_count(of.run->point->config); }},
        {"active_params", [](Of of) { return model::active_parameter_count(of.run->point->config); }}};
    add_flop_conventions(all);
    all.add({{"ep",
              [](Of of) {
                const int ep = of.run->point->step.sharding.expert;
                return ep > 1 ? std::optional(ep) : std::nullopt;
              }},
             {"what_if",
              [](Of of) {
                const auto& what_if = of.run->setting->what_if;
                return what_if.is_any() ? std::optional(text_of(what_if)) : std::nullopt;
              }},
             {"status", [](Of of) { return of.plan().fits ? "planned" : "oom"; }},
             {"step_s", time(&Plan::step_s)},
             {"step_low_s", time(&Plan::low_s)},
             {"step_high_s", time(&Plan::high_s)},
             {"step_kind", time(&Plan::basis)},
             {"compute_s", time(&Plan::compute_s)},
             {"slowed_s", time(&Plan::slowed_s)},
             {"exposed_s", time(&Plan::exposed_s)},
             {"host_s", time(&Plan::host_s)},
             {"waiting_s", time(&Plan::waiting_s)},
             {"bubble_s", time(&Plan::bubble_s)},
             {"communication_s", time(&Plan::communication_s)},
             {"clock_hz", if_fits([](Of of) {
                return of.plan().clock_hz > 0 ? std::optional(of.plan().clock_hz) : std::nullopt;
              })}});
    add_rate(all, "tokens_per_s",
             [](Of of, double seconds) { return static_cast<double>(of.run->point->tokens()) / seconds; });
    all.add({"model_flop_per_s_per_gpu",
             if_fits([](Of of) { return of.plan().model_flop / of.plan().step_s / of.run->point->gpus(); })});
    const auto utilisation = [](double Plan::*flop) {
      return [flop](Of of, double seconds) -> std::optional<double> {
        const auto peak = of.peak();
        return peak ? std::optional(of.plan().*flop / *peak / seconds) : std::nullopt;
      };
    };
    add_rate(all, "mfu", utilisation(&Plan::model_flop));
    add_rate(all, "hfu", utilisation(&Plan::executed_flop));
    all.add({"tokens", if_fits([](Of of) { return of.cost->tokens; })});
    add_cost(all, "days", [](const RunCost& cost) { return cost.seconds / kDay; });
    add_cost(all, "gpu_hours", [](const RunCost& cost) { return cost.gpu_hours; });
    add_cost(all, "price", [](const RunCost& cost) { return cost.price; });
    add_cost(all, "energy_kwh", [](const RunCost& cost) { return cost.energy_kwh; });
    all.add({{"goodput", goodput(&Goodput::share)},
             {"goodput_kind", if_fits([](Of of) {
                return of.cost->goodput ? std::optional(perfmodel::Basis::assumed) : std::nullopt;
              })},
             {"cluster_mtbf_s", goodput(&Goodput::mtbf_s)},
             {"checkpoint_s", goodput(&Goodput::checkpoint_s)},
             {"checkpoint_interval_s", goodput(&Goodput::interval_s)},
             {"speed_up", if_fits([](Of of) { return of.run->speed_up; })},
             {"efficiency", if_fits([](Of of) { return of.run->efficiency; })}});
    all.add(memory_columns_of_plan(),
            [](Of of) { return MemoryRow{.run = of.run, .memory = &of.run->plan->memory}; });
    all.add({"memory_stage", [](Of of) { return of.plan().memory_stage; }});
    all.add({"reason", [](Of of) { return report::known_text(of.run->reason); }});
    return all;
  }();
  return columns;
}

}  // namespace

Row plan_row(const PlannedRun& run, const perfmodel::RunBudget& budget) {
  PlanRow row{.run = &run, .flop = model::flop_conventions(run.point->config, run.point->seq)};
  if (run.plan->fits) row.cost = perfmodel::run_cost(*run.point, *run.setting, *run.plan, budget);
  const Row all = plan_columns().row(row);
  Row known;
  for (const auto& [key, cell] : all.cells())
    if (!std::holds_alternative<std::monostate>(cell)) known.append(key, cell);
  if (known.find("price") != nullptr && !budget.currency.empty()) known.append("currency", budget.currency);
  report::set_split(known);
  return known;
}

std::vector<Column> columns_of_plans() {
  std::vector<Column> all = report::plan_columns({});
  for (const Column& column : report::columns_of(plan_columns())) {
    if (std::ranges::find(all, column.key, &Column::key) == all.end())
      all.push_back({.key = column.key, .title = column.title, .show = Show::brief});
  }
  all.push_back({.key = "currency", .title = "currency"});
  return all;
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
      "A plan: nothing was run. The interval (from, to) assumes that all ops are off in the same direction, "
      "by as "
      "much as about 90 % of measured ops were; for assumed ones this is a guess (docs/accuracy.md)."};
  std::set<std::string> lines;
  for (const PlannedRun& run : runs) {
    const devices::Device& device = run.setting->device;
    const std::string_view dtype = compile::dtype_name(run.point->step);
    if (const auto peak = device.peak(dtype)) {
      lines.insert(
          fmt::format("MFU = {} * {}, peak: {}FLOP/s, dense {} of the datasheet of {}; HFU counts all "
                      "GEMMs, including recomputed ones and those that several ranks repeat.",
                      model::model_flop_formula(model::trained_beside(run.point->step.lora)),
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
  static const report::TypedColumns<MemoryRow> columns = report::TypedColumns<MemoryRow>{
      {"ranks",
       [](const MemoryRow& of) { return lab::ranks_label(of.stage, of.run->point->step.sharding.pipeline); }},
      {"stage", &MemoryRow::stage}}.add(memory_columns_of_plan());
  return columns.row({.run = &run, .memory = &role.memory, .stage = role.stage});
}

Table plan_table(std::vector<Row> rows, const std::vector<PlannedRun>& runs) {
  Table table;
  table.columns = report::plan_columns(rows);
  table.rows = std::move(rows);
  table.notes = plan_notes(runs);
  if (!runs.empty() && std::ranges::none_of(runs, [](const PlannedRun& run) { return run.plan->fits; })) {
    table.notes.insert(table.notes.begin(),
                       "Nothing fits: --search tries every split, ZeRO stage and recompute on these devices, "
                       "--smallest finds the fewest devices.");
  }
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

Table with_heading(Table table, std::span<const report::PlanSetting> settings) {
  for (const report::PlanSetting& setting : settings) {
    const auto text = [&](const Row& row) {
      const Cell* cell = row.find(setting.key);
      return cell == nullptr ? "" : format_cell(*cell, Show::plain);
    };
    if (!setting.is_column || table.rows.empty()) continue;
    const std::string first = text(table.rows.front());
    if (std::ranges::any_of(table.rows, [&](const Row& row) { return text(row) != first; })) continue;
    std::erase_if(table.columns, [&](const Column& column) { return column.key == setting.key; });
    if (first.empty() || first == "-") continue;
    const std::string said = setting.speaks_for_itself ? first : fmt::format("{} {}", setting.title, first);
    table.heading += table.heading.empty() ? said : ", " + said;
  }
  return table;
}

std::string own_framework_note() {
  return "Memory and times are for rooflm's own engine. Others need more memory: --framework torchtitan, "
         "torch-compile, megatron, ... plans for them.";
}

Table explain_memory(const PlannedRun& run) {
  const perfmodel::RankMemory& memory = run.plan->memory;
  const compile::Sharding& sharding = run.point->step.sharding;
  const auto parameters = static_cast<double>(model::parameter_count(run.point->config));
  const auto tokens = static_cast<double>(run.point->micro_batch * run.point->seq) / sharding.context;
  std::vector<report::MemoryTerm> terms;
  const auto add = [&](const std::string& name, double bytes, const std::string& how) {
    terms.push_back({.term = name, .bytes = bytes, .peak_bytes = memory.total(), .how = how});
  };
  const auto per_parameter = [&](double bytes) {
    return fmt::format("{:.3g} bytes for each of the model's {} parameters", bytes / parameters,
                       core::format_si(parameters));
  };
  add("weights", memory.weight_bytes, per_parameter(memory.weight_bytes));
  add("gradients", memory.gradient_bytes, per_parameter(memory.gradient_bytes));
  add("optimizer state", memory.optimizer_bytes, per_parameter(memory.optimizer_bytes));
  add("activations", memory.activation_bytes,
      fmt::format("{} for each of {:.0f} tokens of a micro-batch",
                  core::format_bytes(memory.activation_bytes / tokens), tokens));
  add("workspace", memory.workspace_bytes, "kernels' scratch, and buffers that passes need");
  add("communication buffers", memory.buffer_bytes, "for collectives, by group of ranks (assumed)");
  add("fragmentation", memory.gap_bytes, "what the allocator loses between tensors");
  add("context", memory.context_bytes,
      fmt::format("of the device's driver and libraries ({})", name_of(run.setting->framework.basis)));
  add("peak_bytes", memory.total(),
      fmt::format("of stage {}; the device has {}, {} are left", run.plan->memory_stage,
                  core::format_bytes(run.plan->memory_limit_bytes),
                  core::format_bytes(run.plan->memory_limit_bytes - memory.total())));
  return report::memory_term_columns().table(terms);
}

Table explain_step(const PlannedRun& run) {
  const perfmodel::Plan& plan = *run.plan;
  std::vector<report::PlanTerm> terms;
  if (!plan.fits) {
    Table table = report::term_columns().table(terms);
    table.notes.push_back(fmt::format("It does not fit: it needs {} of {}, so there is no step to explain.",
                                      core::format_bytes(plan.memory.total()),
                                      core::format_bytes(plan.memory_limit_bytes)));
    return table;
  }
  const auto add = [&](const std::string& name, double seconds, const std::string& how) {
    terms.push_back({.term = name, .seconds = seconds, .step_s = plan.step_s, .how = how});
  };
  double priced = 0;
  for (const auto& [name, work] : plan.work) {
    if (name == "collective") continue;
    priced += work.seconds;
    std::string how = fmt::format("{} ops, {} moved", work.ops, core::format_bytes(work.bytes));
    if (work.matmul_flop > 0) {
      how += fmt::format(", {}FLOP at {}FLOP/s", core::format_si(work.matmul_flop),
                         core::format_si(work.matmul_flop / work.seconds));
    }
    add(name, work.seconds, how);
  }
  add("slowed by overlap", plan.slowed_s, "what ops lose while a collective overlaps them");
  add("exposed communication", plan.exposed_s,
      fmt::format("not hidden, of {} of collectives", core::format_seconds(plan.communication_s)));
  add("host", plan.host_s, "the host has not submitted the next op yet");
  add("waiting", plan.waiting_s, "copies that are not hidden");
  add("bubble", plan.bubble_s, "the stage waits for other stages");
  add("step_s", plan.step_s,
      fmt::format("of stage {}; {} to {}, {}", plan.slowest_stage, core::format_seconds(plan.low_s),
                  core::format_seconds(plan.high_s), name_of(plan.basis)));
  Table table = report::term_columns().table(terms);
  table.notes.push_back(fmt::format("Op times add up to {}; the device is busy for {}.",
                                    core::format_seconds(priced), core::format_seconds(plan.compute_s)));
  if (plan.clock_hz > 0) {
    table.notes.push_back(
        fmt::format("GEMMs and attention run at {}Hz, the clock that {:.0f} W allow for this mix of ops.",
                    core::format_si(plan.clock_hz), run.setting->device.power_w.value_or(0)));
  }
  return table;
}

}  // namespace rooflm::cli

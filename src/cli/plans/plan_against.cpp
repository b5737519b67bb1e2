// Plans beside what was measured.
#include "cli/plans/plan_against.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cli/options/config_options.h"
#include "cli/output.h"
#include "core/error.h"
#include "core/printable.h"
#include "core/statistics.h"
#include "devices/device.h"
#include "lab/devices.h"
#include "lab/point.h"
#include "perfmodel/device_fit.h"
#include "record/reader.h"
#include "report/tables/plan_rows.h"

namespace rooflm::cli {
namespace {

struct MeasuredRun {
  std::string label;
  record::Config config;
  std::map<std::string, double> class_s;  ///< by class of ops, of one step
  double step_s = 0;
  std::optional<double> peak_bytes;
};

/// The medians of ops by class, and the median of the plain steps.
std::optional<MeasuredRun> read_run(const record::Reader& reader, const record::Run& run) {
  if (run.status != "success" || run.kind != "step") return std::nullopt;
  MeasuredRun found{.label = run.label, .config = run.config, .class_s = {}, .peak_bytes = {}};
  std::map<std::int64_t, std::string> classes;
  for (const record::Op& op : reader.rows<record::Op>(run.id)) classes[op.op] = op.op_class;
  for (const record::OpTime& time : reader.op_times(run.id)) found.class_s[classes[time.op]] += time.device_s;
  std::vector<double> steps;
  for (const record::Sample& sample : reader.rows<record::Sample>(run.id))
    if (sample.kind == "plain" && sample.phase == "step") steps.push_back(sample.seconds);
  if (steps.empty()) return std::nullopt;
  found.step_s = core::median(steps);
  if (const auto peak = reader.fact(run.id, "peak_bytes")) found.peak_bytes = peak->value;
  return found;
}

/// Of the catalog: stands for all in the table of fields, until the step is fitted to the device that is
/// meant.
constexpr const char* kInTheCatalog = "null:h100-sxm";

perfmodel::Plan plan_of(const MeasuredRun& run, const devices::Device& device, bool at_table_clock = false) {
  ConfigOptions config{"model"};
  for (const char* key : {"model", "arch", "layers", "heads", "kv_heads", "d_model", "d_ff", "vocab", "batch",
                          "seq", "dtype", "recompute", "grad_accum", "clip", "engine", "attention"})
    config.set(key, run.config.text(key));
  for (const char* key : {"dp", "zero", "cp", "ep", "tp", "sequence_parallel", "pp", "pp_schedule",
                          "interleave"}) {  // of several ranks
    if (run.config.find(key) != nullptr) config.set(key, run.config.text(key));
  }
  config.set("device", kInTheCatalog);
  lab::Point point = config.single();
  perfmodel::fit_to_device(point.step, device);
  perfmodel::Setting setting{.device = device,
                             .framework = perfmodel::find_framework("rooflm-" + run.config.text("engine"))};
  setting.framework.is_deterministic = run.config.flag("deterministic");
  setting.cluster = perfmodel::cluster_of(setting.device, 0, 0, perfmodel::launches_of(setting.framework));
  setting.memory_limit_bytes = setting.device.usable_bytes();
  setting.every_layer = true;
  setting.at_table_clock = at_table_clock;
  const perfmodel::PlanPoint planned{.config = point.config,
                                     .step = point.step,
                                     .micro_batch = point.batch,
                                     .seq = point.seq,
                                     .micro_batches = point.step.micro_batches};
  return perfmodel::make_plan(planned, setting);
}

using report::PlanAgainst;

void add_rows(std::vector<PlanAgainst>& rows, const MeasuredRun& run, const perfmodel::Plan& plan) {
  const auto add = [&](const std::string& what, double measured, double planned, const char* unit = "s") {
    rows.push_back({.run = run.label, .what = what, .unit = unit, .measured = measured, .planned = planned});
  };
  double measured_s = 0;
  double planned_s = 0;
  for (const auto& [name, work] : plan.work) {
    const auto found = run.class_s.find(name);
    if (found == run.class_s.end()) continue;
    measured_s += found->second;
    planned_s += work.seconds;
    add(name, found->second, work.seconds);
  }
  if (measured_s > 0) add("all ops", measured_s, planned_s);
  add("step_s", run.step_s, plan.step_s);
  if (run.peak_bytes) add("memory", *run.peak_bytes, plan.memory.total() - plan.memory.context_bytes, "byte");
}

/// The device of the run: its key in the catalog, or what its driver calls it; "cpu".
std::string measured_device(const record::Reader& reader, const record::Config& config) {
  std::string device = config.text("device");
  for (const record::Environment& line : reader.environment()) {
    if (device == "cpu" || line.key != "device " + device) continue;
    const std::string name = line.value.substr(0, line.value.find(','));
    const std::string key = devices::device_reported_as(name, devices::Kind::gpu).key;
    return key.empty() ? name : key;
  }
  return device;
}

/// Says where a record is of another device than the plan.
void note_other_device(const std::string& measured, const devices::Device& device) {
  const bool is_same = measured == device.key || (measured == "cpu" && device.kind == devices::Kind::cpu);
  if (!is_same) note("measured on {}, planned for {}", core::printable(measured), device.key);
}

}  // namespace

Table plan_against(const std::filesystem::path& record, const devices::Device& device) {
  const record::Reader reader(record);
  std::vector<PlanAgainst> rows;
  std::set<std::string> measured_on;
  for (const record::Run& run : reader.runs()) {
    const auto measured = read_run(reader, run);
    if (!measured) continue;
    add_rows(rows, *measured, plan_of(*measured, device));
    measured_on.insert(measured_device(reader, run.config));
  }
  if (rows.empty())
    throw core::InputError(fmt::format("{}: no training step was measured here", record.string()));
  for (const std::string& measured : measured_on) note_other_device(measured, device);
  Table table = report::against_columns().table(rows);
  table.notes.emplace_back(
      "Measured: medians of ops and of plain steps. Overlapping ops make a step shorter than "
      "their sum.");
  return table;
}

std::map<std::string, double> calibration_of(const std::filesystem::path& record,
                                             const devices::Device& device) {
  const record::Reader reader(record);
  std::map<std::string, double> measured_s;
  std::map<std::string, double> planned_s;
  std::set<std::string> measured_on;
  for (const record::Run& run : reader.runs()) {
    const auto measured = read_run(reader, run);
    if (!measured || measured->class_s.empty()) continue;
    measured_on.insert(measured_device(reader, run.config));
    for (const auto& [name, work] : plan_of(*measured, device, true).work) {
      const auto found = measured->class_s.find(name);
      if (found == measured->class_s.end()) continue;
      measured_s[name] += found->second;
      planned_s[name] += work.seconds;
    }
  }
  std::map<std::string, double> factors;
  for (const auto& [name, seconds] : measured_s)
    if (seconds > 0 && planned_s[name] > 0) factors[name] = seconds / planned_s[name];
  if (factors.empty()) {
    throw core::InputError(fmt::format(
        "{}: no op of a training step was timed here; rooflm profile does that", record.string()));
  }
  for (const std::string& measured : measured_on) note_other_device(measured, device);
  return factors;
}

}  // namespace rooflm::cli

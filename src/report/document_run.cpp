// One run as a part of the document.
#include "report/document_run.h"

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "report/kernels.h"
#include "report/memory_curve.h"
#include "report/run_figures.h"
#include "report/summaries.h"
#include "report/view.h"

namespace rooflm::report {
namespace {

/// Texts of a columnar array: each once, referred to by index.
class Names {
 public:
  std::size_t index(const std::string& text) {
    const auto [entry, is_new] = index_.try_emplace(text, names_.size());
    if (is_new) names_.push_back(text);
    return entry->second;
  }
  [[nodiscard]] Json json() const { return names_; }

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::size_t> index_;
};

/// Columns that are filled row by row.
class Columns {
 public:
  /// Every column is there, even without rows.
  explicit Columns(std::initializer_list<const char*> keys) {
    for (const char* key : keys) columns_[key] = Json::array();
  }
  template <class Value>
  void push(const char* key, Value&& value) {
    columns_[key].push_back(std::forward<Value>(value));
  }
  [[nodiscard]] Json json(const Names* names) && {
    if (names != nullptr) columns_["names"] = names->json();
    return std::move(columns_);
  }

 private:
  Json columns_ = Json::object();
};

Json json_config(const record::Config& config) {
  Json json = Json::object();
  for (const auto& [key, value] : config.entries()) {
    std::visit([&, &key = key](const auto& typed) { json[key] = typed; }, value);
  }
  return json;
}

Json json_facts(const RunData& run) {
  Json facts = Json::object();
  for (const record::Fact& fact : run.facts) {
    facts[fact.key] = {{"value", json_number(fact.value)}, {"unit", fact.unit}, {"text", fact.text}};
  }
  return facts;
}

Json json_summary(const std::optional<PhaseTime>& time) {
  if (!time) return nullptr;
  const core::Summary& summary = time->time;
  return {{"median_s", summary.median},
          {"mean_s", summary.mean},
          {"std_s", summary.std},
          {"mad_s", summary.mad},
          {"ci_low_s", summary.median_ci.low},
          {"ci_high_s", summary.median_ci.high},
          {"min_s", summary.min},
          {"max_s", summary.max},
          {"samples", summary.count},
          {"outliers", time->outliers}};
}

void add_roof(Json& json, const Work& work, const Roof& roof, const std::optional<double>& measured_s) {
  json["matmul_flop"] = work.matmul_flop;
  json["elementwise_flop"] = work.elementwise_flop;
  json["bytes"] = work.bytes;
  json["intensity"] = json_number(work.intensity());
  json["roof_s"] = json_number(roof.roof_s);
  json["bound"] = roof.bound;
  json["measured_s"] = json_number(measured_s);
  json["share"] = json_number(ratio_of(roof.roof_s, measured_s));
}

Json json_phases(const RunData& run) {
  Json phases = Json::array();
  for (const std::string& phase : phases_of(run)) {
    Json json = {{"phase", phase}, {"time", json_summary(phase_time(run, phase))}};
    const Work work = phase_work(run, phase);
    const auto median_s = phase_median(run, phase);
    add_roof(json, work, phase_roof(run, phase, work), median_s ? median_s : work.measured_s());
    phases.push_back(std::move(json));
  }
  return phases;
}

Json json_blocks(const RunData& run) {
  Json blocks = Json::array();
  const Work step = phase_work(run, kStep);
  for (const Group& block : blocks_of(run)) {
    const Work& work = block.work;
    Json json = {{"block", block.name},
                 {"phase", block.phase},
                 {"device_s", json_number(work.measured_s())},
                 {"wall_s", json_number(work.wall_s)},
                 {"gap_s", json_number(work.gap_s())},
                 {"time_share", json_number(ratio_of(work.measured_s(), step.measured_s()))},
                 {"launches", work.launches},
                 {"ops", work.ops}};
    add_roof(json, work, {.roof_s = work.roof_s, .bound = work.bound}, work.measured_s());
    blocks.push_back(std::move(json));
  }
  return blocks;
}

/// Statistics of the kernels, as the view of ops shows them.
Json json_kernels(const RunData& run) {
  Json kernels = Json::array();
  for (const Kernel& kernel : kernels_of(run)) {
    kernels.push_back({{"phase", kernel.phase},
                       {"name", kernel.name},
                       {"library", kernel.library},
                       {"variant", kernel.variant},
                       {"time_share", json_number(kernel.time_share)},
                       {"total_s", kernel.total_s},
                       {"instances", kernel.instances},
                       {"launches", kernel.launches},
                       {"avg_s", kernel.mean_s},
                       {"med_s", kernel.median_s},
                       {"min_s", kernel.min_s},
                       {"max_s", kernel.max_s},
                       {"std_s", kernel.std_s}});
  }
  return kernels;
}

/// What is quoted of a run; null where the record does not hold what a figure is made of.
Json json_figures(const RunData& run) {
  const RunFigures figures = figures_of(run);
  return {{"tokens", json_number(figures.tokens)},
          {"tokens_per_s", json_number(figures.tokens_per_s)},
          {"model_flop_per_s", json_number(figures.model_flop_per_s)},
          {"peak_flop_per_s", json_number(figures.peak_flop_per_s)},
          {"peak", figures.peak},
          {"mfu", json_number(figures.mfu)},
          {"datasheet_flop_per_s", json_number(figures.datasheet_flop_per_s)},
          {"datasheet_mfu", json_number(figures.datasheet_mfu)},
          {"matmul_flop_per_s", json_number(figures.matmul_flop_per_s)},
          {"matmul_share", json_number(figures.matmul_share)},
          {"roof_s", json_number(figures.roof_s)},
          {"roof_share", json_number(figures.roof_share)},
          {"peak_bytes", json_number(figures.peak_bytes)}};
}

/// Titles of the configuration's fields in their order, from the one table of them.
Json json_settings(const record::Config& config) {
  Json settings = Json::array();
  for (const auto& [key, value] : config.entries()) {
    const record::Field* field = record::find_field(key);
    settings.push_back({{"key", key},
                        {"title", field == nullptr ? key : std::string(field->title)},
                        {"text", record::format_value(value)}});
  }
  return settings;
}

Json json_samples(const RunData& run) {
  Names names;
  Columns columns({"step", "phase", "seconds", "kind", "outlier"});
  for (const record::Sample& sample : run.samples) {
    columns.push("step", sample.step);
    columns.push("phase", names.index(sample.phase));
    columns.push("seconds", json_number(sample.seconds));
    columns.push("kind", names.index(sample.kind));
    columns.push("outlier", sample.outlier ? 1 : 0);
  }
  return std::move(columns).json(&names);
}

void push_texts(Columns& columns, Names& names, const TimedOp& timed) {
  const record::Op& op = timed.op;
  columns.push("kind", names.index(op.kind));
  columns.push("class", names.index(op.op_class));
  columns.push("kernel", names.index(op.kernel));
  columns.push("name", names.index(op.name));
  columns.push("phase", names.index(op.phase));
  columns.push("scope", names.index(op.scope));
  columns.push("dtype", names.index(op.dtype));
  columns.push("shapes", names.index(op.shapes));
  columns.push("bound", names.index(timed.bound));
}

void push_times(Columns& columns, const TimedOp& timed) {
  const auto& time = timed.time;
  columns.push("instances", time ? time->instances : 0);
  columns.push("device_s", time ? json_number(time->device_s) : Json());
  columns.push("wall_s", time ? json_number(time->wall_s) : Json());
  columns.push("min_s", time ? json_number(time->min_s) : Json());
  columns.push("max_s", time ? json_number(time->max_s) : Json());
  columns.push("std_s", time ? json_number(time->std_s) : Json());
}

Json json_ops(const RunData& run) {
  Names names;
  Columns columns({"op",    "kind",     "class",     "kernel",     "name",        "phase",
                   "scope", "dtype",    "shapes",    "recomputed", "matmul_flop", "elementwise_flop",
                   "bytes", "launches", "instances", "device_s",   "wall_s",      "min_s",
                   "max_s", "std_s",    "roof_s",    "bound"});
  for (const TimedOp& timed : run.ops) {
    const record::Op& op = timed.op;
    if (op.phase == "setup") continue;
    columns.push("op", op.op);
    push_texts(columns, names, timed);
    columns.push("recomputed", op.recomputed ? 1 : 0);
    columns.push("matmul_flop", op.matmul_flop);
    columns.push("elementwise_flop", op.elementwise_flop);
    columns.push("bytes", op.bytes_read + op.bytes_written);
    columns.push("launches", op.launches);
    push_times(columns, timed);
    columns.push("roof_s", json_number(timed.roof_s));
  }
  return std::move(columns).json(&names);
}

Json json_tensors(const RunData& run) {
  Names names;
  Columns columns({"name", "role", "bytes", "first_op", "last_op", "offset", "scope"});
  for (const record::Tensor& tensor : run.tensors) {
    const TimedOp* maker = run.find_op(tensor.first_op);
    columns.push("name", names.index(tensor.name));
    columns.push("role", names.index(tensor.role));
    columns.push("bytes", tensor.bytes);
    columns.push("first_op", tensor.first_op);
    columns.push("last_op", tensor.last_op);
    columns.push("offset", tensor.offset ? Json(*tensor.offset) : Json());
    columns.push("scope", names.index(maker == nullptr ? "" : maker->op.scope));
  }
  return std::move(columns).json(&names);
}

/// Events name tensors by their place among the tensors of the document; -1 for one that is not there.
Json json_memory_events(const RunData& run) {
  std::unordered_map<std::int64_t, std::int64_t> place;
  for (const record::Tensor& tensor : run.tensors) {
    place.try_emplace(tensor.tensor, static_cast<std::int64_t>(place.size()));
  }
  Columns columns({"op", "tensor", "bytes", "live_bytes"});
  for (const record::MemoryEvent& event : run.memory_events) {
    const auto found = event.tensor ? place.find(*event.tensor) : place.end();
    columns.push("op", event.op.value_or(-1));
    columns.push("tensor", found == place.end() ? -1 : found->second);
    columns.push("bytes", event.bytes);
    columns.push("live_bytes", event.live_bytes);
  }
  return std::move(columns).json(nullptr);
}

Json json_memory(const RunData& run) {
  const MemoryCurve curve(run);
  if (curve.empty()) return nullptr;
  std::map<std::string, std::int64_t> persistent;
  for (const record::Tensor& tensor : run.tensors) {
    if (tensor.first_op < 0) persistent[tensor.role] += tensor.bytes;
  }
  const auto by_role = [](const std::map<std::string, std::int64_t>& bytes_of) {
    Json roles = Json::array();
    for (const auto& [role, bytes] : bytes_of) roles.push_back({{"role", role}, {"bytes", bytes}});
    return roles;
  };
  return {{"persistent", by_role(persistent)}, {"peak_roles", by_role(curve.peak_by_role())},
          {"peak_bytes", curve.peak_bytes()},  {"peak_event", curve.peak_event()},
          {"events", json_memory_events(run)}, {"tensors", json_tensors(run)}};
}

}  // namespace

Json json_run(const RunData& run, std::size_t id) {
  return {{"id", id},
          {"label", run.run.label},
          {"file", run.file},
          {"status", run.run.status},
          {"kind", run.run.kind},
          {"config", json_config(run.run.config)},
          {"settings", json_settings(run.run.config)},
          {"facts", json_facts(run)},
          {"figures", json_figures(run)},
          {"kernels", json_kernels(run)},
          {"step", json_summary(phase_time(run, kStep))},
          {"phases", json_phases(run)},
          {"blocks", json_blocks(run)},
          {"samples", json_samples(run)},
          {"ops", json_ops(run)},
          {"memory", json_memory(run)}};
}

}  // namespace rooflm::report

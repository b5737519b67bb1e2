// One run as a part of the document.
#include "report/page/document_run.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "report/findings/why.h"
#include "report/model/kernels.h"
#include "report/model/run_figures.h"
#include "report/model/summaries.h"
#include "report/model/work_figures.h"
#include "report/page/columns.h"
#include "report/page/model_graph.h"
#include "report/views/view.h"

namespace rooflm::report {
namespace {

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
    if (fact.key == record::kModelFact) continue;  // the model's drawing has it
    facts[fact.key] = {{"value", json_number(fact.value)}, {"unit", fact.unit}, {"text", fact.text}};
  }
  return facts;
}

Json json_summary(const std::optional<core::Summary>& time) {
  if (!time) return nullptr;
  return {{"median_s", time->median},
          {"mean_s", time->mean},
          {"std_s", time->std},
          {"mad_s", time->mad},
          {"ci_low_s", time->median_ci.low},
          {"ci_high_s", time->median_ci.high},
          {"min_s", time->min},
          {"max_s", time->max},
          {"samples", time->count},
          {"outliers", time->outliers}};
}

void add_roof(Json& json, const Work& work, const Roof& roof, const std::optional<double>& measured_s,
              const std::optional<double>& step_s) {
  const WorkFigures figures = work_figures(work, roof.roof_s, measured_s, step_s);
  json["matmul_flop"] = work.matmul_flop;
  json["elementwise_flop"] = work.elementwise_flop;
  json["flop"] = figures.flop;
  json["bytes"] = work.bytes;
  json["intensity"] = json_number(figures.intensity);
  json["roof_s"] = json_number(roof.roof_s);
  json["bound"] = roof.bound;
  json["measured_s"] = json_number(measured_s);
  json["share"] = json_number(figures.roof_share);
  json["flop_per_s"] = json_number(figures.flop_per_s);
  json["byte_per_s"] = json_number(figures.byte_per_s);
  json["step_share"] = json_number(figures.step_share);
  json["gain_s"] = json_number(figures.gain_s);
}

Json json_lines(const std::vector<RoofLine>& lines) {
  Json json = Json::array();
  for (const RoofLine& line : lines) json.push_back({{"name", line.name}, {"value", line.value}});
  return json;
}

Json json_roofs(const RunData& run) {
  const RoofLines roofs = roof_lines(run);
  return {{"rates", json_lines(roofs.rates)}, {"bandwidths", json_lines(roofs.bandwidths)}};
}

Json json_phases(const RunData& run) {
  Json phases = Json::array();
  const auto step_s = phase_median(run, kStep);
  for (const std::string& phase : phases_of(run)) {
    Json json = {{"phase", phase}, {"time", json_summary(phase_time(run, phase))}};
    const Work work = own_work(run, phase);
    const auto median_s = phase_median(run, phase);
    add_roof(json, work, phase_roof(run, phase, work), median_s ? median_s : work.measured_s(), step_s);
    phases.push_back(std::move(json));
  }
  return phases;
}

Json json_blocks(const RunData& run) {
  Json blocks = Json::array();
  const auto step_s = phase_median(run, kStep);
  for (const Group& block : blocks_of(run)) {
    const Work& work = block.work;
    Json json = {{"block", block.name},
                 {"phase", block.phase},
                 {"device_s", json_number(work.measured_s())},
                 {"wall_s", json_number(work.shown_wall_s())},
                 {"gap_s", json_number(work.shown_gap_s())},
                 {"time_share", json_number(block.time_share)},
                 {"launches", work.launches},
                 {"ops", work.ops}};
    add_roof(json, work, {.roof_s = work.roof_s, .bound = work.bound}, work.measured_s(), step_s);
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
          {"peak_bytes", json_number(figures.peak_bytes)},
          {"traced_step_s", json_number(figures.traced_step_s)},
          {"traced_steps", figures.traced_steps}};
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

}  // namespace

Json json_run(const RunData& run, std::size_t id, const Timeline& timeline) {
  const std::vector<Why> parts = why_of(run);
  return {{"id", id},
          {"label", run.run.label},
          {"file", run.file},
          {"status", run.run.status},
          {"kind", run.run.kind},
          {"config", json_config(run.run.config)},
          {"settings", json_settings(run.run.config)},
          {"facts", json_facts(run)},
          {"figures", json_figures(run)},
          {"glance", json_glance(run, parts)},
          {"kernels", json_kernels(run)},
          {"step", json_summary(phase_time(run, kStep))},
          {"phases", json_phases(run)},
          {"blocks", json_blocks(run)},
          {"samples", json_samples(run)},
          {"roofs", json_roofs(run)},
          {"ops", json_ops(run)},
          {"scopes", {{"layers", json_scopes(run, false)}, {"merged", json_scopes(run, true)}}},
          {"memory", json_memory(run)},
          {"timeline", json_timeline(timeline)},
          {"counted", json_counted(run)},
          {"why", json_why(parts)},
          {"gaps", json_gaps(run, timeline)},
          {"model", json_graph(model_graph(run))}};
}

}  // namespace rooflm::report

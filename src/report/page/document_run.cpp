// One run as a part of the document.
#include "report/page/document_run.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

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
  using Time = core::Summary;
  static const TypedColumns<Time> columns = {
      {"median_s", &Time::median},
      {"mean_s", &Time::mean},
      {"std_s", &Time::std},
      {"mad_s", &Time::mad},
      {"ci_low_s", [](const Time& one) { return one.median_ci.low; }},
      {"ci_high_s", [](const Time& one) { return one.median_ci.high; }},
      {"min_s", &Time::min},
      {"max_s", &Time::max},
      {"samples", &Time::count},
      {"outliers", &Time::outliers}};
  return time ? json_object(columns, *time) : Json();
}

/// The work of a phase or block with its roof and time.
struct RoofedWork {
  std::string name{}, phase{};
  Work work;
  Roof roof;
  std::optional<double> measured_s, time_share{};
  WorkFigures figures{};
};

RoofedWork roofed(RoofedWork of, const std::optional<double>& step_s) {
  of.figures = work_figures(of.work, of.roof.roof_s, of.measured_s, step_s);
  return of;
}

const TypedColumns<RoofedWork>& roof_columns() {
  using Of = RoofedWork;
  static const TypedColumns<Of> columns = {
      {"matmul_flop", [](const Of& of) { return of.work.matmul_flop; }},
      {"elementwise_flop", [](const Of& of) { return of.work.elementwise_flop; }},
      {"flop", [](const Of& of) { return of.figures.flop; }},
      {"bytes", [](const Of& of) { return of.work.bytes; }},
      {"intensity", [](const Of& of) { return of.figures.intensity; }},
      {"roof_s", [](const Of& of) { return of.roof.roof_s; }},
      {"bound", [](const Of& of) { return of.roof.bound; }},
      {"measured_s", &Of::measured_s},
      {"share", [](const Of& of) { return of.figures.roof_share; }},
      {"flop_per_s", [](const Of& of) { return of.figures.flop_per_s; }},
      {"byte_per_s", [](const Of& of) { return of.figures.byte_per_s; }},
      {"step_share", [](const Of& of) { return of.figures.step_share; }},
      {"gain_s", [](const Of& of) { return of.figures.gain_s; }}};
  return columns;
}

const TypedColumns<RoofedWork>& block_columns() {
  using Of = RoofedWork;
  static const TypedColumns<Of> columns = TypedColumns<Of>{
      {"block", &Of::name},
      {"phase", &Of::phase},
      {"device_s", [](const Of& of) { return of.work.measured_s(); }},
      {"wall_s", [](const Of& of) { return of.work.shown_wall_s(); }},
      {"gap_s", [](const Of& of) { return of.work.shown_gap_s(); }},
      {"time_share", &Of::time_share},
      {"launches", [](const Of& of) { return of.work.launches; }},
      {"ops", [](const Of& of) {
         return of.work.ops;
       }}}.add(roof_columns());
  return columns;
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
    json.update(json_object(roof_columns(), roofed({.work = work,
                                                    .roof = phase_roof(run, phase, work),
                                                    .measured_s = median_s ? median_s : work.measured_s()},
                                                   step_s)));
    phases.push_back(std::move(json));
  }
  return phases;
}

Json json_blocks(const RunData& run) {
  std::vector<RoofedWork> blocks;
  const auto step_s = phase_median(run, kStep);
  for (const Group& block : blocks_of(run)) {
    blocks.push_back(roofed({.name = block.name,
                             .phase = block.phase,
                             .work = block.work,
                             .roof = {.roof_s = block.work.shown_roof_s(), .bound = block.work.bound},
                             .measured_s = block.work.measured_s(),
                             .time_share = block.time_share},
                            step_s));
  }
  return json_objects(block_columns(), blocks);
}

/// Statistics of the kernels, as the view of ops shows them.
Json json_kernels(const RunData& run) {
  static const TypedColumns<Kernel> columns = {{"phase", &Kernel::phase},
                                               {"name", &Kernel::name},
                                               {"library", &Kernel::library},
                                               {"variant", &Kernel::variant},
                                               {"time_share", &Kernel::time_share},
                                               {"total_s", &Kernel::total_s},
                                               {"instances", &Kernel::instances},
                                               {"launches", &Kernel::launches},
                                               {"avg_s", &Kernel::mean_s},
                                               {"med_s", &Kernel::median_s},
                                               {"min_s", &Kernel::min_s},
                                               {"max_s", &Kernel::max_s},
                                               {"std_s", &Kernel::std_s}};
  return json_objects(columns, kernels_of(run));
}

/// What is quoted of a run; null where the record does not hold what a figure is made of.
Json json_figures(const RunData& run) {
  using Of = RunFigures;
  static const TypedColumns<Of> columns = {{"tokens", &Of::tokens},
                                           {"tokens_per_s", &Of::tokens_per_s},
                                           {"model_flop_per_s", &Of::model_flop_per_s},
                                           {"peak_flop_per_s", &Of::peak_flop_per_s},
                                           {"peak", &Of::peak},
                                           {"mfu", &Of::mfu},
                                           {"datasheet_flop_per_s", &Of::datasheet_flop_per_s},
                                           {"datasheet_mfu", &Of::datasheet_mfu},
                                           {"matmul_flop_per_s", &Of::matmul_flop_per_s},
                                           {"matmul_share", &Of::matmul_share},
                                           {"roof_s", &Of::roof_s},
                                           {"roof_share", &Of::roof_share},
                                           {"peak_bytes", &Of::peak_bytes},
                                           {"traced_step_s", &Of::traced_step_s},
                                           {"traced_steps", &Of::traced_steps}};
  return json_object(columns, figures_of(run));
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
  static const TypedColumns<record::Sample> columns = {
      {"step", &record::Sample::step},
      {"phase", &record::Sample::phase},
      {"seconds", &record::Sample::seconds},
      {"kind", &record::Sample::kind},
      {"outlier", [](const record::Sample& sample) { return sample.outlier ? 1 : 0; }}};
  return json_arrays(columns, run.samples);
}

}  // namespace

Json json_run(const RunData& run, std::size_t id, const Timeline& timeline, const Findings& found) {
  return {{"id", id},
          {"label", run.run.label},
          {"file", run.file},
          {"status", run.run.status},
          {"kind", run.run.kind},
          {"config", json_config(run.run.config)},
          {"settings", json_settings(run.run.config)},
          {"facts", json_facts(run)},
          {"figures", json_figures(run)},
          {"glance", json_glance(found.glance)},
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
          {"why", json_why(found.why)},
          {"gaps", json_gaps(run, timeline)},
          {"model", json_graph(model_graph(run))}};
}

}  // namespace rooflm::report

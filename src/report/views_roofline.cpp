// The roofline view: work against what the ceilings allow, as a table and as the log-log picture.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "report/ceiling_rows.h"
#include "report/roof_chart.h"
#include "report/summaries.h"
#include "report/view_def.h"
#include "report/work_figures.h"

namespace rooflm::report {
namespace {

Row roof_row(const std::string& phase, const std::string& subject, const Work& work, const Roof& roof,
             const std::optional<double>& measured_s) {
  const WorkFigures figures = work_figures(work, roof.roof_s, measured_s, {});
  Row row;
  row.set("phase", phase);
  row.set("subject", subject);
  const bool is_priced = work.is_priced();
  row.set("flop", is_priced ? Cell(work.matmul_flop + work.elementwise_flop) : Cell());
  row.set("matmul_flop", is_priced ? Cell(work.matmul_flop) : Cell());
  row.set("bytes", is_priced ? Cell(work.bytes) : Cell());
  row.set("intensity", cell_of(figures.intensity));
  row.set("bound", roof.bound);
  row.set("roof_s", cell_of(roof.roof_s));
  row.set("measured_s", cell_of(measured_s));
  row.set("share", cell_of(figures.roof_share));
  row.set("flop_per_s", cell_of(figures.flop_per_s));
  row.set("byte_per_s", cell_of(figures.byte_per_s));
  return row;
}

std::vector<Column> roof_columns() {
  return {{"phase", "phase"},
          {"subject", "subject"},
          {"flop", "FLOP", Show::si, "flop"},
          {"bytes", "bytes", Show::bytes, "byte"},
          {"intensity", "FLOP/B", Show::fixed2, "flop/byte"},
          {"bound", "bound by"},
          {"roof_s", "roof", Show::seconds, "s"},
          {"measured_s", "measured", Show::seconds, "s"},
          {"share", "share", Show::percent},
          {"flop_per_s", "FLOP/s", Show::si, "flop/s"},
          {"byte_per_s", "B/s", Show::si, "byte/s"}};
}

/// Parts of the step as marks, one series per phase.
Chart points_chart(const std::vector<Group>& parts) {
  Chart chart{.id = "roofline",
              .title = "Roofline",
              .note = "Each mark is a part of the step, summed over layers.",
              .kind = ChartKind::points,
              .x = {.title = "intensity", .unit = "flop/byte", .is_log = true},
              .y = {.title = "rate", .unit = "flop/s", .is_log = true}};
  for (const Group& part : parts) {
    const auto figures = work_figures(part.work);
    if (!figures.intensity || !figures.flop_per_s || *figures.flop_per_s <= 0) continue;
    series_named(chart, part.phase).points.push_back({.x = *figures.intensity, .y = *figures.flop_per_s});
  }
  return chart;
}

Table counter_table(const RunData& run) {
  Table table{.columns = {{"phase", "phase"},
                          {"scope", "scope"},
                          {"name", "counter"},
                          {"value", "per step", Show::si},
                          {"unit", "unit"},
                          {"source", "source"}},
              .rows = {},
              .notes = {}};
  for (const record::Counter& counter : run.counters) {
    if (counter.op || counter.activity) continue;  // the view "counters" adds them up
    Row row;
    row.set("phase", counter.phase);
    row.set("scope", counter.scope);
    row.set("name", counter.name);
    row.set("value", counter.value);
    row.set("unit", counter.unit);
    row.set("source", counter.source);
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// Says why times beat roofs, where uncertain ceilings are in these roofs.
void note_loads(const RunData& run, Table& table) {
  const auto loads = uncertain_bounds(run.ceilings, run.run.config);
  if (loads.empty()) return;
  std::set<std::string> used;
  for (const Row& row : table.rows) {
    if (row.number("share") <= 1) continue;
    const std::string phase = row.text("phase");
    const std::string subject = row.text("subject");
    // A roof of several ops is made of several ceilings, and is named after the one that most of it is of.
    for (const TimedOp& op : run.ops) {
      const bool is_in_row =
          (phase == kStep || op.op.phase == phase) && (subject.starts_with("whole ") || op.part == subject);
      if (is_in_row && loads.contains(op.bound)) used.insert(op.bound);
    }
  }
  if (used.empty()) return;
  table.notes.push_back(
      fmt::format("share above 100 %: uncertain ceilings are too low ({})", fmt::join(used, ", ")));
}

void add_roofline(const RunData& run, const ViewOptions& /*options*/, View& view) {
  Table table{.columns = roof_columns(), .rows = {}, .notes = {}};
  if (!run.ops.empty()) {
    std::vector<std::string> phases = phases_of(run);
    phases.insert(phases.begin(), kStep);
    std::int64_t beside = 0;
    for (const std::string& phase : phases) {
      const Work work = own_work(run, phase);
      beside += phase_work(run, phase).ops - work.ops;
      if (work.ops == 0) continue;
      const auto wall_s = phase_median(run, phase);
      table.rows.push_back(roof_row(phase, phase == kStep ? "whole step" : "whole phase", work,
                                    phase_roof(run, phase, work), wall_s ? wall_s : work.measured_s()));
    }
    if (beside > 0)
      table.notes.push_back(fmt::format(
          "phases are without ops that run beside others (updates, collectives): {}; the whole step has them",
          beside));
  }
  const std::vector<Group> parts = parts_of(run);
  for (const Group& part : parts) {
    table.rows.push_back(roof_row(part.phase, part.name, part.work,
                                  {.roof_s = part.work.roof_s, .bound = part.work.bound},
                                  part.work.measured_s()));
  }
  note_loads(run, table);
  view.add("roofline", "Work, roof and time", std::move(table));
  view.add("roofline.counters", "Hardware counters", counter_table(run));
  Chart chart = points_chart(parts);
  add_roofs(run, chart);
  view.add(std::move(chart));
}

void add_ceilings(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  Table table{.columns = {{"device", "device"},
                          {"what", "what"},
                          {"level", "level"},
                          {"dtype", "dtype"},
                          {"threads", "threads"},
                          {"value", "ceiling", Show::si},
                          {"unit", "unit"},
                          {"share_of_instruction", "of instr.", Show::percent},
                          {"flop_per_s", "FLOP/s", Show::si, "flop/s"},
                          {"intensity", "FLOP/B", Show::fixed2, "flop/byte"},
                          {"ci_low", "from", Show::si},
                          {"ci_high", "to", Show::si},
                          {"problem", "problem"},
                          {"source", "source"}},
              .rows = {},
              .notes = {}};
  for (const RecordFile& file : set.files) {
    for (const CeilingRow& ceiling : ceiling_rows(file.ceilings)) {
      Row row = peaks_columns().row(ceiling);
      row.set("source", ceiling.source);
      if (set.files.size() > 1) row.set_first("file", file.name);
      table.rows.push_back(std::move(row));
    }
  }
  if (set.files.size() > 1) table.columns.insert(table.columns.begin(), Column{"file", "file"});
  view.add("roofline.ceilings", "Ceilings of this machine", std::move(table));
}

constexpr std::array kRooflineViews = {
    ViewDef{.place = 60,
            .info = {.name = "roofline",
                     .title = "Roofline",
                     .note = "roof: the least time that the ceilings of this machine allow for the counted "
                             "FLOP and bytes; share: roof / measured. With a low share a faster kernel "
                             "would save time; near 100 % only less work does. Measured: of the step and its "
                             "phases the wall "
                             "time without observer, of their parts the time in kernels.",
                     .needs = "ops and ceilings (rooflm profile)",
                     .is_on_page = true},
            .of_run = add_roofline,
            .of_all = add_ceilings},
};

}  // namespace

std::span<const ViewDef> views_roofline() { return kRooflineViews; }

}  // namespace rooflm::report

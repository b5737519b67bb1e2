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

#include "report/charts/roof_chart.h"
#include "report/model/summaries.h"
#include "report/model/work_figures.h"
#include "report/tables/ceiling_rows.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

/// A part of the step beside its roof.
struct Roofed {
  std::string phase, subject;
  Work work;
  Roof roof;
  std::optional<double> measured_s;
  WorkFigures figures;

  [[nodiscard]] std::optional<double> flop() const {
    return work.is_priced() ? std::optional<double>(work.matmul_flop + work.elementwise_flop) : std::nullopt;
  }
  [[nodiscard]] Cell matmul_flop() const { return work.is_priced() ? cell_from(work.matmul_flop) : Cell(); }
  [[nodiscard]] Cell bytes() const { return work.is_priced() ? cell_from(work.bytes) : Cell(); }
};

Roofed roofed(const std::string& phase, const std::string& subject, const Work& work, const Roof& roof,
              const std::optional<double>& measured_s) {
  return {.phase = phase,
          .subject = subject,
          .work = work,
          .roof = roof,
          .measured_s = measured_s,
          .figures = work_figures(work, roof.roof_s, measured_s, {})};
}

const TypedColumns<Roofed>& roof_columns() {
  static const TypedColumns<Roofed> columns = {
      {"phase", "phase", &Roofed::phase},
      {"subject", "subject", &Roofed::subject},
      {"flop", "FLOP", &Roofed::flop, Show::si, "flop"},
      {"matmul_flop", &Roofed::matmul_flop},
      {"bytes", "bytes", &Roofed::bytes, Show::bytes},
      {"intensity", "FLOP/B", [](const Roofed& one) { return one.figures.intensity; }, Show::fixed2,
       "flop/byte"},
      {"bound", "bound by", [](const Roofed& one) { return one.roof.bound; }},
      {"roof_s", "roof", [](const Roofed& one) { return one.roof.roof_s; }, Show::seconds},
      {"measured_s", "measured", &Roofed::measured_s, Show::seconds},
      {"share", "share", [](const Roofed& one) { return one.figures.roof_share; }, Show::percent},
      {"flop_per_s", "FLOP/s", [](const Roofed& one) { return one.figures.flop_per_s; }, Show::si, "flop/s"},
      {"byte_per_s", "B/s", [](const Roofed& one) { return one.figures.byte_per_s; }, Show::si, "byte/s"}};
  return columns;
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

const TypedColumns<record::Counter>& counter_columns() {
  using record::Counter;
  static const TypedColumns<Counter> columns = {
      {"phase", "phase", &Counter::phase}, {"scope", "scope", &Counter::scope},
      {"name", "counter", &Counter::name}, {"value", "per step", &Counter::value, Show::si},
      {"unit", "unit", &Counter::unit},    {"source", "source", &Counter::source}};
  return columns;
}

/// Of phases and scopes; the view "counters" adds up those of ops.
std::vector<record::Counter> counters_of_phases(const RunData& run) {
  std::vector<record::Counter> counters = run.counters;
  std::erase_if(counters, [](const record::Counter& one) { return one.op || one.activity; });
  return counters;
}

/// Says why times beat roofs, where uncertain ceilings are in these roofs.
std::string load_note(const RunData& run, const std::vector<Roofed>& rows) {
  const auto loads = uncertain_bounds(run.ceilings, run.run.config);
  std::set<std::string> used;
  for (const Roofed& row : rows) {
    if (loads.empty() || row.figures.roof_share.value_or(0) <= 1) continue;
    // A roof of several ops is made of several ceilings, and is named after the one that most of it is of.
    for (const TimedOp& op : run.ops) {
      const bool is_in_row = (row.phase == kStep || op.op.phase == row.phase) &&
                             (row.subject.starts_with("whole ") || op.part == row.subject);
      if (is_in_row && loads.contains(op.bound)) used.insert(op.bound);
    }
  }
  return used.empty()
             ? ""
             : fmt::format("share above 100 %: uncertain ceilings are too low ({})", fmt::join(used, ", "));
}

void add_roofline(const RunData& run, const ViewOptions& /*options*/, View& view) {
  std::vector<Roofed> rows;
  std::int64_t beside = 0;
  if (!run.ops.empty()) {
    std::vector<std::string> phases = phases_of(run);
    phases.insert(phases.begin(), kStep);
    for (const std::string& phase : phases) {
      const Work work = own_work(run, phase);
      beside += phase_work(run, phase).ops - work.ops;
      if (work.ops == 0) continue;
      const auto wall_s = phase_median(run, phase);
      rows.push_back(roofed(phase, phase == kStep ? "whole step" : "whole phase", work,
                            phase_roof(run, phase, work), wall_s ? wall_s : work.measured_s()));
    }
  }
  const std::vector<Group> parts = parts_of(run);
  for (const Group& part : parts) {
    rows.push_back(roofed(part.phase, part.name, part.work,
                          {.roof_s = part.work.shown_roof_s(), .bound = part.work.bound},
                          part.work.measured_s()));
  }
  Table table = roof_columns().table(rows);
  if (beside > 0)
    table.notes.push_back(fmt::format(
        "phases leave out overlapped ops (updates, collectives): {}; the whole step includes them", beside));
  if (std::string note = load_note(run, rows); !note.empty()) table.notes.push_back(std::move(note));
  view.add("roofline", "Work, roof and time", std::move(table));
  view.add("roofline.counters", "Hardware counters", counter_columns().table(counters_of_phases(run)));
  Chart chart = points_chart(parts);
  add_roofs(run, chart);
  view.add(std::move(chart));
}

/// A ceiling of one of several records.
struct FileCeiling {
  std::string file;  ///< "" where there is one record
  CeilingRow ceiling;
};

const TypedColumns<FileCeiling>& file_ceiling_columns() {
  static const TypedColumns<FileCeiling> columns =
      TypedColumns<FileCeiling>(
          {{"file", "file", [](const FileCeiling& one) { return known_text(one.file); }, Seen::when_known}})
          .add(ceiling_columns("ceiling", "from", "to")
                   .add({"samples", &CeilingRow::samples})
                   .add({"problem", "problem", &CeilingRow::problem})
                   .add({"source", "source", &CeilingRow::source})
                   .add({"measured_utc", &CeilingRow::measured_utc}),
               &FileCeiling::ceiling);
  return columns;
}

void add_ceilings(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  std::vector<FileCeiling> ceilings;
  for (const RecordFile& file : set.files) {
    for (const CeilingRow& ceiling : ceiling_rows(file.ceilings))
      ceilings.push_back({.file = set.files.size() > 1 ? file.name : "", .ceiling = ceiling});
  }
  view.add("roofline.ceilings", "Ceilings of this machine", file_ceiling_columns().table(ceilings));
}

constexpr std::array kRooflineViews = {
    ViewDef{.place = 60,
            .info = {.name = "roofline",
                     .title = "Roofline",
                     .note = "roof: the least time that the ceilings of this machine allow for the counted "
                             "FLOP and bytes; share: roof / measured. At a low share, a faster kernel would "
                             "save time; near 100 %, only less work does. Measured: wall time without "
                             "observer for the step and its phases, time in kernels for their parts.",
                     .needs = "ops and ceilings (rooflm profile)",
                     .is_on_page = true},
            .of_run = add_roofline,
            .of_all = add_ceilings,
            .columns = [] { return columns_of(roof_columns(), counter_columns(), file_ceiling_columns()); }},
};

}  // namespace

std::span<const ViewDef> views_roofline() { return kRooflineViews; }

}  // namespace rooflm::report

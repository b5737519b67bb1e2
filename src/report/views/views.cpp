// The views of a report by name: one row each.
#include "report/views/views.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/names.h"
#include "report/model/summaries.h"
#include "report/runs/sweep.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

/// Begins the note of a view without anything, unless the view says why itself.
constexpr std::string_view kNothingToShow = "Nothing to show:";

/// In the order of their places; made once.
const std::vector<ViewDef>& all_defs() {
  static const std::vector<ViewDef> defs = [] {
    std::vector<ViewDef> found;
    for (const std::span<const ViewDef> of_file : views_by_file()) {
      found.insert(found.end(), of_file.begin(), of_file.end());
    }
    std::ranges::stable_sort(found, {}, &ViewDef::place);
    return found;
  }();
  return defs;
}

const ViewDef& find_def(std::string_view name) {
  const auto found =
      std::ranges::find_if(all_defs(), [&](const ViewDef& def) { return def.info.name == name; });
  if (found != all_defs().end()) return *found;
  std::vector<std::string> names;
  for (const ViewDef& def : all_defs()) names.emplace_back(def.info.name);
  throw core::UsageError(core::unknown_name("view", name, names));
}

/// Charts over runs become one chart; others stay apart, with the run in their title.
void merge_chart(View& all, Chart&& chart, const std::string& label, bool is_several, std::size_t number) {
  const auto same = std::find_if(all.charts.begin(), all.charts.end(),
                                 [&](const Chart& other) { return other.id == chart.id; });
  const bool is_over_runs = chart.x.title == kRunAxis;
  if (is_over_runs && is_several) chart.x.categories = {label};
  if (!is_over_runs || same == all.charts.end()) {
    if (is_several && !is_over_runs) {
      chart.title += ": " + label;
      chart.id += fmt::format(".{}", number);
    }
    all.charts.push_back(std::move(chart));
    return;
  }
  const double x = category_index(same->x, label);
  for (Series& series : chart.series) {
    for (ChartPoint& point : series.points) {
      point.x = x;
      series_named(*same, series.name).points.push_back(point);
    }
  }
}

/// Columns that another run's table has beside those of the first: roles of memory, kernels where steps were
/// traced.
void add_columns(std::vector<Column>& columns, const std::vector<Column>& more) {
  for (const Column& column : more) {
    if (std::ranges::find(columns, column.key, &Column::key) == columns.end()) columns.push_back(column);
  }
}

/// Notes of the tables of one run after another, by the table's id.
using Notes = std::map<std::string, std::vector<std::pair<std::string, std::string>>>;

/// Appends the tables of one run to those of all: same id, same table, a first column that says which run.
void merge(View& all, View&& one, const RunName& name, bool is_several, std::size_t number, Notes& notes) {
  for (ViewTable& table : one.tables) {
    if (is_several) {
      for (Row& row : table.table.rows) {
        row.set_first("which", name.which);
        row.set_first("run", name.label);
      }
      for (std::string& note : table.table.notes) notes[table.id].emplace_back(name.which, std::move(note));
      table.table.notes.clear();
      table.table.columns.insert(table.table.columns.begin(),
                                 Column{.key = "which", .title = "run", .is_group = true});
    }
    const auto same = std::find_if(all.tables.begin(), all.tables.end(),
                                   [&](const ViewTable& other) { return other.id == table.id; });
    if (same == all.tables.end()) {
      all.tables.push_back(std::move(table));
      continue;
    }
    add_columns(same->table.columns, table.table.columns);
    std::move(table.table.rows.begin(), table.table.rows.end(), std::back_inserter(same->table.rows));
  }
  for (Chart& chart : one.charts) merge_chart(all, std::move(chart), name.which, is_several, number);
}

/// What several runs have to say is said once, what is one run's with its name.
void add_notes(View& all, const Notes& notes) {
  for (ViewTable& table : all.tables) {
    const auto of_table = notes.find(table.id);
    if (of_table == notes.end()) continue;
    for (const auto& [which, note] : of_table->second) {
      const bool is_shared =
          std::ranges::count(of_table->second, note, &std::pair<std::string, std::string>::second) > 1;
      std::string line = is_shared ? note : fmt::format("{}: {}", which, note);
      if (std::ranges::find(table.table.notes, line) == table.table.notes.end()) {
        table.table.notes.push_back(std::move(line));
      }
    }
  }
}

}  // namespace

std::span<const ViewInfo> all_views() {
  static const std::vector<ViewInfo> infos = [] {
    std::vector<ViewInfo> found;
    for (const ViewDef& def : all_defs()) found.push_back(def.info);
    return found;
  }();
  return infos;
}

const ViewInfo& find_view(std::string_view name) { return find_def(name).info; }

std::optional<std::vector<Column>> columns_of_view(std::string_view name,
                                                   std::span<const std::string> roles) {
  const ViewDef& def = find_def(name);
  if (def.columns == nullptr || (def.has_roles && roles.empty())) return std::nullopt;
  std::vector<Column> columns = def.columns();
  if (def.has_roles) {
    for (const std::string& role : roles) columns.push_back({.key = role, .title = role});
  }
  columns.insert(columns.end(), {{"run", "run"}, {"which", "run"}});
  return columns;
}

bool lacks_records(const View& view) { return view.note.starts_with(kNothingToShow); }

View make_view(std::string_view name, const RecordSet& set, const ViewOptions& options) {
  const ViewDef& maker = find_def(name);
  const ViewInfo& info = maker.info;
  View view{.name = std::string(info.name), .title = std::string(info.title), .note = std::string(info.note)};
  if (maker.of_run != nullptr) {
    const std::vector<RunName> names = run_names(set.runs);
    Notes notes;
    for (std::size_t i = 0; i < set.runs.size(); ++i) {
      View one;
      maker.of_run(set.runs[i], {.top = options.top, .set = &set}, one);
      merge(view, std::move(one), names[i], set.runs.size() > 1, i, notes);
    }
    add_notes(view, notes);
  }
  if (maker.of_all != nullptr) maker.of_all(set, options, view);
  // A view that changed its note has said itself why there is nothing.
  if (view.tables.empty() && view.charts.empty() && view.note == info.note) {
    view.note = fmt::format("{} this view needs {}.", kNothingToShow, info.needs);
  }
  if (info.warns_of_load && (!view.tables.empty() || !view.charts.empty())) {
    if (const std::string load = load_sentence(set); !load.empty()) view.note += " " + load;
  }
  // Said even where a record was cut short before it held a run.
  if (&maker == &all_defs().front()) {
    for (const RecordFile& file : set.files) {
      if (!file.is_complete) {
        view.note += fmt::format(" {} is partial: its run was interrupted or is still running.", file.name);
      }
    }
  }
  return view;
}

}  // namespace rooflm::report

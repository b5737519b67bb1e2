// The views of plans: numbers with their intervals, memory, where the time goes, scaling, what a search
// found.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/tables/plan_figures.h"
#include "report/tables/plan_rows.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

/// A number of the headline: where its row has it, and the ends and the kind of its interval.
struct Number {
  const char *what, *key, *unit, *low, *high, *kind;
};
constexpr std::array kPlanNumbers = {
    Number{"step", "step_s", "s", "step_low_s", "step_high_s", "step_kind"},
    Number{"tokens per second", "tokens_per_s", "", "tokens_per_s_low", "tokens_per_s_high", "step_kind"},
    Number{"MFU", "mfu", "share", "mfu_low", "mfu_high", "step_kind"},
    Number{"HFU", "hfu", "share", "hfu_low", "hfu_high", "step_kind"},
    Number{"peak memory per rank", "peak_bytes", "byte", "peak_low_bytes", "peak_high_bytes", "memory_kind"},
    Number{"days", "days", "", "days_low", "days_high", "step_kind"},
    Number{"GPU-hours", "gpu_hours", "", "gpu_hours_low", "gpu_hours_high", "step_kind"},
    Number{"price", "price", "", "price_low", "price_high", "step_kind"},
    Number{"energy in kWh, at most", "energy_kwh", "", "energy_kwh_low", "energy_kwh_high", "step_kind"},
    Number{"goodput", "goodput", "share", "", "", "goodput_kind"},
};

/// More bars stand in no picture; tables have all rows.
constexpr std::size_t kMostBars = 40;

void take_cell(Row& to, const char* key, const Row& from, const char* source) {
  if (const Cell* cell = from.find(source)) to.set(key, *cell);
}

Table plan_number_table(const Row& plan) {
  Table table{.columns = {{"what", "what"},
                          {"value", "value"},
                          {"low", "from"},
                          {"high", "to"},
                          {"unit", "unit"},
                          {"kind", "kind"}},
              .rows = {},
              .notes = {}};
  for (const Number& number : kPlanNumbers) {
    if (plan.find(number.key) == nullptr) continue;
    Row row;
    row.set("what", std::string(number.what));
    take_cell(row, "value", plan, number.key);
    take_cell(row, "low", plan, number.low);
    take_cell(row, "high", plan, number.high);
    row.set("unit", std::string(number.unit));
    take_cell(row, "kind", plan, number.kind);
    table.rows.push_back(std::move(row));
  }
  return table;
}

void add_plan_plans(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  const std::vector<Row> plans = plan_rows(set, record::kPlanSeries);
  const Row* const shown = shown_plan(plans);
  if (shown == nullptr) return;
  view.add("plan.numbers", "The plan in numbers", plan_number_table(*shown));
  Table table{.columns = plan_columns(plans), .rows = plans, .notes = {}};
  for (const Row& note : plan_rows(set, record::kPlanNotesSeries)) table.notes.push_back(note.text("note"));
  view.add("plan.rows", plans.size() == 1 ? "The plan" : "The plans", std::move(table));
}

/// Of several plans one is taken apart.
void say_which(const RecordSet& set, View& view) {
  const std::vector<Row> plans = plan_rows(set, record::kPlanSeries);
  const Row* const shown = shown_plan(plans);
  if (plans.size() < 2) return;
  const std::vector<std::string> names = plan_names(plans);
  view.note += fmt::format(" Taken apart: {}.", names[static_cast<std::size_t>(shown - plans.data())]);
}

std::string ranks_of(const Row& role) { return role.text("ranks"); }

void add_plan_memory(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  const std::vector<Row> roles = plan_rows(set, record::kPlanMemorySeries);
  Table table{.columns = {{"ranks", "ranks"}}, .rows = roles, .notes = {}};
  Chart chart{.id = "plan.memory",
              .title = "Memory of a rank at its peak, by what holds it",
              .kind = ChartKind::stacked,
              .x = {.title = "ranks"},
              .y = {.title = "memory", .unit = "byte"}};
  for (const StepPart& part : memory_parts()) {
    table.columns.push_back({part.key, part.name, Show::bytes, "byte"});
    Series& series = series_named(chart, part.name);
    for (const Row& role : std::span(roles).first(std::min(roles.size(), kMostBars)))
      series.points.push_back({.x = category_index(chart.x, ranks_of(role)), .y = role.number(part.key)});
  }
  table.columns.push_back({"peak_bytes", "in all", Show::bytes, "byte"});
  table.columns.push_back({"memory_left_bytes", "left", Show::bytes, "byte"});
  if (std::ranges::any_of(roles, [](const Row& role) { return role.find("peak_at") != nullptr; }))
    table.columns.push_back({"peak_at", "peak at"});
  if (!roles.empty())
    chart.limit = ChartLimit{.y = roles.front().number("memory_limit_bytes"), .name = "memory of the device"};
  if (roles.empty()) chart.series.clear();
  if (!roles.empty()) say_which(set, view);
  view.add(std::move(chart));
  view.add("plan.memory", "Memory of a rank", std::move(table));
}

Chart plan_term_chart(const std::vector<Row>& terms) {
  Chart chart{.id = "plan.terms",
              .title = "The step, term by term",
              .kind = ChartKind::bar,
              .x = {.title = "term"},
              .y = {.title = "time", .unit = "s"}};
  for (const Row& term : std::span(terms).first(std::min(terms.size(), kMostBars))) {
    if (term.text("term") == "step_s" || term.number("seconds") <= 0) continue;
    series_named(chart, "time")
        .points.push_back({.x = category_index(chart.x, term.text("term")), .y = term.number("seconds")});
  }
  return chart;
}

Chart plan_part_chart(std::vector<Row> plans) {
  std::erase_if(plans, [](const Row& plan) { return plan.find("step_s") == nullptr; });
  if (plans.size() > kMostBars) plans.resize(kMostBars);
  Chart chart{.id = "plan.parts",
              .title = "What the steps are made of",
              .kind = ChartKind::stacked,
              .x = {.title = "plan"},
              .y = {.title = "time of a step", .unit = "s"}};
  const std::vector<std::string> names = plan_names(plans);
  for (const StepPart& part : step_parts()) {
    Series series{.name = part.name};
    bool is_any = false;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      series.points.push_back({.x = category_index(chart.x, names[i]), .y = plans[i].number(part.key)});
      is_any = is_any || series.points.back().y > 0;
    }
    if (is_any) chart.series.push_back(std::move(series));
  }
  return chart;
}

void add_plan_time(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  view.add(plan_part_chart(plan_rows(set, record::kPlanSeries)));
  const std::vector<Row> terms = plan_rows(set, record::kPlanTermsSeries);
  if (!terms.empty()) say_which(set, view);
  view.add(plan_term_chart(terms));
  view.add("plan.terms", "How the time of a step comes about",
           Table{.columns = columns_of(term_columns()), .rows = terms, .notes = {}});
}

/// Curves one after another: of each the number of GPUs grows.
std::vector<std::vector<Row>> plan_curves(const std::vector<Row>& plans) {
  std::vector<std::vector<Row>> curves;
  for (const Row& plan : plans) {
    if (plan.find("speed_up") == nullptr) continue;
    if (curves.empty() || plan.number("gpus") <= curves.back().back().number("gpus")) curves.emplace_back();
    curves.back().push_back(plan);
  }
  return curves;
}

Chart plan_curve_chart(const std::vector<std::vector<Row>>& curves, const char* key, const char* title,
                       Axis y) {
  Chart chart{.id = fmt::format("plan.{}", key),
              .title = title,
              .kind = ChartKind::line,
              .x = {.title = "GPUs", .is_log = true},
              .y = std::move(y)};
  std::vector<Row> firsts;
  for (const auto& curve : curves) firsts.push_back(curve.front());
  std::vector<std::string> names = plan_names(firsts);
  if (curves.size() == 1) names.front() = "planned";
  for (std::size_t i = 0; i < curves.size(); ++i) {
    Series& series = series_named(chart, names[i]);
    for (const Row& plan : curves[i])
      series.points.push_back({.x = plan.number("gpus"), .y = plan.number(key)});
  }
  return chart;
}

void add_plan_scaling(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  const auto curves = plan_curves(plan_rows(set, record::kPlanSeries));
  if (curves.empty()) return;
  Chart speed_up =
      plan_curve_chart(curves, "speed_up", "Speed-up over GPUs", {.title = "speed-up", .is_log = true});
  Series ideal{.name = "linear"};
  for (const Row& plan : curves.front())
    ideal.points.push_back(
        {.x = plan.number("gpus"), .y = plan.number("gpus") / curves.front().front().number("gpus")});
  speed_up.series.push_back(std::move(ideal));
  view.add(std::move(speed_up));
  view.add(plan_curve_chart(curves, "efficiency", "Efficiency over GPUs",
                            {.title = "efficiency", .unit = "share"}));
  view.add(plan_curve_chart(curves, "tokens_per_s", "Tokens a second over GPUs",
                            {.title = "tokens/s", .unit = "tokens/s", .is_log = true}));
}

/// What tells splits apart, with the reasons beside their times: all of one search share the rest.
std::vector<Column> search_columns(const std::vector<Row>& found) {
  std::vector<Column> columns = plan_columns(found);
  const auto is_shared = [&](const Column& column) {
    const auto text = [&](const Row& row) {
      const Cell* cell = row.find(column.key);
      return cell == nullptr ? "" : format_cell(*cell, Show::plain);
    };
    return column.key != "status" &&
           std::ranges::all_of(found, [&](const Row& row) { return text(row) == text(found.front()); });
  };
  if (found.size() > 1) std::erase_if(columns, is_shared);
  const auto at = [&](std::string_view key) { return std::ranges::find(columns, key, &Column::key); };
  const auto reason = at("reason");
  if (const auto step = at("step_s"); step < reason && reason != columns.end())
    std::rotate(step + 1, reason, reason + 1);
  return columns;
}

void add_plan_search(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  const std::vector<Row> found = plan_rows(set, record::kPlanSearchSeries);
  if (found.empty()) return;
  const std::vector<std::string> names = plan_names(found);
  Chart chart{.id = "plan.frontier",
              .title = "Time against memory of the splits that were planned",
              .kind = ChartKind::points,
              .x = {.title = "peak memory per rank", .unit = "byte"},
              .y = {.title = "time of a step", .unit = "s"}};
  const auto point = [&](std::size_t i) {
    return ChartPoint{.x = found[i].number("peak_bytes"),
                      .y = found[i].number("step_s"),
                      .low = {},
                      .high = {},
                      .label = names[i]};
  };
  const std::vector<std::size_t> best = frontier_of(found);
  const std::set<std::size_t> is_best(best.begin(), best.end());
  Series beaten{.name = "beaten in both"};
  Series frontier{.name = "on the frontier"};
  Series line{.name = "frontier", .is_line = true};
  for (std::size_t i = 0; i < found.size(); ++i)
    if (found[i].find("step_s") != nullptr && !is_best.contains(i)) beaten.points.push_back(point(i));
  for (const std::size_t i : best) {
    frontier.points.push_back(point(i));
    line.points.push_back(point(i));
  }
  for (Series* series : {&frontier, &beaten, &line})
    if (!series->points.empty()) chart.series.push_back(std::move(*series));
  view.add(std::move(chart));
  view.add("plan.search", "Splits that were planned to the end, and why each lost",
           Table{.columns = search_columns(found), .rows = found, .notes = {}});
}

void add_plan_against(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  const std::vector<Row> rows = plan_rows(set, record::kPlanAgainstSeries);
  if (rows.empty()) return;
  Chart chart{.id = "plan.against",
              .title = "Measured and planned",
              .kind = ChartKind::bar,
              .x = {.title = "what"},
              .y = {.title = "time", .unit = "s"}};
  std::set<std::string> runs;
  for (const Row& row : rows) runs.insert(row.text("run"));
  for (const Row& row : std::span(rows).first(std::min(rows.size(), kMostBars))) {
    if (row.text("unit") != "s") continue;
    const std::string what =
        runs.size() > 1 ? fmt::format("{}: {}", row.text("run"), row.text("what")) : row.text("what");
    for (const char* key : {"measured", "planned"})
      series_named(chart, key).points.push_back({.x = category_index(chart.x, what), .y = row.number(key)});
  }
  view.add(std::move(chart));
  view.add("plan.against", "A plan against a measurement",
           Table{.columns = columns_of(against_columns()), .rows = rows, .notes = {}});
}

constexpr std::string_view kNeedsPlan = "a plan (rooflm plan -o)";

constexpr std::array kPlanViews = {
    ViewDef{
        .place = 600,
        .info = {.name = "plan",
                 .title = "The plan",
                 .note = "Nothing was run. From and to: the ends of the interval; kind says what it comes "
                         "from: measured, calibrated or assumed.",
                 .needs = kNeedsPlan},
        .of_all = add_plan_plans},
    ViewDef{.place = 601,
            .info = {.name = "plan_time",
                     .title = "Where the time of a planned step goes",
                     .note = "Terms add up to the step of the slowest rank. Exposed communication is what "
                             "computation does not hide, a bubble the time that a stage waits for others.",
                     .needs = kNeedsPlan},
            .of_all = add_plan_time},
    ViewDef{
        .place = 602,
        .info = {.name = "plan_memory",
                 .title = "Memory of a planned rank",
                 .note = "At the memory peak of each kind of rank. The peak is that of the tensors of its "
                         "program.",
                 .needs = kNeedsPlan},
        .of_all = add_plan_memory},
    ViewDef{.place = 603,
            .info = {.name = "plan_scaling",
                     .title = "Scaling of a plan",
                     .note = "Speed-up is tokens a second against the first number of GPUs, efficiency that "
                             "divided by the growth in GPUs.",
                     .needs = "a scaling curve (rooflm plan --scaling -o)"},
            .of_all = add_plan_scaling},
    ViewDef{
        .place = 604,
        .info = {.name = "plan_search",
                 .title = "Splits that a search planned",
                 .note =
                     "Only splits that were planned to the end: a search drops early what does not fit, "
                     "and what is neither among the best nor, by its bounds, on the frontier. Nothing that "
                     "was tried beats a split on the frontier in both time and memory.",
                 .needs = "a search (rooflm plan --search -o)"},
        .of_all = add_plan_search},
    ViewDef{
        .place = 605,
        .info = {.name = "plan_against",
                 .title = "A plan against a measurement",
                 .note = "Measured: medians of ops and of plain steps. Overlapping ops make a step shorter "
                         "than their sum.",
                 .needs = "a comparison (rooflm plan --against RECORD -o)"},
        .of_all = add_plan_against}};

}  // namespace

std::span<const ViewDef> views_plan() { return kPlanViews; }

}  // namespace rooflm::report

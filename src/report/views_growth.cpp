// The view of growth: exponents of time in sequence length, batch and heads, beside those of the work.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/growth.h"
#include "report/size_sweeps.h"
#include "report/summaries.h"
#include "report/view_def.h"

namespace rooflm::report {
namespace {

using Points = std::vector<std::pair<double, double>>;

/// Measured time and counted work of one subject over the sizes.
struct Curves {
  Points time, roof, flop, bytes;
};

using Subjects = std::vector<std::pair<std::pair<std::string, std::string>, Curves>>;

Curves& curves_of(Subjects& subjects, const std::string& phase, const std::string& name) {
  for (auto& [key, curves] : subjects) {
    if (key.first == phase && key.second == name) return curves;
  }
  return subjects.emplace_back(std::make_pair(phase, name), Curves()).second;
}

void add_point(Curves& curves, double x, const Work& work, const std::optional<double>& time_s,
               const std::optional<double>& roof_s) {
  if (time_s) curves.time.emplace_back(x, *time_s);
  if (roof_s) curves.roof.emplace_back(x, *roof_s);
  if (work.ops == 0) return;
  curves.flop.emplace_back(x, work.flop());
  curves.bytes.emplace_back(x, static_cast<double>(work.bytes));
}

/// Whole step and phases by end-to-end times, parts by times in kernels.
Subjects subjects_of(const std::vector<const RunData*>& runs, const std::string& axis) {
  Subjects subjects;
  for (const RunData* run : runs) {
    const auto x = static_cast<double>(size_of(*run, axis));
    std::vector<std::string> phases = phases_of(*run);
    phases.insert(phases.begin(), kStep);
    for (const std::string& phase : phases) {
      const Work work = phase_work(*run, phase);
      add_point(curves_of(subjects, phase, "all"), x, work, phase_median(*run, phase),
                phase_roof(*run, phase, work).roof_s);
    }
    for (const Group& part : parts_of(*run)) {
      add_point(curves_of(subjects, part.phase, part.name), x, part.work, part.work.measured_s(),
                part.work.roof_s);
    }
  }
  return subjects;
}

std::optional<double> exponent_of(const Points& points, std::size_t needed) {
  if (points.size() != needed) return std::nullopt;
  const auto growth = fit_growth(points);
  return growth ? std::optional<double>(growth->exponent) : std::nullopt;
}

Row growth_row(const std::string& axis, const std::string& range, const std::string& of,
               const std::string& phase, const std::string& name, const Curves& curves,
               const Growth& growth) {
  const std::size_t count = curves.time.size();
  const auto roof = exponent_of(curves.roof, count);
  const auto flop = exponent_of(curves.flop, count);
  const auto bytes = exponent_of(curves.bytes, count);
  Row row;
  row.set("size", axis);
  row.set("range", range);
  row.set("of", of);
  row.set("phase", phase);
  row.set("subject", name);
  row.set("points", static_cast<std::int64_t>(count));
  row.set("exponent", growth.exponent);
  row.set("std_error", count > 2 ? Cell(growth.std_error) : Cell());
  row.set("r2", count > 2 ? Cell(growth.r2) : Cell());
  row.set("expected", cell_of(roof ? roof : (flop ? flop : bytes)));
  row.set("flop_exponent", cell_of(flop));
  row.set("bytes_exponent", cell_of(bytes));
  row.set("roof_exponent", cell_of(roof));
  return row;
}

std::string range_of(const std::set<std::int64_t>& sizes) {
  return std::to_string(*sizes.begin()) + ".." + std::to_string(*sizes.rbegin());
}

Chart growth_chart(const std::string& axis, const std::string& of, const Subjects& subjects,
                   std::size_t number) {
  Chart chart{.id = "growth." + axis + "." + std::to_string(number),
              .title = "Time against " + axis + (of.empty() ? "" : ": " + of),
              .kind = ChartKind::line,
              .x = {.title = axis, .is_log = true},
              .y = {.title = "time", .unit = "s", .is_log = true}};
  for (const auto& [key, curves] : subjects) {
    // Attention against the rest is what differs; parts of other blocks would crowd the picture.
    const bool is_shown = key.second == "all" || block_of(key.second) == "attention";
    std::set<double> sizes;
    for (const auto& [x, y] : curves.time) sizes.insert(x);
    if (!is_shown || sizes.size() < 2) continue;
    Series& series = series_named(chart, key.second == "all" ? key.first : key.first + " " + key.second);
    for (const auto& [x, y] : curves.time) series.points.push_back({.x = x, .y = y});
  }
  return chart;
}

void add_growth(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  Table table{.columns = {{"size", "in"},
                          {"range", "range"},
                          {"phase", "phase"},
                          {"subject", "part"},
                          {"points", "runs"},
                          {"exponent", "exponent", Show::fixed2},
                          {"std_error", "+-", Show::fixed2},
                          {"r2", "R2", Show::fixed2},
                          {"expected", "expected", Show::fixed2},
                          {"flop_exponent", "of FLOP", Show::fixed2},
                          {"bytes_exponent", "of bytes", Show::fixed2}},
              .rows = {},
              .notes = {}};
  std::map<std::string, std::size_t> counts;  // of each axis
  std::size_t number = 0;
  for (const SizeSweep& sweep : size_sweeps(set)) {
    ++counts[sweep.axis];
    std::set<std::int64_t> sizes;
    for (const RunData* run : sweep.runs) sizes.insert(size_of(*run, sweep.axis));
    const Subjects subjects = subjects_of(sweep.runs, sweep.axis);
    for (const auto& [subject, curves] : subjects) {
      const auto growth = fit_growth(curves.time);
      if (!growth) continue;
      table.rows.push_back(
          growth_row(sweep.axis, range_of(sizes), sweep.of, subject.first, subject.second, curves, *growth));
    }
    view.add(growth_chart(sweep.axis, sweep.of, subjects, number++));
  }
  const bool has_several = std::ranges::any_of(counts, [](const auto& count) { return count.second > 1; });
  if (has_several) table.columns.insert(table.columns.begin() + 2, Column{"of", "of"});
  view.add("growth", "Exponents", std::move(table));
}

constexpr std::array kGrowthViews = {
    ViewDef{.place = 150,
            .info = {.name = "growth",
                     .title = "Growth",
                     .note = "Slope of log time against log size, over runs that differ in nothing else: 1 "
                             "is linear, 2 quadratic. expected is the slope of the roof time if known, else "
                             "of the FLOP, else of the bytes.",
                     .needs = "runs that differ in batch, seq or heads alone (a sweep)",
                     .is_on_page = false},
            .of_run = nullptr,
            .of_all = add_growth},
};

}  // namespace

std::span<const ViewDef> views_growth() { return kGrowthViews; }

}  // namespace rooflm::report

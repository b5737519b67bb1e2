// The view of growth: exponents of time in sequence length, batch and heads, beside those of the work.
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/model/summaries.h"
#include "report/runs/growth.h"
#include "report/runs/size_sweeps.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

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

/// A part of a sweep, and how its time grows.
struct GrowthRow {
  std::string size{}, range{}, of{}, phase{}, subject{};
  Curves curves{};
  Growth growth{};

  /// How certain a slope is, nobody knows of two points.
  [[nodiscard]] std::optional<double> certain(double value) const {
    return curves.time.size() > 2 ? std::optional(value) : std::nullopt;
  }
  [[nodiscard]] std::optional<double> std_error() const { return certain(growth.std_error); }
  [[nodiscard]] std::optional<double> r2() const { return certain(growth.r2); }
  [[nodiscard]] std::optional<double> flop() const { return exponent_of(curves.flop, curves.time.size()); }
  [[nodiscard]] std::optional<double> bytes() const { return exponent_of(curves.bytes, curves.time.size()); }
  [[nodiscard]] std::optional<double> roof() const { return exponent_of(curves.roof, curves.time.size()); }
  [[nodiscard]] std::optional<double> expected() const { return roof() ? roof() : flop() ? flop() : bytes(); }
};

const TypedColumns<GrowthRow>& growth_columns() {
  static const TypedColumns<GrowthRow> columns = {
      {"size", "in", &GrowthRow::size},
      {"range", "range", &GrowthRow::range},
      {"of", "of", &GrowthRow::of, Seen::when_known},
      {"phase", "phase", &GrowthRow::phase},
      {"subject", "part", &GrowthRow::subject},
      {"points", "runs", [](const GrowthRow& row) { return row.curves.time.size(); }},
      {"exponent", "exponent", [](const GrowthRow& row) { return row.growth.exponent; }, Show::fixed2},
      {"std_error", "+-", &GrowthRow::std_error, Show::fixed2},
      {"r2", "R2", &GrowthRow::r2, Show::fixed2},
      {"expected", "expected", &GrowthRow::expected, Show::fixed2},
      {"flop_exponent", "of FLOP", &GrowthRow::flop, Show::fixed2},
      {"bytes_exponent", "of bytes", &GrowthRow::bytes, Show::fixed2},
      {"roof_exponent", &GrowthRow::roof}};
  return columns;
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
  std::vector<GrowthRow> rows;
  std::size_t number = 0;
  for (const SizeSweep& sweep : size_sweeps(set)) {
    std::set<std::int64_t> sizes;
    for (const RunData* run : sweep.runs) sizes.insert(size_of(*run, sweep.axis));
    const Subjects subjects = subjects_of(sweep.runs, sweep.axis);
    for (const auto& [subject, curves] : subjects) {
      const auto growth = fit_growth(curves.time);
      if (!growth) continue;
      rows.push_back({.size = sweep.axis,
                      .range = range_of(sizes),
                      .of = sweep.of,
                      .phase = subject.first,
                      .subject = subject.second,
                      .curves = curves,
                      .growth = *growth});
    }
    view.add(growth_chart(sweep.axis, sweep.of, subjects, number++));
  }
  view.add("growth", "Exponents", growth_columns().table(rows));
}

constexpr std::array kGrowthViews = {
    ViewDef{.place = 150,
            .info = {.name = "growth",
                     .title = "Growth",
                     .note = "Slope of log time against log size, over runs that differ in nothing else: 1 "
                             "is linear, 2 quadratic. expected is the slope of the roof time if known, else "
                             "that of FLOP, else that of bytes.",
                     .needs = "runs that differ in batch, seq or heads alone (a sweep)"},
            .of_all = add_growth,
            .columns = [] { return columns_of(growth_columns()); }},
};

}  // namespace

std::span<const ViewDef> views_growth() { return kGrowthViews; }

}  // namespace rooflm::report

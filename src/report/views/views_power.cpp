// The view of what a device told of itself: power, clocks, temperature, throttling, and the energy of a step.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/statistics.h"
#include "core/units.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

/// The samples of one gauge, in the order of time.
std::map<std::string, std::vector<const record::Gauge*>> gauges_by_name(const RunData& run) {
  std::map<std::string, std::vector<const record::Gauge*>> gauges;
  for (const record::Gauge& gauge : run.gauges) gauges[gauge.name].push_back(&gauge);
  for (auto& [name, samples] : gauges) {
    std::ranges::stable_sort(samples, {}, [](const record::Gauge* gauge) { return gauge->time_ns; });
  }
  return gauges;
}

/// How a gauge is shown: clocks in MHz, as drivers give them, and bytes in MB.
struct UnitScale {
  double factor = 1;
  std::string unit;
};
UnitScale scale_of(const std::string& unit) {
  if (unit == "Hz") return {.factor = 1e-6, .unit = "MHz"};
  if (unit == "B" || unit == "byte") return {.factor = 1e-6, .unit = "MB"};
  return {.unit = unit == "C" ? "°C" : unit};
}

/// What a gauge showed.
struct GaugeSummary : core::Summary {
  std::string name{}, unit{};
};

const TypedColumns<GaugeSummary>& gauge_columns() {
  static const TypedColumns<GaugeSummary> columns = {{"name", "gauge", &GaugeSummary::name},
                                                     {"samples", "samples", &GaugeSummary::count},
                                                     {"min", "least", &GaugeSummary::min, Show::brief},
                                                     {"median", "median", &GaugeSummary::median, Show::brief},
                                                     {"max", "most", &GaugeSummary::max, Show::brief},
                                                     {"unit", "unit", &GaugeSummary::unit}};
  return columns;
}

Table gauge_table(const RunData& run) {
  std::vector<GaugeSummary> gauges;
  for (const auto& [name, samples] : gauges_by_name(run)) {
    if (name == "throttle") continue;  // bits
    const UnitScale scale = scale_of(samples.front()->unit);
    std::vector<double> values;
    for (const record::Gauge* sample : samples) values.push_back(scale.factor * sample->value);
    gauges.push_back({core::summarise(values), name, scale.unit});
  }
  Table table = gauge_columns().table(gauges);
  if (const std::string held = run.text("throttled"); !held.empty()) {
    table.notes.push_back(
        fmt::format("clock held down: {:.0f} % {}", 100 * run.number("throttled").value_or(0), held));
  }
  return table;
}

/// A fact of the run, and what it is called.
struct Energy : record::Fact {
  const char* what = "";
};

const TypedColumns<Energy>& energy_columns() {
  static const TypedColumns<Energy> columns = {{"what", "what", &Energy::what},
                                               {"value", "value", &Energy::value},
                                               {"unit", "unit", &Energy::unit},
                                               {"text", "from", &Energy::text}};
  return columns;
}

Table energy_table(const RunData& run) {
  std::vector<Energy> rows;
  for (const auto& [key, title] : {std::pair{"power_w", "mean power while steps ran"},
                                   {"energy_j", "energy of a step"},
                                   {"energy_j_per_token", "energy of a token"}}) {
    if (const record::Fact* fact = run.fact(key)) rows.push_back({*fact, title});
  }
  return energy_columns().table(rows);
}

/// One chart per gauge that changes how fast the device is.
void add_gauge_charts(const RunData& run, View& view) {
  for (const auto& [name, samples] : gauges_by_name(run)) {
    if (name != "power_w" && name != "sm_clock_hz" && name != "temperature_c") continue;
    const std::string title = name == "power_w"       ? "Power"
                              : name == "sm_clock_hz" ? "Clock of the multiprocessors"
                                                      : "Temperature";
    Chart chart{.id = "power." + name,
                .title = title,
                .note = {},
                .kind = ChartKind::line,
                .x = {.title = "time", .unit = "s"},
                .y = {.title = title, .unit = name == "temperature_c" ? "°C" : samples.front()->unit}};
    Series& series = series_named(chart, samples.front()->device);
    const std::int64_t begin_ns = samples.front()->time_ns;
    for (const record::Gauge* sample : samples) {
      series.points.push_back(
          {.x = core::kNano * static_cast<double>(sample->time_ns - begin_ns), .y = sample->value});
    }
    view.add(std::move(chart));
  }
}

void add_power(const RunData& run, const ViewOptions& /*options*/, View& view) {
  view.add("power", "Energy", energy_table(run));
  view.add("power.gauges", "Gauges", gauge_table(run));
  add_gauge_charts(run, view);
}

constexpr std::array kPowerViews = {
    ViewDef{.place = 66,
            .info = {.name = "power",
                     .title = "Power and clocks",
                     .note = "What the driver reported while steps ran. At the power limit the clock falls, "
                             "and with it the rate of everything that runs on multiprocessors.",
                     .needs = "gauges (a run on an NVIDIA GPU)"},
            .of_run = add_power,
            .columns = [] { return columns_of(energy_columns(), gauge_columns()); }}};

}  // namespace

std::span<const ViewDef> views_power() { return kPowerViews; }

}  // namespace rooflm::report

// The view of blocks over a size: who takes the time of a layer as the sequence, or the number of heads,
// grows.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "record/config.h"
#include "report/runs/scaling.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

struct Clock {
  const char* key;
  const char* title;
  bool is_wall;
};
constexpr std::array kClocks = {Clock{"device", "device time", false}, Clock{"wall", "wall time", true}};

/// "T" and "H" are what texts call them.
std::string size_symbol(const std::string& axis) {
  const record::Field* field = record::find_field(axis);
  return field == nullptr ? axis : std::string(field->title);
}

Chart chart_of(const Scaling& scaling, const Clock& clock, bool is_share, std::size_t number) {
  const std::string of = scaling.of.empty() ? "" : ", " + scaling.of;
  Chart chart{
      .id = fmt::format("scaling.{}.{}.{}{}", number, scaling.phase, clock.key, is_share ? ".share" : ""),
      .title = fmt::format("Blocks over {}: {} of {}{}{}", size_symbol(scaling.axis), clock.title,
                           scaling.phase, of, is_share ? ", shares" : ""),
      .kind = is_share ? ChartKind::stacked100 : ChartKind::stacked,
      .x = {.title = size_symbol(scaling.axis)},
      .y = {.title = clock.title, .unit = "s"}};
  for (const std::int64_t size : scaling.sizes) chart.x.categories.push_back(std::to_string(size));
  for (const ScalingPart& part : scaling.parts) {
    Series series{.name = part.name};
    for (std::size_t i = 0; i < scaling.sizes.size(); ++i) {
      const auto& seconds = clock.is_wall ? part.wall_s[i] : part.device_s[i];
      if (seconds) series.points.push_back({.x = static_cast<double>(i), .y = *seconds});
    }
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  return chart;
}

/// A part of a sweep, at its smallest and its largest size.
struct ScaledPart {
  const Scaling* sweep = nullptr;
  const ScalingPart* part = nullptr;
  [[nodiscard]] std::optional<double> share(bool is_last, bool is_wall) const {
    return sweep->share(*part, is_last ? sweep->sizes.size() - 1 : 0, is_wall);
  }
};

const TypedColumns<ScaledPart>& scaling_columns() {
  using Of = const ScaledPart&;
  static const TypedColumns<ScaledPart> columns = {
      {"size", "in", [](Of of) { return size_symbol(of.sweep->axis); }, Seen::when_differs},
      {"of", "of", [](Of of) { return of.sweep->of; }, Seen::when_differs},
      {"phase", "phase", [](Of of) { return of.sweep->phase; }},
      {"part", "part", [](Of of) { return of.part->name; }},
      {"smallest", "from", [](Of of) { return of.sweep->sizes.front(); }},
      {"first_s", "first device", [](Of of) { return of.part->device_s.front(); }, Show::seconds},
      {"first_share", "first share", [](Of of) { return of.share(false, false); }, Show::percent},
      {"first_wall_share", "of first wall", [](Of of) { return of.share(false, true); }, Show::percent},
      {"largest", "to", [](Of of) { return of.sweep->sizes.back(); }},
      {"last_s", "last device", [](Of of) { return of.part->device_s.back(); }, Show::seconds},
      {"last_share", "last share", [](Of of) { return of.share(true, false); }, Show::percent},
      {"last_wall_share", "of last wall", [](Of of) { return of.share(true, true); }, Show::percent},
      {"times", "times", [](Of of) { return ratio_of(of.part->device_s.back(), of.part->device_s.front()); },
       Show::fixed1}};
  return columns;
}

void add_scaling(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  std::vector<ScaledPart> rows;
  const std::vector<Scaling> all = scalings(set);
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const ScalingPart& part : all[i].parts) rows.push_back({.sweep = &all[i], .part = &part});
    for (const Clock& clock : kClocks) {
      for (const bool is_share : {false, true}) view.add(chart_of(all[i], clock, is_share, i));
    }
  }
  Table table = scaling_columns().table(rows);
  table.notes = {
      "layers are summed; --scope h.1 shows one layer; times: device time at the largest "
      "size divided by that at the smallest"};
  view.add("scaling", "Shares at the smallest and the largest size", std::move(table));
}

constexpr std::array kScalingViews = {
    ViewDef{
        .place = 35,
        .info = {.name = "scaling",
                 .title = "Blocks over a size",
                 .note =
                     "Time of each block, attention split, over the sequence length or the number of heads: "
                     "absolute and as shares, in kernels (device) and as observed from the host (wall).",
                 .needs = "observed runs that differ in seq, heads or batch alone (a sweep)"},
        .of_all = add_scaling,
        .columns = [] { return columns_of(scaling_columns()); }},
};

}  // namespace

std::span<const ViewDef> views_scaling() { return kScalingViews; }

}  // namespace rooflm::report

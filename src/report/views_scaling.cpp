// The view of blocks over a size: who takes the time of a layer as the sequence, or the number of heads,
// grows.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "record/config.h"
#include "report/scaling.h"
#include "report/view_def.h"

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

Row row_of(const Scaling& scaling, const ScalingPart& part) {
  const std::size_t last = scaling.sizes.size() - 1;
  Row row;
  row.set("size", size_symbol(scaling.axis));
  row.set("of", scaling.of);
  row.set("phase", scaling.phase);
  row.set("part", part.name);
  row.set("smallest", scaling.sizes.front());
  row.set("first_s", cell_of(part.device_s.front()));
  row.set("first_share", cell_of(scaling.share(part, 0, false)));
  row.set("first_wall_share", cell_of(scaling.share(part, 0, true)));
  row.set("largest", scaling.sizes.back());
  row.set("last_s", cell_of(part.device_s[last]));
  row.set("last_share", cell_of(scaling.share(part, last, false)));
  row.set("last_wall_share", cell_of(scaling.share(part, last, true)));
  row.set("times", cell_of(ratio_of(part.device_s[last], part.device_s.front())));
  return row;
}

void add_scaling(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  Table table{.columns = {{"phase", "phase"},
                          {"part", "part"},
                          {"smallest", "from"},
                          {"first_s", "first device", Show::seconds, "s"},
                          {"first_share", "first share", Show::percent},
                          {"first_wall_share", "of first wall", Show::percent},
                          {"largest", "to"},
                          {"last_s", "last device", Show::seconds, "s"},
                          {"last_share", "last share", Show::percent},
                          {"last_wall_share", "of last wall", Show::percent},
                          {"times", "times", Show::fixed1}},
              .rows = {},
              .notes = {"layers are summed; --scope h.1 shows one layer; times: device time at the largest "
                        "size divided by that at the smallest"}};
  const std::vector<Scaling> all = scalings(set);
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const ScalingPart& part : all[i].parts) table.rows.push_back(row_of(all[i], part));
    for (const Clock& clock : kClocks) {
      for (const bool is_share : {false, true}) view.add(chart_of(all[i], clock, is_share, i));
    }
  }
  const auto differ = [&](auto member) {
    return std::ranges::any_of(all, [&](const Scaling& one) { return one.*member != all.front().*member; });
  };
  if (differ(&Scaling::of)) table.columns.insert(table.columns.begin(), {"of", "of", Show::plain, "", true});
  if (differ(&Scaling::axis)) table.columns.insert(table.columns.begin(), {"size", "in"});
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
                 .needs = "observed runs that differ in seq, heads or batch alone (a sweep)",
                 .is_on_page = false},
        .of_run = nullptr,
        .of_all = add_scaling},
};

}  // namespace

std::span<const ViewDef> views_scaling() { return kScalingViews; }

}  // namespace rooflm::report

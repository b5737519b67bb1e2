// Work by the bytes that hardware counted at each level of memory.
#include "report/model/counted_levels.h"

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "report/charts/roof_chart.h"
#include "report/views/view.h"

namespace rooflm::report {
namespace {

/// Nothing where next to nothing goes through L1: Hopper's tensor copies pass it by.
std::optional<double> l1_bytes(const Counted& counted) {
  constexpr double kLeast = 0.1;  // of what L2 moved
  const auto bytes = counted.value("l1_bytes");
  const auto below = counted.value("l2_bytes");
  return bytes && below && *bytes < kLeast * *below ? std::nullopt : bytes;
}

/// Flop per byte at each level of memory, counted, beside the one by shapes.
struct Level {
  const char* name;
  std::optional<double> (*bytes)(const Counted&);
};
constexpr std::array kLevels = {Level{"DRAM", [](const Counted& counted) { return counted.dram_bytes(); }},
                                Level{"L2", [](const Counted& counted) { return counted.value("l2_bytes"); }},
                                Level{"L1", l1_bytes}};

}  // namespace

const TypedColumns<CountedGroup>& level_columns() {
  static const TypedColumns<CountedGroup> columns = [] {
    TypedColumns<CountedGroup> all = {
        {"phase", "phase", &CountedGroup::phase},
        {"part", "part", &CountedGroup::name},
        {"ops", [](const CountedGroup& group) { return group.counted.ops(); }},
        {"device_s", &CountedGroup::device_s},
        {"shape_intensity", "by shapes",
         [](const CountedGroup& group) {
           return group.bytes > 0 ? std::optional(group.matmul_flop / group.bytes) : std::nullopt;
         },
         Show::fixed2, "flop/byte"}};
    for (const Level& level : kLevels) {
      all.add({(std::string(level.name) + "_intensity").c_str(), level.name,
               [level](const CountedGroup& group) {
                 return ratio_of(group.counted.all_flop(), level.bytes(group.counted));
               },
               Show::fixed2, "flop/byte"});
    }
    all.add({"flop", [](const CountedGroup& group) { return group.counted.all_flop(); }});
    all.add({"flop_per_s", "FLOP/s",
             [](const CountedGroup& group) { return ratio_of(group.counted.all_flop(), group.device_s); },
             Show::si, "flop/s"});
    for (const Level& level : kLevels) {
      const std::string name(level.name);
      all.add({(name + "_byte_per_s").c_str(), (name + " B/s").c_str(),
               [level](const CountedGroup& group) {
                 return ratio_of(level.bytes(group.counted), group.device_s);
               },
               Show::si, "byte/s"});
    }
    return all;
  }();
  return columns;
}

Table level_table(const std::vector<CountedGroup>& groups, const char* title) {
  Table table = level_columns().with_title("part", title).table(groups);
  table.notes.emplace_back(
      "FLOP per byte: FLOP of tensor and CUDA cores, divided by the bytes counted at each "
      "level (L1 only if at least a tenth of the L2 bytes pass through it; tensor copies "
      "bypass it); time: from observed steps.");
  return table;
}

Chart level_chart(const RunData& run, const std::vector<CountedGroup>& groups) {
  Chart chart{.id = "counters.roofline",
              .title = "Roofline with counted bytes",
              .note = "Each part of the step at DRAM, L2 and L1 by counted bytes, and by shapes.",
              .kind = ChartKind::points,
              .x = {.title = "intensity", .unit = "flop/byte", .is_log = true},
              .y = {.title = "rate", .unit = "flop/s", .is_log = true}};
  for (const CountedGroup& group : groups) {
    const auto flop = group.counted.all_flop();
    const auto rate = ratio_of(flop, group.device_s);
    if (!rate || *rate <= 0) continue;
    for (const Level& level : kLevels) {
      const auto intensity = ratio_of(flop, level.bytes(group.counted));
      if (intensity && *intensity > 0)
        series_named(chart, level.name).points.push_back({.x = *intensity, .y = *rate});
    }
    const auto by_shape_rate = ratio_of(group.matmul_flop, group.device_s);
    if (group.bytes > 0 && group.matmul_flop > 0 && by_shape_rate) {
      series_named(chart, "by shapes")
          .points.push_back({.x = group.matmul_flop / group.bytes, .y = *by_shape_rate});
    }
  }
  add_roofs(run, chart);
  return chart;
}

}  // namespace rooflm::report

// Work by the bytes that hardware counted at each level of memory.
#include "report/counted_levels.h"

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "report/roof_chart.h"
#include "report/view.h"

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

Table level_table(const std::vector<CountedGroup>& groups, const char* title) {
  Table table{.columns = {{"phase", "phase"},
                          {"part", title},
                          {"shape_intensity", "by shapes", Show::fixed2, "flop/byte"},
                          {"DRAM_intensity", "DRAM", Show::fixed2, "flop/byte"},
                          {"L2_intensity", "L2", Show::fixed2, "flop/byte"},
                          {"L1_intensity", "L1", Show::fixed2, "flop/byte"},
                          {"flop_per_s", "FLOP/s", Show::si, "flop/s"},
                          {"DRAM_byte_per_s", "DRAM B/s", Show::si, "byte/s"},
                          {"L2_byte_per_s", "L2 B/s", Show::si, "byte/s"},
                          {"L1_byte_per_s", "L1 B/s", Show::si, "byte/s"}},
              .rows = {},
              .notes = {"FLOP per byte: FLOP of tensor and CUDA cores, divided by the bytes counted at each "
                        "level (L1 only if at least a tenth of the L2 bytes pass through it; tensor copies "
                        "bypass it); time: from observed steps."}};
  for (const CountedGroup& group : groups) {
    Row row;
    row.set("phase", group.phase);
    row.set("part", group.name);
    row.set("ops", group.counted.ops());
    row.set("device_s", cell_of(group.device_s));
    const auto flop = group.counted.all_flop();
    row.set("shape_intensity", group.bytes > 0 ? Cell(group.matmul_flop / group.bytes) : Cell());
    row.set("flop", cell_of(flop));
    row.set("flop_per_s", cell_of(ratio_of(flop, group.device_s)));
    for (const Level& level : kLevels) {
      const auto bytes = level.bytes(group.counted);
      row.set(std::string(level.name) + "_intensity", cell_of(ratio_of(flop, bytes)));
      row.set(std::string(level.name) + "_byte_per_s", cell_of(ratio_of(bytes, group.device_s)));
    }
    table.rows.push_back(std::move(row));
  }
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

// Views of a device's time: steps taken apart, lanes, idle time by cause, and how blocks fill the device.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/statistics.h"
#include "core/units.h"
#include "report/launch_parts.h"
#include "report/summaries.h"
#include "report/traced_kernels.h"
#include "report/view_def.h"

namespace rooflm::report {
namespace {

constexpr double kViewsDeviceNano = 1e-9;
constexpr std::string_view kStepEnd = "end of the step";

Table step_table(const RunData& run, const DeviceTimes& times, std::size_t top) {
  Table table{.columns = {{"step", "step"},
                          {"kind", "kind"},
                          {"kernels", "kernels"},
                          {"wall_s", "wall", Show::seconds, "s"},
                          {"event_s", "device events", Show::seconds, "s"},
                          {"exclusive_s", "exclusive", Show::seconds, "s"},
                          {"shared_s", "shared", Show::seconds, "s"},
                          {"idle_s", "idle", Show::seconds, "s"}},
              .rows = {},
              .notes = {"exclusive: one kernel ran; shared: several; idle: none; together they are the wall "
                        "time of the step. device events: time by the step's own timestamps"}};
  for (std::size_t i = 0; i < kIdleCauses; ++i) {
    const std::string name(name_of(static_cast<IdleCause>(i)));
    table.columns.push_back({"idle_" + name + "_s", name, Show::seconds, "s"});
  }
  const auto traced_s = phase_median(run, kSubmit, kTraced);
  const auto plain_s = phase_median(run, kSubmit);
  if (traced_s && plain_s) {
    table.notes.push_back(
        fmt::format("submitting a step takes the host {} when traced and {} in plain steps; a traced replay "
                    "starts on the device after that",
                    core::format_seconds(*traced_s), core::format_seconds(*plain_s)));
  }
  for (const DeviceStep& step : times.steps) {
    if (top > 0 && table.rows.size() == top) {
      table.notes.push_back(fmt::format("{} more steps (--top 0 shows all)", times.steps.size() - top));
      break;
    }
    Row row;
    row.set("step", step.step == kWholeRecording ? Cell() : Cell(step.step));
    row.set("kind", step.step == kWholeRecording ? "whole recording" : step.kind);
    row.set("kernels", static_cast<std::int64_t>(step.kernels));
    row.set("wall_s", step.span_s());
    row.set("event_s", cell_of(step.event_s));
    row.set("exclusive_s", step.exclusive_s);
    row.set("shared_s", step.shared_s);
    row.set("idle_s", step.idle_total_s());
    row.set("idle_within_s", step.idle_within_s);
    for (std::size_t i = 0; i < kIdleCauses; ++i) {
      row.set("idle_" + std::string(name_of(static_cast<IdleCause>(i))) + "_s", step.idle_s.at(i));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// Of one stream in traced steps.
struct LaneSum {
  std::vector<std::pair<std::int64_t, std::int64_t>> spans;
  double exclusive_s = 0, shared_s = 0;
  std::size_t kernels = 0, copies = 0;
};

/// Seconds that at least one of the spans covers.
double covered_s(std::vector<std::pair<std::int64_t, std::int64_t>> spans) {
  std::ranges::sort(spans);
  std::int64_t covered = 0;
  std::int64_t end = spans.empty() ? 0 : spans.front().first;
  for (const auto& [from, to] : spans) {
    covered += std::max<std::int64_t>(0, to - std::max(from, end));
    end = std::max(end, to);
  }
  return static_cast<double>(covered) * kViewsDeviceNano;
}

Table lane_table(const RunData& run, const TracedKernels& kernels, std::size_t top) {
  const ActivityNames names(run);
  std::map<std::int64_t, LaneSum> lanes;
  double span_s = 0;
  std::set<std::int64_t> traced;
  for (const DeviceStep& step : kernels.times().steps) {
    if (step.kind != kTraced) continue;
    traced.insert(step.step);
    span_s += step.span_s();
  }
  for (const record::Activity& activity : run.activities) {
    if (!activity.step || !traced.contains(*activity.step) || !names.is_copy(activity)) continue;
    lanes[activity.lane].spans.emplace_back(activity.start_ns, activity.end_ns);
    ++lanes[activity.lane].copies;
  }
  for (const TracedKernel& kernel : kernels.all()) {
    if (kernel.step_kind != kTraced) continue;
    LaneSum& lane = lanes[kernel.activity->lane];
    lane.spans.emplace_back(kernel.activity->start_ns, kernel.activity->end_ns);
    lane.exclusive_s += static_cast<double>(kernel.time.exclusive_ns) * kViewsDeviceNano;
    lane.shared_s += kernel.time.shared_ns * kViewsDeviceNano;
    ++lane.kernels;
  }
  Table table{.columns = {{"lane", "lane"},
                          {"device", "device"},
                          {"kernels", "kernels per step"},
                          {"copies", "copies per step"},
                          {"busy_s", "busy", Show::seconds, "s"},
                          {"busy_share", "of step", Show::percent},
                          {"exclusive_s", "exclusive", Show::seconds, "s"},
                          {"shared_s", "part of shared", Show::seconds, "s"}},
              .rows = {},
              .notes = {}};
  const auto steps = static_cast<double>(kernels.steps());
  std::vector<std::pair<double, std::int64_t>> order;  // busiest first
  for (const auto& [number, lane] : lanes) order.emplace_back(-covered_s(lane.spans), number);
  std::ranges::sort(order);
  for (const auto& [negative_s, number] : order) {
    if (top > 0 && table.rows.size() == top) {
      table.notes.push_back(fmt::format("{} more streams (--top 0 shows all)", order.size() - top));
      break;
    }
    const LaneSum& lane = lanes.at(number);
    const auto known = std::ranges::find(run.lanes, number, &record::Lane::lane);
    const double busy_s = -negative_s;
    Row row;
    row.set("lane", known == run.lanes.end() || known->name.empty() ? std::to_string(number) : known->name);
    row.set("device", known == run.lanes.end() ? Cell() : Cell(known->device));
    row.set("kernels", static_cast<double>(lane.kernels) / steps);
    row.set("copies", static_cast<double>(lane.copies) / steps);
    row.set("busy_s", busy_s / steps);
    row.set("busy_share", cell_of(ratio_of(busy_s, span_s)));
    row.set("exclusive_s", lane.exclusive_s / steps);
    row.set("shared_s", lane.shared_s / steps);
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// Idle time by cause and by what came after it.
struct IdleSum {
  std::vector<double> seconds;
  double total_s = 0;
};

Table idle_table(const TracedKernels& kernels, std::size_t top) {
  std::map<std::array<std::string, 3>, IdleSum> sums;
  double all_s = 0;
  for (const Idle& idle : kernels.times().idle) {
    const DeviceStep* step = kernels.times().find(idle.step);
    if (step == nullptr || step->kind != kTraced) continue;
    const TracedKernel* next = idle.next ? kernels.find(*idle.next) : nullptr;
    std::array<std::string, 3> key{std::string(name_of(idle.cause)), "", std::string(kStepEnd)};
    if (next != nullptr) {
      key[1] = next->op == nullptr ? "" : next->op->op.phase;
      key[2] = next->op == nullptr ? next->name->short_name : next->op->part;
    }
    IdleSum& sum = sums[key];
    sum.seconds.push_back(static_cast<double>(idle.end_ns - idle.start_ns) * kViewsDeviceNano);
    sum.total_s += sum.seconds.back();
    all_s += sum.seconds.back();
  }
  std::vector<std::pair<std::array<std::string, 3>, IdleSum>> order(sums.begin(), sums.end());
  std::ranges::stable_sort(order,
                           [](const auto& a, const auto& b) { return a.second.total_s > b.second.total_s; });
  Table table{.columns = {{"cause", "cause"},
                          {"phase", "phase"},
                          {"next", "before"},
                          {"step_s", "in a step", Show::seconds, "s"},
                          {"time_share", "of idle", Show::percent},
                          {"gaps", "gaps per step"},
                          {"med_s", "med", Show::seconds, "s"},
                          {"max_s", "max", Show::seconds, "s"}},
              .rows = {},
              .notes = {}};
  const auto steps = static_cast<double>(kernels.steps());
  for (const auto& [key, sum] : order) {
    if (top > 0 && table.rows.size() == top) {
      table.notes.push_back(fmt::format("{} more (--top 0 shows all)", order.size() - top));
      break;
    }
    Row row;
    row.set("cause", key[0]);
    row.set("phase", key[1]);
    row.set("next", key[2]);
    row.set("step_s", sum.total_s / steps);
    row.set("time_share", cell_of(ratio_of(sum.total_s, all_s)));
    row.set("gaps", static_cast<double>(sum.seconds.size()) / steps);
    row.set("med_s", core::median(sum.seconds));
    row.set("max_s", *std::ranges::max_element(sum.seconds));
    table.rows.push_back(std::move(row));
  }
  return table;
}

void add_device(const RunData& run, const ViewOptions& options, View& view) {
  const TracedKernels& kernels = traced_kernels(run);
  if (kernels.steps() == 0) return;
  view.add("device", "Traced steps", step_table(run, kernels.times(), options.top));
  view.add("device.lanes", "Streams", lane_table(run, kernels, options.top));
  view.add("device.idle", "Idle time by cause", idle_table(kernels, options.top));
}

/// Kernels of one block and phase.
struct LaunchSum {
  std::vector<double> grids, warps;
  double seconds = 0, sm_share = 0, occupancy = 0, occupancy_s = 0, tail_s = 0;
};

Row launch_row(const std::pair<std::string, std::string>& key, const LaunchSum& sum, double steps) {
  Row row;
  row.set("phase", key.first);
  row.set("block", key.second);
  row.set("launches", static_cast<double>(sum.grids.size()) / steps);
  row.set("step_s", sum.seconds / steps);
  row.set("grid_min", *std::ranges::min_element(sum.grids));
  row.set("grid_med", core::median(sum.grids));
  row.set("grid_mean", core::mean(sum.grids));
  row.set("grid_max", *std::ranges::max_element(sum.grids));
  row.set("warps_mean", core::mean(sum.warps));
  row.set("sm_share", sum.sm_share > 0 ? cell_of(ratio_of(sum.sm_share, sum.seconds)) : Cell());
  row.set("occupancy", sum.occupancy_s > 0 ? cell_of(ratio_of(sum.occupancy, sum.occupancy_s)) : Cell());
  row.set("tail_s", sum.tail_s / steps);
  return row;
}

void add_launches(const RunData& run, const ViewOptions& /*options*/, View& view) {
  const TracedKernels& kernels = traced_kernels(run);
  if (kernels.steps() == 0) return;
  const double multiprocessors = run.number("multiprocessors").value_or(0);
  std::vector<std::pair<std::string, std::string>> order;
  std::map<std::pair<std::string, std::string>, LaunchSum> sums;
  for (const TracedKernel& kernel : kernels.all()) {
    if (kernel.step_kind != kTraced || kernel.op == nullptr || kernel.launch->blocks() == 0) continue;
    const std::pair<std::string, std::string> key{kernel.op->op.phase, kernel.op->block};
    const auto [entry, is_new] = sums.try_emplace(key);
    if (is_new) order.push_back(key);
    LaunchSum& sum = entry->second;
    const auto blocks = static_cast<double>(kernel.launch->blocks());
    const double seconds = kernel.seconds();
    sum.grids.push_back(blocks);
    sum.warps.push_back(static_cast<double>(kernel.launch->warps()));
    sum.seconds += seconds;
    if (multiprocessors > 0) sum.sm_share += seconds * std::min(1.0, blocks / multiprocessors);
    if (kernel.launch->occupancy) {
      sum.occupancy += seconds * *kernel.launch->occupancy;
      sum.occupancy_s += seconds;
    }
    sum.tail_s += seconds * kernel.launch->tail().value_or(0);
  }
  Table table{
      .columns = {{"phase", "phase"},
                  {"block", "block"},
                  {"launches", "kernels per step"},
                  {"step_s", "time", Show::seconds, "s"},
                  {"grid_min", "grid min"},
                  {"grid_med", "med"},
                  {"grid_mean", "mean"},
                  {"grid_max", "max"},
                  {"warps_mean", "warps per block", Show::fixed1},
                  {"sm_share", "of SMs", Show::percent},
                  {"occupancy", "occupancy", Show::percent},
                  {"tail_s", "tail", Show::seconds, "s"}},
      .rows = {},
      .notes = {"grid: blocks of one launch. of SMs and occupancy are weighted by time; tail: time in which "
                "the last wave of blocks leaves multiprocessors empty, if all blocks take equally long"}};
  for (const auto& key : order) {
    table.rows.push_back(launch_row(key, sums.at(key), static_cast<double>(kernels.steps())));
  }
  view.add("launches", "Kernels per block", std::move(table));
  view.add("launches.parts", "Grids and blocks by part", launch_parts(run, kernels));
}

constexpr std::array kDeviceViews = {
    ViewDef{
        .place = 42,
        .info = {.name = "device",
                 .title = "Time of the device",
                 .note =
                     "In each moment of a traced step, one kernel runs, several run, or the device is idle "
                     "for a reason: host (the next kernel was launched late), dependency (from one kernel to "
                     "the next), copy, sync (the host waits for results or has not seen them yet), tracing, "
                     "stall (the host does "
                     "something else for much longer than a launch takes). Without steps it is the whole "
                     "recording.",
                 .needs = "traced kernels (rooflm profile on a GPU with CUPTI, rooflm record)",
                 .is_on_page = false},
        .of_run = add_device,
        .of_all = nullptr},
    ViewDef{.place = 43,
            .info = {.name = "launches",
                     .title = "Kernels per block",
                     .note = "How many kernels each block launches, and how much of the device they fill.",
                     .needs = "traced steps (rooflm profile on a GPU with CUPTI)",
                     .is_on_page = false},
            .of_run = add_launches,
            .of_all = nullptr}};

}  // namespace

std::span<const ViewDef> views_device() { return kDeviceViews; }

}  // namespace rooflm::report

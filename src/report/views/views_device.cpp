// Views of a device's time: steps taken apart, lanes, idle time by cause, and how blocks fill the device.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/grouped.h"
#include "core/statistics.h"
#include "core/stretches.h"
#include "core/units.h"
#include "report/model/launch_parts.h"
#include "report/model/summaries.h"
#include "report/model/traced_kernels.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

constexpr std::string_view kStepEnd = "end of the step";

const TypedColumns<DeviceStep>& step_columns() {
  static const TypedColumns<DeviceStep> columns = [] {
    TypedColumns<DeviceStep> all = {
        {"step", "step",
         [](const DeviceStep& step) {
           return step.step == kWholeRecording ? std::nullopt : std::optional(step.step);
         }},
        {"kind", "kind",
         [](const DeviceStep& step) {
           return step.step == kWholeRecording ? std::string("whole recording") : step.kind;
         }},
        {"kernels", "kernels", &DeviceStep::kernels},
        {"wall_s", "wall", &DeviceStep::span_s, Show::seconds},
        {"event_s", "device events", &DeviceStep::event_s, Show::seconds},
        {"exclusive_s", "exclusive", &DeviceStep::exclusive_s, Show::seconds},
        {"shared_s", "shared", &DeviceStep::shared_s, Show::seconds},
        {"idle_s", "idle", &DeviceStep::idle_total_s, Show::seconds},
        {"idle_within_s", &DeviceStep::idle_within_s}};
    for (std::size_t i = 0; i < kIdleCauses; ++i) {
      const std::string name(name_of(static_cast<IdleCause>(i)));
      all.add({("idle_" + name + "_s").c_str(), name.c_str(),
               [i](const DeviceStep& step) { return step.idle_s.at(i); }, Show::seconds});
    }
    return all;
  }();
  return columns;
}

Table step_table(const RunData& run, const DeviceTimes& times, std::size_t top) {
  Table table = step_columns().table(times.steps, top, "steps");
  std::vector<std::string> notes = {
      "exclusive: one kernel ran; shared: several; idle: none; together they are the wall "
      "time of the step. device events: time by the step's own timestamps"};
  const auto traced_s = phase_median(run, kSubmit, kTraced);
  const auto plain_s = phase_median(run, kSubmit);
  if (traced_s && plain_s) {
    notes.push_back(
        fmt::format("submitting a step takes the host {} when traced and {} in plain steps; a traced replay "
                    "starts on the device after that",
                    core::format_seconds(*traced_s), core::format_seconds(*plain_s)));
  }
  table.notes.insert(table.notes.begin(), notes.begin(), notes.end());
  return table;
}

/// Of one stream in traced steps: sums over all of them.
struct LaneSum {
  std::vector<core::Stretch> spans{};
  double exclusive_s = 0, shared_s = 0;
  std::size_t kernels = 0, copies = 0;
};

/// Of one stream in a traced step.
struct Lane {
  std::string name{};
  std::optional<std::string> device{};
  double kernels = 0, copies = 0, busy_s = 0;
  std::optional<double> busy_share{};
  double exclusive_s = 0, shared_s = 0;
};

const TypedColumns<Lane>& lane_columns() {
  static const TypedColumns<Lane> columns = {{"lane", "lane", &Lane::name},
                                             {"device", "device", &Lane::device},
                                             {"kernels", "kernels per step", &Lane::kernels},
                                             {"copies", "copies per step", &Lane::copies},
                                             {"busy_s", "busy", &Lane::busy_s, Show::seconds},
                                             {"busy_share", "of step", &Lane::busy_share, Show::percent},
                                             {"exclusive_s", "exclusive", &Lane::exclusive_s, Show::seconds},
                                             {"shared_s", "part of shared", &Lane::shared_s, Show::seconds}};
  return columns;
}

/// The busiest first.
std::vector<Lane> lanes_of(const RunData& run, const TracedKernels& kernels) {
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
    lane.exclusive_s += static_cast<double>(kernel.time.exclusive_ns) * core::kNano;
    lane.shared_s += kernel.time.shared_ns * core::kNano;
    ++lane.kernels;
  }
  const auto steps = static_cast<double>(kernels.steps());
  std::vector<Lane> order;
  for (const auto& [number, lane] : lanes) {
    const auto known = std::ranges::find(run.lanes, number, &record::Lane::lane);
    const bool is_known = known != run.lanes.end();
    const double busy_s = static_cast<double>(core::length_of(core::covered(lane.spans))) * core::kNano;
    order.push_back({.name = is_known && !known->name.empty() ? known->name : std::to_string(number),
                     .device = is_known ? std::optional(known->device) : std::nullopt,
                     .kernels = static_cast<double>(lane.kernels) / steps,
                     .copies = static_cast<double>(lane.copies) / steps,
                     .busy_s = busy_s / steps,
                     .busy_share = ratio_of(busy_s, span_s),
                     .exclusive_s = lane.exclusive_s / steps,
                     .shared_s = lane.shared_s / steps});
  }
  std::ranges::stable_sort(order, std::ranges::greater{}, &Lane::busy_s);
  return order;
}

/// Idle time by cause and by what came after it.
struct IdleSum {
  std::string cause{}, phase{}, next{};
  std::vector<double> seconds{};
  double total_s = 0, all_s = 0;  ///< of this one, of all together
  double steps = 0;
};

const TypedColumns<IdleSum>& idle_columns() {
  static const TypedColumns<IdleSum> columns = {
      {"cause", "cause", &IdleSum::cause},
      {"phase", "phase", &IdleSum::phase},
      {"next", "before", &IdleSum::next},
      {"step_s", "in a step", [](const IdleSum& sum) { return sum.total_s / sum.steps; }, Show::seconds},
      {"time_share", "of idle", [](const IdleSum& sum) { return ratio_of(sum.total_s, sum.all_s); },
       Show::percent},
      {"gaps", "gaps per step",
       [](const IdleSum& sum) { return static_cast<double>(sum.seconds.size()) / sum.steps; }},
      {"med_s", "med", [](const IdleSum& sum) { return core::median(sum.seconds); }, Show::seconds},
      {"max_s", "max", [](const IdleSum& sum) { return std::ranges::max(sum.seconds); }, Show::seconds}};
  return columns;
}

std::vector<IdleSum> idle_sums(const TracedKernels& kernels) {
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
    sum.seconds.push_back(static_cast<double>(idle.end_ns - idle.start_ns) * core::kNano);
    sum.total_s += sum.seconds.back();
    all_s += sum.seconds.back();
  }
  std::vector<IdleSum> order;
  for (auto& [key, sum] : sums) {
    IdleSum& one = order.emplace_back(std::move(sum));
    one.cause = key[0];
    one.phase = key[1];
    one.next = key[2];
    one.all_s = all_s;
    one.steps = static_cast<double>(kernels.steps());
  }
  std::ranges::stable_sort(order, std::ranges::greater{}, &IdleSum::total_s);
  return order;
}

void add_device(const RunData& run, const ViewOptions& options, View& view) {
  const TracedKernels& kernels = traced_kernels(run);
  if (kernels.steps() == 0) return;
  view.add("device", "Traced steps", step_table(run, kernels.times(), options.top));
  view.add("device.lanes", "Streams", lane_columns().table(lanes_of(run, kernels), options.top, "streams"));
  view.add("device.idle", "Idle time by cause",
           idle_columns().table(idle_sums(kernels), options.top, "rows"));
}

/// Kernels of one block and phase.
struct LaunchSum {
  std::string phase{}, block{};
  std::vector<double> grids{}, warps{};
  double seconds = 0, sm_share = 0, occupancy = 0, occupancy_s = 0, tail_s = 0;
  double steps = 0;
};

const TypedColumns<LaunchSum>& launch_columns() {
  using Sum = LaunchSum;
  static const TypedColumns<LaunchSum> columns = {
      {"phase", "phase", &Sum::phase},
      {"block", "block", &Sum::block},
      {"launches", "kernels per step",
       [](const Sum& sum) { return static_cast<double>(sum.grids.size()) / sum.steps; }},
      {"step_s", "time", [](const Sum& sum) { return sum.seconds / sum.steps; }, Show::seconds},
      {"grid_min", "grid min", [](const Sum& sum) { return std::ranges::min(sum.grids); }},
      {"grid_med", "med", [](const Sum& sum) { return core::median(sum.grids); }},
      {"grid_mean", "mean", [](const Sum& sum) { return core::mean(sum.grids); }},
      {"grid_max", "max", [](const Sum& sum) { return std::ranges::max(sum.grids); }},
      {"warps_mean", "warps per block", [](const Sum& sum) { return core::mean(sum.warps); }, Show::fixed1},
      {"sm_share", "of SMs",
       [](const Sum& sum) { return sum.sm_share > 0 ? ratio_of(sum.sm_share, sum.seconds) : std::nullopt; },
       Show::percent},
      {"occupancy", "occupancy",
       [](const Sum& sum) {
         return sum.occupancy_s > 0 ? ratio_of(sum.occupancy, sum.occupancy_s) : std::nullopt;
       },
       Show::percent},
      {"tail_s", "tail", [](const Sum& sum) { return sum.tail_s / sum.steps; }, Show::seconds}};
  return columns;
}

std::vector<LaunchSum> launch_sums(const RunData& run, const TracedKernels& kernels) {
  const double multiprocessors = run.number("multiprocessors").value_or(0);
  core::Grouped<std::pair<std::string, std::string>, LaunchSum> sums;  // by phase and block
  for (const TracedKernel& kernel : kernels.all()) {
    if (kernel.step_kind != kTraced || kernel.op == nullptr || kernel.launch->blocks() == 0) continue;
    LaunchSum& sum = sums.at({kernel.op->op.phase, kernel.op->block}, [&] {
      return LaunchSum{.phase = kernel.op->op.phase,
                       .block = kernel.op->block,
                       .steps = static_cast<double>(kernels.steps())};
    });
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
  return std::move(sums.values());
}

void add_launches(const RunData& run, const ViewOptions& /*options*/, View& view) {
  const TracedKernels& kernels = traced_kernels(run);
  if (kernels.steps() == 0) return;
  Table table = launch_columns().table(launch_sums(run, kernels));
  table.notes.emplace_back(
      "grid: blocks of one launch. of SMs and occupancy are weighted by time; tail: time in which "
      "the last wave of blocks leaves multiprocessors empty, if all blocks take equally long");
  view.add("launches", "Kernels per block", std::move(table));
  view.add("launches.parts", "Grids and blocks by part",
           part_launch_columns().table(part_launches(run, kernels)));
}

constexpr std::array kDeviceViews = {
    ViewDef{
        .place = 42,
        .info = {.name = "device",
                 .title = "Time of the device",
                 .note =
                     "At each moment of a traced step, one kernel runs, several run, or the device is idle "
                     "for a reason: host (the next kernel was launched late), dependency (from one kernel to "
                     "the next), queued (kernels wait for longer than that, for an event or because another "
                     "process has its turn), copy, sync (the host waits for results or has not seen "
                     "them yet), tracing, "
                     "stall (the host does "
                     "something else for much longer than a launch takes), unknown (the trace has no launch "
                     "of the next kernel). Without steps it is the whole recording.",
                 .needs = "traced kernels (rooflm profile on a GPU with CUPTI, rooflm record)"},
        .of_run = add_device,
        .columns = [] { return columns_of(step_columns(), lane_columns(), idle_columns()); }},
    ViewDef{.place = 43,
            .info = {.name = "launches",
                     .title = "Kernels per block",
                     .note = "How many kernels each block launches, and how much of the device they fill.",
                     .needs = "traced steps (rooflm profile on a GPU with CUPTI)"},
            .of_run = add_launches,
            .columns = [] { return columns_of(launch_columns(), part_launch_columns()); }}};

}  // namespace

std::span<const ViewDef> views_device() { return kDeviceViews; }

}  // namespace rooflm::report

// Activities as a profiler tells of them, as rows of a stream.
#include "inject/activity_rows.h"

#include <algorithm>
#include <limits>

#include "trace/launch_text.h"

namespace rooflm::inject {
namespace {

using trace::ActivityKind;
using trace::DeviceActivity;

RowKind kind_of(ActivityKind kind) {
  switch (kind) {
    case ActivityKind::kernel:
      return RowKind::kernel;
    case ActivityKind::copy:
      return RowKind::copy;
    case ActivityKind::memset:
      return RowKind::memset;
    case ActivityKind::sync:
      return RowKind::sync;
    case ActivityKind::api:
      return RowKind::api;
    case ActivityKind::memory:
      return RowKind::memory;
    case ActivityKind::overhead:
      break;
  }
  return RowKind::overhead;
}

}  // namespace

std::uint32_t ActivityRows::launch_text(const trace::KernelLaunch& launch, std::int64_t device) {
  std::vector<std::int64_t> key = {device};
  for (const trace::Extent& extent : {launch.grid, launch.block, launch.cluster}) {
    key.insert(key.end(), extent.begin(), extent.end());
  }
  key.insert(key.end(), {launch.registers, launch.shared_static, launch.shared_dynamic, launch.local});
  const auto [entry, is_new] = launches_.try_emplace(std::move(key), 0);
  if (is_new) {
    const auto limits = std::ranges::find(devices_, device, &trace::DeviceLimits::device);
    entry->second = writer_.text(
        trace::describe_launch(launch, limits == devices_.end() ? nullptr : &*limits, std::nullopt));
  }
  return entry->second;
}

void ActivityRows::place_correlations(const trace::DeviceTrace& trace) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  std::int64_t last = 0;
  for (const DeviceActivity& activity : trace.activities) {
    if (const std::int64_t number = activity.correlation.value_or(0); number > 0) {
      first = std::min(first, number);
      last = std::max(last, number);
    }
  }
  if (last == 0) return;
  // Whether it begins at one again or goes on is its own business.
  if (begins_) before_ = first > most_ ? 0 : most_;
  begins_ = false;
  most_ = std::max(most_, last + before_);
}

void ActivityRows::add(const trace::DeviceTrace& trace) {
  place_correlations(trace);
  std::vector<std::uint32_t> names;
  names.reserve(trace.names.size());
  for (const std::string& name : trace.names) names.push_back(writer_.text(name));
  rows_.clear();
  for (const DeviceActivity& activity : trace.activities) {
    Row row{.kind = kind_of(activity.kind),
            .device = static_cast<std::uint16_t>(activity.device),
            .name = names[activity.name],
            .start_ns = static_cast<std::uint64_t>(activity.start_ns),
            .end_ns = static_cast<std::uint64_t>(activity.end_ns),
            .place = static_cast<std::uint32_t>(activity.thread.value_or(activity.stream)),
            .bytes = activity.bytes.value_or(0)};
    if (activity.correlation.value_or(0) > 0) {
      row.correlation = static_cast<std::uint32_t>(*activity.correlation + before_);
    }
    if (activity.launch) row.extra = launch_text(trace.launches[*activity.launch], activity.device);
    if (activity.graph_node) {
      row.has_node = 1;
      row.other = *activity.graph_node;
    } else if (activity.address) {
      row.other = *activity.address;
    }
    rows_.push_back(row);
  }
  writer_.add(rows_);
  if (trace.dropped > 0) writer_.count_dropped(static_cast<std::uint64_t>(trace.dropped));
}

}  // namespace rooflm::inject

// Summarises the events of each op.
#include "record/op_times.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "core/units.h"

namespace rooflm::record {
namespace {

/// The median of `values`, which it sorts.
double median(std::vector<double>& values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

/// The times of one op per step.
struct StepTimes {
  std::int64_t op = 0;
  std::int64_t instances = 0;
  std::int64_t last_step = 0;
  std::vector<double> device_s;
  std::vector<double> wall_s;
  bool has_wall = true;

  void add(const Event& event) {
    if (instances++ == 0 || event.step != last_step) {
      device_s.push_back(0);
      wall_s.push_back(0);
    }
    last_step = event.step;
    device_s.back() += static_cast<double>(event.device_ns) * core::kNano;
    if (!event.wall_ns) has_wall = false;
    wall_s.back() += static_cast<double>(event.wall_ns.value_or(0)) * core::kNano;
  }
};

OpTime summarise_op(StepTimes& times) {
  std::vector<double>& device_s = times.device_s;
  const auto steps = static_cast<double>(device_s.size());
  const double mean = std::accumulate(device_s.begin(), device_s.end(), 0.0) / steps;
  double squares = 0;
  for (const double x : device_s) squares += (x - mean) * (x - mean);
  OpTime time{.op = times.op,
              .instances = times.instances,
              .device_s = median(device_s),
              .wall_s = times.has_wall ? std::optional<double>(median(times.wall_s)) : std::nullopt,
              .mean_s = mean,
              .std_s = device_s.size() > 1 ? std::sqrt(squares / (steps - 1)) : 0};
  time.min_s = device_s.front();  // sorted by median()
  time.max_s = device_s.back();
  return time;
}

}  // namespace

std::vector<OpTime> summarise_ops(std::span<const Event> events) {
  std::vector<StepTimes> per_op;
  std::unordered_map<std::int64_t, std::size_t> place_of;
  for (const Event& event : events) {
    const auto [place, is_new] = place_of.try_emplace(event.op, per_op.size());
    if (is_new) per_op.emplace_back().op = event.op;
    per_op[place->second].add(event);
  }
  std::ranges::sort(per_op, {}, &StepTimes::op);
  std::vector<OpTime> summaries;
  for (StepTimes& times : per_op) summaries.push_back(summarise_op(times));
  return summaries;
}

}  // namespace rooflm::record

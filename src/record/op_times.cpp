// What the events of an op amount to.
#include "record/op_times.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace rooflm::record {
namespace {

constexpr double kSecondsPerNs = 1e-9;

/// The middle of `values`, which are put in order.
double median(std::vector<double>& values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

/// Of the events of one op, in the order of their steps.
OpTime summarise_op(std::span<const Event* const> events) {
  std::vector<double> device_s;
  std::vector<double> wall_s;
  const Event* previous = nullptr;
  for (const Event* event : events) {
    if (previous == nullptr || previous->step != event->step) {
      device_s.push_back(0);
      wall_s.push_back(0);
    }
    device_s.back() += static_cast<double>(event->device_ns) * kSecondsPerNs;
    wall_s.back() += static_cast<double>(event->wall_ns) * kSecondsPerNs;
    previous = event;
  }
  const auto steps = static_cast<double>(device_s.size());
  const double mean = std::accumulate(device_s.begin(), device_s.end(), 0.0) / steps;
  double squares = 0;
  for (const double x : device_s) squares += (x - mean) * (x - mean);
  OpTime time{.op = events.front()->op,
              .instances = static_cast<std::int64_t>(events.size()),
              .device_s = median(device_s),
              .wall_s = median(wall_s),
              .mean_s = mean,
              .std_s = device_s.size() > 1 ? std::sqrt(squares / (steps - 1)) : 0};
  time.min_s = device_s.front();  // median() has put them in order
  time.max_s = device_s.back();
  return time;
}

}  // namespace

std::vector<OpTime> summarise_ops(std::span<const Event> events) {
  std::vector<const Event*> by_op;
  by_op.reserve(events.size());
  for (const Event& event : events) by_op.push_back(&event);
  std::ranges::sort(by_op, [](const Event* a, const Event* b) {
    return std::pair(a->op, a->step) < std::pair(b->op, b->step);
  });
  std::vector<OpTime> times;
  for (auto begin = by_op.begin(); begin != by_op.end();) {
    const auto end = std::find_if(begin, by_op.end(), [&](const Event* e) { return e->op != (*begin)->op; });
    times.push_back(summarise_op(std::span(begin, end)));
    begin = end;
  }
  return times;
}

}  // namespace rooflm::record

// Serving a load at several rates, and what a record keeps of it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lab/point.h"
#include "lab/serving.h"
#include "record/rows.h"

namespace rooflm::lab {

struct ServingSettings {
  ServingLoad load{};
  std::vector<Schedule> schedules = {Schedule::fcfs};
  /// Requests per second, infinite: all at once. None: all at once first, then shares of the rate at which
  /// the fastest schedule served those (kServingShares).
  std::vector<double> rates{};
  std::optional<double> memory_limit_bytes{};  ///< absent: what the device has free
};

/// Limits of a request's latency are so many times those of requests that are served alone ("SLO scale": Li
/// et al., "AlpaServe", OSDI 2023; Zhong et al., "DistServe", OSDI 2024).
inline constexpr double kSloScale = 5;

/// Throws core::UsageError for a load that a point cannot serve.
void check_serving(std::span<const Point> points, const ServingLoad& load);

/// Serves the load on each point, which has point.batch slots of point.seq tokens and random weights: with
/// every schedule, at every rate. Returns cells of the series record::kServingSeries, a row for each of
/// these, and record::kServingRequestSeries, a row for each request. All engines are made and warmed up
/// before. A signal (core::StopSignals) ends it with what was measured; throws core::Stopped when nothing
/// was. Throws core::UsageError where prompts and answers do not fit into point.seq, core::OutOfMemory,
/// core::Unavailable for a device that runs nothing.
std::vector<record::Cell> serving_cells(std::span<const Point> points, const ServingSettings& settings);

}  // namespace rooflm::lab

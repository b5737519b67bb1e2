// Configurations that the ranks of a job run together.
#include "cli/rank_points.h"

#include <cmath>
#include <map>
#include <string>

#include "core/error.h"

namespace rooflm::cli {
namespace {

/// If each rank decided this for itself, ranks could diverge.
void require_same_steps(const lab::RunSettings& settings) {
  if (settings.precision > 0 || std::isfinite(settings.max_seconds))
    throw core::UsageError(
        "several ranks time the same steps: give --steps, and no --precision or --max-seconds");
}

}  // namespace

void take_places(std::vector<lab::Point>& points, const lab::RunSettings& settings, const lab::Ranks& ranks) {
  if (ranks != nullptr) require_same_steps(settings);
  std::map<std::string, std::string> values{{"--steps", std::to_string(settings.max_steps)}};
  for (lab::Point& point : points) {
    lab::take_place(point, ranks);
    // A missing device is an error of the whole command, before anything is measured.
    lab::make_backend(point);
    for (const auto& [name, value] : lab::values_of(point)) {
      std::string& all = values[name];
      all += all.empty() ? value : ", " + value;
    }
  }
  lab::agree(ranks, values);
  for (lab::Point& point : points) point.device_ranks = lab::agree_on_devices(ranks, point.device);
}

}  // namespace rooflm::cli

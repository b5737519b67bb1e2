// The timed steps of a run as read from its record.
#include "record/samples.h"

#include <cmath>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "core/statistics.h"
#include "record/read_rows.h"

namespace rooflm::record {
namespace {

/// Each phase and kind by itself.
void mark_outliers(std::span<Sample> samples) {
  std::map<std::pair<std::string_view, std::string_view>, std::vector<Sample*>> groups;
  for (Sample& sample : samples) groups[{sample.phase, sample.kind}].push_back(&sample);
  for (const auto& [name, group] : groups) {
    std::vector<double> seconds;
    seconds.reserve(group.size());
    for (const Sample* sample : group) seconds.push_back(sample->seconds);
    const double median = core::median(seconds);
    const double distance = core::outlier_distance(seconds);
    for (Sample* sample : group) sample->outlier = std::abs(sample->seconds - median) > distance;
  }
}

}  // namespace

std::vector<Sample> read_samples(const Database& database, std::int64_t run) {
  Statement statement = database.prepare(select_sql<Sample>("run = ?"));
  statement.bind(run);
  std::vector<Sample> samples = rows_of<Sample>(std::move(statement));
  mark_outliers(samples);
  return samples;
}

}  // namespace rooflm::record

// One configuration taken apart: measured with and without an observer, priced, and written to a record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "cli/machine_ceilings.h"
#include "cli/model_options.h"
#include "measure/interleave.h"
#include "record/writer.h"

namespace rooflm::cli {

struct ProfileSettings {
  measure::InterleaveOptions steps;
  int threads = 0;
  std::uint64_t seed = 0;
  std::optional<double> memory_limit_bytes;   ///< absent: what the device has free
  std::vector<std::filesystem::path> shards;  ///< text to compute on; none: random tokens
};

/// How a run ended.
struct ProfileOutcome {
  std::int64_t run = 0;  ///< in the record
  std::string status;    ///< "success", "oom", "interrupted"
  double step_s = 0;     ///< median of the plain steps
  double needed_bytes = 0;
};

/// Runs the configuration and adds it to the record, with samples, events, ops, tensors, memory events,
/// predictions and facts; ceilings that it beats are raised (CeilingBook) before roofs are predicted. A
/// configuration that does not fit becomes a run of status "oom". A signal (train::StopSignals) ends
/// measuring; what was measured is kept, with status "interrupted".
ProfileOutcome profile_point(const Point& point, const ProfileSettings& settings, CeilingBook& ceilings,
                             record::Writer& record);

}  // namespace rooflm::cli

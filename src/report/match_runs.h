// Which runs of two records are of the same configuration. Private to the room.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "record/reader.h"
#include "record/rows.h"

namespace rooflm::report {

/// Runs of one configuration in both records. A configuration that a record ran several times has several.
struct RunMatch {
  std::string label;
  std::vector<record::Run> a, b;
};

struct RunMatches {
  std::vector<RunMatch> matches;
  std::vector<std::string> notes;  ///< what differs all the same, and what has no counterpart
};

/// Matches by all columns but id, label (a name), status, threads, seed and warmup. When nothing matches and
/// each record has one run, these two are matched and the notes say what differs. Throws core::InputError,
/// naming both files and configurations, when there is nothing to match.
[[nodiscard]] RunMatches match_runs(const record::Reader& a, const record::Reader& b);

/// "engine: eager / fused" for each column that differs, those that do not matter for a match included.
[[nodiscard]] std::vector<std::string> differences(const record::Run& a, const record::Run& b);

}  // namespace rooflm::report

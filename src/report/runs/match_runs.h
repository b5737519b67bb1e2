// Which runs of two records have the same configuration. Private to the room.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "record/reader.h"
#include "record/rows.h"

namespace rooflm::report {

/// A run and the record that it is in.
struct FoundRun {
  const record::Reader* record = nullptr;
  record::Run run;
};

/// Runs of one configuration on both sides.
struct RunMatch {
  std::string label;
  std::vector<FoundRun> a, b;
  bool is_across = false;  ///< a program of others against ours
};

struct RunMatches {
  std::vector<RunMatch> matches;
  std::vector<std::string> only_a;  ///< labels of the first side's configurations without a counterpart
  std::vector<std::string> notes;   ///< remaining differences, and runs without a counterpart
  std::string a_name{}, b_name{};   ///< within one record: what tells the sides apart
};

/// Records of either side of a comparison; at least one.
using Side = std::span<const record::Reader>;

/// Whether a run is of a foreign program, which has no configuration.
[[nodiscard]] bool is_foreign(const record::Run& run);

/// Matches by the identifying fields of the configuration (record::identity_of). Where a side ran one of them
/// with several numbers of threads, of warm-up steps or ways to search GEMMs, these are matched one by one:
/// only runs that differ in the seed at most are samples of one time. If one side has only foreign programs
/// and the other only rooflm's runs, they are matched with each configuration of rooflm. If nothing matches
/// and each side has one configuration, however often it ran, these two are matched and the notes list the
/// differences. Throws core::InputError, naming files and configurations, when there is nothing to match.
[[nodiscard]] RunMatches match_runs(Side a, Side b);

/// Matches configurations of one record (compare_within). Throws core::UsageError.
[[nodiscard]] RunMatches match_within(const record::Reader& record, const std::vector<std::string>& names,
                                      const std::string& between);

/// "a.rooflm, b.rooflm".
[[nodiscard]] std::string names_of(Side side);

/// "engine: eager / fused", "seed: 1, 2 / 3" for each field whose values differ between the sides, those that
/// do not matter for a match included.
[[nodiscard]] std::vector<std::string> differences(std::span<const FoundRun> a, std::span<const FoundRun> b);

}  // namespace rooflm::report

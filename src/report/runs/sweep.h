// Runs of a record as a sweep: what they differ in, and which of them differ in a single setting.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/model/run_data.h"

namespace rooflm::report {

/// The configuration of a run as (key, value) texts: the fields of record::config_fields() in their order,
/// with their initial values where the record has none, then what the table does not know. A foreign program
/// has only what its record says, without our defaults.
std::vector<std::pair<std::string, std::string>> configuration(const record::Run& run);

/// Pointers to the runs, for the functions below.
std::vector<const record::Run*> runs_of(const std::vector<RunData>& runs);

/// Names of the configuration in which the runs are not all the same. Runs without any do not count.
std::vector<std::string> varying(const std::vector<const record::Run*>& runs);

/// Those of varying(runs) that tell apart the runs that differ: sizes of a model, say, are left out where its
/// name says them. None of `left_out`.
std::vector<std::string> telling(const std::vector<const record::Run*>& runs,
                                 const std::vector<std::string>& left_out = {});

/// The configuration in one key without the values of `left_out`: runs with the same key differ in those
/// alone.
std::string key_without(const record::Run& run, const std::vector<std::string>& left_out);

/// "T=128 fp32 fused": the values of `names`, for legends.
std::string short_label(const record::Run& run, const std::vector<std::string>& names);

/// The names of a run among several.
struct RunName {
  std::string label;  ///< its own and, where another run has the same, what they differ in
  std::string which;  ///< what tells it apart: "T=64 bf16"; the label where that is long or says nothing
};

/// One for each run; no two labels and no two short names are the same.
std::vector<RunName> run_names(const std::vector<RunData>& runs);

}  // namespace rooflm::report

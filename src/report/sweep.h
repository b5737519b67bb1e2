// Runs of a record as a sweep: what they differ in, and which of them differ in one thing alone.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "report/run_data.h"

namespace rooflm::report {

/// The configuration of a run as (key, value) texts: the fields of record::config_fields() in their order,
/// with their initial values where the record has none, then what the table does not know.
std::vector<std::pair<std::string, std::string>> configuration(const record::Run& run);

/// Names of the configuration in which the runs are not all the same.
std::vector<std::string> varying(const std::vector<RunData>& runs);

/// The configuration in one key without the values of `left_out`: runs with the same key differ in those
/// alone.
std::string key_without(const record::Run& run, const std::vector<std::string>& left_out);

/// "T=128 fp32 fused": the values of `names`, for legends.
std::string short_label(const record::Run& run, const std::vector<std::string>& names);

}  // namespace rooflm::report

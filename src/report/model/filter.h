// A part of what records hold: some runs, phases, scopes or ops.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/model/run_data.h"

namespace rooflm::report {

/// As typed; an empty list lets everything through.
struct Filter {
  std::vector<std::string> runs{};    ///< numbers from 1, or parts of labels: "bf16"
  std::vector<std::string> phases{};  ///< "forward"
  std::vector<std::string>
      scopes{};                    ///< beginnings, "h.1/attention", or the same of any layer: "attention/qk"
  std::vector<std::string> ops{};  ///< kinds of ops: "matmul", "softmax"

  [[nodiscard]] bool is_empty() const {
    return runs.empty() && phases.empty() && scopes.empty() && ops.empty();
  }
  /// What was kept, for a note: "phase forward, scope h.1"; "" where everything is.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool takes_run(const std::string& label, std::size_t number) const;
  [[nodiscard]] bool takes_phase(std::string_view phase) const;
  /// `scope` as "h.3/attention/qk"; `part` the same of any layer: "attention/qk".
  [[nodiscard]] bool takes_scope(std::string_view scope, std::string_view part) const;
};

/// Removes runs, ops and samples of phases that the filter excludes. Totals of a view then cover the rest.
/// Throws core::UsageError with the option and the existing names if nothing is left, or without names where
/// the record has no ops.
void apply_filter(const Filter& filter, RecordSet& set);

}  // namespace rooflm::report

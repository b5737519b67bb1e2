// A part of what records hold: some runs, phases, scopes or ops.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/run_data.h"

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

/// Leaves out what the filter does not let through: runs, and of their ops, with the samples of phases that
/// are not wanted. Totals of a view are then of what is left. Throws core::UsageError naming the option and
/// what there is, when nothing of it is left.
void apply_filter(const Filter& filter, RecordSet& set);

}  // namespace rooflm::report

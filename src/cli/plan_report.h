// What `rooflm plan` prints: a row per way to run a model, and how a step's time came about.
#pragma once

#include <string>
#include <vector>

#include "cli/table.h"
#include "perfmodel/plan.h"

namespace rooflm::cli {

/// What turns a step into a run of days and money.
struct RunBudget {
  double tokens = 0;              ///< 0: 20 per parameter (Hoffmann et al., 2022)
  double price_per_gpu_hour = 0;  ///< 0: not given
};

/// A plan and what it is of; `reason` says why it lost a search.
struct PlannedRun {
  const perfmodel::PlanPoint* point = nullptr;
  const perfmodel::Setting* setting = nullptr;
  const perfmodel::Plan* plan = nullptr;
  std::string reason{};
};

/// Keys: docs/plan.md. Times of plans that do not fit are left out: they cannot be.
Row plan_row(const PlannedRun& run, const RunBudget& budget);
Table plan_table(std::vector<Row> rows, const std::vector<PlannedRun>& runs);
/// step_s term by term; the terms add up to it.
Table explain_step(const PlannedRun& run);

}  // namespace rooflm::cli

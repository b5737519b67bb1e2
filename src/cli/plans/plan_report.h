// What `rooflm plan` prints: a row per way to run a model, and how a step's time came about.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/table.h"
#include "perfmodel/budget.h"
#include "perfmodel/plan.h"
#include "report/tables/plan_rows.h"

namespace rooflm::cli {

/// A plan and what it is of; `reason` says why it lost a search.
struct PlannedRun {
  const perfmodel::PlanPoint* point = nullptr;
  const perfmodel::Setting* setting = nullptr;
  const perfmodel::Plan* plan = nullptr;
  std::string reason{};
  /// Tokens a second against the first of a scaling curve, and that divided by how many more GPUs there are.
  std::optional<double> speed_up{}, efficiency{};
};

/// Keys: docs/plan.md. Plans that do not fit have no times: they cannot be.
Row plan_row(const PlannedRun& run, const perfmodel::RunBudget& budget);
/// What the numbers mean and where they come from, each line once.
std::vector<std::string> plan_notes(const std::vector<PlannedRun>& runs);
/// Memory of one kind of rank by role: its keys are those of plan_row.
Row memory_row(const PlannedRun& run, const perfmodel::PlannedRole& role);
/// All that any plan has: what --columns may name.
std::vector<Column> columns_of_plans();
Table plan_table(std::vector<Row> rows, const std::vector<PlannedRun>& runs);
/// Settings that all rows share go to the table's heading: the columns are those that tell rows apart, and
/// the answers.
Table with_heading(Table table, std::span<const report::PlanSetting> settings = report::plan_settings());
/// Whose memory and times are planned where no framework is named.
std::string own_framework_note();
/// peak_bytes of the rank that needs most, by what holds them.
Table explain_memory(const PlannedRun& run);
/// step_s term by term; the terms add up to it.
Table explain_step(const PlannedRun& run);

}  // namespace rooflm::cli

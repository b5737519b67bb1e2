// The record and the page of `rooflm plan`.
#pragma once

#include <string>

#include "cli/plans/plan_modes.h"
#include "cli/plans/plan_options.h"
#include "cli/table.h"
#include "perfmodel/budget.h"

namespace rooflm::cli {

/// Whether standard output is the page or the record: then no table is printed.
bool prints_no_table(const PlanOptions& options);

/// Checks -o and --html (cli/output_rule.h) before anything is planned. Throws core::UsageError,
/// core::InputError, and core::Unavailable when this binary has no page.
void check_plan_outputs(const PlanOptions& options);

/// Writes what was asked for: the record of the plans, of which the first that fits is simulated step by step
/// (lab/plan_record.h), and the page of that record.
void write_plans(const PlanOptions& options, const Plans& plans, const perfmodel::RunBudget& budget);

/// The same of a plan beside a measurement.
void write_against(const PlanOptions& options, const Table& table);

}  // namespace rooflm::cli

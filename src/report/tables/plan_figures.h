// Plans in records, prepared for views, the answer and the page.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "report/model/run_data.h"
#include "report/tables/table.h"

namespace rooflm::report {

/// The rows of all records, series by series (record::kPlanSeries and its neighbours).
std::vector<Row> plan_rows(const RecordSet& set, std::string_view series);

/// The plan that is taken apart: the first that fits, else the first; nullptr without any.
const Row* shown_plan(const std::vector<Row>& plans);

/// What tells each plan from the others: "dp=32 tp=4 zero=1"; of a single one "gpt2 on 8 h100-sxm".
std::vector<std::string> plan_names(const std::vector<Row>& plans);

/// A part of the step's time: "compute", "slowed by overlap", "exposed communication", "host", "waiting",
/// "bubble". They add up to the step.
struct StepPart {
  const char* name;
  const char* key;  ///< of a plan's row, in seconds
};
const std::vector<StepPart>& step_parts();

/// A part of a rank's memory: its name and the key of a row, in bytes. They add up to peak_bytes.
const std::vector<StepPart>& memory_parts();

/// Places of plans that are both faster than all that need less memory; by memory. Only those that fit.
std::vector<std::size_t> frontier_of(const std::vector<Row>& plans);

/// Whether it fits, how long a step takes, what bounds it, and what the whole training takes; of plans beside
/// measurements how far off they are.
std::string answer_plan(const RecordSet& set);

}  // namespace rooflm::report

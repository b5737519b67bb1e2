// The tables of `rooflm plan`: their columns, and their rows as cells of a record and back.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "record/rows.h"
#include "report/table.h"

namespace rooflm::report {

/// What two plans may differ in.
struct PlanSetting {
  const char* key;
  const char* title;
  bool is_column = true;           ///< of every table of plans
  bool speaks_for_itself = false;  ///< its value needs no title beside it
};
std::span<const PlanSetting> plan_settings();

/// Of a row per plan (keys: docs/plan.md); columns that only some plans have are left out where none has.
std::vector<Column> plan_columns(std::span<const Row> rows);
/// Of the terms of a step: term, seconds, share, how.
std::vector<Column> term_columns();
/// Of what a record measured beside what is planned.
std::vector<Column> against_columns();

/// One cell for each value of each row.
std::vector<record::Cell> cells_of_rows(std::string_view series, std::span<const Row> rows);
/// The rows of a series. Whole numbers come back as integers.
std::vector<Row> rows_of_cells(std::string_view series, std::span<const record::Cell> cells);

}  // namespace rooflm::report

// The tables of `rooflm plan`: their columns, and their rows as cells of a record and back.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "record/rows.h"
#include "report/tables/table.h"
#include "report/tables/typed_columns.h"

namespace rooflm::report {

/// What two plans may differ in.
struct PlanSetting {
  const char* key;
  const char* title;
  bool is_column = true;           ///< of every table of plans
  bool speaks_for_itself = false;  ///< its value needs no title beside it
};
std::span<const PlanSetting> plan_settings();

/// Sets "split" from the degrees of the row, those above 1: "dp8 tp2 zero3".
void set_split(Row& row);

/// Of a row per plan (keys: docs/plan.md); columns that only some plans have are left out where none of the
/// rows has them; without rows there are all.
std::vector<Column> plan_columns(std::span<const Row> rows);

/// A term of a step, and how it came about.
struct PlanTerm {
  std::string term{};
  double seconds = 0, step_s = 0;
  std::string how{};
  [[nodiscard]] double share() const { return step_s > 0 ? seconds / step_s : 0; }
};
const TypedColumns<PlanTerm>& term_columns();

/// What holds a part of a rank's memory, and how much that is.
struct MemoryTerm {
  std::string term{};
  double bytes = 0, peak_bytes = 0;
  std::string how{};
  [[nodiscard]] double share() const { return peak_bytes > 0 ? bytes / peak_bytes : 0; }
};
const TypedColumns<MemoryTerm>& memory_term_columns();

/// What a record measured beside what is planned.
struct PlanAgainst {
  std::string run{}, what{}, unit{};
  double measured = 0, planned = 0;
  [[nodiscard]] std::optional<double> error() const {
    return measured > 0 ? std::optional(planned / measured - 1) : std::nullopt;
  }
};
const TypedColumns<PlanAgainst>& against_columns();

/// One cell for each value of each row; none for nothing.
std::vector<record::Cell> cells_of_rows(std::string_view series, std::span<const Row> rows);
/// The rows of a series. Whole numbers come back as integers.
std::vector<Row> rows_of_cells(std::string_view series, std::span<const record::Cell> cells);

}  // namespace rooflm::report

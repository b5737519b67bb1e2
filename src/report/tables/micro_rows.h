// The tables of `rooflm gemm`, `attention` and `comm`, from the cells of a record: the keys of JSON and CSV.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "record/rows.h"
#include "report/tables/table.h"
#include "report/tables/typed_columns.h"

namespace rooflm::report {

/// The cells of one row of a micro-benchmark, by their columns.
struct MicroRow {
  std::map<std::string, const record::Cell*, std::less<>> cells{};
  [[nodiscard]] std::optional<std::string> text(std::string_view col) const;
  [[nodiscard]] std::optional<double> number(std::string_view col) const;
};
const TypedColumns<MicroRow>& micro_gemm_columns();
const TypedColumns<MicroRow>& micro_attention_columns();
const TypedColumns<MicroRow>& micro_comm_columns();

/// The rows of the series "gemm": medians, means and deviations in ms, rates, memory. Rows that did not fit
/// have no times.
Table gemm_table(std::span<const record::Cell> cells);

/// The same of "attention". Rates count the half of the matmuls below the diagonal, 2 B H T T D of the
/// forward pass and 4 of the backward, whatever the record's cells count: those of earlier versions counted
/// all of it.
Table attention_table(std::span<const record::Cell> cells);

/// The same of "comm", with the columns of nccl-tests and the confidence interval of the median time.
Table comm_table(std::span<const record::Cell> cells);

/// Whether a column of the cells describes the launch of a matmul: a result, even if it is text.
bool is_launch(std::string_view column);

/// Whether a column of the cells is only in CSV and JSON, and not in tables of studies.
bool is_detail(std::string_view column);

}  // namespace rooflm::report

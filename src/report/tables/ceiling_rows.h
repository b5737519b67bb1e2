// Rows of ceilings: the table of `rooflm peaks` and of the view of the roofline.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "record/rows.h"
#include "report/model/run_data.h"
#include "report/tables/table.h"
#include "report/tables/typed_columns.h"

namespace rooflm::report {

struct CeilingRow : record::Ceiling {
  /// Of a matmul: its rate over the instruction peak of the same device, dtype and threads, if there is one;
  /// both under sustained load, or both in a burst.
  std::optional<double> share_of_instruction{};
  std::optional<double> flop_per_s{}, intensity{};  ///< of loops that make a multiply-add for each number
  bool is_missing = false;                          ///< nothing was measured: `problem` says why
};

/// A row per ceiling, in their order.
std::vector<CeilingRow> ceiling_rows(std::span<const record::Ceiling> ceilings);

/// Ceilings of a run's device and threads that are no limits: why (record::why_uncertain) by the name that
/// roofs give their bound ("matmul fp32", "DRAM"). A level has several loops, of which the fastest counts.
/// Nor is an L3 that is hardly faster than memory.
std::map<std::string, std::string> uncertain_bounds(std::span<const record::Ceiling> ceilings,
                                                    const record::Config& config);

/// Titles of the value and of its interval.
TypedColumns<CeilingRow> ceiling_columns(const char* value, const char* low, const char* high);
const TypedColumns<CeilingRow>& peaks_columns();

/// The table of `rooflm peaks`, including its notes. If the record says why a device has no instruction peak
/// of a dtype (record::missing_peak_key), a row without a rate after its matmuls says so.
Table peaks_table(const RecordFile& file);

}  // namespace rooflm::report

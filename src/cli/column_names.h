// The names of columns of rooflm's tables, so that a mistyped one is rejected before anything is measured.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::cli {

/// Keys and titles in the sources of some tables (cmake/column_names.cmake). The list can have more names
/// than there are columns, so it only proves that a name is unknown. "*" stands for a part that is filled in
/// later: "*_ms_mean".
struct ColumnGroup {
  std::string_view of;  ///< a view, a source ("plan_report.cpp"), or "all"
  std::span<const std::string_view> names;
};
std::span<const ColumnGroup> column_groups();

/// The groups of the tables of views: those of views whose columns are in the record (cells) are open, so
/// "all" stands for them.
std::vector<std::string> groups_of_views(std::span<const std::string> views);

/// Throws core::UsageError with a suggestion for a name that no column of these groups has.
void require_column_names(std::span<const std::string> names, std::span<const std::string> groups);

}  // namespace rooflm::cli

// The names of columns of rooflm's tables, so that a mistyped one is rejected before anything is measured.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::cli {

/// All keys and titles in the sources of tables (cmake/column_names.cmake). The list can have more names than
/// there are columns, so it only proves that a name is unknown. "*" stands for a part that is filled in
/// later: "*_ms_mean".
std::span<const std::string_view> column_names();

/// Throws core::UsageError with a suggestion for a name that no column of any table has.
void require_column_names(const std::vector<std::string>& names);

}  // namespace rooflm::cli

// The names that columns of rooflm's tables may have, so that a mistyped one is refused before anything is
// measured.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::cli {

/// Every key and title that the sources of tables write down (cmake/column_names.cmake), and more: it says
/// what no column is called, not what one is. "*" stands for what is filled in later: "*_ms_mean".
std::span<const std::string_view> column_names();

/// Throws core::UsageError with a suggestion for a name that no column of any table has.
void require_column_names(const std::vector<std::string>& names);

}  // namespace rooflm::cli

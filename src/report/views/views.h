// The views of a report by name, and how they are made from records.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/model/run_data.h"
#include "report/views/view.h"
#include "report/views/view_def.h"

namespace rooflm::report {

/// In the order in which help lists them.
std::span<const ViewInfo> all_views();
/// Throws core::UsageError with a suggestion for a name that no view has.
const ViewInfo& find_view(std::string_view name);

/// The columns that tables of the view may have; nothing where what was recorded names them. `roles`: those
/// of tensors, of which some views have a column each.
std::optional<std::vector<Column>> columns_of_view(std::string_view name, std::span<const std::string> roles);

/// The view of all runs. Tables of several runs are one table with a first column `run`; charts stay apart. A
/// view that finds nothing to show says in its note what would have to be recorded. Throws core::UsageError
/// as find_view.
View make_view(std::string_view name, const RecordSet& set, const ViewOptions& options = {});
/// Whether it has nothing because what it needs was not recorded.
bool lacks_records(const View& view);

}  // namespace rooflm::report

// Views as text: for a terminal, as Markdown, CSV or JSON.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "report/tables/table.h"
#include "report/views/view.h"

namespace rooflm::report {

/// Where the picture of a chart is, as a link for Markdown; "" leaves it out.
using ChartLink = std::function<std::string(const Chart&)>;

/// The picture inside the link: "data:image/svg+xml;base64,...".
std::string data_link(const Chart& chart);

/// table, md: per view its title, how to read it, tables and (md) pictures. csv: the tables one after
/// another, each behind a line "# id: title" when there are several. json: an array of views with all numbers
/// in full
/// ({"name", "title", "note", "tables": [{"id", "title", "note", "columns", "rows"}], "charts": [...]}).
/// `width`: of the terminal, as in format_table.
std::string format_views(std::span<const View> views, Format format, const ChartLink& link = data_link,
                         std::size_t width = 0);

}  // namespace rooflm::report

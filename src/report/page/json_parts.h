// Tables and charts as JSON, for both the document and --format json. For .cpp files only.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "report/charts/chart.h"
#include "report/views/view.h"

namespace rooflm::report {

using Json = nlohmann::ordered_json;

/// Infinity and NaN, which JSON lacks, become null.
Json json_number(double value);
Json json_number(const std::optional<double>& value);
Json json_cell(const Cell& cell);
/// {"id", "title", "note", "columns": [{"key", "title", "unit"}], "rows": [{key: value}]}
Json json_table(const ViewTable& table);
/// {"id", "title", "note", "kind", "x": {"title", "unit", "log"}, "y", "series": [{"name", "points"}]}; a
/// point is [x, y], [x, y, low, high] or [x, y, low, high, label], x the name of its category where the axis
/// has categories. There is "limit" {"y", "name"} where the chart has one, of the kind "graph" "graph".
Json json_chart(const Chart& chart);
/// {"nodes": [{"name", "path", "source", "times", "depth", "last", "frame", "flop", "bytes", "time_s",
/// "time_share", "bound", "phases": [{"phase", "flop", "bytes", "intensity", "time_s", "roof_s", "share",
/// "bound"}]}], "edges": [{"from", "to", "back", "lane"}], "lanes", "back_lanes", "lacks"}
Json json_graph(const ModelGraph& graph);
/// One line of text; bytes that are not UTF-8 are replaced.
std::string dump(const Json& json);

}  // namespace rooflm::report

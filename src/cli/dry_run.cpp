// `--dry-run`: everything is checked as for a run, and what it would do is printed.
#include "cli/dry_run.h"

#include <fmt/format.h>

#include <cstdint>
#include <system_error>

#include "cli/output.h"
#include "model/config.h"

namespace rooflm::cli {
namespace {

Table points_table(const std::vector<lab::Point>& points) {
  Table table{.columns = {{"number", "#"},
                          {"run", "would run"},
                          {"device", "device"},
                          {"params", "parameters", Show::si},
                          {"tokens", "tokens a step"},
                          {"model_flop", "model FLOP a step", Show::si, "flop"}},
              .rows = {},
              .notes = {}};
  for (const lab::Point& point : points) {
    Row row;
    row.set("number", static_cast<std::int64_t>(table.rows.size() + 1));
    row.set("run", lab::describe(point));
    row.set("device", point.device);
    row.set("params", lab::config_of(point).integer("params").value_or(0));
    row.set("tokens", point.tokens());
    row.set("model_flop", static_cast<double>(model::model_flop_per_token(point.config, point.seq)) *
                              static_cast<double>(point.tokens()));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string written(const std::vector<OutputPath>& outputs) {
  std::string text;
  for (const OutputPath& output : outputs) {
    if (output.path.empty()) continue;
    std::error_code ignored;
    const bool exists = std::filesystem::exists(output.path, ignored);
    text += output.path == kStandardOutput
                ? fmt::format("{}: standard output\n", output.option)
                : fmt::format("{}: {}{}\n", output.option, output.path.string(), exists ? ", replaced" : "");
  }
  return text.empty() ? "would write: nothing\n" : "would write\n" + text;
}

}  // namespace

void add_dry_run(CommandLine& line, bool& asked, const std::string& group) {
  Option flag = line.add_flag("--dry-run", asked,
                              "Check everything and print what would be done; run and write nothing");
  if (!group.empty()) flag.group(group);
}

void show_dry_run(const std::vector<lab::Point>& points, const std::vector<OutputPath>& outputs,
                  const TableStyle& style) {
  write_out(show_table(points_table(points), style.format));  // --columns are those of the results
  if (style.format == Format::table || style.format == Format::md) write_out("\n" + written(outputs));
}

void show_dry_run(std::string_view what, const std::vector<OutputPath>& outputs) {
  write_out(fmt::format("would {}\n{}", what, written(outputs)));
}

}  // namespace rooflm::cli

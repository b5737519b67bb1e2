// `--dry-run`: everything is checked as for a run, and what it would do is printed.
#include "cli/dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <system_error>
#include <utility>

#include "cli/output.h"
#include "model/config.h"
#include "record/config.h"

namespace rooflm::cli {
namespace {

/// Fields with an option that differ among the runs, and that their descriptions do not have.
std::vector<const record::Field*> varied_fields(const std::vector<record::Config>& configs) {
  constexpr std::array<std::string_view, 8> kDescribed = {"model",  "batch",     "seq",    "dtype",
                                                          "engine", "attention", "device", "recompute"};
  std::vector<const record::Field*> varied;
  for (const record::Field& field : record::config_fields()) {
    if (field.option.empty() || std::ranges::find(kDescribed, field.key) != kDescribed.end()) continue;
    const auto is_other = [&](const record::Config& config) {
      return config.text(field.key) != configs.front().text(field.key);
    };
    if (std::ranges::any_of(configs, is_other)) varied.push_back(&field);
  }
  return varied;
}

Table points_table(const std::vector<lab::Point>& points) {
  std::vector<record::Config> configs;
  for (const lab::Point& point : points) {
    configs.push_back(lab::config_of(point));
    configs.back().set("head_dim", point.config.head_dim);
  }
  const auto varied = varied_fields(configs);
  Table table{.columns = {{"number", "#"}, {"run", "would run"}}, .rows = {}, .notes = {}};
  for (const record::Field* field : varied)
    table.columns.push_back({std::string(field->key), std::string(field->title)});
  const std::array<Column, 4> work = {Column{"device", "device"}, Column{"params", "parameters", Show::si},
                                      Column{"tokens", "tokens a step"},
                                      Column{"model_flop", "model FLOP a step", Show::si, "flop"}};
  table.columns.insert(table.columns.end(), work.begin(), work.end());
  for (const lab::Point& point : points) {
    const record::Config& config = configs[table.rows.size()];
    Row row;
    row.set("number", static_cast<std::int64_t>(table.rows.size() + 1));
    row.set("run", lab::describe(point));
    for (const record::Field* field : varied) row.set(std::string(field->key), config.text(field->key));
    row.set("device", point.device);
    row.set("params", config.integer("params").value_or(0));
    row.set("tokens", point.tokens());
    row.set("model_flop", static_cast<double>(model::model_flop_per_token(point.config, point.seq)) *
                              static_cast<double>(point.tokens()));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table rows_table(const std::vector<std::string>& rows) {
  Table table{.columns = {{"number", "#"}, {"run", "would measure"}}, .rows = {}, .notes = {}};
  for (const std::string& each : rows) {
    Row row;
    row.set("number", static_cast<std::int64_t>(table.rows.size() + 1));
    row.set("run", each);
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

void show(const Table& table, const std::vector<OutputPath>& outputs, const TableStyle& style) {
  write_out(show_table(table, style.format));  // --columns are those of the results
  if (style.format == Format::table || style.format == Format::md) write_out("\n" + written(outputs));
}

}  // namespace

void add_dry_run(CommandLine& line, bool& asked, const std::string& group) {
  Option flag = line.add_flag("--dry-run", asked,
                              "Check everything and print what would be done; run and write nothing");
  if (!group.empty()) flag.group(group);
}

void show_dry_run(const std::vector<lab::Point>& points, const std::vector<OutputPath>& outputs,
                  const TableStyle& style) {
  show(points_table(points), outputs, style);
}

void show_dry_run(const std::vector<std::string>& rows, const std::vector<OutputPath>& outputs,
                  const TableStyle& style) {
  show(rows_table(rows), outputs, style);
}

void show_dry_run(std::string_view what, const std::vector<OutputPath>& outputs) {
  write_out(fmt::format("would {}\n{}", what, written(outputs)));
}

}  // namespace rooflm::cli

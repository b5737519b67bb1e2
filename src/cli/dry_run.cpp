// `--dry-run`: everything is checked as for a run, and what it would do is printed.
#include "cli/dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <system_error>
#include <utility>

#include "cli/output.h"
#include "model/flop_conventions.h"
#include "record/config.h"
#include "report/tables/typed_columns.h"

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

/// A configuration that would run.
struct PlannedPoint {
  std::size_t number = 0;
  const lab::Point* point = nullptr;
  record::Config config{};
};

Table points_table(const std::vector<lab::Point>& points) {
  std::vector<PlannedPoint> rows;
  std::vector<record::Config> configs;
  for (const lab::Point& point : points) {
    configs.push_back(lab::config_of(point));
    configs.back().set("head_dim", point.config.head_dim);
    rows.push_back({.number = rows.size() + 1, .point = &point, .config = configs.back()});
  }
  using Of = const PlannedPoint&;
  report::TypedColumns<PlannedPoint> columns = {
      {"number", "#", &PlannedPoint::number},
      {"run", "would run", [](Of of) { return lab::describe(*of.point); }}};
  for (const record::Field* field : varied_fields(configs)) {
    columns.add({std::string(field->key).c_str(), std::string(field->title).c_str(),
                 [field](Of of) { return of.config.text(field->key); }});
  }
  const auto model_flop = [](Of of) {
    return static_cast<double>(model::model_flop_per_token(of.point->config, of.point->seq,
                                                           model::trained_beside(of.point->step.lora))) *
           static_cast<double>(of.point->tokens());
  };
  columns.add(
      {{"device", "device", [](Of of) { return of.point->device; }},
       {"params", "parameters", [](Of of) { return of.config.integer("params").value_or(0); }, Show::si},
       {"tokens", "tokens a step", [](Of of) { return of.point->tokens(); }},
       {"model_flop", "model FLOP a step", model_flop, Show::si, "flop"}});
  return columns.table(rows);
}

Table rows_table(const std::vector<std::string>& rows) {
  using Numbered = std::pair<std::size_t, std::string>;
  static const report::TypedColumns<Numbered> columns = {{"number", "#", &Numbered::first},
                                                         {"run", "would measure", &Numbered::second}};
  std::vector<Numbered> numbered;
  for (const std::string& row : rows) numbered.emplace_back(numbered.size() + 1, row);
  return columns.table(numbered);
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

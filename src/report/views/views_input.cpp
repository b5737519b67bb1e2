// The input view: waiting for the next batch, and copies between host and device apart from it.
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/model/run_figures.h"
#include "report/model/traced_kernels.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

/// A figure of the loader or the disk.
struct InputFigure {
  const char* what = "";
  std::optional<double> value{};
  const char* unit = "";
  Show show = Show::plain;
  [[nodiscard]] std::string shown() const { return format_cell(*value, show); }
};

const TypedColumns<InputFigure>& input_columns() {
  static const TypedColumns<InputFigure> columns = {{"what", "what", &InputFigure::what},
                                                    {"shown", "value", &InputFigure::shown},
                                                    {"value", &InputFigure::value},
                                                    {"unit", &InputFigure::unit}};
  return columns;
}

/// Waiting for data as the loader saw it; no rows without that fact.
Table loader_table(const RunData& run) {
  const auto wait_s = run.number("loader_wait_s");
  if (!wait_s) return {};
  const RunFigures figures = figures_of(run);
  const auto disk = run.number("disk_byte_per_s");
  const auto needed = ratio_of(run.number("input_bytes"), figures.step_s);
  std::vector<InputFigure> rows = {{"waiting for data per step", wait_s, "s", Show::seconds},
                                   {"of the step", ratio_of(wait_s, figures.step_s), "share", Show::percent},
                                   {"tokens per step", run.number("tokens"), "tokens", Show::si},
                                   {"tokens per second", figures.tokens_per_s, "tok/s", Show::si},
                                   // What the disk has to give, and gives.
                                   {"bytes of text per second", needed, "byte/s", Show::si},
                                   {"disk, bytes per second", disk, "byte/s", Show::si},
                                   {"of the disk", ratio_of(needed, disk), "share", Show::percent}};
  std::erase_if(rows, [](const InputFigure& figure) { return !figure.value; });
  Table table = input_columns().table(rows);
  if (const std::string how = run.text("disk_byte_per_s"); !how.empty())
    table.notes.push_back("disk: " + how);
  return table;
}

/// Copies of one direction, of all steps or of one.
struct Copies {
  std::string way{};
  double count = 0;
  double seconds = 0;
  double bytes = 0;
  std::optional<double> byte_per_s{}, step_share{};
};

const TypedColumns<Copies>& copy_columns() {
  static const TypedColumns<Copies> columns = {
      {"way", "copies", &Copies::way},
      {"count", "per step", &Copies::count, Show::brief},
      {"bytes", "bytes a step", &Copies::bytes, Show::bytes},
      {"seconds", "time a step", &Copies::seconds, Show::seconds},
      {"byte_per_s", "B/s", &Copies::byte_per_s, Show::si, "byte/s"},
      {"step_share", "of the step", &Copies::step_share, Show::percent}};
  return columns;
}

/// Steps that were traced from the copies of their inputs on; without them (older records) those that were
/// traced at all; of a program that is not ours, all that have device work.
std::set<std::int64_t> steps_with_copies(const RunData& run) {
  std::set<std::int64_t> steps;
  for (const std::string_view kind : {kInputs, kTraced}) {
    for (const record::Sample& sample : run.samples) {
      if (sample.kind == kind) steps.insert(sample.step);
    }
    if (!steps.empty()) return steps;
  }
  for (const record::Activity& activity : run.activities) {
    if (activity.step) steps.insert(*activity.step);
  }
  return steps;
}

std::map<std::string, Copies> copies_of(const RunData& run, const std::set<std::int64_t>& steps) {
  constexpr std::string_view kCopy = "copy ";
  std::map<std::int64_t, std::string> ways;  // by the number of the name
  for (const record::ActivityName& name : run.activity_names) {
    if (name.kind != "copy") continue;
    ways[name.name] = name.text.starts_with(kCopy) ? name.text.substr(kCopy.size()) : name.text;
  }
  std::map<std::string, Copies> copies;
  for (const record::Activity& activity : run.activities) {
    const auto way = ways.find(activity.name);
    if (way == ways.end() || !activity.step || !steps.contains(*activity.step)) continue;
    Copies& sum = copies[way->second];
    ++sum.count;
    sum.seconds += static_cast<double>(activity.end_ns - activity.start_ns) * 1e-9;
    sum.bytes += static_cast<double>(activity.bytes.value_or(0));
  }
  return copies;
}

Table copy_table(const RunData& run) {
  const std::set<std::int64_t> steps = steps_with_copies(run);
  const auto count = static_cast<double>(steps.size());
  const auto step_s = figures_of(run).step_s;
  std::vector<Copies> rows;
  for (const auto& [way, all] : copies_of(run, steps)) {
    rows.push_back({.way = way,
                    .count = all.count / count,
                    .seconds = all.seconds / count,
                    .bytes = all.bytes / count,
                    .byte_per_s = all.bytes > 0 ? ratio_of(all.bytes, all.seconds) : std::nullopt,
                    .step_share = ratio_of(all.seconds / count, step_s)});
  }
  return copy_columns().table(rows);
}

void add_input(const RunData& run, const ViewOptions& /*options*/, View& view) {
  view.add("input", "Input", loader_table(run));
  view.add("input.copies", "Copies in traced steps", copy_table(run));
}

constexpr std::array kInputViews = {
    ViewDef{
        .place = 180,
        .info =
            {.name = "input",
             .title = "Input",
             .note =
                 "Time per step in which the host waits for data. Copies of a traced GPU are listed "
                 "separately: they may overlap with kernels, so their time is not part of the step's sum.",
             .needs = "facts about the loader (rooflm profile with data, rooflm train) or traced copies"},
        .of_run = add_input,
        .columns = [] { return columns_of(input_columns(), copy_columns()); }},
};

}  // namespace

std::span<const ViewDef> views_input() { return kInputViews; }

}  // namespace rooflm::report

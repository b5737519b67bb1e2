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

#include "report/run_figures.h"
#include "report/traced_kernels.h"
#include "report/view_def.h"

namespace rooflm::report {
namespace {

/// Waiting for data as the loader saw it; no rows without that fact.
Table loader_table(const RunData& run) {
  Table table{.columns = {{"what", "what"}, {"shown", "value"}}, .rows = {}, .notes = {}};
  const auto wait_s = run.number("loader_wait_s");
  if (!wait_s) return table;
  const RunFigures figures = figures_of(run);
  const auto add = [&](const char* what, const std::optional<double>& value, const char* unit, Show show) {
    if (!value) return;
    Row row;
    row.set("what", std::string(what));
    row.set("shown", format_cell(*value, show));
    row.set("value", *value);
    row.set("unit", std::string(unit));
    table.rows.push_back(std::move(row));
  };
  add("waiting for data per step", wait_s, "s", Show::seconds);
  add("of the step", ratio_of(wait_s, figures.step_s), "share", Show::percent);
  add("tokens per step", run.number("tokens"), "tokens", Show::si);
  add("tokens per second", figures.tokens_per_s, "tok/s", Show::si);
  // What the disk has to give, and gives.
  const auto needed = ratio_of(run.number("input_bytes"), figures.step_s);
  add("bytes of text per second", needed, "byte/s", Show::si);
  add("disk, bytes per second", run.number("disk_byte_per_s"), "byte/s", Show::si);
  add("of the disk", ratio_of(needed, run.number("disk_byte_per_s")), "share", Show::percent);
  if (const std::string how = run.text("disk_byte_per_s"); !how.empty())
    table.notes.push_back("disk: " + how);
  return table;
}

struct Copies {
  std::int64_t count = 0;
  double seconds = 0;
  double bytes = 0;
};

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
  Table table{.columns = {{"way", "copies"},
                          {"count", "per step", Show::brief},
                          {"bytes", "bytes a step", Show::bytes, "byte"},
                          {"seconds", "time a step", Show::seconds, "s"},
                          {"byte_per_s", "B/s", Show::si, "byte/s"},
                          {"step_share", "of the step", Show::percent}},
              .rows = {},
              .notes = {}};
  const std::set<std::int64_t> steps = steps_with_copies(run);
  const auto step_s = figures_of(run).step_s;
  for (const auto& [way, copies] : copies_of(run, steps)) {
    const auto count = static_cast<double>(steps.size());
    Row row;
    row.set("way", way);
    row.set("count", static_cast<double>(copies.count) / count);
    row.set("bytes", copies.bytes / count);
    row.set("seconds", copies.seconds / count);
    row.set("byte_per_s", copies.bytes > 0 ? cell_of(ratio_of(copies.bytes, copies.seconds)) : Cell());
    row.set("step_share", cell_of(ratio_of(copies.seconds / count, step_s)));
    table.rows.push_back(std::move(row));
  }
  return table;
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
             .needs = "facts about the loader (rooflm profile with data, rooflm train) or traced copies",
             .is_on_page = false},
        .of_run = add_input,
        .of_all = nullptr},
};

}  // namespace

std::span<const ViewDef> views_input() { return kInputViews; }

}  // namespace rooflm::report

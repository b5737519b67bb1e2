// The view that says why parts of the step are not faster, with the seconds that each cause costs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/units.h"
#include "report/step_causes.h"
#include "report/view_def.h"
#include "report/why.h"

namespace rooflm::report {
namespace {

constexpr std::array kAllCauses = {Cause::tensor, Cause::dram,  Cause::l2,      Cause::launch,
                                   Cause::tail,   Cause::clock, Cause::latency, Cause::communication};

/// Seconds of a cause that was looked at; nothing where nobody measured it.
Cell known_seconds(const Why& why, Cause cause) {
  const bool is_known = cause == Cause::launch  ? why.has_launch
                        : cause == Cause::tail  ? why.has_tail
                        : cause == Cause::clock ? why.has_clock
                                                : true;
  return is_known ? Cell(why.of(cause)) : Cell();
}

std::string column_of(Cause cause) {
  constexpr std::array kKeys = {"tensor_s", "dram_s",  "l2_s",      "launch_s",
                                "tail_s",   "clock_s", "latency_s", "communication_s"};
  return kKeys.at(static_cast<std::size_t>(cause));
}

Row why_row(const Why& why) {
  Row row;
  row.set("phase", why.phase);
  row.set("part", why.name);
  row.set("time_s", why.time_s);
  row.set("needed_s", why.needed_s());
  row.set("needed_share", cell_of(ratio_of(why.needed_s(), why.time_s)));
  row.set("bound", std::string(title_of(why.bound())));
  for (const Cause cause : kAllCauses) row.set(column_of(cause), known_seconds(why, cause));
  row.set("occupancy", cell_of(why.occupancy));
  row.set("waves", cell_of(why.waves));
  row.set("stall", why.stall.empty() ? Cell() : Cell(why.stall));
  row.set("by", why.is_counted ? "counters" : "shapes");
  row.set("mend", std::string(mend_of(why.bound())));
  return row;
}

/// Of one rank nothing communicates.
bool has_communication(const std::vector<Why>& parts) {
  return std::ranges::any_of(parts, [](const Why& part) { return part.of(Cause::communication) > 0; });
}

Table why_table(const std::vector<Why>& parts) {
  Table table{.columns = {{"phase", "phase"},
                          {"part", "part"},
                          {"time_s", "time", Show::seconds, "s"},
                          {"needed_s", "needed", Show::seconds, "s"},
                          {"bound", "bound by"},
                          {"launch_s", "launch", Show::seconds, "s"},
                          {"tail_s", "tail", Show::seconds, "s"},
                          {"clock_s", "clock", Show::seconds, "s"},
                          {"latency_s", "latency", Show::seconds, "s"},
                          {"occupancy", "occupancy", Show::percent},
                          {"waves", "waves", Show::fixed1},
                          {"stall", "warps wait for"},
                          {"mend", "what would help"}},
              .rows = {},
              .notes = {}};
  if (has_communication(parts)) {
    const auto after = std::ranges::find(table.columns, "latency_s", &Column::key) + 1;
    table.columns.insert(after, {"communication_s", "communication", Show::seconds, "s"});
  }
  for (const Why& part : parts) table.rows.push_back(why_row(part));
  return table;
}

Table cause_table(const std::vector<Why>& parts) {
  Table table{.columns = {{"cause", "cause"},
                          {"seconds", "of the step", Show::seconds, "s"},
                          {"share", "share", Show::percent},
                          {"mend", "what would help"}},
              .rows = {},
              .notes = {}};
  double all_s = 0;
  for (const Why& part : parts) all_s += part.time_s;
  for (const Cause cause : kAllCauses) {
    if (cause == Cause::communication && !has_communication(parts)) continue;
    double sum_s = 0;
    bool is_known = false;
    for (const Why& part : parts) {
      sum_s += part.of(cause);
      is_known = is_known || !std::holds_alternative<std::monostate>(known_seconds(part, cause));
    }
    Row row;
    row.set("cause", std::string(title_of(cause)));
    row.set("seconds", is_known ? Cell(sum_s) : Cell());
    row.set("share", is_known ? cell_of(ratio_of(sum_s, all_s)) : Cell());
    row.set("mend", std::string(mend_of(cause)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// Where the time of a traced step goes; adds up to it.
Table step_cause_table(const StepCauses& step) {
  Table table{.columns = {{"group", "group", Show::plain, "", true},
                          {"cause", "cause"},
                          {"seconds", "time", Show::seconds, "s"},
                          {"share", "share", Show::percent},
                          {"mend", "what would help"}},
              .rows = {},
              .notes = {}};
  for (const StepCause& cause : step.causes) {
    Row row;
    row.set("group", cause.group);
    row.set("cause", cause.name);
    row.set("seconds", cause.seconds);
    row.set("share", cell_of(ratio_of(cause.seconds, step.step_s)));
    row.set("mend", cause.mend.empty() ? Cell() : Cell(cause.mend));
    table.rows.push_back(std::move(row));
  }
  table.notes.push_back(fmt::format(
      "together {}, {}{}: compute is divided among kernels that run beside each other, by class, less the "
      "tail "
      "of "
      "their last waves; collectives are what only they run; idle as in the view device",
      core::format_seconds(step.step_s),
      step.is_whole ? "the whole recording" : "the mean of " + count_of(step.steps, "traced step"),
      step.of_which()));
  if (step.waits == WaitSource::estimated) {
    table.notes.emplace_back(
        "waiting is an estimate: what a collective takes beyond the shortest of the same kind and size; the "
        "records "
        "of all ranks together tell it exactly");
  } else if (step.of("collectives") > 0 && step.waits == WaitSource::unknown) {
    table.notes.emplace_back(
        "how long collectives waited for other ranks is not known: the record has no sizes of "
        "them, and too few steps");
  }
  return table;
}

void add_why(const RunData& run, const ViewOptions& /*options*/, View& view) {
  const std::vector<Why> parts = why_of(run);
  if (const StepCauses step = step_causes(run); step.steps > 0)
    view.add("why.step", step.is_whole ? "Where the recording goes" : "Where a step goes",
             step_cause_table(step));
  if (parts.empty()) return;
  view.add("why", "Why it takes so long", why_table(parts));
  view.add("why.causes", "All parts together", cause_table(parts));
}

constexpr std::array kWhyViews = {ViewDef{
    .place = 64,
    .info = {.name = "why",
             .title = "Why it is not faster",
             .note =
                 "Where a step goes, and the device time of each part, broken down. Needed: its matmul FLOP "
                 "at the peak measured "
                 "here, or its bytes at the bandwidth of DRAM or L2, whichever takes longer; from hardware "
                 "counters if available, else from shapes. Launch and tail need traced kernels, clock needs "
                 "clock samples; what is not known is part of latency. All from observed steps; of traced "
                 "steps all "
                 "causes add up to the step.",
             .needs = "observed steps and ceilings, or traced kernels (rooflm profile, rooflm record)",
             .is_on_page = false},
    .of_run = add_why,
    .of_all = nullptr}};

}  // namespace

std::span<const ViewDef> views_why() { return kWhyViews; }

}  // namespace rooflm::report

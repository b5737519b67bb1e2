// The view that says why parts of the step are not faster, with the seconds that each cause costs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/units.h"
#include "report/findings/step_causes.h"
#include "report/findings/why.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

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

/// The column of a cause's seconds. Of one rank nothing communicates, and of needed time the largest is
/// shown.
TypedColumn<Why> cause_column(const char* key, Cause cause, Seen seen) {
  return {key, title_of(cause).data(), [cause](const Why& why) { return known_seconds(why, cause); }, seen,
          Show::seconds};
}

const TypedColumns<Why>& why_columns() {
  static const TypedColumns<Why> columns = {
      {"phase", "phase", &Why::phase},
      {"part", "part", &Why::name},
      {"time_s", "time", &Why::time_s, Show::seconds},
      {"needed_s", "needed", &Why::needed_s, Show::seconds},
      {"needed_share", [](const Why& why) { return ratio_of(why.needed_s(), why.time_s); }},
      {"bound", "bound by", [](const Why& why) { return title_of(why.bound()); }},
      cause_column("tensor_s", Cause::tensor, Seen::never),
      cause_column("dram_s", Cause::dram, Seen::never),
      cause_column("l2_s", Cause::l2, Seen::never),
      cause_column("launch_s", Cause::launch, Seen::always),
      cause_column("tail_s", Cause::tail, Seen::always),
      cause_column("clock_s", Cause::clock, Seen::always),
      cause_column("latency_s", Cause::latency, Seen::always),
      cause_column("communication_s", Cause::communication, Seen::always),
      {"occupancy", "occupancy", &Why::occupancy, Show::percent},
      {"waves", "waves", &Why::waves, Show::fixed1},
      {"stall", "warps wait for", [](const Why& why) { return known_text(why.stall); }},
      {"by", [](const Why& why) { return why.is_counted ? "counters" : "shapes"; }},
      {"mend", "what would help", [](const Why& why) { return mend_of(why.bound()); }}};
  return columns;
}

/// Of one rank nothing communicates.
bool has_communication(const std::vector<Why>& parts) {
  return std::ranges::any_of(parts, [](const Why& part) { return part.of(Cause::communication) > 0; });
}

Table why_table(const std::vector<Why>& parts) {
  Table table = why_columns().table(parts);
  if (!has_communication(parts))
    std::erase_if(table.columns, [](const Column& column) { return column.key == "communication_s"; });
  return table;
}

/// A cause over all parts, or over a step.
struct CauseSum {
  std::string group{}, cause{};
  std::optional<double> seconds{};
  double all_s = 0;
  std::string mend{};
  [[nodiscard]] std::optional<double> share() const { return ratio_of(seconds, all_s); }
};

const TypedColumns<CauseSum>& cause_columns() {
  static const TypedColumns<CauseSum> columns = {
      {"cause", "cause", &CauseSum::cause},
      {"seconds", "of the step", &CauseSum::seconds, Show::seconds},
      {"share", "share", &CauseSum::share, Show::percent},
      {"mend", "what would help", [](const CauseSum& sum) { return known_text(sum.mend); }}};
  return columns;
}

const TypedColumns<CauseSum>& step_cause_columns() {
  static const TypedColumns<CauseSum> columns = TypedColumns<CauseSum>({{"group", "group", &CauseSum::group}})
                                                    .add(cause_columns().with_title("seconds", "time"));
  return columns;
}

Table cause_table(const std::vector<Why>& parts) {
  std::vector<CauseSum> sums;
  double all_s = 0;
  for (const Why& part : parts) all_s += part.time_s;
  for (const Cause cause : kAllCauses) {
    if (cause == Cause::communication && !has_communication(parts)) continue;
    CauseSum& sum = sums.emplace_back(
        CauseSum{.cause = std::string(title_of(cause)), .all_s = all_s, .mend = std::string(mend_of(cause))});
    double sum_s = 0;
    for (const Why& part : parts) {
      sum_s += part.of(cause);
      if (says_something(known_seconds(part, cause))) sum.seconds = 0;
    }
    if (sum.seconds) sum.seconds = sum_s;
  }
  return cause_columns().table(sums);
}

/// Where the time of a traced step goes; adds up to it.
Table step_cause_table(const StepCauses& step) {
  std::vector<CauseSum> sums;
  for (const StepCause& cause : step.causes) {
    sums.push_back({.group = cause.group,
                    .cause = cause.name,
                    .seconds = cause.seconds,
                    .all_s = step.step_s,
                    .mend = cause.mend});
  }
  Table table = step_cause_columns().table(sums);
  table.columns.front().is_group = true;
  table.notes.push_back(fmt::format(
      "together {}, {}{}: compute is divided among overlapping kernels, by class, without the tail of "
      "their last waves; collectives: while nothing else runs; idle as in the view device",
      core::format_seconds(step.step_s),
      step.is_whole ? "the whole recording" : "the mean of " + core::format_count(step.steps, "traced step"),
      step.of_which()));
  if (step.waits == WaitSource::estimated) {
    table.notes.emplace_back(
        "waiting is an estimate: the excess over the shortest collective of the same kind and size; the "
        "records of all ranks together give it exactly");
  } else if (step.of("collectives") > 0 && step.waits == WaitSource::unknown) {
    table.notes.emplace_back(
        "how long collectives waited for other ranks is not known: the record lacks their sizes, and has "
        "too few steps");
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
             .needs = "observed steps and ceilings, or traced kernels (rooflm profile, rooflm record)"},
    .of_run = add_why,
    .columns = [] { return columns_of(why_columns(), step_cause_columns(), cause_columns()); }}};

}  // namespace

std::span<const ViewDef> views_why() { return kWhyViews; }

}  // namespace rooflm::report

// The view of the host's stacks: which lines the program was at, and which kept the device waiting.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/ratio.h"
#include "report/host_stacks.h"
#include "report/view_def.h"

namespace rooflm::report {
namespace {

struct StackTally {
  std::size_t samples = 0, idle = 0, waiting = 0;
};
using TallyByLine = std::map<std::string, StackTally>;

void add_samples(TallyByLine& counts, const std::string& text, const HostStack& stack) {
  StackTally& count = counts[text];
  count.samples += stack.samples;
  count.idle += stack.idle;
  if (stack.is_waiting) count.waiting += stack.samples;
}

Table tally_table(const HostStacks& stacks, const TallyByLine& counts, const char* title, std::size_t top) {
  Table table{.columns = {{"name", title},
                          {"samples", "samples"},
                          {"share", "of samples", Show::percent},
                          {"waiting", "waiting"},
                          {"idle", "device idle"},
                          {"idle_share", "of idle", Show::percent}},
              .rows = {},
              .notes = {}};
  std::vector<std::pair<std::string, StackTally>> sorted(counts.begin(), counts.end());
  std::ranges::stable_sort(sorted, std::greater<>(), [](const auto& one) { return one.second.idle; });
  const auto total = static_cast<double>(stacks.samples);
  const auto idle = static_cast<double>(stacks.idle);
  for (const auto& [name, count] : sorted) {
    if (top > 0 && table.rows.size() == top) {
      table.notes.push_back(fmt::format("{} more (--top 0 shows all)", sorted.size() - top));
      break;
    }
    Row row;
    row.set("name", name);
    row.set("samples", static_cast<std::int64_t>(count.samples));
    row.set("share", cell_of(core::ratio_of(static_cast<double>(count.samples), total)));
    row.set("waiting", static_cast<std::int64_t>(count.waiting));
    row.set("idle", static_cast<std::int64_t>(count.idle));
    row.set("idle_share", cell_of(core::ratio_of(static_cast<double>(count.idle), idle)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

void add_stacks(const RunData& run, const ViewOptions& options, View& view) {
  const HostStacks stacks = host_stacks(run);
  TallyByLine lines, functions;
  for (const HostStack& stack : stacks.stacks) {
    if (stack.frames.empty()) continue;
    add_samples(lines, stack.frames.back(), stack);
    // A function that calls itself counts once.
    for (const std::string& frame : std::set<std::string>(stack.frames.begin(), stack.frames.end())) {
      add_samples(functions, frame, stack);
    }
  }
  view.add("stacks.lines", "Lines at which the host was", tally_table(stacks, lines, "line", options.top));
  view.add("stacks.calls", "Lines with all that they call",
           tally_table(stacks, functions, "line", options.top));
}

constexpr std::array kStackViews = {ViewDef{
    .place = 46,
    .info =
        {.name = "stacks",
         .title = "Stacks of the host",
         .note =
             "Where the threads that start the device's work were in their program, by samples (each a "
             "hundredth of a second, if no other rate was asked for); waiting: of them, while the thread "
             "did not run: it was in a call of the system that had not returned; idle: "
             "nothing ran on the device at that moment (nor, for a thread that waits, another of these "
             "threads), "
             "so that line kept it waiting; in steps that were timed alone nobody knows, and none is idle.",
         .needs = "sampled stacks (rooflm record)",
         .is_on_page = false},
    .of_run = add_stacks,
    .of_all = nullptr}};

}  // namespace

std::span<const ViewDef> views_stacks() { return kStackViews; }

}  // namespace rooflm::report

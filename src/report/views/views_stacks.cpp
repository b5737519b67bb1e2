// The view of the host's stacks: which lines the program was at, and which kept the device waiting.
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/ratio.h"
#include "report/model/host_stacks.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

/// Samples of one line of the program, beside all of them.
struct StackTally {
  std::string name{};
  std::size_t samples = 0, idle = 0, waiting = 0;
  std::size_t all_samples = 0, all_idle = 0;
  [[nodiscard]] std::optional<double> share() const {
    return core::ratio_of(static_cast<double>(samples), static_cast<double>(all_samples));
  }
  [[nodiscard]] std::optional<double> idle_share() const {
    return core::ratio_of(static_cast<double>(idle), static_cast<double>(all_idle));
  }
};
using TallyByLine = std::map<std::string, StackTally>;

const TypedColumns<StackTally>& tally_columns() {
  static const TypedColumns<StackTally> columns = {
      {"name", "line", &StackTally::name},
      {"samples", "samples", &StackTally::samples},
      {"share", "of samples", &StackTally::share, Show::percent},
      {"waiting", "waiting", &StackTally::waiting},
      {"idle", "device idle", &StackTally::idle},
      {"idle_share", "of idle", &StackTally::idle_share, Show::percent}};
  return columns;
}

void add_samples(TallyByLine& counts, const std::string& text, const HostStack& stack) {
  StackTally& count = counts[text];
  count.samples += stack.samples;
  count.idle += stack.idle;
  if (stack.is_waiting) count.waiting += stack.samples;
}

/// Those that kept the device waiting for the longest first.
Table tally_table(const HostStacks& stacks, const TallyByLine& counts, std::size_t top) {
  std::vector<StackTally> sorted;
  for (const auto& [name, count] : counts) {
    sorted.push_back(count);
    sorted.back().name = name;
    sorted.back().all_samples = stacks.samples;
    sorted.back().all_idle = stacks.idle;
  }
  std::ranges::stable_sort(sorted, std::ranges::greater{}, &StackTally::idle);
  return tally_columns().table(sorted, top, "lines");
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
  view.add("stacks.lines", "Lines at which the host was", tally_table(stacks, lines, options.top));
  view.add("stacks.calls", "Lines with all that they call", tally_table(stacks, functions, options.top));
}

constexpr std::array kStackViews = {ViewDef{
    .place = 46,
    .info =
        {.name = "stacks",
         .title = "Stacks of the host",
         .note =
             "Where the threads that start the device's work were in their program, by samples (each a "
             "hundredth of a second, if no other rate was asked for); waiting: those in which the thread was "
             "in a system call; idle: those in which nothing ran on the "
             "device (nor, for a waiting thread, another of these threads), so that line kept it waiting; "
             "in steps that were only timed this is unknown, and none is idle.",
         .needs = "sampled stacks (rooflm record)"},
    .of_run = add_stacks,
    .columns = [] { return columns_of(tally_columns()); }}};

}  // namespace

std::span<const ViewDef> views_stacks() { return kStackViews; }

}  // namespace rooflm::report

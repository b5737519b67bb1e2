// The view of advice: what to change first, on the command line as on the page.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "report/advice.h"
#include "report/sweep.h"
#include "report/view_def.h"

namespace rooflm::report {
namespace {

/// Why there is no advice, where it is not for want of times.
std::string no_advice(const RecordSet& set) {
  std::string text = fmt::format(
      "No advice: nothing that is known of these steps shows a gain of {:.1f} % of the step or more",
      100 * kLeastGain);
  const bool is_tried =
      std::ranges::any_of(set.runs, [](const RunData& run) { return !advise(run, 1).empty(); });
  return text + (is_tried ? ", apart from changes that another run shown here already has." : ".");
}

void add_advice(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  constexpr std::size_t kMost = 4;
  Table table{.columns = {{"gain_s", "at most", Show::seconds, "s"},
                          {"step_share", "of the step", Show::percent},
                          {"text", "what to try"}},
              .rows = {},
              .notes = {}};
  const std::vector<RunName> names = run_names(set.runs);
  if (set.runs.size() > 1)
    table.columns.insert(table.columns.begin(), {"which", "run", Show::plain, "", true});
  for (const Advice& advice : advise(set, kMost)) {
    Row row;
    row.set("which", names[advice.run].which);
    row.set("run", set.runs[advice.run].run.label);
    row.set("gain_s", advice.gain_s);
    row.set("step_share", cell_of(advice.step_share));
    row.set("text", advice.text);
    row.set("subject", advice.subject);
    row.set("setting", advice.setting);
    row.set("value", advice.value);
    table.rows.push_back(std::move(row));
  }
  if (table.rows.empty() && std::ranges::any_of(set.runs, is_advisable)) view.note = no_advice(set);
  view.add("advice", "What to fix first", std::move(table));
}

constexpr std::array kAdviceViews = {
    ViewDef{.place = 15,
            .info = {.name = "advice",
                     .title = "What to fix first",
                     .note = "Upper bounds, not promises: the difference between a time and its roof. "
                             "Changes that another run shown here already has are left out.",
                     .needs = kNeedsOpTimes,
                     .is_on_page = true},
            .of_run = nullptr,
            .of_all = add_advice},
};

}  // namespace

std::span<const ViewDef> views_advice() { return kAdviceViews; }

}  // namespace rooflm::report

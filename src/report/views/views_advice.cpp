// The view of advice: what to change first, on the command line as on the page.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "report/findings/advice.h"
#include "report/runs/sweep.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

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

/// Advice and the run that it is for.
struct AdviceRow : Advice {
  std::string which{}, label{};
};

const TypedColumns<AdviceRow>& advice_columns() {
  static const TypedColumns<AdviceRow> columns = {
      {"gain_s", "at most", &AdviceRow::gain_s, Show::seconds},
      {"step_share", "of the step", &AdviceRow::step_share, Show::percent},
      {"text", "what to try", &AdviceRow::text},
      {"which", &AdviceRow::which},
      {"run", &AdviceRow::label},
      {"subject", &AdviceRow::subject},
      {"setting", &AdviceRow::setting},
      {"value", &AdviceRow::value}};
  return columns;
}

void add_advice(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  constexpr std::size_t kMost = 4;
  const std::vector<RunName> names = run_names(set.runs);
  std::vector<AdviceRow> rows;
  for (const Advice& advice : advise(set, kMost))
    rows.push_back({{advice}, names[advice.run].which, set.runs[advice.run].run.label});
  Table table = advice_columns().table(rows);
  if (set.runs.size() > 1)
    table.columns.insert(table.columns.begin(), {"which", "run", Show::plain, "", true});
  if (rows.empty() && std::ranges::any_of(set.runs, is_advisable)) view.note = no_advice(set);
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
            .of_all = add_advice,
            .columns = [] { return columns_of(advice_columns()); }},
};

}  // namespace

std::span<const ViewDef> views_advice() { return kAdviceViews; }

}  // namespace rooflm::report

// The verdicts of a comparison: which samples are compared, and what their tests say together.
#include "report/tables/compare_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "core/significance.h"
#include "core/statistics.h"

namespace rooflm::report {
namespace {

/// Fewer samples do not show that nothing has changed.
constexpr std::size_t kFewestForSame = 5;

std::vector<double> medians(const Runs& runs) {
  std::vector<double> all;
  for (const std::vector<double>& seconds : runs) {
    if (!seconds.empty()) all.push_back(core::median(seconds));
  }
  return all;
}

/// Normalised MAD over median, of a run's steps or of a side's runs.
double spread(const std::vector<double>& seconds) {
  constexpr double kNormal = 1.4826;  // MAD of a normal distribution to its standard deviation
  if (seconds.size() < 2) return 0;
  return kNormal * core::median_absolute_deviation(seconds) / core::median(seconds);
}

double widest_spread(const TimePair& pair) {
  double widest = 0;
  for (const Runs* runs : {&pair.a, &pair.b}) {
    for (const std::vector<double>& seconds : *runs) widest = std::max(widest, spread(seconds));
  }
  return widest;
}

/// Tests whose false alarms are kept rare together.
struct Family {
  std::size_t rows = 0;
  double level = 0;  ///< probability of any false alarm

  /// Whether the test of sets of these sizes can be significant among all rows (Holm multiplies by them).
  [[nodiscard]] bool can_show(std::size_t n_a, std::size_t n_b) const {
    return static_cast<double>(rows) * core::least_p(n_a, n_b) < level;
  }
  /// The fewest samples on each side with which it can.
  [[nodiscard]] std::size_t fewest() const {
    std::size_t n = 1;
    while (!can_show(n, n)) ++n;
    return n;
  }
};

/// Without a verdict, its p not adjusted yet.
ComparedTime compared(const TimePair& pair, const Family& family, const CompareOptions& options) {
  constexpr double kSpreads = 3;
  std::vector<double> a = medians(pair.a);
  std::vector<double> b = medians(pair.b);
  ComparedTime row{.run = pair.run, .subject = pair.subject};
  row.a_runs = a.size();
  row.b_runs = b.size();
  const bool has_runs = std::min(a.size(), b.size()) >= kFewestRuns;
  if (!has_runs || !family.can_show(a.size(), b.size())) {
    const double of_runs = has_runs ? std::max(spread(a), spread(b)) : 0;
    row.needed_runs = std::max(kFewestRuns, family.fewest());
    row.allowance = std::max(pair.restart, kSpreads * std::max(widest_spread(pair), of_runs));
    a = pooled(pair.a);
    b = pooled(pair.b);
  }
  row.a_s = core::median(a);
  row.b_s = core::median(b);
  row.a_samples = a.size();
  row.b_samples = b.size();
  row.needed_samples = family.can_show(a.size(), b.size()) ? 0 : family.fewest();
  row.ratio = row.b_s / row.a_s;
  row.interval = core::median_ratio_interval(a, b, options.confidence, options.seed);
  row.p = core::mann_whitney_p(a, b);
  return row;
}

void adjust(std::span<ComparedTime* const> rows, const CompareOptions& options) {
  std::vector<double> p;
  for (const ComparedTime* row : rows) p.push_back(row->p);
  const std::vector<double> adjusted = core::holm(p);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i]->p = adjusted[i];
    rows[i]->verdict = verdict_of(*rows[i], options);
  }
}

/// What more runs or steps would allow.
void note_sizes(std::span<ComparedTime* const> rows, const Family& family, const char* what,
                std::vector<std::string>& notes) {
  const auto runs_of = [](const ComparedTime* row) { return std::min(row->a_runs, row->b_runs); };
  std::size_t fewest_runs = 0;  // of rows that have enough runs for a row alone
  std::size_t blind = 0;
  for (const ComparedTime* row : rows) {
    if (row->needed_samples > 0) ++blind;
    if (row->allowance == 0 || runs_of(row) < kFewestRuns) continue;
    fewest_runs = fewest_runs == 0 ? runs_of(row) : std::min(fewest_runs, runs_of(row));
  }
  if (fewest_runs > 0) {
    notes.push_back(fmt::format(
        "{} runs on a side cannot show a change among {} {}: their steps are compared, and only "
        "changes beyond the allowed difference between runs count; with {} runs on each side, runs "
        "are compared",
        fewest_runs, family.rows, what, family.fewest()));
  }
  if (blind > 0) {
    notes.push_back(fmt::format(
        "{} of {} {} have too few samples to show a change, however large: {} on each side are needed", blind,
        family.rows, what, family.fewest()));
  }
}

}  // namespace

std::vector<double> pooled(const Runs& runs) {
  std::vector<double> all;
  for (const std::vector<double>& seconds : runs) all.insert(all.end(), seconds.begin(), seconds.end());
  return all;
}

Verdict verdict_of(const ComparedTime& row, const CompareOptions& options) {
  const auto [low, high, coverage] = row.interval;
  const bool has_enough = std::min(row.a_samples, row.b_samples) >= kFewestForSame;
  if (has_enough && low >= 1 - options.same && high <= 1 + options.same) return Verdict::same;
  if (row.p >= 1 - options.confidence) return Verdict::unsure;
  if (high < 1 / (1 + row.allowance)) return Verdict::faster;
  return low > 1 + row.allowance ? Verdict::slower : Verdict::unsure;
}

void judge(const std::vector<TimePair>& pairs, const CompareOptions& options, Comparison& comparison) {
  const auto is_step = [](const TimePair& pair) { return pair.subject == kWholeStep; };
  const double level = 1 - options.confidence;
  const auto steps = static_cast<std::size_t>(std::ranges::count_if(pairs, is_step));
  const Family of_steps{.rows = steps, .level = level};
  const Family of_parts{.rows = pairs.size() - steps, .level = level};
  for (const TimePair& pair : pairs) {
    comparison.rows.push_back(compared(pair, is_step(pair) ? of_steps : of_parts, options));
  }
  std::vector<ComparedTime*> step_rows;
  std::vector<ComparedTime*> part_rows;
  for (ComparedTime& row : comparison.rows)
    (row.subject == kWholeStep ? step_rows : part_rows).push_back(&row);
  adjust(step_rows, options);
  adjust(part_rows, options);
  note_sizes(step_rows, of_steps, "whole steps", comparison.notes);
  note_sizes(part_rows, of_parts, "parts of steps", comparison.notes);
}

}  // namespace rooflm::report

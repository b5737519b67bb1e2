// Two run records: what got faster or slower, by how much, and whether that is more than chance.
#include "report/tables/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "record/rows.h"
#include "report/model/common_parts.h"
#include "report/model/run_data.h"
#include "report/runs/match_runs.h"
#include "report/tables/compare_rows.h"
#include "report/tables/compare_text.h"
#include "report/tables/compare_times.h"

namespace rooflm::report {
namespace {

/// Programs that do as much are of the same model.
constexpr double kSameWork = 0.02;
/// Parts of less than this share of the step lie within what waking a thread takes.
constexpr double kLeastShown = 0.05;

bool all_positive(const Runs& runs) {
  const auto is_time = [](double s) { return s > 0 && std::isfinite(s); };
  return !runs.empty() && std::ranges::all_of(runs, [&](const std::vector<double>& seconds) {
    return std::ranges::all_of(seconds, is_time);
  }) && std::ranges::any_of(runs, [](const std::vector<double>& seconds) { return !seconds.empty(); });
}

/// Median of all steps, of which there are some.
double step_of(const Times& times) { return core::median(pooled(*times.find(std::string(kWholeStep)))); }

/// Sentences about runs of a processor that others used, too.
std::vector<std::string> busy_notes(const RunMatch& match) {
  std::vector<std::string> notes;
  for (const auto* runs : {&match.a, &match.b}) {
    for (const FoundRun& found : *runs) {
      if (found.run.config.text("device") != "cpu") continue;
      const auto fact = found.record->fact(found.run.id, "others_share");
      if (!fact || fact->text.empty()) continue;
      notes.push_back(
          fmt::format("{}, {}: {}", found.record->path().filename().string(), found.run.label, fact->text));
    }
  }
  return notes;
}

/// "forward/residual1 (A 219 us)": a time that the other side does not have.
std::string lonely_text(const std::string& subject, const char* side, const Runs& seconds) {
  if (!all_positive(seconds)) return subject;
  return fmt::format("{} ({} {})", subject, side, core::format_seconds(core::median(pooled(seconds))));
}

/// The times that both sides have.
void add_pairs(const RunMatch& match, const Times& a, const Times& b, const CompareOptions& options,
               std::vector<TimePair>& pairs, std::vector<std::string>& notes) {
  std::vector<std::string> lonely;
  const double usual =
      match.a.front().run.config.text("device") == "cpu" ? kProcessorRestart : kDeviceRestart;
  const double step_s = a.find(std::string(kWholeStep)) == nullptr ? 0 : step_of(a);
  const std::vector<std::string> busy = busy_notes(match);
  notes.insert(notes.end(), busy.begin(), busy.end());
  for (const auto& [subject, seconds] : a) {
    const Runs* others = b.find(subject);
    if (others == nullptr || !all_positive(seconds) || !all_positive(*others)) {
      lonely.push_back(lonely_text(subject, "A", seconds));
      continue;
    }
    TimePair& pair =
        pairs.emplace_back(TimePair{.run = match.label, .subject = subject, .a = seconds, .b = *others});
    const double longer_s = std::max(core::median(pooled(seconds)), core::median(pooled(*others)));
    pair.restart = longer_s < kLeastShown * step_s || !busy.empty() ? std::numeric_limits<double>::infinity()
                                                                    : options.restart.value_or(usual);
  }
  for (const auto& [subject, seconds] : b) {
    if (a.find(subject) == nullptr) lonely.push_back(lonely_text(subject, "B", seconds));
  }
  if (!lonely.empty()) {
    notes.push_back(fmt::format("{}: without a time in both: {}", match.label, fmt::join(lonely, ", ")));
  }
}

/// What a step of somebody else's program and ours differ in, in sentences: the work, and the parts whose
/// times make the difference. `step_s`: how much longer a step of B takes.
void explain_across(const RunMatch& match, double step_s, Comparison& comparison) {
  const auto flop_of = [](const FoundRun& found) {
    const auto fact = found.record->fact(found.run.id, "matmul_flop");
    return fact ? fact->value.value_or(0) : 0;
  };
  const double flop_a = flop_of(match.a.front());
  const double flop_b = flop_of(match.b.front());
  comparison.notes.push_back(
      flop_a > 0 && flop_b > 0
          ? fmt::format("{}: matmul FLOP of a step: A {:.4g}, B {:.4g}, B / A {:.3f}: {}", match.label,
                        flop_a, flop_b, flop_b / flop_a,
                        std::abs(flop_b / flop_a - 1) < kSameWork ? "the same work" : "not the same work")
          : fmt::format("{}: the work cannot be compared because the FLOP of one side are missing",
                        match.label));
  constexpr double kMilli = 1e3;
  comparison.notes.push_back(fmt::format("{}: B - A of a step is {:+.3f} ms: {}", match.label,
                                         kMilli * step_s, largest_parts(comparison, match.label)));
}

/// Whether the times of the whole step are times.
bool is_usable(const Times& times) {
  const Runs* steps = times.find(std::string(kWholeStep));
  return steps != nullptr && all_positive(*steps);
}

/// Adds what the gate must know of a match: what B can no longer time, and what cannot be compared.
void note_untimed(const RunMatch& match, const Times& a, const Times& b, Comparison& comparison) {
  const bool timed_a = a.find(std::string(kWholeStep)) != nullptr;
  const bool timed_b = b.find(std::string(kWholeStep)) != nullptr;
  const std::string& status_b = match.b.front().run.status;
  if (!timed_a || !timed_b) {
    comparison.notes.push_back(fmt::format("{}: not timed in both (status {} / {})", match.label,
                                           match.a.front().run.status, status_b));
  }
  if (match.is_across) return;  // another program is no earlier state of this one: nothing is lost
  if (timed_a && !timed_b) {
    comparison.lost.push_back(fmt::format("{} ({})", match.label, status_b));
  } else if (timed_a && !is_usable(a)) {
    comparison.untimed.push_back(match.label + ": a time of its step in A is not positive");
  } else if (timed_a && !is_usable(b)) {
    comparison.lost.push_back(match.label + " (a time of its step is not positive)");
  }
}

/// Throws when there is nothing to compare.
void require_pairs(const std::vector<TimePair>& pairs, bool is_a_timed, bool is_b_timed,
                   const CompareOptions& options, const Comparison& comparison) {
  if (!pairs.empty()) return;
  if (!options.ops.empty()) {
    throw core::UsageError(
        fmt::format("compare --op {}: no such op was timed on both sides", fmt::join(options.ops, ",")));
  }
  if (!comparison.lost.empty()) return;
  const std::string& a = comparison.a_name;
  const std::string& b = comparison.b_name;
  if (!is_a_timed && !is_b_timed) throw core::InputError(fmt::format("{} and {} hold no timed steps", a, b));
  if (!is_a_timed || !is_b_timed) {
    throw core::InputError(
        fmt::format("{} holds no timed steps: nothing can be compared", is_a_timed ? b : a));
  }
  throw core::InputError(fmt::format("{} and {} hold no times of the same configuration", a, b));
}

/// Each configuration's parts, what adds most to the difference first; steps and phases stay before them.
void sort_parts(std::vector<ComparedTime>& rows) {
  std::map<std::string, std::size_t> place;
  for (const ComparedTime& row : rows) place.try_emplace(row.run, place.size());
  std::ranges::stable_sort(rows, [&](const ComparedTime& one, const ComparedTime& other) {
    if (one.run != other.run) return place.at(one.run) < place.at(other.run);
    if (is_part(one) != is_part(other)) return is_part(other);
    return is_part(one) && std::abs(one.difference_s()) > std::abs(other.difference_s());
  });
}

void compare_matches(const std::vector<RunMatch>& matches, const CompareOptions& options,
                     Comparison& comparison) {
  bool is_a_timed = matches.empty();
  bool is_b_timed = is_a_timed;
  std::vector<TimePair> pairs;
  std::vector<double> longer_s;  // of each match, step of B - step of A
  for (const RunMatch& match : matches) {
    const Parts parts = match.is_across ? Parts::blocks : parts_of_both(match, options.parts);
    const Times times_a = times_of(match.a, match.is_across, parts, options.ops);
    const Times times_b = times_of(match.b, match.is_across, parts, options.ops);
    is_a_timed = is_a_timed || times_a.find(std::string(kWholeStep)) != nullptr;
    is_b_timed = is_b_timed || times_b.find(std::string(kWholeStep)) != nullptr;
    note_untimed(match, times_a, times_b, comparison);
    add_pairs(match, times_a, times_b, options, pairs, comparison.notes);
    longer_s.push_back(is_usable(times_a) && is_usable(times_b) ? step_of(times_b) - step_of(times_a) : 0);
  }
  if (!options.ops.empty())
    std::erase_if(pairs, [](const TimePair& pair) { return pair.subject.find('/') == std::string::npos; });
  require_pairs(pairs, is_a_timed, is_b_timed, options, comparison);
  judge(pairs, options, comparison);
  sort_parts(comparison.rows);
  for (std::size_t i = 0; i < matches.size(); ++i) {
    if (matches[i].is_across) explain_across(matches[i], longer_s[i], comparison);
  }
  if (std::ranges::any_of(comparison.rows, [](const ComparedTime& row) {
        return row.allowance > 0 && std::min(row.a_runs, row.b_runs) < kFewestRuns;
      })) {
    comparison.notes.emplace_back(
        "fewer than four runs on a side: only changes beyond the allowed difference between runs count as "
        "FASTER or SLOWER; more records on each side, taken alternately, reveal smaller changes");
  }
}

/// Whether a record of the side was cut short, so that it may lack configurations that run.
bool is_unfinished(Side side) {
  return std::ranges::any_of(side, [](const record::Reader& record) {
    return !record.is_complete() || std::ranges::any_of(record.runs(), [](const record::Run& run) {
      return run.status == "interrupted";
    });
  });
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::faster:
      return "FASTER";
    case Verdict::slower:
      return "SLOWER";
    case Verdict::same:
      return "SAME";
    case Verdict::unsure:
      return "UNSURE";
  }
  return "?";
}

Comparison compare(const record::Reader& a, const record::Reader& b, const CompareOptions& options) {
  return compare(std::span(&a, 1), std::span(&b, 1), options);
}

Comparison compare(std::span<const record::Reader> a, std::span<const record::Reader> b,
                   const CompareOptions& options) {
  RunMatches found = match_runs(a, b);
  std::vector<std::string> lost;
  if (is_unfinished(b)) {
    for (const std::string& label : found.only_a) lost.push_back(label + " (missing, B is unfinished)");
  }
  Comparison comparison{
      .notes = std::move(found.notes), .lost = std::move(lost), .a_name = names_of(a), .b_name = names_of(b)};
  compare_matches(found.matches, options, comparison);
  return comparison;
}

Comparison compare_within(const record::Reader& record, const std::vector<std::string>& runs,
                          const std::string& between, const CompareOptions& options) {
  RunMatches found = match_within(record, runs, between);
  Comparison comparison{
      .notes = std::move(found.notes), .a_name = std::move(found.a_name), .b_name = std::move(found.b_name)};
  compare_matches(found.matches, options, comparison);
  return comparison;
}

std::vector<ComparedTime> slower_steps(const Comparison& comparison, double share) {
  std::vector<ComparedTime> slower;
  std::ranges::copy_if(comparison.rows, std::back_inserter(slower), [&](const ComparedTime& row) {
    return row.subject == kWholeStep && row.verdict == Verdict::slower && row.interval.low > 1 + share;
  });
  return slower;
}

std::vector<std::string> unseen_steps(const Comparison& comparison, double share) {
  std::vector<std::string> texts = comparison.untimed;
  double hidden = 0;
  std::size_t runs = 0;  // that show what is hidden
  for (const ComparedTime& row : comparison.rows) {
    if (row.subject != kWholeStep || row.verdict == Verdict::slower) continue;
    if (row.needed_samples > 0) {
      texts.push_back(fmt::format(
          "{}: {} and {} samples show no change, however large: {} on each side are needed, or {} runs",
          row.run, row.a_samples, row.b_samples, row.needed_samples, row.needed_runs));
    } else if (std::isinf(row.allowance)) {
      texts.push_back(fmt::format(
          "{}: other programs used the processors: measure again on a quiet machine, or make {} runs "
          "on each side, taken in turn",
          row.run, row.needed_runs));
    } else if (row.allowance > hidden) {
      hidden = row.allowance;
      runs = row.needed_runs;
    }
  }
  if (hidden > share) {
    texts.push_back(fmt::format(
        "changes of up to {:.3g}% may be differences between runs; {} runs on each side, taken in turn, show "
        "smaller ones",
        100 * hidden, runs));
  }
  return texts;
}

}  // namespace rooflm::report

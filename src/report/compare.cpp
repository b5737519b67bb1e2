// Two run records: what got faster or slower, by how much, and whether that is more than chance.
#include "report/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/significance.h"
#include "record/rows.h"
#include "report/match_runs.h"
#include "report/run_data.h"

namespace rooflm::report {
namespace {

constexpr double kSecondsPerNs = 1e-9;
/// Fewer samples do not show that nothing has changed.
constexpr std::size_t kFewestForSame = 5;
constexpr std::string_view kStep = "step";

/// Seconds by subject, in the order in which subjects are shown.
class Times {
 public:
  std::vector<double>& of(const std::string& subject) {
    const auto [entry, is_new] = index_.try_emplace(subject, times_.size());
    if (is_new) times_.emplace_back(subject, std::vector<double>{});
    return times_[entry->second].second;
  }
  [[nodiscard]] const std::vector<double>* find(const std::string& subject) const {
    const auto entry = index_.find(subject);
    return entry == index_.end() ? nullptr : &times_[entry->second].second;
  }
  [[nodiscard]] auto begin() const { return times_.begin(); }
  [[nodiscard]] auto end() const { return times_.end(); }

 private:
  std::vector<std::pair<std::string, std::vector<double>>> times_;
  std::unordered_map<std::string, std::size_t> index_;
};

void add_samples(const record::Reader& record, std::int64_t run, Times& times) {
  const auto samples = record.samples(run);
  for (const std::string_view phase :
       {kStep, std::string_view("forward"), std::string_view("backward"), std::string_view("optimizer")}) {
    for (const record::Sample& sample : samples) {
      if (sample.kind == "plain" && sample.phase == phase) times.of(sample.phase).push_back(sample.seconds);
    }
  }
}

/// Device time per observed step of each block of each phase, blocks in the order of the program.
void add_blocks(const record::Reader& record, std::int64_t run, Times& times) {
  std::vector<std::string> subjects;
  std::unordered_map<std::string, std::size_t> place_of;
  std::unordered_map<std::int64_t, std::size_t> subject_of_op;
  for (const record::Op& op : record.ops(run)) {
    const std::string subject = op.phase + "/" + block_of(op.scope);
    const auto [place, is_new] = place_of.try_emplace(subject, subjects.size());
    if (is_new) subjects.push_back(subject);
    subject_of_op[op.op] = place->second;
  }
  std::map<std::int64_t, std::vector<double>> seconds_of_step;
  for (const record::Event& event : record.events(run)) {
    const auto subject = subject_of_op.find(event.op);
    if (subject == subject_of_op.end()) continue;
    std::vector<double>& seconds = seconds_of_step[event.step];
    seconds.resize(subjects.size());
    seconds[subject->second] += static_cast<double>(event.device_ns) * kSecondsPerNs;
  }
  for (const auto& [step, seconds] : seconds_of_step) {
    for (std::size_t i = 0; i < subjects.size(); ++i) times.of(subjects[i]).push_back(seconds[i]);
  }
}

Times times_of(const record::Reader& record, const std::vector<record::Run>& runs) {
  Times times;
  for (const record::Run& run : runs) add_samples(record, run.id, times);
  for (const record::Run& run : runs) add_blocks(record, run.id, times);
  return times;
}

bool all_positive(const std::vector<double>& seconds) {
  return !seconds.empty() && std::ranges::all_of(seconds, [](double s) { return s > 0 && std::isfinite(s); });
}

ComparedTime compare_times(const std::vector<double>& a, const std::vector<double>& b,
                           const CompareOptions& options) {
  ComparedTime row{
      .a_s = core::median(a), .b_s = core::median(b), .a_samples = a.size(), .b_samples = b.size()};
  row.ratio = row.b_s / row.a_s;
  row.interval = core::median_ratio_interval(a, b, options.confidence, options.seed);
  row.p = core::mann_whitney_p(a, b);
  return row;
}

/// Rows without verdicts, whose p are not adjusted yet.
void compare_match(const RunMatch& match, const Times& a, const Times& b, const CompareOptions& options,
                   Comparison& comparison) {
  std::vector<std::string> lonely;
  for (const auto& [subject, seconds] : a) {
    const std::vector<double>* others = b.find(subject);
    if (others == nullptr || !all_positive(seconds) || !all_positive(*others)) {
      lonely.push_back(subject);
      continue;
    }
    ComparedTime row = compare_times(seconds, *others, options);
    row.run = match.label;
    row.subject = subject;
    comparison.rows.push_back(std::move(row));
  }
  for (const auto& [subject, seconds] : b) {
    if (a.find(subject) == nullptr) lonely.push_back(subject);
  }
  if (!lonely.empty()) {
    std::string text = match.label + ": without a time in both:";
    for (const std::string& subject : lonely) text += " " + subject;
    comparison.notes.push_back(text);
  }
}

void adjust(std::vector<ComparedTime>& rows, const CompareOptions& options) {
  std::vector<double> p;
  std::ranges::transform(rows, std::back_inserter(p), &ComparedTime::p);
  const std::vector<double> adjusted = core::holm(p);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].p = adjusted[i];
    rows[i].verdict = verdict_of(rows[i], options);
  }
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

Verdict verdict_of(const ComparedTime& row, const CompareOptions& options) {
  const auto [low, high, coverage] = row.interval;
  const bool has_enough = std::min(row.a_samples, row.b_samples) >= kFewestForSame;
  if (has_enough && low >= 1 - options.same && high <= 1 + options.same) return Verdict::same;
  if (row.p >= 1 - options.confidence) return Verdict::unsure;
  if (high < 1) return Verdict::faster;
  return low > 1 ? Verdict::slower : Verdict::unsure;
}

Comparison compare(const record::Reader& a, const record::Reader& b, const CompareOptions& options) {
  RunMatches found = match_runs(a, b);
  Comparison comparison{.rows = {}, .notes = std::move(found.notes), .lost = {}};
  for (const RunMatch& match : found.matches) {
    const Times times_a = times_of(a, match.a);
    const Times times_b = times_of(b, match.b);
    const bool timed_a = times_a.find(std::string(kStep)) != nullptr;
    const bool timed_b = times_b.find(std::string(kStep)) != nullptr;
    const std::string& status_b = match.b.front().status;
    if (!timed_a || !timed_b) {
      comparison.notes.push_back(fmt::format("{}: not timed in both (status {} / {})", match.label,
                                             match.a.front().status, status_b));
    }
    if (timed_a && !timed_b) comparison.lost.push_back(fmt::format("{} ({})", match.label, status_b));
    compare_match(match, times_a, times_b, options, comparison);
  }
  if (comparison.rows.empty() && comparison.lost.empty()) {
    throw core::InputError(fmt::format("{} and {} hold no times of the same configuration", a.path().string(),
                                       b.path().string()));
  }
  adjust(comparison.rows, options);
  return comparison;
}

std::vector<ComparedTime> slower_steps(const Comparison& comparison, double share) {
  std::vector<ComparedTime> slower;
  std::ranges::copy_if(comparison.rows, std::back_inserter(slower), [&](const ComparedTime& row) {
    return row.subject == kStep && row.interval.coverage > 0 && row.interval.low > 1 + share;
  });
  return slower;
}

}  // namespace rooflm::report

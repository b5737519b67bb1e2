// Two run records: what got faster or slower, by how much, and whether that is more than chance.
#include "report/tables/compare.h"

#include <fmt/format.h>

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

namespace rooflm::report {
namespace {

/// Programs that do as much are of the same model.
constexpr double kSameWork = 0.02;
/// Parts of less than this share of the step lie within what waking a thread takes.
constexpr double kLeastShown = 0.05;
constexpr std::string_view kOutsideKernels = "outside kernels";

/// By subject, in the order in which subjects are shown.
class Times {
 public:
  /// Those of the run that is added now.
  std::vector<double>& of(const std::string& subject) {
    const auto [entry, is_new] = index_.try_emplace(subject, times_.size());
    if (is_new) times_.emplace_back(subject, Runs{});
    Runs& runs = times_[entry->second].second;
    runs.resize(run_count_);
    return runs.back();
  }
  void next_run() { ++run_count_; }
  [[nodiscard]] const Runs* find(const std::string& subject) const {
    const auto entry = index_.find(subject);
    return entry == index_.end() ? nullptr : &times_[entry->second].second;
  }
  [[nodiscard]] auto begin() const { return times_.begin(); }
  [[nodiscard]] auto end() const { return times_.end(); }

 private:
  std::vector<std::pair<std::string, Runs>> times_;
  std::unordered_map<std::string, std::size_t> index_;
  std::size_t run_count_ = 0;
};

void add_samples(const FoundRun& found, Times& times) {
  const auto samples = found.record->rows<record::Sample>(found.run.id);
  // Programs of others are only known as they were recorded, but for steps that were timed alone.
  const auto is_plain_step = [](const record::Sample& one) {
    return one.kind == "plain" && one.phase == kWholeStep;
  };
  const bool has_plain_steps = std::ranges::any_of(samples, is_plain_step);
  for (const std::string_view phase : {kWholeStep, std::string_view("forward"), std::string_view("backward"),
                                       std::string_view("optimizer")}) {
    const bool is_plain = !is_foreign(found.run) || (phase == kWholeStep && has_plain_steps);
    const char* kind = is_plain ? "plain" : "traced";
    for (const record::Sample& sample : samples) {
      if (sample.kind == kind && sample.phase == phase) times.of(sample.phase).push_back(sample.seconds);
    }
  }
}

/// Device time per observed step of each block of each phase, blocks in the order of the program.
/// Of programs by different authors (`is_across`) the parts that both have, and what the step takes beyond
/// all of them. `kinds`: of ops of these kinds alone; empty: of all.
void add_blocks(const FoundRun& found, bool is_across, const std::vector<std::string>& kinds, Times& times) {
  std::vector<std::string> subjects;
  std::unordered_map<std::string, std::size_t> place_of;
  std::unordered_map<std::int64_t, std::size_t> subject_of_op;
  const std::vector<record::Op> ops = found.record->rows<record::Op>(found.run.id);
  std::map<std::int64_t, std::string> parts;
  if (is_across) parts = common_parts(ops);
  for (const record::Op& op : ops) {
    if (!kinds.empty() && std::ranges::find(kinds, op.kind) == kinds.end()) continue;
    const std::string subject = op.phase + "/" + (is_across ? parts.at(op.op) : block_of(op.scope));
    const auto [place, is_new] = place_of.try_emplace(subject, subjects.size());
    if (is_new) subjects.push_back(subject);
    subject_of_op[op.op] = place->second;
  }
  std::map<std::int64_t, std::vector<double>> seconds_of_step;
  for (const record::Event& event : found.record->rows<record::Event>(found.run.id)) {
    const auto subject = subject_of_op.find(event.op);
    if (subject == subject_of_op.end()) continue;
    std::vector<double>& seconds = seconds_of_step[event.step];
    seconds.resize(subjects.size());
    seconds[subject->second] += static_cast<double>(event.device_ns) * core::kNano;
  }
  for (const auto& [step, seconds] : seconds_of_step) {
    for (std::size_t i = 0; i < subjects.size(); ++i) times.of(subjects[i]).push_back(seconds[i]);
  }
  if (!is_across || !kinds.empty() || times.find(std::string(kWholeStep)) == nullptr) return;
  const std::vector<double> steps = times.of(std::string(kWholeStep));
  if (steps.empty()) return;  // of another run
  const double step_s = core::median(steps);
  for (const auto& [step, seconds] : seconds_of_step) {
    const double inside_s = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    if (inside_s < step_s) times.of(std::string(kOutsideKernels)).push_back(step_s - inside_s);
  }
}

Times times_of(const std::vector<FoundRun>& runs, bool is_across, const std::vector<std::string>& kinds) {
  Times times;
  for (const FoundRun& found : runs) {
    times.next_run();
    add_samples(found, times);
    add_blocks(found, is_across, kinds, times);
  }
  return times;
}

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
      lonely.push_back(subject);
      continue;
    }
    TimePair& pair =
        pairs.emplace_back(TimePair{.run = match.label, .subject = subject, .a = seconds, .b = *others});
    const double longer_s = std::max(core::median(pooled(seconds)), core::median(pooled(*others)));
    pair.restart = longer_s < kLeastShown * step_s || !busy.empty() ? std::numeric_limits<double>::infinity()
                                                                    : options.restart.value_or(usual);
  }
  for (const auto& [subject, seconds] : b) {
    if (a.find(subject) == nullptr) lonely.push_back(subject);
  }
  if (!lonely.empty()) {
    std::string text = match.label + ": without a time in both:";
    for (const std::string& subject : lonely) text += " " + subject;
    notes.push_back(text);
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
  std::vector<const ComparedTime*> rows;
  for (const ComparedTime& row : comparison.rows) {
    if (row.run != match.label) continue;
    if (row.subject == kOutsideKernels || row.subject.find('/') != std::string::npos) rows.push_back(&row);
  }
  const auto difference = [](const ComparedTime* row) { return std::abs(row->b_s - row->a_s); };
  std::ranges::sort(rows, std::greater<>(), difference);
  constexpr std::size_t kMost = 4;
  constexpr double kMilli = 1e3;
  std::string text = fmt::format("{}: B - A of a step is {:+.3f} ms:", match.label, kMilli * step_s);
  for (std::size_t i = 0; i < std::min(kMost, rows.size()); ++i) {
    text += fmt::format("{} {} {:+.3f}", i == 0 ? "" : ",", rows[i]->subject,
                        kMilli * (rows[i]->b_s - rows[i]->a_s));
  }
  comparison.notes.push_back(text);
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
  bool is_a_timed = found.matches.empty();
  bool is_b_timed = is_a_timed;
  Comparison comparison{.rows = {}, .notes = std::move(found.notes)};
  if (is_unfinished(b)) {
    for (const std::string& label : found.only_a)
      comparison.lost.push_back(label + " (missing, B is unfinished)");
  }
  std::vector<TimePair> pairs;
  std::vector<double> longer_s;  // of each match, step of B - step of A
  for (const RunMatch& match : found.matches) {
    const Times times_a = times_of(match.a, match.is_across, options.ops);
    const Times times_b = times_of(match.b, match.is_across, options.ops);
    is_a_timed = is_a_timed || times_a.find(std::string(kWholeStep)) != nullptr;
    is_b_timed = is_b_timed || times_b.find(std::string(kWholeStep)) != nullptr;
    note_untimed(match, times_a, times_b, comparison);
    add_pairs(match, times_a, times_b, options, pairs, comparison.notes);
    longer_s.push_back(is_usable(times_a) && is_usable(times_b) ? step_of(times_b) - step_of(times_a) : 0);
  }
  if (!options.ops.empty()) {
    std::erase_if(pairs, [](const TimePair& pair) { return pair.subject.find('/') == std::string::npos; });
    if (pairs.empty()) {
      throw core::UsageError(
          fmt::format("compare --op {}: no such op was timed on both sides", fmt::join(options.ops, ",")));
    }
  }
  if (pairs.empty() && comparison.lost.empty()) {
    if (!is_a_timed && !is_b_timed) {
      throw core::InputError(fmt::format("{} and {} hold no timed steps", names_of(a), names_of(b)));
    }
    if (!is_a_timed || !is_b_timed) {
      throw core::InputError(
          fmt::format("{} holds no timed steps: nothing can be compared", names_of(is_a_timed ? b : a)));
    }
    throw core::InputError(
        fmt::format("{} and {} hold no times of the same configuration", names_of(a), names_of(b)));
  }
  judge(pairs, options, comparison);
  for (std::size_t i = 0; i < found.matches.size(); ++i) {
    if (found.matches[i].is_across) explain_across(found.matches[i], longer_s[i], comparison);
  }
  if (std::ranges::any_of(comparison.rows, [](const ComparedTime& row) {
        return row.allowance > 0 && std::min(row.a_runs, row.b_runs) < kFewestRuns;
      })) {
    comparison.notes.emplace_back(
        "fewer than four runs on a side: only changes beyond the allowed difference between runs count as "
        "FASTER or SLOWER; more records on each side, taken alternately, reveal smaller changes");
  }
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

// A record in ten lines.
#include "report/findings/brief.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "core/printable.h"
#include "core/statistics.h"
#include "core/text_fit.h"
#include "core/units.h"
#include "record/config.h"
#include "report/findings/advice.h"
#include "report/findings/answers.h"
#include "report/findings/headline.h"
#include "report/model/run_figures.h"
#include "report/model/summaries.h"
#include "report/page/json_parts.h"
#include "report/runs/generation.h"
#include "report/runs/serving.h"

namespace rooflm::report {
namespace {

constexpr std::size_t kMostFindings = 3;

/// The fastest with a step time, else the first one; nullptr without runs.
const RunData* shown_run(const RecordSet& set) {
  const RunData* best = nullptr;
  double least_s = std::numeric_limits<double>::infinity();
  for (const RunData& run : set.runs) {
    const double step_s = figures_of(run).step_s.value_or(std::numeric_limits<double>::infinity());
    if (best == nullptr || step_s < least_s) best = &run;
    least_s = std::min(least_s, step_s);
  }
  return best;
}

std::string certainty_of(const Advice& advice, const RunData& run, const Brief& brief) {
  if (!run.text("others_share").empty()) return "unsure: busy machine";
  if (!brief.step_s) return "upper bound, of traced steps";
  constexpr double kConfidence = 0.95;
  if (brief.interval_coverage < kConfidence) return fmt::format("unsure: {} steps", brief.steps);
  const double open_s = (brief.step_high_s.value_or(0) - brief.step_low_s.value_or(0)) / 2;
  return advice.gain_s < open_s ? "unsure: less than the step's interval" : "upper bound";
}

void add_step(const RecordSet& set, const RunData& run, Brief& brief) {
  const Findings found = findings_of(run, advise(set, run, kMostFindings));
  const RunFigures figures = figures_of(run);
  brief.verdict = found.headline;
  brief.step_s = figures.step_s;
  brief.step_low_s = figures.step_low_s;
  brief.step_high_s = figures.step_high_s;
  brief.interval_coverage = figures.step_coverage;
  brief.steps = run.seconds(kStep).size();
  if (!found.glance.bound.parts.empty()) {
    brief.bound = found.glance.bound.parts.front().name;
    brief.bound_share = found.glance.bound.parts.front().share;
  }
  for (const Advice& advice : found.advice) {
    BriefFinding& finding = brief.findings.emplace_back();
    finding.subject = advice.subject;
    finding.text = advice.text;
    finding.gain_s = advice.gain_s;
    finding.step_share = advice.step_share;
    finding.certainty = certainty_of(advice, run, brief);
    const record::Field* field = record::find_field(advice.setting);
    if (field != nullptr && !field->option.empty())
      finding.option = fmt::format("{} {}", field->option, advice.value);
  }
}

/// "128 requests in 12.0 s: 10.7 requests/s, 341 tokens/s, median time to first token 81.0 ms, 2 failed."
std::string served(const ServedLoad& load) {
  std::vector<double> first_s;
  for (const RequestTimes& request : load.requests) first_s.push_back(request.ttft_s());
  std::string text =
      fmt::format("{} requests in {}", load.requests.size(), core::format_seconds(load.duration_s()));
  if (const auto rate = load.requests_per_s()) {
    text += fmt::format(": {:.3g} requests/s, {:.4g} tokens/s", *rate, load.tokens() / load.duration_s());
  }
  if (!first_s.empty()) text += ", median time to first token " + core::format_seconds(core::median(first_s));
  return text + fmt::format(", {} failed.", load.failed.size());
}

/// A snapshot of an allocator: no kernel, call or range.
bool has_memory_alone(const RunData& run) { return run.activities.empty() && !run.memory_events.empty(); }

/// Of records in which no step was timed.
void add_other(const RecordSet& set, const RunData* run, Brief& brief) {
  for (const RecordFile& file : set.files) {
    for (const ServedLoad& load : loads_of(file)) {
      if (!load.requests.empty() && brief.verdict.empty()) brief.verdict = served(load);
    }
  }
  if (!brief.verdict.empty()) {
    brief.kind = "serving";
  } else if (run != nullptr && !run->seconds(kTokenPhase).empty()) {
    const std::vector<double> token_s = run->seconds(kTokenPhase);
    brief.verdict = fmt::format("{:.0f} new tokens in {:.0f} texts; the first token after {}",
                                run->number(kNewTokens).value_or(0), run->number(kTexts).value_or(1),
                                core::format_seconds(token_s.front()));
    if (const auto rate = token_rate(token_s))
      brief.verdict += fmt::format(", then {:.4g} tokens/s per text", *rate);
    brief.verdict += ".";
  } else if (run != nullptr && figures_of(*run).traced_step_s) {
    const RunFigures figures = figures_of(*run);
    brief.verdict =
        fmt::format("A traced step takes {}, the median of {}; no kernel of a device was recorded.",
                    core::format_seconds(*figures.traced_step_s), figures.traced_steps);
  } else if (run != nullptr && has_memory_alone(*run)) {
    brief.verdict = fmt::format("Memory alone was recorded: at most {} at once, in {}.",
                                core::format_bytes(figures_of(*run).peak_bytes.value_or(0)),
                                core::format_count(run->memory_events.size(), "event"));
  } else {
    const std::size_t ceilings = set.files.front().ceilings.size();
    const std::size_t cells = set.files.front().cells.size();
    brief.verdict =
        fmt::format("No step was timed: {}{}, {}, {}.", core::format_count(set.runs.size(), "run"),
                    run == nullptr ? "" : fmt::format(" (status {})", run->run.status),
                    core::format_count(ceilings, "ceiling"), core::format_count(cells, "cell"));
  }
}

/// A word that shells take as it is.
std::string shell_word(const std::string& word) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_./-+=:,@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

/// The recorded command with another value of an option, into another record; "" where it cannot be told.
std::string command_with(const std::string& command, const std::string& option) {
  if (!command.starts_with("rooflm profile ") && !command.starts_with("rooflm bench ")) return "";
  if (command.find_first_of("'\"\\$`") != std::string::npos) return "";
  const std::string name = option.substr(0, option.find(' '));
  std::vector<std::string> kept;
  bool skips = false;
  for (std::size_t at = 0; at < command.size();) {
    const std::size_t end = std::min(command.find(' ', at), command.size());
    const std::string word = command.substr(at, end - at);
    at = end + 1;
    if (std::exchange(skips, false)) continue;
    const std::string key = word.substr(0, word.find('='));
    if (key == name || key == "-o" || key == "--html" || key == "--charts" || key == "--view") {
      skips = word == key;
    } else if (word != "--overwrite" && !word.empty()) {
      kept.push_back(word);
    }
  }
  return fmt::format("{} {} -o changed.rooflm", fmt::join(kept, " "), option);
}

/// Views that say more, by the kind of record.
std::string views_for(const RecordSet& set, const RunData* run, const Brief& brief) {
  if (const StudyText study = study_of(set); !study.views.empty())
    return fmt::format("{}", fmt::join(study.views, ","));
  if (brief.kind == "serving") return "serving,requests,batches";
  if (run == nullptr) return "cells";
  if (run->run.kind == kGeneration) return "generation";
  if (run->run.kind == "train") return "training,phases";
  if (run->run.kind == "foreign" && has_memory_alone(*run)) return "memory";
  if (run->run.kind == "foreign") return brief.findings.empty() ? "activities,ops" : "why,gaps";
  return run->has_op_times() ? "why,roofline" : "bench,phases";
}

std::string next_command(const RecordSet& set, const RunData* run, const Brief& brief) {
  const RecordFile& file = set.files.at(run == nullptr ? 0 : run->file);
  for (const BriefFinding& finding : brief.findings) {
    if (finding.option.empty()) continue;
    std::string command = command_with(file.command, finding.option);
    if (!command.empty()) return command;
  }
  std::vector<std::string> files;
  for (const RecordFile& one : set.files) files.push_back(shell_word(one.name));
  if (brief.runs == 2 && run != nullptr && !run->has_op_times() && run->run.kind == "step")
    return fmt::format("rooflm compare {}", fmt::join(files, " "));
  return fmt::format("rooflm report {} --view {}", fmt::join(files, " "), views_for(set, run, brief));
}

/// "- 30.9 ms (13.7%): lm_head backward and 8 more, try --engine fused [upper bound]", the subject cut where
/// the line would be wider.
std::string finding_line(const BriefFinding& finding, std::size_t width) {
  const std::string share = finding.step_share ? fmt::format(" ({:.1f}%)", 100 * *finding.step_share) : "";
  const std::string begin = fmt::format("- {}{}: ", core::format_seconds(finding.gain_s), share);
  const std::string end =
      fmt::format("{} [{}]", finding.option.empty() ? "" : ", try " + finding.option, finding.certainty);
  const std::size_t others = core::width_of(begin) + core::width_of(end);
  std::string subject = finding.subject;
  if (width > others && core::width_of(subject) > width - others) {
    constexpr std::string_view kCut = "...";
    const std::size_t room = width - others;
    subject = subject.substr(0, room > kCut.size() ? room - kCut.size() : 0) + std::string(kCut);
  }
  return begin + subject + end;
}

}  // namespace

Brief brief_of(const RecordSet& set) {
  Brief brief;
  const RunData* run = shown_run(set);
  const StudyText study = study_of(set);
  brief.runs = set.runs.size();
  if (run != nullptr) {
    brief.kind = run->run.kind;
    brief.run = run->run.label;
    if (run->run.kind != "plan") add_step(set, *run, brief);
  } else {
    brief.kind = "record";
  }
  if (!study.title.empty()) {
    brief.kind = study.name == "plan" ? "plan" : "study";
    const std::string answer = answer_of(set);
    if (!answer.empty()) {
      brief.verdict = answer;
      brief.run.clear();  // it is of all runs
    }
  }
  if (brief.verdict.empty()) add_other(set, run, brief);
  brief.caution = load_sentence(set);
  const bool is_whole =
      std::ranges::all_of(set.files, [](const RecordFile& file) { return file.is_complete; });
  if (!is_whole)
    brief.caution += (brief.caution.empty() ? "" : " ") + std::string("The record is unfinished.");
  brief.next = next_command(set, run, brief);
  return brief;
}

std::string brief_text(const Brief& brief, std::size_t width) {
  std::string text = brief.run;
  if (brief.runs > 1 && !text.empty())
    text += fmt::format(" ({} of {} runs)", brief.step_s ? "the fastest" : "the first", brief.runs);
  text += (text.empty() ? "" : ": ") + brief.verdict + '\n';
  for (const BriefFinding& finding : brief.findings) text += finding_line(finding, width) + '\n';
  if (!brief.caution.empty()) text += brief.caution + '\n';
  return core::wrap_lines(core::printable_lines(text), width) + core::printable_lines("next: " + brief.next) +
         '\n';
}

std::string brief_json(const Brief& brief) {
  const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  Json findings = Json::array();
  for (const BriefFinding& finding : brief.findings) {
    findings.push_back({{"subject", finding.subject},
                        {"gain_s", json_number(finding.gain_s)},
                        {"step_share", json_number(finding.step_share)},
                        {"certainty", finding.certainty},
                        {"option", text(finding.option)},
                        {"text", finding.text}});
  }
  const Json json = {{"kind", brief.kind},
                     {"run", text(brief.run)},
                     {"runs", brief.runs},
                     {"verdict", brief.verdict},
                     {"bound", text(brief.bound)},
                     {"bound_share", json_number(brief.bound_share)},
                     {"step_s", json_number(brief.step_s)},
                     {"step_low_s", json_number(brief.step_low_s)},
                     {"step_high_s", json_number(brief.step_high_s)},
                     {"interval_coverage", json_number(brief.interval_coverage)},
                     {"steps", brief.steps},
                     {"findings", std::move(findings)},
                     {"caution", text(brief.caution)},
                     {"next", brief.next}};
  return dump(json) + "\n";
}

}  // namespace rooflm::report

// rooflm compare: two records, what got faster or slower.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "cli/commands.h"
#include "cli/options/filter_options.h"
#include "cli/output.h"
#include "cli/report_output.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/named.h"
#include "core/printable.h"
#include "record/reader.h"
#include "report/tables/compare.h"
#include "report/tables/typed_columns.h"

namespace rooflm::cli {
namespace {

struct CompareOptions {
  std::string a, b, between;
  std::string parts = "auto", top;
  std::string same = "1%";
  std::string confidence = "95%";
  std::string restart;
  std::string fail_slower;
  TableOptions table;
  FilterOptions filter;
};

constexpr std::size_t kTopParts = 10;
constexpr core::Named<report::Parts, 4> kParts{"parts",
                                               {{{report::Parts::automatic, "auto"},
                                                 {report::Parts::ops, "op"},
                                                 {report::Parts::blocks, "block"},
                                                 {report::Parts::kernels, "kernel"}}}};

std::size_t parse_top(const std::string& top) {
  return top.empty() ? kTopParts : static_cast<std::size_t>(parse_integer("--top", top, 0));
}

const report::TypedColumns<report::ComparedTime>& compare_columns() {
  using Time = report::ComparedTime;
  constexpr double kMs = 1e3;
  static const report::TypedColumns<Time> columns = {
      {"run", "run", &Time::run, report::Seen::when_differs},
      {"subject", "what", &Time::subject},
      {"a_s", &Time::a_s},
      {"b_s", &Time::b_s},
      {"a_ms", "A ms", [](const Time& time) { return kMs * time.a_s; }, Show::brief},
      {"b_ms", "B ms", [](const Time& time) { return kMs * time.b_s; }, Show::brief},
      {"difference_s", &Time::difference_s},
      {"difference_ms", "B - A ms", [](const Time& time) { return kMs * time.difference_s(); }, Show::brief},
      {"a_samples", &Time::a_samples},
      {"b_samples", &Time::b_samples},
      {"ratio", "B / A", &Time::ratio, Show::fixed3},
      {"verdict", "verdict", &Time::verdict},
      {"least_change", "shown from",
       [](const Time& time) {
         return time.verdict == report::Verdict::unsure ? time.least_change() : std::nullopt;
       },
       report::Seen::when_known, Show::percent},
      {"ci_low", "low", [](const Time& time) { return time.interval.low; }},
      {"ci_high", "high", [](const Time& time) { return time.interval.high; }},
      {"ci_coverage", [](const Time& time) { return time.interval.coverage; }},
      {"p", "p", &Time::p},
      {"allowance", "allowance",
       [](const Time& time) {
         return std::isfinite(time.allowance) ? std::optional(time.allowance) : std::nullopt;
       },
       Show::percent}};
  return columns;
}

/// What people see: steps, phases and, of each configuration, the `top` parts that add most (0: all).
std::vector<report::ComparedTime> shown_rows(const report::Comparison& comparison, std::size_t top) {
  std::vector<report::ComparedTime> shown;
  std::map<std::string, std::size_t> parts;
  for (const auto& row : comparison.rows) {
    const bool is_part = row.subject.find('/') != std::string::npos;
    if (!is_part || top == 0 || ++parts[row.run] <= top) shown.push_back(row);
  }
  return shown;
}

/// What the columns mean.
std::vector<std::string> column_notes(const report::Comparison& comparison, const CompareOptions& options) {
  const auto& rows = comparison.rows;
  const bool has_intervals =
      std::ranges::all_of(rows, [](const auto& row) { return row.interval.coverage > 0; });
  constexpr const char* kWhichTimes =
      "step and phases: medians of plain steps; parts: medians of device time over observed steps, layers "
      "summed; what adds most to the difference first";
  std::vector<std::string> notes = {
      "", fmt::format("A: {}, B: {}", comparison.a_name, comparison.b_name), kWhichTimes,
      fmt::format("low to high: {} confidence interval of B / A (bootstrap){}; p: Mann-Whitney, "
                  "Holm-adjusted over all steps, or over all parts",
                  options.confidence,
                  has_intervals ? "" : ", merely a range with fewer than 5 samples on a side"),
      fmt::format("SAME: the interval lies within 1 +- {}", options.same)};
  const bool by_runs = std::ranges::all_of(rows, [](const auto& row) { return row.allowance == 0; });
  if (by_runs) {
    notes.emplace_back("FASTER, SLOWER: the interval excludes 1; medians of runs are compared");
  } else {
    notes.emplace_back(
        "FASTER, SLOWER: the interval lies below 1 / (1 + allowance) or above 1 + allowance, which is for "
        "differences between runs; --restart sets it");
    if (std::ranges::any_of(rows, [](const auto& row) { return std::isinf(row.allowance); })) {
      notes.emplace_back(
          "allowance -: no change is judged, however large: other programs used the processors, or the part "
          "takes less than 5 % of the step");
    }
  }
  if (std::ranges::any_of(rows, [](const auto& row) { return row.verdict == report::Verdict::unsure; })) {
    notes.emplace_back(
        "UNSURE: neither; shown from: the smallest change that samples like these could have shown, -: none");
  }
  return notes;
}

Table compare_table(const report::Comparison& comparison, const CompareOptions& options,
                    const TableStyle& style) {
  const std::size_t top = is_for_people(style.format) ? parse_top(options.top) : 0;
  const auto shown = shown_rows(comparison, top);
  Table table = compare_columns().table(shown);
  for (Column& column : table.columns) column.is_group = column.key == "run";
  if (std::ranges::all_of(comparison.rows, [](const auto& row) { return row.allowance == 0; }))
    std::erase_if(table.columns, [](const Column& column) { return column.key == "allowance"; });
  if (const std::size_t left = comparison.rows.size() - shown.size(); left > 0)
    table.notes.push_back(report::more_rows(left, "parts"));
  for (std::string& note : column_notes(comparison, options)) table.notes.push_back(std::move(note));
  for (const std::string& note : comparison.notes) table.notes.push_back("note: " + note);
  return table;
}

/// Exit code of the gate; the reason goes to standard error.
int gate(const report::Comparison& comparison, const CompareOptions& options) {
  if (options.fail_slower.empty()) return 0;
  const double share = parse_share("--fail-slower", options.fail_slower);
  const auto slower = report::slower_steps(comparison, share);
  for (const auto& step : slower) {
    note("slower by more than {}: {}: {:.4g} s to {:.4g} s, ratio at least {:.4g}", options.fail_slower,
         step.run, step.a_s, step.b_s, step.interval.low);
  }
  for (const std::string& lost : comparison.lost) note("timed in A, but not in B: {}", lost);
  for (const std::string& unseen : report::unseen_steps(comparison, share))
    note("--fail-slower {} cannot judge: {}", options.fail_slower, unseen);
  const bool holds = slower.empty() && comparison.lost.empty();
  return static_cast<int>(holds ? core::ExitCode::done : core::ExitCode::check_failed);
}

/// Records, and those in directories.
std::vector<record::Reader> open_all(const std::string& name, const std::string& files) {
  std::vector<record::Reader> records;
  for (const std::filesystem::path file : parse_names(name, files)) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(file, ignored)) {
      records.emplace_back(file);
      continue;
    }
    std::set<std::filesystem::path> inside;
    for (const auto& entry : std::filesystem::directory_iterator(file)) {
      if (entry.path().extension() == ".rooflm") inside.insert(entry.path());
    }
    if (inside.empty())
      throw core::InputError(file.string() + ": no run records (*.rooflm) in this directory");
    for (const auto& path : inside) records.emplace_back(path);
  }
  return records;
}

bool are_same_file(const record::Reader& one, const record::Reader& other) {
  std::error_code ignored;
  return std::filesystem::equivalent(one.path(), other.path(), ignored);
}

/// A record counts as one run, however often it is named.
void require_different(std::span<const record::Reader> records) {
  for (std::size_t i = 0; i < records.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!are_same_file(records[i], records[j])) continue;
      throw core::UsageError(fmt::format(
          "compare: {} and {} are the same file on one side: name each run once",
          core::printable(records[j].path().string()), core::printable(records[i].path().string())));
    }
  }
}

/// The files that are on both sides, whatever their names.
std::vector<std::string> on_both_sides(std::span<const record::Reader> a, std::span<const record::Reader> b) {
  std::vector<std::string> files;
  for (const record::Reader& one : a) {
    const bool is_in_b =
        std::ranges::any_of(b, [&](const record::Reader& other) { return are_same_file(one, other); });
    if (is_in_b) files.push_back(one.path().string());
  }
  return files;
}

/// Leaves the times that the filter lets through: subjects are "step", "forward", "forward/attention".
void filter_times(const report::Filter& filter, report::Comparison& comparison) {
  if (filter.is_empty()) return;
  const std::size_t before = comparison.rows.size();
  std::vector<std::string> labels;
  std::erase_if(comparison.rows, [&](const report::ComparedTime& time) {
    if (labels.empty() || labels.back() != time.run) labels.push_back(time.run);
    const auto slash = time.subject.find('/');
    const std::string phase = time.subject.substr(0, slash);
    const std::string block = slash == std::string::npos ? "" : time.subject.substr(slash + 1);
    return !filter.takes_run(time.run, labels.size()) || !filter.takes_phase(phase) ||
           !filter.takes_scope(block, block);
  });
  if (comparison.rows.empty() && before > 0) {
    throw core::UsageError(fmt::format("compare: none of {} times is of {}", before, filter.text()));
  }
}

/// Two sides, or two configurations of one record.
report::Comparison compared(const CompareOptions& options, const report::CompareOptions& settings) {
  const auto a = open_all("A", options.a);
  if (options.b.empty()) {
    if (a.size() > 1) {
      throw core::UsageError("compare: one side of several records: name another side, or one record alone");
    }
    return report::compare_within(a.front(), options.filter.filter().runs, options.between, settings);
  }
  if (!options.between.empty())
    throw core::UsageError("compare: --between compares configurations within one record: leave out B");
  const auto b = open_all("B", options.b);
  require_different(a);
  require_different(b);
  report::Comparison comparison = report::compare(a, b, settings);
  for (const std::string& file : on_both_sides(a, b))
    comparison.notes.push_back(fmt::format("A and B are the same file: {}", core::printable(file)));
  return comparison;
}

int run(const CompareOptions& options) {
  constexpr double kLeastConfidence = 0.5;
  const TableStyle style = options.table.style();
  require_columns(report::columns_of(compare_columns()), style);
  report::CompareOptions settings{.same = parse_share("--same", options.same),
                                  .confidence = parse_share("--confidence", options.confidence),
                                  .restart = {},
                                  .ops = options.filter.filter().ops,
                                  .parts = kParts.parse(options.parts)};
  if (!options.restart.empty()) settings.restart = parse_share("--restart", options.restart);
  if (settings.confidence < kLeastConfidence || settings.confidence >= 1) {
    throw core::UsageError(fmt::format("--confidence {}: from 50% to less than 100%", options.confidence));
  }
  if (!options.fail_slower.empty() && parse_share("--fail-slower", options.fail_slower) < settings.same) {
    throw core::UsageError(
        fmt::format("--fail-slower {} is less than --same {}: a change between them is SAME, so the gate "
                    "would not see it; "
                    "add --same {}",
                    options.fail_slower, options.same, options.fail_slower));
  }
  if (!options.fail_slower.empty() && !settings.ops.empty())
    throw core::UsageError("compare: --fail-slower compares whole steps: leave out --op");
  const report::Filter filter = options.filter.filter();
  report::Comparison comparison = compared(options, settings);
  report::Comparison gated = comparison;  // whole steps, whichever parts are shown
  const auto runs =
      options.b.empty() ? std::vector<std::string>() : filter.runs;  // within a record: the sides
  filter_times({.runs = runs}, gated);
  filter_times({.runs = runs, .phases = filter.phases, .scopes = filter.scopes}, comparison);
  Table table = compare_table(comparison, options, style);
  const std::vector<std::string> verdicts = report::verdict_sentences(gated, settings.confidence);
  table.heading = fmt::format("{}", fmt::join(verdicts, "\n"));
  write_out(show_table(table, style));
  if (style.format == Format::csv || style.format == Format::json) {
    for (const std::string& text : comparison.notes) note("note: {}", text);
  }
  return gate(gated, options);
}

}  // namespace

Body declare_compare(CommandLine& line) {
  auto options = std::make_shared<CompareOptions>();
  line.add_option("a", options->a, "Baseline record, or several of the same program")
      .type_name("FILE[,FILE...]|DIR")
      .required();
  line.add_option("b", options->b,
                  "Record to compare with the baseline, or several; without it two configurations of A are "
                  "compared with each other")
      .type_name("FILE[,FILE...]|DIR");
  line.add_option("--by", options->parts,
                  "How a step is broken down; auto: by ops if both sides have the same, else by blocks; by "
                  "kernels if no op was timed")
      .type_name("auto|op|block|kernel")
      .show_default();
  line.add_option("--between", options->between,
                  "Within one record: the setting whose two values are A and B (dtype, engine), all others "
                  "being equal; --run A,B names two configurations instead")
      .type_name("SETTING");
  line.add_option(
          "--top", options->top,
          fmt::format("Maximum parts of a step, 0 for all (default: {}; CSV and JSON have all)", kTopParts))
      .type_name("N");
  line.add_option("--same", options->same,
                  "Largest change that counts as SAME, if the whole interval lies within it")
      .type_name("SHARE")
      .show_default();
  line.add_option("--confidence", options->confidence,
                  "Confidence level of the intervals; tests use 1 - this level")
      .type_name("SHARE")
      .show_default();
  line.add_option(
          "--restart", options->restart,
          "Run-to-run difference to allow for while a side has too few runs to compare runs (default: "
          "50% on CPUs, 3% on GPUs)")
      .type_name("SHARE");
  line.add_option(
          "--fail-slower", options->fail_slower,
          "Exit code 1 if a step is slower by more than this over its whole interval, or no longer runs; "
          "what cannot be judged is named on standard error. At least --same; whole steps, whatever is shown")
      .type_name("SHARE");
  options->table.add_to(line, "Output format; JSON and CSV have all numbers at full precision, in seconds",
                        "", [] { return report::columns_of(compare_columns()); });
  line.offer_words("--between", [] { return std::vector<std::string>{"dtype", "engine", "attention"}; });
  options->filter.add_to(line);
  line.footer(
      "Runs are matched by configuration: model, sizes, engine, attention, device,\n"
      "dtype, recompute. Two sides of one configuration each, run once or repeatedly,\n"
      "are always compared, and differences in configuration are listed. Steps of one\n"
      "run resemble each other more than steps of different runs. With enough runs on\n"
      "each side (four of one configuration, five of 2 to 6, six of 7 to 23; record\n"
      "them alternately: A, B, A, ...), runs are therefore compared instead of steps.\n"
      "Name each record once.\n\n"
      "Example: rooflm compare before.rooflm after.rooflm --fail-slower 3%\n"
      "         rooflm compare sweep.rooflm --between dtype");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli

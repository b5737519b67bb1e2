// The record and the page of `rooflm plan`.
#include "cli/plans/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command_record.h"
#include "cli/output_rule.h"
#include "cli/report_output.h"
#include "lab/plan_record.h"
#include "report/page/html.h"
#include "report/tables/plan_rows.h"

namespace rooflm::cli {
namespace {

/// Of a search: more points than that hide each other.
constexpr std::size_t kMostSplits = 2000;

/// What the page asks, and the views that answer it, the most telling first.
struct Question {
  std::string title, text, views;
};

bool is_asked(const PlanOptions& options) { return !options.record.empty() || !options.html.empty(); }

class PlanRecord {
 public:
  explicit PlanRecord(const PlanOptions& options)
      : options_(&options), record_(options.record, options.overwrite, "plan", false) {}

  void add(const std::string& key, const std::string& value) {
    record_.writer().add(record::Environment{.key = key, .value = value, .unit = {}});
  }
  void add(const Question& question) {
    add("study_name", "plan");
    add("study_answer", "plan");
    add("study", question.title);
    add("question", question.text);
    add("study_views", question.views);
  }
  void add(std::string_view series, std::span<const Row> rows) {
    const std::vector<record::Cell> cells = report::cells_of_rows(series, rows);
    record_.writer().add(cells);
  }
  [[nodiscard]] record::Writer& writer() { return record_.writer(); }

  void finish() {
    record_.finish();
    if (options_->html.empty()) return;
    ReportRequest request;
    request.records = {record_.path()};
    request.html = options_->html;
    request.overwrite = options_->overwrite;
    request.is_record_kept = record_.is_kept();
    show_request(request);
  }

 private:
  const PlanOptions* options_;
  CommandRecord record_;
};

std::string gpus_text(const perfmodel::PlanPoint& point, const perfmodel::Setting& setting) {
  return point.gpus() == 1 ? fmt::format("one {}", setting.device.key)
                           : fmt::format("{} {}", point.gpus(), setting.device.key);
}

Question question_of(const Plans& plans, const PlannedRun& shown) {
  const std::string model = shown.point->config.name;
  const std::string gpus = gpus_text(*shown.point, *shown.setting);
  std::string views = plans.searched.empty() ? "" : "plan_search,";
  if (std::ranges::any_of(plans.runs, [](const PlannedRun& run) { return run.speed_up.has_value(); }))
    views += "plan_scaling,";
  return {.title = fmt::format("Plan: {} on {}", model, gpus),
          .text = fmt::format("Does {} fit {}, how long does a step take, and what is that time spent on?",
                              model, gpus),
          .views = views + "plan_time,plan_memory,plan"};
}

const PlannedRun& shown_of(const Plans& plans) {
  const auto fits = std::ranges::find_if(plans.runs, [](const PlannedRun& run) { return run.plan->fits; });
  return fits == plans.runs.end() ? plans.runs.front() : *fits;
}

std::vector<Row> rows_of(const std::vector<PlannedRun>& runs, const perfmodel::RunBudget& budget) {
  std::vector<Row> rows;
  for (const PlannedRun& run : runs) rows.push_back(plan_row(run, budget));
  return rows;
}

std::vector<Row> note_rows(const std::vector<std::string>& notes) {
  std::vector<Row> rows;
  for (const std::string& note : notes) rows.emplace_back().set("note", note);
  return rows;
}

}  // namespace

bool prints_no_table(const PlanOptions& options) {
  return options.html == kStandardOutput || options.record == kStandardOutput;
}

void check_plan_outputs(const PlanOptions& options) {
  if (!options.html.empty()) report::require_page();
  std::vector<std::filesystem::path> inputs = files_of_models(options.config.text("model"));
  for (const std::string& input : {options.against, options.calibrate, options.catalog})
    if (!input.empty()) std::ranges::copy(files_of({input}), std::back_inserter(inputs));
  check_outputs({{"-o", options.record}, {"--html", options.html}}, inputs, options.overwrite);
}

void write_plans(const PlanOptions& options, const Plans& plans, const perfmodel::RunBudget& budget) {
  if (!is_asked(options)) return;
  const PlannedRun& shown = shown_of(plans);
  PlanRecord record(options);
  record.add(question_of(plans, shown));
  record.add("device", shown.setting->device.name);
  record.add("framework", shown.setting->framework.name);
  record.add("links", shown.setting->cluster.source);
  record.add(record::kPlanSeries, rows_of(plans.runs, budget));
  record.add(record::kPlanNotesSeries, note_rows(plan_notes(plans.runs)));
  std::vector<PlannedRun> searched = plans.searched;
  searched.resize(std::min(searched.size(), kMostSplits));
  record.add(record::kPlanSearchSeries, rows_of(searched, budget));
  std::vector<std::string> peaks;
  if (shown.plan->fits) {
    peaks = lab::record_plan(record.writer(), *shown.point, *shown.setting, *shown.plan);
    record.add(record::kPlanTermsSeries, explain_step(shown).rows);
  }
  std::vector<Row> memory;
  for (std::size_t i = 0; i < shown.plan->roles.size(); ++i) {
    memory.push_back(memory_row(shown, shown.plan->roles[i]));
    if (i < peaks.size()) memory.back().set("peak_at", peaks[i]);
  }
  record.add(record::kPlanMemorySeries, memory);
  record.finish();
}

void write_against(const PlanOptions& options, const Table& table) {
  if (!is_asked(options)) return;
  PlanRecord record(options);
  record.add({.title = fmt::format("Plan against a measurement: {}", options.device),
              .text = "How far is the plan from what was measured?",
              .views = "plan_against"});
  record.add(record::kPlanAgainstSeries, table.rows);
  record.finish();
}

}  // namespace rooflm::cli

// The one JSON document that the report page reads.
#include "report/page/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "core/units.h"
#include "report/findings/answers.h"
#include "report/findings/headline.h"
#include "report/model/run_figures.h"
#include "report/model/summaries.h"
#include "report/page/columns.h"
#include "report/page/document_run.h"
#include "report/page/json_parts.h"
#include "report/runs/job_ranks.h"
#include "report/runs/sweep.h"
#include "report/views/view.h"
#include "report/views/views.h"

namespace rooflm::report {
namespace {

/// Of all runs together, beyond one step of each: about a megabyte of the page.
constexpr std::size_t kMostTimelineEvents = 60'000;

Json json_environment(const RecordSet& set) {
  Json all = Json::array();
  for (std::size_t i = 0; i < set.files.size(); ++i) {
    for (const record::Environment& entry : set.files[i].environment) {
      const auto& first = set.files.front().environment;
      const bool is_known =
          i > 0 && std::any_of(first.begin(), first.end(), [&](const record::Environment& other) {
            return other.key == entry.key && other.value == entry.value;
          });
      if (is_known) continue;
      const std::string key = i == 0 ? entry.key : entry.key + " (" + set.files[i].name + ")";
      all.push_back({{"key", key}, {"value", entry.value}, {"unit", entry.unit}});
    }
  }
  return all;
}

/// Width of the interval as a share of the rate; nothing without one.
std::optional<double> spread_of(const record::Ceiling& ceiling) {
  if (ceiling.samples <= 0) return std::nullopt;
  return ratio_of(ceiling.ci_high - ceiling.ci_low, ceiling.value);
}

Json json_ceilings(const RecordSet& set) {
  using Of = record::Ceiling;
  static const TypedColumns<Of> columns = {
      {"device", &Of::device}, {"what", &Of::what},       {"level", &Of::level},
      {"dtype", &Of::dtype},   {"threads", &Of::threads}, {"value", &Of::value},
      {"unit", &Of::unit},     {"ci_low", &Of::ci_low},   {"ci_high", &Of::ci_high},
      {"spread", spread_of},   {"source", &Of::source},   {"measured_utc", &Of::measured_utc}};
  Json all = Json::array();
  Json seen = Json::array();
  for (const RecordFile& file : set.files) {
    for (const record::Ceiling& ceiling : file.ceilings) {
      Json json = json_object(columns, ceiling);
      // Several records of one machine often share its ceilings.
      if (std::ranges::find(seen, json) != seen.end()) continue;
      seen.push_back(json);
      json["file"] = file.name;
      all.push_back(std::move(json));
    }
  }
  return all;
}

Json json_advice(const std::vector<Advice>& advised) {
  static const TypedColumns<Advice> columns = {{"run", &Advice::run},
                                               {"subject", &Advice::subject},
                                               {"text", &Advice::text},
                                               {"gain_s", &Advice::gain_s},
                                               {"step_share", &Advice::step_share}};
  return json_objects(columns, advised);
}

Json json_comparison(const Comparison* comparison) {
  if (comparison == nullptr) return nullptr;
  const std::vector<ComparedTime>& rows = comparison->rows;
  const bool is_one_run =
      std::ranges::all_of(rows, [&](const ComparedTime& row) { return row.run == rows.front().run; });
  const TypedColumns<ComparedTime> columns = {
      {"subject",
       [&](const ComparedTime& row) { return is_one_run ? row.subject : row.run + ": " + row.subject; }},
      {"a_s", &ComparedTime::a_s},
      {"b_s", &ComparedTime::b_s},
      {"ratio", &ComparedTime::ratio},
      {"ci_low", [](const ComparedTime& row) { return row.interval.low; }},
      {"ci_high", [](const ComparedTime& row) { return row.interval.high; }},
      {"p", &ComparedTime::p},
      {"verdict", &ComparedTime::verdict}};
  return {{"a", comparison->a_name},
          {"b", comparison->b_name},
          {"verdicts", verdict_sentences(*comparison, CompareOptions{}.confidence)},
          {"rows", json_objects(columns, rows)},
          {"note", fmt::format("{}", fmt::join(comparison->notes, "\n"))}};
}

/// Tables and charts of the views that the page does not draw itself.
void add_views(Json& document, const RecordSet& set) {
  document["tables"] = Json::array();
  document["charts"] = Json::array();
  for (const ViewInfo& info : all_views()) {
    if (info.is_on_page || (info.name == "sweep" && set.runs.size() < 2)) continue;
    View view = make_view(info.name, set);
    for (ViewTable& table : view.tables) {
      table.table.notes.insert(table.table.notes.begin(), view.note);
      document["tables"].push_back(json_table(table));
      document["tables"].back()["view"] = info.name;
    }
    for (Chart& chart : view.charts) {
      if (chart.note.empty()) chart.note = view.note;
      document["charts"].push_back(json_chart(chart));
      document["charts"].back()["view"] = info.name;
    }
  }
}

std::vector<std::string> labels_of(const RecordSet& set) {
  std::vector<std::string> labels;
  for (RunName& name : run_names(set.runs)) labels.push_back(std::move(name.label));
  return labels;
}

std::string title_of(const RecordSet& set) {
  if (const StudyText study = study_of(set); !study.title.empty()) return study.title;
  if (set.runs.empty()) return set.files.empty() ? "rooflm" : set.files.front().name;
  const std::string& label = set.runs.front().run.label;
  return set.runs.size() == 1 ? label : fmt::format("{} and {} more", label, set.runs.size() - 1);
}

/// How a run was measured and how sure its times are.
std::vector<std::string> run_sentences(const RunData& run) {
  std::vector<std::string> all;
  if (const auto step = phase_time(run, kStep)) {
    all.push_back(fmt::format(
        "A step takes {}, the median of {} steps without observer; the confidence interval of the median is "
        "{} to {} at {:.0f} % (order statistics, no distribution assumed); {} outliers are kept.",
        core::format_seconds(step->median), step->count, core::format_seconds(step->median_ci.low),
        core::format_seconds(step->median_ci.high), 100 * step->median_ci.coverage, step->outliers));
  }
  const auto warmup = run.seconds(kStep, "warmup").size();
  if (warmup > 0) all.push_back(fmt::format("{} warm-up steps ran first; no figure includes them.", warmup));
  if (const std::size_t steps = observed_steps(run); steps > 0) {
    all.push_back(fmt::format("Times of ops are medians over {} observed steps.", steps));
  }
  if (const std::string note = alone_note(run); !note.empty())
    all.push_back("Tables of blocks and ops: " + note + ".");
  for (const char* key : {"device_ranks", "fp8_matmuls", "stop_reason", "drift", "others_share",
                          "observer_cost", "tracing_cost", "tracing", "clock_note"}) {
    if (is_on_gpu(run) && std::string_view(key) == "clock_note") continue;  // the host's clock
    const std::string text = run.text(key);
    const char* lead = std::string_view(key) == "stop_reason" ? "Sampling stopped: " : "";
    if (!text.empty()) all.push_back(lead + text);
  }
  return all;
}

}  // namespace

std::vector<std::string> method_sentences(const RecordSet& set) {
  std::vector<std::string> all;
  const bool has_roofs = std::any_of(set.runs.begin(), set.runs.end(), [](const RunData& run) {
    return phase_roof(run, kStep, phase_work(run, kStep)).roof_s.has_value();
  });
  if (has_roofs) {
    all.emplace_back(
        "A roof is the least time that the ceilings allow for the FLOP and bytes counted from shapes: a "
        "bound, not a prediction. The roof of a block is the sum of its ops' roofs.");
  }
  const bool has_mfu = std::any_of(set.runs.begin(), set.runs.end(),
                                   [](const RunData& run) { return figures_of(run).mfu.has_value(); });
  if (has_mfu) {
    all.emplace_back(
        "MFU = (6N + 12 L C T) tokens/s / (ranks x peak) (PaLM, appendix B), with 4N where weights are "
        "frozen. "
        "The peak is the sustained matmul rate of one device. If the datasheet peak is known, MFU by that "
        "peak is also shown.");
  }
  for (const RecordFile& file : set.files) {
    if (!file.is_complete) {
      all.push_back(fmt::format("{} is partial: its run was interrupted or is still running.", file.name));
    }
  }
  return all;
}

std::string make_document(const RecordSet& set, const Comparison* comparison) {
  Json files = Json::array();
  for (const RecordFile& file : set.files) files.push_back(file.name);
  const RecordFile first = set.files.empty() ? RecordFile{} : set.files.front();
  Json document = {{"schema", kDocumentSchema},
                   {"title", title_of(set)},
                   {"rooflm", first.rooflm_version},
                   {"command", first.command},
                   {"question", study_of(set).question},
                   {"answer", answer_of(set)},
                   {"answers", study_of(set).views},
                   {"started_utc", first.started_utc},
                   {"complete", std::all_of(set.files.begin(), set.files.end(),
                                            [](const RecordFile& file) { return file.is_complete; })},
                   {"files", std::move(files)},
                   {"environment", json_environment(set)},
                   {"ceilings", json_ceilings(set)}};
  Json runs = Json::array();
  const std::vector<Advice> advised = advise(set);
  const JobRanks ranks(set);
  const std::size_t most_events = kMostTimelineEvents / std::max<std::size_t>(1, set.runs.size());
  const std::vector<std::string> labels = labels_of(set);
  for (std::size_t i = 0; i < set.runs.size(); ++i) {
    std::vector<Advice> own;
    std::ranges::copy_if(advised, std::back_inserter(own), [&](const Advice& one) { return one.run == i; });
    const Findings found = findings_of(set.runs[i], std::move(own));
    runs.push_back(json_run(set.runs[i], i, ranks.timeline(i, most_events), found));
    runs.back()["label"] = labels[i];
    runs.back()["method"] = run_sentences(set.runs[i]);
    runs.back()["headline"] = found.headline;
  }
  document["runs"] = std::move(runs);
  document["advice"] = json_advice(advised);
  document["method"] = method_sentences(set);
  add_views(document, set);
  document["comparison"] = json_comparison(comparison);
  return dump(document);
}

}  // namespace rooflm::report

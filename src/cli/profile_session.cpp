// A record that a command fills and then shows.
#include "cli/profile_session.h"

#include "cli/output.h"
#include "cli/report_output.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/units.h"
#include "lab/work_left.h"
#include "measure/counters.h"

namespace rooflm::cli {
namespace {

/// Refused before anything is measured.
const OutputOptions& checked(const OutputOptions& output, const std::vector<std::filesystem::path>& inputs) {
  check_output(output, inputs);
  return output;
}

void report_progress(const lab::RunOutcome& outcome) {
  if (outcome.status == "oom") {
    note("  {}", lab::describe_shortage(outcome));
  } else if (outcome.step_s > 0) {
    note("  {} a step", core::format_seconds(outcome.step_s));
  }
}

}  // namespace

ProfileSession::ProfileSession(const OutputOptions& output, const std::string& command, bool remeasure,
                               const std::vector<std::filesystem::path>& inputs, bool is_first)
    : output_(is_first ? checked(output, inputs) : OutputOptions()),
      is_first_(is_first),
      record_(output_.record, output_.overwrite, command, is_first),
      ceilings_(remeasure) {}

void ProfileSession::describe(const Study& study) {
  std::vector<std::string> views = study.views;
  views.insert(views.end(), study.gpu_views.begin(), study.gpu_views.end());
  record().add(record::Environment{.key = "study_name", .value = study.name, .unit = {}});
  record().add(record::Environment{.key = "study", .value = study.title, .unit = {}});
  record().add(record::Environment{.key = "question", .value = study.question, .unit = {}});
  // Records of earlier versions lack this: their study's name says which answer it has.
  record().add(record::Environment{
      .key = "study_answer", .value = study.answer.empty() ? "none" : study.answer, .unit = {}});
  record().add(record::Environment{
      .key = "study_views", .value = fmt::format("{}", fmt::join(views, ",")), .unit = {}});
}

int ProfileSession::run(const std::vector<lab::Point>& points, const lab::RunSettings& settings,
                        bool& all_oom) {
  // All at once, so that what needs the same loops shares them.
  if (is_first_) ceilings_.measure(points, lab::CeilingBook::Wanted::all);
  if (settings.ranks != nullptr) {
    const ranks::Patience patience(settings.ranks.get());
    ranks::meet(*settings.ranks);
  }
  for (const record::Ceiling& ceiling : ceilings_.rows()) record().add(ceiling);
  if (!said_counters_) {
    const measure::Counters counters;
    if (!counters.is_available()) note("hardware counters of the processor: {}", counters.reason());
    said_counters_ = true;
  }
  all_oom = true;
  std::vector<lab::RunOutcome> outcomes;
  lab::WorkLeft left(points.size());
  for (const lab::Point& point : points) {
    left.begin(lab::describe(point));
    // A profiler stays attached until the process ends and slows what runs after it.
    lab::RunSettings of_point = settings;
    of_point.trace = settings.trace && points.size() == 1;
    of_point.count = settings.count && points.size() == 1;
    outcomes.push_back(lab::run_point(point, of_point, ceilings_, record()));
    report_progress(outcomes.back());
    all_oom = all_oom && outcomes.back().status == "oom";
    if (const int signal = core::StopSignals::received(); signal != 0) {
      note("interrupted: {} of {} configurations were begun", outcomes.size(), points.size());
      return signal;
    }
  }
  return look_inside(points, settings, outcomes);
}

int ProfileSession::look_inside(const std::vector<lab::Point>& points, const lab::RunSettings& settings,
                                std::vector<lab::RunOutcome>& outcomes) {
  if (points.size() == 1) return 0;  // its own engine was looked into
  // Counters last: some are read by instrumented kernels.
  for (const bool counts : {false, true}) {
    lab::RunSettings inside = settings;
    inside.trace = settings.trace && !counts;
    inside.count = settings.count && counts;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (const int signal = core::StopSignals::received(); signal != 0) return signal;
      outcomes[i].steps = lab::look_inside(points[i], inside, outcomes[i], record());
    }
  }
  return 0;
}

void ProfileSession::show(const std::vector<std::string>& default_views) {
  record().finish();
  if (!is_first_) return;
  auto views = parse_names("--view", output_.views);
  if (views.empty()) views = default_views;
  // Then the record is what is printed; a page may be written beside it.
  if (record_.is_printed()) views.clear();
  show_records({record_.path()}, views, output_);
  if (!output_.record.empty() && !record_.is_printed()) note("record: {}", output_.record);
}

}  // namespace rooflm::cli

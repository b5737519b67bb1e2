// A record that a command fills and then shows.
#include "cli/profile_session.h"

#include "cli/output.h"
#include "cli/report_output.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/units.h"
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
    note("  out of memory: needs {}", core::format_bytes(outcome.needed_bytes));
  } else if (outcome.step_s > 0) {
    note("  {} a step", core::format_seconds(outcome.step_s));
  }
}

}  // namespace

ProfileSession::ProfileSession(const OutputOptions& output, const std::string& command, bool remeasure,
                               const std::vector<std::filesystem::path>& inputs)
    : output_(checked(output, inputs)),
      record_(output.record, output.overwrite, command),
      ceilings_(remeasure) {}

void ProfileSession::describe(const std::string& title, const std::string& question) {
  record().add(record::Environment{.key = "study", .value = title, .unit = {}});
  record().add(record::Environment{.key = "question", .value = question, .unit = {}});
}

int ProfileSession::run(const std::vector<lab::Point>& points, const lab::RunSettings& settings,
                        bool& all_oom) {
  // All at once, so that what needs the same loops shares them.
  ceilings_.measure(points, lab::CeilingBook::Wanted::all);
  for (const record::Ceiling& ceiling : ceilings_.rows()) record().add(ceiling);
  if (!said_counters_) {
    const measure::Counters counters;
    if (!counters.is_available()) note("hardware counters of the processor: {}", counters.reason());
    said_counters_ = true;
  }
  all_oom = true;
  std::size_t number = 0;
  for (const lab::Point& point : points) {
    note("[{}/{}] {}", ++number, points.size(), lab::describe(point));
    // A profiler stays attached until the process ends and slows what runs after it.
    lab::RunSettings of_point = settings;
    of_point.trace = settings.trace && number == points.size();
    const lab::RunOutcome outcome = lab::run_point(point, of_point, ceilings_, record());
    report_progress(outcome);
    all_oom = all_oom && outcome.status == "oom";
    if (const int signal = core::StopSignals::received(); signal != 0) {
      note("interrupted: {} of {} configurations were begun", number, points.size());
      return signal;
    }
  }
  return 0;
}

void ProfileSession::show(const std::vector<std::string>& default_views) {
  record().finish();
  const auto views = parse_names("--view", output_.views);
  show_records({record_.path()}, views.empty() ? default_views : views, output_);
  if (!output_.record.empty()) note("record: {}", output_.record);
}

}  // namespace rooflm::cli

// A record that a command fills and then shows.
#include "cli/profile_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <system_error>

#include "cli/devices.h"
#include "cli/gpu_ceilings.h"
#include "cli/output.h"
#include "cli/report_output.h"
#include "cli/run_record.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/units.h"
#include "measure/counters.h"
#include "train/signals.h"

namespace rooflm::cli {
namespace {

namespace fs = std::filesystem;

fs::path make_temporary_folder() {
  std::string name = (fs::temp_directory_path() / "rooflm-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw core::InputError(name +
                           ": cannot make a temporary folder: " + std::generic_category().message(errno));
  }
  return name;
}

void report_progress(const ProfileOutcome& outcome) {
  if (outcome.status == "oom") {
    note("  out of memory: needs {}", core::format_bytes(outcome.needed_bytes));
  } else if (outcome.step_s > 0) {
    note("  {} a step", core::format_seconds(outcome.step_s));
  }
}

template <class T>
void add_new(std::vector<T>& values, const T& value) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

}  // namespace

ProfileSession::ProfileSession(const OutputOptions& output, const std::string& command) : output_(output) {
  check_output(output);
  if (output.record.empty()) folder_ = make_temporary_folder();
  path_ = output.record.empty() ? folder_ / "run.rooflm" : fs::path(output.record);
  writer_ = open_record(path_, command, output.overwrite);
}

ProfileSession::~ProfileSession() {
  writer_.reset();
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

void ProfileSession::describe(const std::string& title, const std::string& question) {
  writer_->add(record::Environment{.key = "study", .value = title, .unit = {}});
  writer_->add(record::Environment{.key = "question", .value = question, .unit = {}});
}

void ProfileSession::measure_ceilings(const std::vector<Point>& points, int threads, bool remeasure) {
  std::vector<core::DType> processor;
  std::map<std::string, std::vector<ComputeDtype>> gpus;
  for (const Point& point : points) {
    const ComputeDtype compute{.dtype = point.step.dtype, .tf32 = point.step.tf32};
    if (point.device == "cpu") add_new(processor, compute.dtype);
    if (is_cuda(point.device)) add_new(gpus[point.device], compute);
  }
  ceilings_ = CeilingBook(threads, processor, remeasure);
  for (const auto& [device, dtypes] : gpus) {
    ceilings_.add(gpu_ceilings({.device = device, .dtypes = dtypes, .remeasure = remeasure, .seconds = {}}));
  }
  for (const record::Ceiling& ceiling : ceilings_.rows()) writer_->add(ceiling);
}

int ProfileSession::run(const std::vector<Point>& points, const ProfileSettings& settings, bool& all_oom) {
  const train::StopSignals signals;
  if (!said_counters_) {
    const measure::Counters counters;
    if (!counters.is_available()) note("hardware counters: {}", counters.reason());
    said_counters_ = true;
  }
  all_oom = true;
  std::size_t number = 0;
  for (const Point& point : points) {
    note("[{}/{}] {}", ++number, points.size(), cli::describe(point));
    const ProfileOutcome outcome = profile_point(point, settings, ceilings_, *writer_);
    report_progress(outcome);
    all_oom = all_oom && outcome.status == "oom";
    if (const int signal = train::StopSignals::received(); signal != 0) {
      note("interrupted: {} of {} configurations were begun", number, points.size());
      return signal;
    }
  }
  return 0;
}

void ProfileSession::show(const std::vector<std::string>& default_views) {
  writer_->finish();
  const auto views = parse_names("--view", output_.views);
  show_records({path_}, views.empty() ? default_views : views, output_);
  if (!output_.record.empty()) note("record: {}", output_.record);
}

}  // namespace rooflm::cli

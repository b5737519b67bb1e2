// A record that a command fills and then shows.
#include "cli/profile_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <system_error>

#include "cli/devices.h"
#include "cli/gpu_ceilings.h"
#include "cli/machine_ceilings.h"
#include "cli/machine_info.h"
#include "cli/output.h"
#include "cli/report_output.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/units.h"
#include "measure/counters.h"
#include "train/signals.h"

namespace rooflm::cli {
namespace {

namespace fs = std::filesystem;

/// The command line as it was typed, from the operating system; `otherwise` where it does not say.
std::string command_line(const std::string& otherwise) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.empty()) return "rooflm " + otherwise;
  text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return "rooflm" + text.substr(std::min(text.find(' '), text.size()));
}

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

}  // namespace

std::vector<core::DType> dtypes_of(const std::vector<Point>& points) {
  std::vector<core::DType> dtypes;
  for (const Point& point : points) {
    if (point.device != "cpu") continue;
    if (std::find(dtypes.begin(), dtypes.end(), point.step.dtype) == dtypes.end()) {
      dtypes.push_back(point.step.dtype);
    }
  }
  return dtypes;
}

ProfileSession::ProfileSession(const OutputOptions& output, const std::string& command) : output_(output) {
  check_output(output);
  if (output.record.empty()) folder_ = make_temporary_folder();
  path_ = output.record.empty() ? folder_ / "run.rooflm" : fs::path(output.record);
  writer_ = std::make_unique<record::Writer>(path_, command_line(command), output.overwrite);
  for (const auto& [key, value] : machine_lines()) {
    writer_->add(record::Environment{.key = key, .value = value, .unit = {}});
  }
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

std::vector<record::Ceiling> ProfileSession::ceilings(int threads, const std::vector<core::DType>& dtypes,
                                                      bool remeasure) {
  if (dtypes.empty()) return {};
  auto ceilings = machine_ceilings(threads, dtypes, remeasure);
  for (const record::Ceiling& ceiling : ceilings) writer_->add(ceiling);
  return ceilings;
}

std::vector<record::Ceiling> ProfileSession::gpu_ceilings(const std::vector<Point>& points, bool remeasure) {
  std::vector<record::Ceiling> all;
  std::map<std::string, std::vector<ComputeDtype>> wanted;
  for (const Point& point : points) {
    if (!is_cuda(point.device)) continue;
    auto& dtypes = wanted[point.device];
    const ComputeDtype compute{.dtype = point.step.dtype, .tf32 = point.step.tf32};
    if (std::find(dtypes.begin(), dtypes.end(), compute) == dtypes.end()) dtypes.push_back(compute);
  }
  for (const auto& [device, dtypes] : wanted) {
    for (const record::Ceiling& ceiling :
         cli::gpu_ceilings({.device = device, .dtypes = dtypes, .remeasure = remeasure, .seconds = {}})) {
      writer_->add(ceiling);
      all.push_back(ceiling);
    }
  }
  return all;
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
    const ProfileOutcome outcome = profile_point(point, settings, *writer_);
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

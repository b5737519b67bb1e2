// What commands that measure steps write into a run record alike.
#include "lab/run_record.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "lab/devices.h"
#include "lab/machine_info.h"
#include "measure/machine_load.h"
#include "model/forward.h"

namespace rooflm::lab {
namespace {

/// The command line as it was typed, from the operating system; `otherwise` where it does not say.
std::string command_line(const std::string& otherwise) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.empty()) return "rooflm " + otherwise;
  text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return "rooflm" + text.substr(std::min(text.find(' '), text.size()));
}

}  // namespace

std::unique_ptr<record::Writer> open_record(const std::filesystem::path& path, const std::string& command,
                                            bool overwrite) {
  auto writer = std::make_unique<record::Writer>(path, command_line(command), overwrite);
  for (const auto& [key, value] : machine_lines()) {
    writer->add(record::Environment{.key = key, .value = value, .unit = {}});
  }
  return writer;
}

record::Run run_row(const Point& point) { return {.label = describe(point), .config = config_of(point)}; }

void add_samples(std::vector<record::Sample>& rows, std::int64_t step, const engines::StepTimes& times,
                 const std::string& kind) {
  const auto add = [&](const char* phase, double seconds) {
    rows.push_back({.step = step, .phase = phase, .seconds = seconds, .kind = kind});
  };
  add("forward", times.forward_s);
  add("backward", times.backward_s);
  add("optimizer", times.optimizer_s);
  add("step", times.step_s);
  add("submit", times.submit_s);
}

record::Fact others_fact(double others_share) {
  const bool is_busy = others_share > measure::kBusyShare;
  return {.key = "others_share",
          .value = others_share,
          .unit = "share",
          .text = is_busy ? "busy machine: " + measure::load_sentence(others_share) : ""};
}

}  // namespace rooflm::lab

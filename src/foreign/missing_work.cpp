// Whether a trace holds what its calls started.
#include "foreign/missing_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <unordered_set>

namespace rooflm::foreign {
namespace {

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::ranges::any_of(prefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

void say_missing_work(ForeignRun& run) {
  std::unordered_set<std::int64_t> started;
  std::size_t works = 0, launches = 0, without = 0;
  bool is_captured = false;  // a kernel that is captured into a graph does not run
  for (const record::Activity& activity : run.activities()) {
    const bool is_work = run.lane(activity.lane).kind == "device" && run.name_of(activity).kind != "range";
    if (!is_work) continue;
    ++works;
    if (activity.correlation) started.insert(*activity.correlation);
  }
  for (const record::Activity& activity : run.activities()) {
    const record::ActivityName& name = run.name_of(activity);
    if (name.kind != "api") continue;
    is_captured = is_captured || name.text.find("BeginCapture") != std::string::npos;
    if (!starts_with_any(name.text,
                         {"cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cuGraphLaunch", "hipLaunch",
                          "hipModuleLaunch", "hipExtLaunch", "hipExtModuleLaunch", "hipGraphLaunch"}) ||
        starts_with_any(name.text, {"cudaLaunchHost", "cuLaunchHost", "hipLaunchHost"})) {
      continue;
    }
    ++launches;
    if (activity.correlation && !started.contains(*activity.correlation)) ++without;
  }
  if (launches > 0 && works == 0) {
    run.say(
        fmt::format("{} calls launched kernels, but the trace holds no work of a device: it was not traced, "
                    "or it was lost",
                    launches));
  } else if (without > 0 && !is_captured) {
    run.say(fmt::format("{} of {} calls that launched kernels have none in the trace: their work is missing",
                        without, launches));
  }
}

}  // namespace rooflm::foreign

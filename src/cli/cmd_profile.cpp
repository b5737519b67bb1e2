// rooflm profile: one step taken apart.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/config_options.h"
#include "cli/dry_run.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/profile_session.h"
#include "cli/report_output.h"
#include "core/error.h"
#include "lab/job.h"
#include "lab/traced_steps.h"

namespace rooflm::cli {
namespace {

struct ProfileArguments {
  ConfigOptions config;
  ProfileOptions profile;
  OutputOptions output;
};

int run(const ProfileArguments& options) {
  const std::vector<lab::Point> points = options.config.sweep();
  lab::require_one_rank(points);
  const lab::RunSettings settings = options.profile.settings();
  for (const lab::Point& point : points) lab::make_backend(point);
  std::vector<std::filesystem::path> inputs = files_of_models(options.config.text("model"));
  const auto data = files_of(options.profile.data);
  inputs.insert(inputs.end(), data.begin(), data.end());
  if (options.output.dry_run) {
    check_output(options.output, inputs);
    show_dry_run(points, {{"-o", options.output.record}, {"--html", options.output.html}},
                 options.output.table.style());
    return 0;
  }
  ProfileSession session(options.output, "profile", options.profile.remeasure, inputs);
  bool all_oom = false;
  const int signal = session.run(points, settings, all_oom);
  std::vector<std::string> views = {"overview", "advice", "phases", "blocks", "roofline", "ops", "memory"};
  if (settings.trace && lab::is_traceable(points.back())) {
    views.insert(views.end(), {"kernels", "device", "launches", "contention"});
  }
  session.show(views);
  if (signal != 0) return core::stopped_code(signal);
  return static_cast<int>(all_oom ? core::ExitCode::out_of_memory : core::ExitCode::done);
}

}  // namespace

Body declare_profile(CommandLine& line) {
  auto options = std::make_shared<ProfileArguments>();
  options->config.add_to(line);
  options->profile.add_to(line);
  options->output.add_to(line);
  line.footer(
      "Steps run in pairs, one plain and one observed: end-to-end times are those of plain steps, the parts\n"
      "those of observed ones, and what observing costs is printed. Time at the roof is a lower bound from\n"
      "ceilings measured on this machine; share = time at the roof / measured time.\n"
      "Lists (--seq 128,256) multiply into a sweep: one run of the record each.\n\n"
      "Example: rooflm profile --model gpt2 --batch 4 --seq 64 -o gpt2.rooflm --html gpt2.html");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli

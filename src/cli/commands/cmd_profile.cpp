// rooflm profile: one step taken apart.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/options/config_options.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/profile_session.h"
#include "cli/rank_points.h"
#include "cli/report_output.h"
#include "core/error.h"
#include "lab/devices.h"
#include "lab/job.h"
#include "lab/traced_steps.h"

namespace rooflm::cli {
namespace {

struct ProfileArguments {
  ConfigOptions config;
  ProfileOptions profile;
  OutputOptions output;
};

bool generates(const lab::Point& point) { return is_generation(point.phase); }

/// Steps on several ranks: of one configuration, as many as were asked for.
constexpr const char* kStepsOfRanks = "10";

lab::RunSettings settings_of(const ProfileArguments& options, const lab::Ranks& ranks) {
  ProfileOptions profile = options.profile;
  StoppingOptions& stopping = profile.stopping;
  const bool has_bounds = !stopping.min_steps.empty() || !stopping.max_steps.empty();
  if (ranks != nullptr && !stopping.is_given() && !has_bounds) stopping.steps = kStepsOfRanks;
  lab::RunSettings settings = profile.settings();
  settings.ranks = ranks;
  return settings;
}

void require_one(const std::vector<lab::Point>& points, const lab::RunSettings& settings) {
  if (points.size() > 1)
    throw core::UsageError("several ranks profile a single configuration: use bench for lists and ranges");
  if (settings.count)
    throw core::UsageError(
        "--counters replays ops one by one, which ranks that wait for each other cannot do: profile a single "
        "rank");
}

/// The views that are printed if none is named.
std::vector<std::string> own_views(const std::vector<lab::Point>& points, const lab::RunSettings& settings) {
  std::vector<std::string> views = {"overview", "advice", "phases", "blocks", "roofline", "ops", "memory"};
  if (settings.ranks != nullptr) views.emplace_back("cells");
  if (std::ranges::any_of(points, generates)) views.insert(views.begin() + 1, "generation");
  if (settings.trace && lab::is_traceable(points.back())) {
    views.insert(views.end(), {"kernels", "device", "launches", "contention"});
  }
  return views;
}

int run(const ProfileArguments& options, const lab::Ranks& ranks) {
  std::vector<lab::Point> points = options.config.sweep();
  const bool is_first = ranks::is_first(ranks);
  if (!options.profile.data.empty() && std::ranges::any_of(points, generates))
    throw core::UsageError("--phase prefill and decode use random tokens: leave out --data");
  const lab::RunSettings settings = settings_of(options, ranks);
  if (ranks != nullptr) require_one(points, settings);
  take_places(points, settings, ranks);
  const std::vector<std::string> views = own_views(points, settings);
  require_shown_columns(options.output, views);
  std::vector<std::filesystem::path> inputs = files_of_models(options.config.text("model"));
  const auto data = files_of(options.profile.data);
  inputs.insert(inputs.end(), data.begin(), data.end());
  if (options.output.dry_run) {
    if (!is_first) return 0;
    check_output(options.output, inputs);
    show_dry_run(points, {{"-o", options.output.record}, {"--html", options.output.html}},
                 options.output.table.style());
    return 0;
  }
  options.profile.stopping.require_consent(points.size());
  ProfileSession session(options.output, "profile", options.profile.remeasure, inputs, is_first);
  bool all_oom = false;
  const int signal = session.run(points, settings, all_oom);
  session.show(views);
  if (signal != 0) return core::stopped_code(signal);
  if (all_oom && is_first) throw_nothing_fits(points.size());
  return static_cast<int>(all_oom ? core::ExitCode::out_of_memory : core::ExitCode::done);
}

}  // namespace

Body declare_profile(CommandLine& line) {
  auto options = std::make_shared<ProfileArguments>();
  options->config.add_to(line);
  options->profile.add_to(line);
  options->output.add_to(line);
  line.footer(
      "Steps alternate between plain and observed. End-to-end times come from plain\n"
      "steps, times of parts from observed ones; the cost of observing is printed. Time\n"
      "at the roof is a lower bound from ceilings measured on this machine; share =\n"
      "time at the roof / measured time. Lists (--seq 128,256) make a sweep, with one\n"
      "run in the record per combination. With several ranks (launch -n 2 -- profile),\n"
      "the record is that of rank 0 and includes the cost of collectives on all ranks:\n"
      "waiting for the last rank, transfer, bus bandwidth (view cells).\n\n"
      "Example: rooflm profile --model gpt2 -o gpt2.rooflm --html gpt2.html");
  return [options] { return lab::run_in_job([&](const lab::Ranks& ranks) { return run(*options, ranks); }); };
}

}  // namespace rooflm::cli

// The options that say how many steps are timed.
#include "cli/options/stopping_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "cli/values.h"
#include "core/error.h"

namespace rooflm::cli {
namespace {

constexpr std::int64_t kMostSteps = 1'000'000;
constexpr std::size_t kMostUnasked = 1000;  ///< configurations of a sweep
constexpr double kLeastPrecision = 1e-5;    // 0.001 %
constexpr double kGraceSeconds = 1;         ///< that one step may take longer than --max-seconds

int steps_of(const char* option, const std::string& text, int otherwise) {
  if (text.empty()) return otherwise;
  return static_cast<int>(std::min(parse_integer(option, text, 1), kMostSteps));
}

}  // namespace

void StoppingOptions::add_to(CommandLine& line, const std::string& otherwise) {
  const auto add = [&](const char* name, std::string& value, const char* type, const std::string& text) {
    line.add_option(name, value, text).type_name(type).group("Measuring");
  };
  add("--steps", steps, "N", fmt::format("Time exactly this many steps (default: {})", otherwise));
  add("--precision", precision, "PERCENT",
      "Stop when the 95% interval is within this percentage of the median on each side; 0: never");
  add("--min-steps", min_steps, "N", "With --precision: minimum number of steps (default: 6)");
  add("--max-steps", max_steps, "N", "With --precision: maximum number of steps (default: 200)");
  add("--max-seconds", max_seconds, "S",
      "Maximum seconds per configuration after warm-up (default: 30 with --precision, no limit with "
      "--steps). On CPUs a longer step is cut short");
  line.add_flag("--yes", yes, fmt::format("Begin a sweep of more than {} configurations", kMostUnasked))
      .group("Measuring");
}

void StoppingOptions::require_consent(std::size_t points) const {
  if (points <= kMostUnasked || yes) return;
  constexpr double kSecondsPerHour = 3600;
  const std::string time =
      max_seconds.empty() ? ""
                          : fmt::format(", which take about {:.2g} hours with --max-seconds {} for each",
                                        static_cast<double>(points) *
                                            parse_number("--max-seconds", max_seconds, 0) / kSecondsPerHour,
                                        max_seconds);
  throw core::UsageError(fmt::format(
      "the sweep has {} configurations{}: give fewer values, or begin it with --yes", points, time));
}

void throw_nothing_fits(std::size_t points) {
  throw core::OutOfMemory(
      points == 1 ? std::string("the configuration does not fit in memory; the table says what it needs")
                  : fmt::format("none of {} configurations fits in memory; the table says what "
                                "they need",
                                points),
      0);
}

void StoppingOptions::apply(lab::RunSettings& settings) const {
  if (!max_seconds.empty()) {
    settings.max_seconds = parse_number("--max-seconds", max_seconds, 0);
    settings.longest_step_s = settings.max_seconds + kGraceSeconds;
  }
  if (!steps.empty()) {
    for (const auto& [name, text] :
         {std::pair{"--precision", &precision}, {"--min-steps", &min_steps}, {"--max-steps", &max_steps}}) {
      if (!text->empty()) {
        throw core::UsageError(
            fmt::format("--steps is exact: leave {} out, or give --max-steps instead", name));
      }
    }
    settings.min_steps = settings.max_steps = steps_of("--steps", steps, 0);
    settings.precision = 0;
    if (max_seconds.empty()) settings.max_seconds = std::numeric_limits<double>::infinity();
    return;
  }
  settings.max_steps = steps_of("--max-steps", max_steps, settings.max_steps);
  settings.min_steps = std::min(steps_of("--min-steps", min_steps, settings.min_steps), settings.max_steps);
  if (precision.empty()) return;
  const double share = parse_percent("--precision", precision);
  settings.precision = share > 0 ? std::max(share, kLeastPrecision) : 0;
}

}  // namespace rooflm::cli

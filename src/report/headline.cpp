// A run in two sentences.
#include "report/headline.h"

#include <fmt/format.h>

#include "core/units.h"
#include "report/glance.h"
#include "report/run_figures.h"
#include "report/summaries.h"

namespace rooflm::report {

std::string headline_of(const RunData& run, const std::vector<Advice>& advice) {
  const RunFigures figures = figures_of(run);
  if (!figures.step_s) return "";
  std::string text = fmt::format("A step takes {}", core::format_seconds(*figures.step_s));
  if (figures.step_low_s && figures.step_high_s) {
    text += fmt::format(" (95% sure: {} to {}, {} steps)", core::format_seconds(*figures.step_low_s),
                        core::format_seconds(*figures.step_high_s), run.seconds(kStep).size());
  }
  const Glance glance = glance_of(run, why_of(run));
  if (!glance.bound.parts.empty() && glance.bound.parts.front().share) {
    const GlancePart& most = glance.bound.parts.front();
    text += fmt::format("; {} binds {:.1f}% of the time in kernels", most.name, 100 * *most.share);
  }
  text += ".";
  if (advice.empty() || !advice.front().step_share) return text;
  const Advice& first = advice.front();
  return text + fmt::format(" The largest possible gain is {} ({:.1f}%): {}.",
                            core::format_seconds(first.gain_s), 100 * *first.step_share, first.subject);
}

}  // namespace rooflm::report

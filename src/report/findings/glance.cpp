// One look at a run, from the figures that the views show at length.
#include "report/findings/glance.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <iterator>
#include <utility>

#include "core/units.h"
#include "report/findings/step_causes.h"
#include "report/model/summaries.h"
#include "report/model/traced_kernels.h"
#include "report/runs/match_runs.h"
#include "report/views/view.h"

namespace rooflm::report {
namespace {

/// Blocks that have a part of their own.
constexpr std::size_t kMostBlocks = 6;

void sort_parts(std::vector<GlancePart>& parts) {
  std::ranges::stable_sort(parts, [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
}

void set_shares(std::vector<GlancePart>& parts) {
  double all_s = 0;
  for (const GlancePart& part : parts) all_s += part.seconds;
  for (GlancePart& part : parts) part.share = ratio_of(part.seconds, all_s);
}

GlanceList time_of(const RunData& run) {
  GlanceList list;
  for (const Group& block : blocks_of(run)) {
    if (block.work.device_s <= 0) continue;
    // "optimizer optimizer" says it twice.
    const std::string name = block.phase == block.name ? block.name : block.phase + " " + block.name;
    list.parts.push_back({.name = name, .phase = block.phase, .seconds = block.work.device_s});
  }
  if (list.parts.empty()) {
    list.of = "Ops were not timed: rooflm profile does that.";
    return list;
  }
  list.of = fmt::format("time of ops in {} observed steps", observed_steps(run));
  sort_parts(list.parts);
  set_shares(list.parts);
  if (list.parts.size() <= kMostBlocks + 1) return list;
  GlancePart rest{.name = fmt::format("{} others", list.parts.size() - kMostBlocks), .share = 0.0};
  for (std::size_t i = kMostBlocks; i < list.parts.size(); ++i) {
    rest.seconds += list.parts[i].seconds;
    *rest.share += list.parts[i].share.value_or(0);
  }
  list.parts.resize(kMostBlocks);
  list.parts.push_back(std::move(rest));
  return list;
}

GlanceList bound_of(const RunData& run, const std::vector<Why>& parts) {
  GlanceList list{.parts = cause_sums(parts)};
  if (list.parts.empty()) {
    list.of = "Not known without timed ops and ceilings.";
    return list;
  }
  const bool is_counted = std::ranges::any_of(parts, &Why::is_counted);
  list.of = is_counted ? "the same time by cause, from hardware counters"
                       : "the same time by cause, from shapes and ceilings";
  if (!is_foreign(run.run)) return list;
  // Of recorded programs, with kernels that nobody knows a price of.
  const StepCauses step = step_causes(run);
  if (step.steps == 0) return list;
  double rest_s = step.of("compute") + step.of("collectives");
  for (const GlancePart& part : list.parts) rest_s -= part.seconds;
  constexpr double kLeast = 1e-3;  // of the step
  if (rest_s > kLeast * step.step_s) list.parts.push_back({.name = kNoPrice, .seconds = rest_s});
  sort_parts(list.parts);
  set_shares(list.parts);
  list.of = "time in kernels of a traced step by cause, from shapes and ceilings";
  return list;
}

/// Means of the traced steps, so that the parts add up to the step.
GlanceList traced_idle(const StepCauses& step) {
  GlanceList list{.of = step.is_whole ? "the whole recording, on the device"
                                      : core::format_count(step.steps, "traced step") +
                                            (step.device.empty() ? " of the device" : step.of_which())};
  list.parts.push_back({.name = "computation", .seconds = step.of("compute")});
  for (const StepCause& cause : step.causes) {
    if (cause.group == "compute") continue;
    std::string name = cause.group == "idle" ? "idle: " + cause.name : "exposed: " + cause.name;
    if (cause.name == "exposed") name = "exposed collectives";
    list.parts.push_back({.name = std::move(name), .seconds = cause.seconds, .note = cause.mend});
  }
  set_shares(list.parts);
  return list;
}

GlanceList idle_of(const RunData& run) {
  if (const StepCauses step = step_causes(run); step.steps > 0) return traced_idle(step);
  if (traced_kernels(run).steps() > 0)
    return {.of = "Not known: the record has no kernels of a device.", .parts = {}};
  const Work work = phase_work(run, kStep);
  const auto device_s = work.measured_s();
  if (const auto outside_s = work.outside_s(); outside_s && device_s) {
    GlanceList list{.of = fmt::format("{} observed steps, observing included", observed_steps(run))};
    list.parts.push_back({.name = "in kernels", .seconds = *device_s});
    list.parts.push_back({.name = "between kernels", .seconds = *outside_s});
    set_shares(list.parts);
    return list;
  }
  const std::string reason = run.text("tracing");
  return {.of = reason.empty() ? "Not known: no step was traced." : reason, .parts = {}};
}

}  // namespace

std::vector<GlancePart> cause_sums(const std::vector<Why>& parts) {
  std::vector<GlancePart> sums;
  for (std::size_t i = 0; i < kCauses; ++i) {
    const auto cause = static_cast<Cause>(i);
    double sum_s = 0;
    for (const Why& part : parts) sum_s += part.of(cause);
    if (sum_s <= 0) continue;
    sums.push_back(
        {.name = std::string(title_of(cause)), .seconds = sum_s, .note = std::string(mend_of(cause))});
  }
  sort_parts(sums);
  set_shares(sums);
  return sums;
}

Glance glance_of(const RunData& run, const std::vector<Why>& parts) {
  return {.time = time_of(run), .bound = bound_of(run, parts), .idle = idle_of(run)};
}

std::string format_parts(const GlanceList& list, std::size_t most) {
  constexpr double kLeast = 0.0005;  // is printed as 0.1%
  std::vector<GlancePart> parts;
  std::ranges::copy_if(list.parts, std::back_inserter(parts),
                       [](const GlancePart& part) { return part.share.value_or(0) >= kLeast; });
  std::vector<double> shares;
  for (const GlancePart& part : parts) shares.push_back(*part.share);
  std::ranges::sort(shares, std::greater<>());
  const double least = shares.size() > most ? shares[most - 1] : 0;
  std::string text;
  double others = 0;
  for (const GlancePart& part : parts) {
    if (*part.share < least) {
      others += *part.share;
    } else {
      text += fmt::format("{}{} {:.1f}%", text.empty() ? "" : ", ", part.name, 100 * *part.share);
    }
  }
  return others > 0 ? fmt::format("{}, others {:.1f}%", text, 100 * others) : text;
}

}  // namespace rooflm::report

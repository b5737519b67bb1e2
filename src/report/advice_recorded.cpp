// Advice for programs of others, and about the device's idle time.
#include "report/advice_recorded.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "core/units.h"
#include "report/host_stacks.h"
#include "report/kernel_names.h"
#include "report/match_runs.h"
#include "report/traced_kernels.h"
#include "report/view.h"
#include "report/work_figures.h"

namespace rooflm::report {
namespace {

/// Parts of an optimizer with more launches update tensor by tensor.
constexpr std::int64_t kManyLaunches = 32;

struct Means {
  double steps = 0, kernels = 0, busy_s = 0;
  std::array<double, kIdleCauses> idle_s{};
};

Means means_of(const DeviceTimes& times) {
  Means means;
  for (const DeviceStep& step : times.steps) {
    if (step.kind != kTraced) continue;
    means.steps += 1;
    means.kernels += static_cast<double>(step.kernels);
    means.busy_s += step.exclusive_s + step.shared_s;
    for (std::size_t i = 0; i < kIdleCauses; ++i) means.idle_s.at(i) += step.idle_s.at(i);
  }
  if (means.steps == 0) return means;
  means.kernels /= means.steps;
  means.busy_s /= means.steps;
  for (double& seconds : means.idle_s) seconds /= means.steps;
  return means;
}

/// The innermost frame of a source file that scripts are written in; else the innermost of all.
const std::string& line_of(const HostStack& stack) {
  const auto script = std::find_if(stack.frames.rbegin(), stack.frames.rend(), [](const std::string& frame) {
    return frame.find(".py:") != std::string::npos;
  });
  return script != stack.frames.rend() ? *script : stack.frames.back();
}

/// " The host was mostly in LINE (59% of the samples with an idle device)."; "" without sampled stacks.
std::string where_the_host_was(const RunData& run) {
  const HostStacks stacks = host_stacks(run);
  std::map<std::string, std::size_t> idle;
  for (const HostStack& stack : stacks.stacks) {
    if (!stack.frames.empty()) idle[line_of(stack)] += stack.idle;
  }
  const auto most = std::ranges::max_element(idle, {}, &std::pair<const std::string, std::size_t>::second);
  if (most == idle.end() || most->second == 0 || stacks.idle == 0) return "";
  return fmt::format(" The host was mostly in {} ({:.0f}% of the samples with an idle device).", most->first,
                     100 * static_cast<double>(most->second) / static_cast<double>(stacks.idle));
}

/// Whether kernels that torch.compile made ran.
bool is_compiled(const RunData& run) {
  return std::ranges::any_of(run.activity_names, [](const record::ActivityName& name) {
    return name.kind == "kernel" && parse_kernel_name(name.text).library == "Triton";
  });
}

std::string host_remedy(const RunData& run) {
  if (!is_foreign(run.run)) return "a larger B x T makes each launch do more";
  return is_compiled(run)
             ? "replay the step as a CUDA graph (torch.compile(mode=\"reduce-overhead\")), or do "
               "more per launch with a larger batch"
             : "torch.compile launches fewer kernels, a CUDA graph (mode=\"reduce-overhead\") replaces many "
               "launches by one, and a larger batch does more per launch";
}

/// Whether an optimizer of PyTorch with fused=True ran.
bool has_fused_optimizer(const RunData& run) {
  return std::ranges::any_of(run.activity_names, [](const record::ActivityName& name) {
    return name.kind == "kernel" && name.text.find("FusedOptimizer") != std::string::npos;
  });
}

}  // namespace

std::optional<double> traced_step_s(const DeviceTimes& times) {
  double sum_s = 0;
  std::size_t steps = 0;
  for (const DeviceStep& step : times.steps) {
    if (step.kind != kTraced) continue;
    sum_s += step.wall_s.value_or(step.span_s());
    ++steps;
  }
  return steps > 0 ? std::optional(sum_s / static_cast<double>(steps)) : std::nullopt;
}

std::string recorded_remedy(const RunData& run, const Group& part) {
  if (part.phase == kPhases[2]) {
    return part.work.launches > kManyLaunches && !has_fused_optimizer(run)
               ? "an optimizer with fused=True updates all tensors in a few kernels"
               : "it only streams weights and moments: several micro-batches per update make it run less "
                 "often";
  }
  // A module's own kernels may hold a short matmul and many that only move what it reads.
  const double moved_s = dram_s(run, static_cast<double>(part.work.bytes)).value_or(0);
  if (part.work.bound.find("matmul") != std::string::npos && moved_s <= part.work.roof_s.value_or(0)) {
    return "these matmuls run below the rate of a large square one: try more rows (a larger batch), widths "
           "that are multiples of 64, and bf16 autocast or allow_tf32 instead of fp32";
  }
  return is_compiled(run) ? "the roof counts each byte once: look for copies, casts and layout changes "
                            "between the kernels of torch.compile"
                          : "each small kernel reads and writes memory again: torch.compile fuses them with "
                            "their neighbours";
}

std::optional<double> advised_step_s(const RunData& run, const DeviceTimes& times) {
  const auto timed_alone_s = phase_median(run, kStep);
  return timed_alone_s ? timed_alone_s : traced_step_s(times);
}

std::vector<Advice> advise_idle(const RunData& run, const DeviceTimes& times) {
  std::vector<Advice> all;
  Means means = means_of(times);
  const auto step_s = advised_step_s(run, times);
  if (!step_s || means.kernels == 0) return all;
  const auto idle_s = [&](IdleCause cause) -> double& {
    return means.idle_s.at(static_cast<std::size_t>(cause));
  };
  // Traced steps may take longer than those that the advice is about.
  for (double& idle : means.idle_s) idle = std::min(idle, *step_s);
  // Of steps that are timed alone the device does as much, and what the host needs less is less waiting for
  // it.
  const bool was_slowed = !is_foreign(run.run) || !phase_median(run, kStep);
  if (!was_slowed) {
    const double others_s = traced_step_s(times).value_or(*step_s) - idle_s(IdleCause::host);
    idle_s(IdleCause::host) = std::clamp(*step_s - others_s, 0.0, idle_s(IdleCause::host));
  }
  const auto add = [&](IdleCause cause, std::string subject, std::string text) {
    all.push_back({.subject = std::move(subject),
                   .text = fmt::format("{} At most {} of {} per step could be saved.", text,
                                       core::format_seconds(idle_s(cause)), core::format_seconds(*step_s)),
                   .gain_s = idle_s(cause)});
  };
  add(IdleCause::host, "device idle: host",
      fmt::format("The device waits for the host for {} of {}: a kernel takes {} on average, and the host "
                  "takes {} to launch the next one, {:.0f} times per step: {}.{}{}",
                  core::format_seconds(idle_s(IdleCause::host)), core::format_seconds(*step_s),
                  core::format_seconds(means.busy_s / means.kernels),
                  core::format_seconds((means.busy_s + idle_s(IdleCause::host)) / means.kernels),
                  means.kernels, host_remedy(run), where_the_host_was(run),
                  was_slowed ? " Tracing slows the host, so the gain is smaller." : ""));
  add(IdleCause::sync, "device idle: sync",
      fmt::format(
          "The device is idle for {} of a step while the host waits for its results: .item(), .cpu(), "
          "printing a loss and explicit synchronization cause this; read values some steps later.",
          core::format_seconds(idle_s(IdleCause::sync))));
  add(IdleCause::copy, "device idle: copies",
      fmt::format("Only copies run for {} of a step: pinned memory, non_blocking=True and a separate stream "
                  "let them overlap with kernels.",
                  core::format_seconds(idle_s(IdleCause::copy))));
  return all;
}

}  // namespace rooflm::report

// Advice for programs of others, and about the device's idle time.
#include "report/findings/advice_recorded.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "core/statistics.h"
#include "core/units.h"
#include "report/findings/step_causes.h"
#include "report/model/gaps.h"
#include "report/model/host_stacks.h"
#include "report/model/kernel_names.h"
#include "report/model/traced_kernels.h"
#include "report/model/work_figures.h"
#include "report/runs/match_runs.h"
#include "report/views/view.h"

namespace rooflm::report {
namespace {

/// Parts of an optimizer with more launches update tensor by tensor.
constexpr std::int64_t kManyLaunches = 32;

/// What kernels take and how late the host launches them, in the middle: one stall is no launch.
struct LateLaunches {
  double kernels = 0, late = 0;        ///< of a step; late: launched when the device was idle already
  double kernel_s = 0, late_by_s = 0;  ///< medians
};

LateLaunches launches_of(const TracedKernels& kernels) {
  const DeviceTimes& times = kernels.times();
  const auto steps = static_cast<double>(kernels.steps());
  std::vector<double> seconds, gaps;
  for (const TracedKernel& kernel : kernels.all()) {
    if (kernel.step_kind == kTraced) seconds.push_back(kernel.seconds());
  }
  std::map<std::size_t, double> late;  // by the kernel that was launched
  for (const Idle& idle : times.idle) {
    const DeviceStep* step = times.find(idle.step);
    if (idle.cause != IdleCause::host || !idle.next || step == nullptr || step->kind != kTraced) continue;
    late[*idle.next] += static_cast<double>(idle.end_ns - idle.start_ns) * 1e-9;
  }
  for (const auto& [kernel, by_s] : late) gaps.push_back(by_s);
  LateLaunches launches{.kernels = static_cast<double>(seconds.size()) / steps,
                        .late = static_cast<double>(gaps.size()) / steps};
  if (!seconds.empty()) launches.kernel_s = core::median(seconds);
  if (!gaps.empty()) launches.late_by_s = core::median(gaps);
  return launches;
}

/// "per step"; of a recording without steps "of the recording".
const char* whole_of(const StepCauses& step) { return step.is_whole ? "of the recording" : "per step"; }

/// " The host was mostly in LINE (59% of the samples with an idle device)."; "" without sampled stacks.
std::string where_the_host_was(const RunData& run) {
  const HostStacks stacks = host_stacks(run);
  std::map<std::string, std::size_t> idle;
  for (const HostStack& stack : stacks.stacks) {
    if (!stack.frames.empty()) idle[line_of(stack.frames)] += stack.idle;
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
  const bool is_xla = std::ranges::any_of(
      run.activity_names, [](const record::ActivityName& name) { return name.text.starts_with("TSL:Xla"); });
  if (is_xla)
    return "one jitted function for the whole step launches less, and a larger batch does more per launch";
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

namespace {

/// The causes as they are in steps of `step_s`. What is faster without recording is the host, of this rank
/// and of those that it waits for; the device does as much.
StepCauses causes_in(const RunData& run, double step_s) {
  StepCauses step = step_causes(run);
  const auto shrink = [&](std::string_view group, std::string_view name, double by_s) {
    double taken_s = 0;
    for (StepCause& cause : step.causes) {
      if (cause.group != group || (!name.empty() && cause.name != name)) continue;
      const double less_s = std::clamp(by_s - taken_s, 0.0, cause.seconds);
      cause.seconds -= less_s;
      taken_s += less_s;
    }
    return by_s - taken_s;
  };
  double faster_s = std::max(0.0, step.step_s - step_s);
  for (const char* name : {"tracing", "host", "stall"}) faster_s = shrink("idle", name, faster_s);
  for (const char* name : {"waiting", "exposed"}) faster_s = shrink("collectives", name, faster_s);
  shrink("collectives", "", shrink("idle", "", faster_s));
  step.step_s = step_s;
  return step;
}

std::string host_text(const RunData& run, const StepCauses& step, double host_s, double step_s) {
  const LateLaunches launches = launches_of(traced_kernels(run));
  const bool was_slowed = !is_foreign(run.run) || !phase_median(run, kStep);
  return fmt::format(
      "The device waits for the host for {} of {}: a kernel takes {}, and {:.0f} of {:.0f} kernels {} are "
      "launched "
      "{} too late (medians): {}.{}{}",
      core::format_seconds(host_s), core::format_seconds(step_s), core::format_seconds(launches.kernel_s),
      launches.late, launches.kernels, whole_of(step), core::format_seconds(launches.late_by_s),
      host_remedy(run), where_the_host_was(run),
      was_slowed ? " Tracing slows the host, so the gain is smaller." : "");
}

std::string stall_text(const RunData& run, double stall_s) {
  std::string text = fmt::format(
      "The host does other things than launch kernels for {}, in stretches much longer than a launch "
      "takes",
      core::format_seconds(stall_s));
  constexpr std::size_t kLongest = 50;  // some are of other causes
  const std::vector<Gap> gaps = gaps_of(run, kLongest);
  if (const auto found = std::ranges::find(gaps, IdleCause::stall, &Gap::cause); found != gaps.end()) {
    const Gap& gap = *found;
    const TracedKernel* next = gap.next ? traced_kernels(run).find(*gap.next) : nullptr;
    const std::string& host = gap.line.empty() ? gap.host : gap.line;
    text += fmt::format("; the longest gap takes {}{}{}", core::format_seconds(gap.seconds()),
                        next == nullptr ? "" : ", before " + next->name->short_name,
                        host.empty() ? "" : ", with the host in " + host);
  }
  return text +
         ": take it out of the step (data from loader workers, logging and saving in the background), or "
         "make it "
         "faster; --view gaps lists the gaps.";
}

/// Collectives of recorded programs: those of ours are parts of the step.
void advise_collectives(std::vector<Advice>& all, const StepCauses& step) {
  for (const StepCause& cause : step.causes) {
    if (cause.group != "collectives") continue;
    const double gain_s = cause.seconds;
    std::string text;
    if (cause.name == "waiting") {
      text = fmt::format(
          "Ranks wait for each other in collectives for {} {}{}, and nothing computes while they do: give "
          "all ranks the "
          "same work, and look for what delays the last one (--view collectives with the records of all "
          "ranks).",
          core::format_seconds(gain_s), whole_of(step),
          step.waits == WaitSource::estimated
              ? " (estimated: the shortest of the same collectives waited for nobody)"
              : "");
    } else {
      text = fmt::format(
          "Collectives {} for {} {} while nothing computes: start them earlier (FSDP prefetches, DDP's "
          "bucket_cap_mb), and make messages fewer and larger.{}",
          cause.name == "transfer" ? "transfer" : "run", core::format_seconds(gain_s), whole_of(step),
          cause.name == "transfer"
              ? ""
              : " How much of it waits for other ranks is not known from this record alone.");
    }
    text += fmt::format(" At most {} of {} could be saved.", core::format_seconds(gain_s),
                        core::format_seconds(step.step_s));
    all.push_back({.subject = "collectives: " + cause.name,
                   .text = std::move(text),
                   .gain_s = gain_s,
                   .time_s = gain_s});
  }
}

}  // namespace

std::vector<Advice> advise_idle(const RunData& run, double step_s) {
  std::vector<Advice> all;
  const StepCauses step = causes_in(run, step_s);
  if (step.steps == 0) return all;
  std::map<std::string, double> idle;
  for (const StepCause& cause : step.causes) {
    if (cause.group == "idle") idle[cause.name] = cause.seconds;
  }
  const auto add = [&](const char* cause, std::string subject, const std::string& text) {
    all.push_back(
        {.subject = std::move(subject),
         .text = fmt::format("{} At most {} of {} {} could be saved.", text,
                             core::format_seconds(idle[cause]), core::format_seconds(step_s), whole_of(step)),
         .gain_s = idle[cause],
         .time_s = idle[cause]});
  };
  add("host", "device idle: host", host_text(run, step, idle["host"], step_s));
  if (idle["stall"] > 0) add("stall", "device idle: stall", stall_text(run, idle["stall"]));
  if (idle["queued"] > 0)
    add("queued", "device idle: queued",
        fmt::format(
            "The device runs nothing of this program for {} {} although kernels are queued: they wait "
            "for an event of another stream, the host or another device, or another process has its "
            "turn (nvidia-smi lists them).",
            core::format_seconds(idle["queued"]), whole_of(step)));
  add("sync", "device idle: sync",
      fmt::format("The device is idle for {} {} while the host waits for its results: .item(), .cpu(), "
                  "printing a loss and explicit synchronization cause this; read values some steps later.",
                  core::format_seconds(idle["sync"]), whole_of(step)));
  add("copy", "device idle: copies",
      fmt::format("Only copies run for {} {}: pinned memory, non_blocking=True and a separate stream "
                  "let them overlap with kernels.",
                  core::format_seconds(idle["copy"]), whole_of(step)));
  if (idle["unknown"] > 0)
    add("unknown", "device idle: unknown cause",
        fmt::format(
            "The device is idle for {} {} before kernels whose launch was not recorded, so the reason "
            "is unknown: record the calls of the CUDA runtime, and of all threads.",
            core::format_seconds(idle["unknown"]), whole_of(step)));
  if (is_foreign(run.run)) advise_collectives(all, step);
  return all;
}

}  // namespace rooflm::report

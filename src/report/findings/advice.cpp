// What to change first, and what it could gain.
#include "report/findings/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/units.h"
#include "report/findings/advice_recorded.h"
#include "report/findings/step_causes.h"
#include "report/model/summaries.h"
#include "report/model/traced_kernels.h"
#include "report/model/work_figures.h"
#include "report/runs/match_runs.h"
#include "report/runs/sweep.h"
#include "report/views/view.h"

namespace rooflm::report {
namespace {

bool is_arithmetic(const Work& work) { return work.bound.find("matmul") != std::string::npos; }

bool is_eager(const RunData& run) { return run.setting("engine") == "eager"; }

/// What to try, and the setting that it changes: runs that differ in it alone have tried it.
struct Remedy {
  std::string setting{}, value{};  ///< "engine", "fused"; "" where it is no option
  std::string text;
  bool is_communication = false;  ///< what computation hides of its parts costs nothing

  bool operator==(const Remedy&) const = default;
};

bool is_unfused_attention(const RunData& run, const std::string& part) {
  const bool is_score = part == "attention/qk" || part == "attention/softmax" || part == "attention/v";
  return is_score && run.setting("attention") != "flash";
}

/// Whether most of the part's time is what ranks send each other.
bool is_communication(const RunData& run, const Group& part) {
  double all_s = 0;
  double sent_s = 0;
  for (const TimedOp& op : run.ops) {
    if (op.part != part.name || op.op.phase != part.phase || !op.time) continue;
    all_s += op.time->device_s;
    if (is_communication(op)) sent_s += op.time->device_s;
  }
  return sent_s > all_s / 2;
}

/// By what bounds the part and what kind of part it is.
Remedy remedy_of(const RunData& run, const Group& part) {
  if (is_communication(run, part)) {
    return {.text =
                "this is transfer and waiting for other ranks, which --view cells takes apart: run it beside "
                "computation (--overlap on), or give each message more work to hide behind (a larger B x T)",
            .is_communication = true};
  }
  if (is_unfused_attention(run, part.name)) {
    return {"attention", "flash", "--attention flash keeps the scores out of memory"};
  }
  if (part.phase == kPhases[2] && is_eager(run)) {
    return {"engine", "fused",
            "--engine fused updates all tensors in one kernel, which reads and writes each once"};
  }
  if (part.phase == kPhases[2]) {
    return {.text =
                "it only streams weights and moments: several micro-batches per update (--grad-accum) make "
                "it run less often"};
  }
  if (is_on_gpu(run) && part.phase == kPhases[1] && part.name == "attention/flash" &&
      run.setting("deterministic") != "no") {
    return {"deterministic", "no", "--nondeterministic lets blocks add to the gradient in any order"};
  }
  if (is_eager(run) && is_arithmetic(part.work)) {
    return {"engine", "fused",
            "--engine fused packs weights once and fuses biases and activations into the GEMM epilogue"};
  }
  if (is_eager(run)) {
    return {"engine", "fused",
            "--engine fused merges elementwise ops with their neighbours and saves passes over memory"};
  }
  if (is_arithmetic(part.work)) {
    return {.text = fmt::format("these matmuls run below the rate of a large square one: try more rows (a "
                                "larger B x T than {} x {}) or widths that are multiples of 64",
                                run.setting("batch"), run.setting("seq"))};
  }
  return {.text =
              "the roof counts only memory traffic: look for arithmetic such as exp, strided access, too few "
              "threads, or a fusion with a neighbour"};
}

/// "h.*/attention/qkv backward"
std::string subject_of(const RunData& run, const Group& part) {
  bool is_in_layers = false;
  for (const TimedOp& op : run.ops) {
    if (op.part == part.name && op.op.phase == part.phase) {
      is_in_layers = layer_of(op.op.scope).has_value();
      break;
    }
  }
  if (part.name == part.phase) return part.name;
  return (is_in_layers ? "h.*/" : "") + part.name + " " + part.phase;
}

/// The kernel that takes most of the part; "" where the record does not name kernels.
std::string kernel_of(const RunData& run, const Group& part) {
  std::map<std::string, double> seconds;
  for (const TimedOp& op : run.ops) {
    if (op.part == part.name && op.op.phase == part.phase && op.time)
      seconds[op.op.kernel] += op.time->device_s;
  }
  const auto most = std::ranges::max_element(seconds, {}, &std::pair<const std::string, double>::second);
  return most == seconds.end() ? "" : most->first;
}

/// Parts that the same remedy may help.
struct Remedied {
  Remedy remedy;
  std::vector<std::pair<double, Group>> parts{};  ///< by what each could gain at most
};

/// What gains in observed steps are multiplied by to be those in a plain step, which may be faster: ops that
/// run one after another take at most its time, and so do the parts of what computes in a recorded step.
double scale_to_plain(const RunData& run, double step_s) {
  if (is_foreign(run.run)) {
    const double compute_s = step_causes(run).of("compute");
    return compute_s > step_s ? step_s / compute_s : 1;
  }
  double busy_s = 0;
  for (const TimedOp& op : run.ops) {
    const bool is_alone = op.op.phase != kSetup && op.op.lane == kComputeLane && !is_communication(op);
    if (is_alone && op.time) busy_s += op.time->device_s;
  }
  return busy_s > step_s ? step_s / busy_s : 1;
}

/// What each part takes of a traced step of somebody else's program, whose kernels run beside each other; its
/// collectives are no part's.
std::map<std::pair<std::string, std::string>, double> charged_parts(const RunData& run) {
  std::map<std::pair<std::string, std::string>, double> seconds;
  if (!is_foreign(run.run)) return seconds;
  const TracedKernels& kernels = traced_kernels(run);
  for (const TracedKernel& kernel : kernels.all()) {
    if (kernel.step_kind != kTraced || kernel.op == nullptr || kernel.time.is_collective) continue;
    seconds[{kernel.op->op.phase, kernel.op->part}] +=
        kernel.charged_s() / static_cast<double>(kernels.steps());
  }
  return seconds;
}

std::vector<Remedied> by_remedy(const RunData& run, double step_s, double scale) {
  std::vector<Remedied> all;
  const bool is_of_others = is_foreign(run.run);
  const auto charged = charged_parts(run);
  for (Group& part : parts_of(run)) {
    if (!part.work.measured_s() || !part.work.roof_s) continue;
    if (const auto own = charged.find({part.phase, part.name}); own != charged.end())
      part.work.device_s = own->second;
    const double gain_s =
        scale * work_figures(part.work, part.work.roof_s, part.work.measured_s(), step_s).gain_s.value_or(0);
    if (gain_s <= 0) continue;
    const Remedy remedy = is_of_others ? Remedy{.text = recorded_remedy(run, part)} : remedy_of(run, part);
    auto found = std::ranges::find(all, remedy, &Remedied::remedy);
    if (found == all.end()) found = all.insert(all.end(), {.remedy = remedy});
    found->parts.emplace_back(gain_s, part);
  }
  for (Remedied& one : all) {
    std::ranges::stable_sort(one.parts, [](const auto& a, const auto& b) { return a.first > b.first; });
  }
  return all;
}

/// "a, b and 3 more"
std::string subjects_of(const RunData& run, const Remedied& of) {
  constexpr std::size_t kMost = 2;
  std::string text;
  for (std::size_t i = 0; i < std::min(of.parts.size(), kMost); ++i)
    text += (i > 0 ? ", " : "") + subject_of(run, of.parts[i].second);
  return of.parts.size() > kMost ? fmt::format("{} and {} more", text, of.parts.size() - kMost) : text;
}

/// Why the gain is less than the time minus the roof; "" where that does not show.
std::string scale_note(double scale) {
  constexpr double kNotable = 0.95;
  if (scale > kNotable) return "";
  return fmt::format(" The observed steps were slower than the plain ones, so the gain is scaled by {:.2f}.",
                     scale);
}

Advice advice_of(const RunData& run, const Remedied& of, double step_s, double scale) {
  double gain_s = 0;
  double time_s = 0;
  double roof_s = 0;
  for (const auto& [gain, part] : of.parts) {
    gain_s += gain;
    time_s += part.work.measured_s().value_or(0);
    roof_s += part.work.roof_s.value_or(0);
  }
  if (of.remedy.is_communication) gain_s = std::min(gain_s, run.number("exposed_s").value_or(gain_s));
  gain_s = std::min(gain_s, step_s);
  const Group& first = of.parts.front().second;
  const bool is_one = of.parts.size() == 1;
  const std::string subject = subjects_of(run, of);
  const std::string kernel = kernel_of(run, first);
  return {.subject = subject,
          .text = fmt::format(
              "{} {} {} and {} {}, mostly in {}: {}. At most {} of {} per step could be saved.{}", subject,
              is_one ? "takes" : "take", core::format_seconds(time_s),
              is_one ? fmt::format("its roof ({}) is",
                                   first.work.bound.empty() ? "by the ceilings" : first.work.bound)
                     : "their roofs add up to",
              core::format_seconds(roof_s), kernel.empty() ? subject_of(run, first) : "kernel " + kernel,
              of.remedy.text, core::format_seconds(gain_s), core::format_seconds(step_s), scale_note(scale)),
          .gain_s = gain_s,
          .time_s = std::min(scale * time_s, step_s),
          .setting = of.remedy.setting,
          .value = of.remedy.value};
}

/// The rate of matmuls in bf16 beside that of the run's dtype, where both were measured here. Matmuls that
/// run in another dtype already (the head's of an fp8 run) gain nothing.
std::optional<Advice> advise_dtype(const RunData& run, double step_s, double scale) {
  constexpr double kLeastRatio = 1.2;
  const std::string dtype = run.setting("dtype");
  if (dtype == "bf16" || dtype == "fp16") return std::nullopt;
  std::map<std::string, double> rates;
  for (const record::Ceiling& ceiling : run.ceilings) {
    if (ceiling.what == "matmul") rates[ceiling.dtype] = std::max(rates[ceiling.dtype], ceiling.value);
  }
  const auto ratio =
      rates.contains(dtype) && rates.contains("bf16") ? ratio_of(rates["bf16"], rates[dtype]) : std::nullopt;
  if (!ratio || *ratio < kLeastRatio) return std::nullopt;
  double matmul_s = 0;
  for (const TimedOp& op : run.ops) {
    if (op.time && op.bound == "matmul " + dtype) matmul_s += scale * op.time->device_s;
  }
  if (matmul_s == 0) return std::nullopt;
  const double gain_s = matmul_s * (1 - 1 / *ratio);
  return Advice{.subject = "matmuls in " + dtype,
                .text = fmt::format("Matmuls take {} of the step in {}; in bf16 they run at {:.1f} times the "
                                    "rate here (--dtype bf16). At most {} of {} per step could be saved.",
                                    core::format_seconds(matmul_s), dtype, *ratio,
                                    core::format_seconds(gain_s), core::format_seconds(step_s)),
                .gain_s = gain_s,
                .time_s = matmul_s,
                .is_alternative = true,
                .setting = "dtype",
                .value = "bf16"};
}

/// Time that is in no kernel, as observed; observing adds to it, which the sentence says.
std::optional<Advice> advise_gap(const RunData& run, double step_s, double scale) {
  const Work work = phase_work(run, kStep);
  const auto per_launch_s = work.gap_s();
  if (!per_launch_s) return std::nullopt;
  const double outside_s = work.outside_s().value_or(0);
  const bool eager = is_eager(run);
  return Advice{
      .subject = "between kernels",
      .text = fmt::format(
          "{} of an observed step pass between kernels, {} for each of {} launches: {}. This includes the "
          "cost of observing, so the gain is smaller.",
          core::format_seconds(outside_s), core::format_seconds(*per_launch_s), work.launches,
          eager ? "--engine fused launches fewer kernels" : "a larger B x T makes each launch do more"),
      .gain_s = std::min(scale * outside_s, step_s),
      .time_s = std::min(scale * outside_s, step_s),
      .setting = eager ? "engine" : "",
      .value = eager ? "fused" : ""};
}

/// Whether another run is as this one but for what was advised (and attention, which follows the engine).
bool is_tried(const RecordSet& set, const RunData& run, const Advice& advice) {
  if (advice.setting.empty()) return false;
  const std::vector<std::string> others = {advice.setting, "attention"};
  const std::string wanted = key_without(run.run, others);
  return std::ranges::any_of(set.runs, [&](const RunData& other) {
    return &other != &run && other.setting(advice.setting) == advice.value &&
           key_without(other.run, others) == wanted;
  });
}

/// All that is worth a sentence, the largest gain first.
std::vector<Advice> all_advice(const RunData& run) {
  const DeviceTimes& times = traced_kernels(run).times();
  const auto recorded_s = is_foreign(run.run) ? advised_step_s(run, times) : std::nullopt;
  if (!run.has_op_times() && !recorded_s) return {};
  const double step_s =
      recorded_s ? *recorded_s : phase_median(run, kStep).value_or(phase_work(run, kStep).device_s);
  const double scale = scale_to_plain(run, step_s);
  std::vector<Advice> found;
  for (const Remedied& of : by_remedy(run, step_s, scale)) found.push_back(advice_of(run, of, step_s, scale));
  if (recorded_s || !is_eager(run)) {
    for (Advice& idle : advise_idle(run, step_s)) found.push_back(std::move(idle));
  }
  if (!is_foreign(run.run)) {
    if (auto advice = advise_dtype(run, step_s, scale)) found.push_back(std::move(*advice));
    if (auto advice = advise_gap(run, step_s, scale)) found.push_back(std::move(*advice));
  }
  std::erase_if(found, [&](const Advice& advice) { return advice.gain_s < kLeastGain * step_s; });
  std::ranges::stable_sort(found, [](const Advice& a, const Advice& b) { return a.gain_s > b.gain_s; });
  for (Advice& advice : found) advice.step_share = ratio_of(advice.gain_s, step_s);
  return found;
}

}  // namespace

bool is_advisable(const RunData& run) {
  return run.has_op_times() ||
         (is_foreign(run.run) && advised_step_s(run, traced_kernels(run).times()).has_value());
}

std::vector<Advice> advise(const RunData& run, std::size_t most) {
  std::vector<Advice> found = all_advice(run);
  found.resize(std::min(found.size(), most));
  return found;
}

std::vector<Advice> advise(const RecordSet& set, const RunData& run, std::size_t most) {
  std::vector<Advice> found = all_advice(run);
  std::erase_if(found, [&](const Advice& advice) { return is_tried(set, run, advice); });
  found.resize(std::min(found.size(), most));
  return found;
}

std::vector<Advice> advise(const RecordSet& set, std::size_t most) {
  std::vector<Advice> all;
  for (std::size_t i = 0; i < set.runs.size(); ++i) {
    for (Advice& advice : advise(set, set.runs[i], most)) {
      advice.run = i;
      all.push_back(std::move(advice));
    }
  }
  return all;
}

}  // namespace rooflm::report

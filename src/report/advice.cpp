// What to change first, and what it could gain.
#include "report/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/units.h"
#include "report/summaries.h"
#include "report/view.h"
#include "report/work_figures.h"

namespace rooflm::report {
namespace {

/// Gains below this share of the step are not worth a sentence.
constexpr double kLeastShare = 0.005;

bool is_arithmetic(const Work& work) { return work.bound.find("matmul") != std::string::npos; }

bool is_unfused_attention(const RunData& run, const std::string& part) {
  const bool is_score = part == "attention/qk" || part == "attention/softmax" || part == "attention/v";
  return is_score && run.setting("attention") != "flash";
}

/// What to try, by what bounds the part and what kind of part it is.
std::string remedy(const RunData& run, const Group& part) {
  if (is_unfused_attention(run, part.name)) {
    return "flash attention (--attention flash) keeps the scores out of memory";
  }
  if (part.phase == kPhases[2]) {
    return run.setting("engine") == "eager"
               ? "one multi-tensor update (--engine fused) reads and writes each tensor once"
               : "it only streams weights and moments: fewer bytes of state, or a faster kernel";
  }
  if (is_arithmetic(part.work) && run.setting("engine") == "eager") {
    return "this matmul runs slower than a large square one does here: try --engine fused, or a larger B x T";
  }
  if (is_arithmetic(part.work)) {
    return "this matmul runs slower than a large square one does here: try a larger B x T, or sizes that are "
           "multiples of the kernel's tiles";
  }
  if (run.setting("engine") == "eager")
    return "fusing it with its neighbours (--engine fused) saves passes over memory";
  return "its roof counts memory traffic alone, and it is not at that bound: look for arithmetic such as "
         "exp, strided access, too few threads, or a fusion with its neighbour";
}

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

std::optional<Advice> advise_part(const RunData& run, const Group& part, double step_s) {
  const auto measured_s = part.work.measured_s();
  if (!measured_s || !part.work.roof_s) return std::nullopt;
  const double gain_s = work_figures(part.work, part.work.roof_s, measured_s, step_s).gain_s.value_or(0);
  if (gain_s < kLeastShare * step_s) return std::nullopt;
  const std::string subject = subject_of(run, part);
  return Advice{
      .subject = subject,
      .text = fmt::format("{} takes {} and its roof ({}) is {}: {}. At most {} of {} per step could be won.",
                          subject, core::format_seconds(*measured_s),
                          part.work.bound.empty() ? "by the ceilings" : part.work.bound,
                          core::format_seconds(*part.work.roof_s), remedy(run, part),
                          core::format_seconds(gain_s), core::format_seconds(step_s)),
      .gain_s = gain_s};
}

/// Time that is in no kernel, as observed; observing adds to it, which the sentence says.
std::optional<Advice> advise_gap(const RunData& run, double step_s) {
  const Work work = phase_work(run, kStep);
  const auto per_launch_s = work.gap_s();
  if (!per_launch_s) return std::nullopt;
  const double gain_s = work.outside_s().value_or(0);
  if (gain_s < kLeastShare * step_s) return std::nullopt;
  return Advice{.subject = "between kernels",
                .text = fmt::format(
                    "{} of an observed step lie between kernels, {} for each of {} launches: {}. "
                    "Observing is part of this, so less can be won.",
                    core::format_seconds(gain_s), core::format_seconds(*per_launch_s), work.launches,
                    run.setting("engine") == "eager" ? "fewer, larger ops (--engine fused) need fewer of them"
                                                     : "larger B x T makes each launch do more"),
                .gain_s = gain_s};
}

}  // namespace

std::vector<Advice> advise(const RunData& run, std::size_t most) {
  std::vector<Advice> found;
  if (!run.has_op_times()) return found;
  const double step_s = phase_median(run, kStep).value_or(phase_work(run, kStep).device_s);
  for (const Group& part : parts_of(run)) {
    if (auto advice = advise_part(run, part, step_s)) found.push_back(std::move(*advice));
  }
  if (auto advice = advise_gap(run, step_s)) found.push_back(std::move(*advice));
  std::stable_sort(found.begin(), found.end(),
                   [](const Advice& a, const Advice& b) { return a.gain_s > b.gain_s; });
  found.resize(std::min(found.size(), most));
  for (Advice& advice : found) advice.step_share = ratio_of(advice.gain_s, step_s);
  return found;
}

std::vector<Advice> advise(const RecordSet& set, std::size_t most) {
  std::vector<Advice> all;
  for (std::size_t i = 0; i < set.runs.size(); ++i) {
    for (Advice& advice : advise(set.runs[i], most)) {
      advice.run = i;
      all.push_back(std::move(advice));
    }
  }
  return all;
}

}  // namespace rooflm::report

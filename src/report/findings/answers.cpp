// The answer of a study in one sentence, with its numbers.
#include "report/findings/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "core/ratio.h"
#include "core/statistics.h"
#include "core/units.h"
#include "report/findings/answers_cells.h"
#include "report/model/memory_curve.h"
#include "report/model/run_figures.h"
#include "report/model/summaries.h"
#include "report/model/work_figures.h"
#include "report/runs/generation.h"
#include "report/runs/growth.h"
#include "report/runs/scaling.h"
#include "report/runs/serving.h"
#include "report/runs/size_sweeps.h"
#include "report/runs/sweep.h"
#include "report/tables/plan_figures.h"

namespace rooflm::report {
namespace {

using core::ratio_of;

std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }

std::string percent(const std::optional<double>& share) { return share ? percent(*share) : "-"; }

/// "B=4: " before what is said of one sweep among several.
std::string of_text(const std::string& of) { return of.empty() ? "" : of + ": "; }

/// What each run is called among the others.
std::string name_of(const RecordSet& set, const RunData& run) {
  const std::vector<RunName> names = run_names(set.runs);
  return names[static_cast<std::size_t>(&run - set.runs.data())].which;
}

/// Runs that were timed.
std::vector<const RunData*> timed(const RecordSet& set) {
  std::vector<const RunData*> runs;
  for (const RunData& run : set.runs) {
    if (phase_median(run, kStep)) runs.push_back(&run);
  }
  return runs;
}

/// The run that is as `run` but for one setting, which has `value`.
const RunData* twin(const RecordSet& set, const RunData& run, const std::string& key,
                    const std::string& value) {
  const std::string wanted = key_without(run.run, {key});
  for (const RunData& other : set.runs) {
    if (other.setting(key) == value && key_without(other.run, {key}) == wanted) return &other;
  }
  return nullptr;
}

/// Shares of the part of attention that grows with the square of T, and of feed_forward.
std::string answer_scaling(const RecordSet& set, const std::string& axis, const char* symbol) {
  const std::vector<std::string> square = {"attention/qk", "attention/softmax", "attention/v",
                                           "attention/flash"};
  std::string text;
  for (const Scaling& scaling : scalings(set)) {
    if (scaling.axis != axis || scaling.phase == kStep) continue;
    const std::size_t last = scaling.sizes.size() - 1;
    const auto share = [&](const std::vector<std::string>& names, std::size_t at) {
      return percent(scaling.share_of(names, at, false));
    };
    add_sentence(
        text, fmt::format("{}scores, softmax and values take {} of {} at {}={} and {} at {}={}; feed_forward "
                          "{} and {}.",
                          of_text(scaling.of), share(square, 0), scaling.phase, symbol, scaling.sizes.front(),
                          share(square, last), symbol, scaling.sizes.back(), share({"feed_forward"}, 0),
                          share({"feed_forward"}, last)));
  }
  return text;
}

std::string answer_blocks(const RecordSet& set) { return answer_scaling(set, "seq", "T"); }
std::string answer_heads(const RecordSet& set) { return answer_scaling(set, "heads", "H"); }

/// The exponent of the whole step beside that of its FLOP, for each sweep.
std::string answer_growth(const RecordSet& set) {
  std::string text;
  for (const SizeSweep& sweep : size_sweeps(set)) {
    std::vector<std::pair<double, double>> time;
    std::vector<std::pair<double, double>> flop;
    for (const RunData* run : sweep.runs) {
      const auto size = static_cast<double>(size_of(*run, sweep.axis));
      if (const auto step_s = phase_median(*run, kStep)) time.emplace_back(size, *step_s);
      flop.emplace_back(size, phase_work(*run, kStep).flop());
    }
    const auto measured = fit_growth(time);
    const auto expected = fit_growth(flop);
    if (!measured || !expected) continue;
    const double off = measured->exponent - expected->exponent;
    const char* meaning = off < -0.1 ? "time grows more slowly than FLOP, so fixed costs dominate small sizes"
                          : off > 0.1 ? "time grows faster than FLOP, so memory limits large sizes"
                                      : "time grows in step with FLOP";
    add_sentence(
        text, fmt::format(
                  "{}the time of a step grows with {} to the power {:.2f}, its FLOP to the power {:.2f}: {}.",
                  of_text(sweep.of), sweep.axis, measured->exponent, expected->exponent, meaning));
  }
  return text;
}

std::string answer_end_to_end(const RecordSet& set) {
  std::string text;
  for (const RunData* run : timed(set)) {
    if (run->setting("engine") != "fused") continue;
    const auto step_s = phase_median(*run, kStep);
    const auto ratio = ratio_of(phase_median(*run, kPhases[1]), phase_median(*run, kPhases[0]));
    const RunData* eager = twin(set, *run, "engine", "eager");
    const auto gain = eager == nullptr ? std::nullopt : ratio_of(phase_median(*eager, kStep), step_s);
    std::string sentence =
        fmt::format("{}: {} per step, forward {}, backward {}, optimizer {}", name_of(set, *run),
                    core::format_seconds(*step_s), percent(ratio_of(phase_median(*run, kPhases[0]), step_s)),
                    percent(ratio_of(phase_median(*run, kPhases[1]), step_s)),
                    percent(ratio_of(phase_median(*run, kPhases[2]), step_s)));
    if (ratio) sentence += fmt::format("; backward takes {:.2f} times as long as forward", *ratio);
    if (gain) sentence += fmt::format(", eager {:.2f} times as long as fused", *gain);
    add_sentence(text, sentence + ".");
  }
  return text;
}

/// The longest sequence that fitted and the shortest that did not, for each kind of attention.
std::string answer_context(const RecordSet& set) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> ends;  // kind -> fits, does not
  for (const RunData& run : set.runs) {
    auto& [fits, fails] = ends[run.setting("attention")];
    const std::int64_t seq = size_of(run, "seq");
    if (run.run.status == "oom") {
      fails = fails == 0 ? seq : std::min(fails, seq);
    } else {
      fits = std::max(fits, seq);
    }
  }
  std::string text;
  for (const auto& [kind, end] : ends) {
    const std::string failing =
        end.second == 0 ? "nothing ran out of memory" : fmt::format("T={} does not", end.second);
    add_sentence(text, fmt::format("With {} attention T={} fits; {}.", kind, end.first, failing));
  }
  return text;
}

std::string answer_precision(const RecordSet& set) {
  std::string text;
  for (const RunData* run : timed(set)) {
    if (run->setting("dtype") == "fp32") continue;
    const RunData* plain = twin(set, *run, "dtype", "fp32");
    if (plain == nullptr) continue;
    std::string phases;
    for (const std::string_view phase : kPhases) {
      const auto gain = ratio_of(phase_median(*plain, phase), phase_median(*run, phase));
      if (gain) phases += fmt::format("{}{} {:.2f}", phases.empty() ? "" : ", ", phase, *gain);
    }
    const auto gain = ratio_of(phase_median(*plain, kStep), phase_median(*run, kStep));
    if (gain) {
      add_sentence(text,
                   fmt::format("{}: {:.2f} times as fast as fp32 ({}).", name_of(set, *run), *gain, phases));
    }
  }
  return text;
}

std::string answer_warmup(const RecordSet& set) {
  std::string text;
  for (const RunData* run : timed(set)) {
    const std::vector<double> seconds = run->seconds(kStep);
    add_sentence(text, fmt::format("{} warm-up steps: {} +- {}.", run->setting("warmup"),
                                   core::format_seconds(core::mean(seconds)),
                                   core::format_seconds(core::sample_std(seconds))));
  }
  return text;
}

std::string answer_overhead(const RecordSet& set) {
  const RunData* worst = nullptr;
  std::optional<double> most;
  for (const RunData* run : timed(set)) {
    const auto ratio = ratio_of(phase_median(*run, kStep, "observed"), phase_median(*run, kStep));
    if (!ratio || (most && *most >= *ratio)) continue;
    most = ratio;
    worst = run;
  }
  if (worst == nullptr) return "";
  return fmt::format("Timing every op makes a step at most {:+.1f}% longer (in {}).", 100 * (*most - 1),
                     name_of(set, *worst));
}

std::string answer_gap(const RecordSet& set) {
  std::string text;
  for (const RunData* run : timed(set)) {
    const Work work = phase_work(*run, kStep);
    if (work.alone_s) {
      const double outside_s = *work.alone_s - work.device_s;
      add_sentence(text, fmt::format("{}: with each op submitted alone and waited for, {} launches cost {} "
                                     "each outside their kernels, {} of the ops' wall time.",
                                     name_of(set, *run), work.launches,
                                     core::format_seconds(outside_s / static_cast<double>(work.launches)),
                                     percent(outside_s / *work.alone_s)));
      continue;
    }
    if (!work.gap_s()) continue;
    add_sentence(text, fmt::format("{}: {} launches, {} between two of them, {} of the observed step.",
                                   name_of(set, *run), work.launches, core::format_seconds(*work.gap_s()),
                                   percent(ratio_of(work.outside_s(), work.wall_s))));
  }
  return text;
}

/// The kernel that takes most of each phase.
std::string answer_ops(const RecordSet& set) {
  std::string text;
  for (const RunData* run : timed(set)) {
    for (const std::string_view phase : kPhases) {
      const auto groups = group_ops(*run, [](const TimedOp& op) { return op.op.kernel; });
      const Group* top = nullptr;
      double all_s = 0;
      for (const Group& group : groups) {
        if (group.phase != phase) continue;
        all_s += group.work.device_s;
        if (top == nullptr || group.work.device_s > top->work.device_s) top = &group;
      }
      if (top == nullptr || all_s <= 0) continue;
      add_sentence(text, fmt::format("{}: {} takes {} in {} launches.", phase, top->name,
                                     percent(top->work.device_s / all_s), top->work.launches));
    }
    break;  // one run is enough for a sentence
  }
  return text;
}

/// Softmax against the two matmuls, by time and by FLOP.
std::string answer_attention_parts(const RecordSet& set) {
  std::string text;
  for (const RunData* run : timed(set)) {
    double softmax_s = 0, all_s = 0, softmax_flop = 0, all_flop = 0;
    for (const Group& part : parts_of(*run)) {
      const bool is_softmax = part.name == "attention/softmax";
      if (part.phase != kPhases[0] ||
          (!is_softmax && part.name != "attention/qk" && part.name != "attention/v"))
        continue;
      all_s += part.work.device_s;
      all_flop += part.work.flop();
      if (!is_softmax) continue;
      softmax_s += part.work.device_s;
      softmax_flop += part.work.flop();
    }
    if (all_s <= 0) continue;
    add_sentence(
        text,
        fmt::format(
            "{}: softmax takes {} of the forward time of scores, softmax and values, with {} of their FLOP.",
            name_of(set, *run), percent(ratio_of(softmax_s, all_s)),
            percent(ratio_of(softmax_flop, all_flop))));
  }
  return text;
}

std::string answer_memory(const RecordSet& set) {
  std::string text;
  for (const RunData* run : timed(set)) {
    const auto bytes = figures_of(*run).peak_bytes;
    if (!bytes) continue;
    // The table's bytes are of tensors; more may be in use, of allocations that are rounded up.
    const MemoryCurve curve(*run);
    const std::string in_use = core::format_bytes(*bytes);
    std::string sentence =
        curve.empty() ? fmt::format("{}: {} at the peak", name_of(set, *run), in_use)
                      : fmt::format("{}: {} of tensors at the peak, {} in use", name_of(set, *run),
                                    core::format_bytes(static_cast<double>(curve.peak_bytes())), in_use);
    const RunData* kept =
        run->setting("recompute") == "none" ? nullptr : twin(set, *run, "recompute", "none");
    if (kept != nullptr) {
      const auto less = ratio_of(bytes, figures_of(*kept).peak_bytes);
      const auto slower = ratio_of(phase_median(*run, kStep), phase_median(*kept, kStep));
      if (less && slower) {
        sentence += fmt::format(", {:+.1f}% memory and {:+.1f}% time compared with keeping everything",
                                100 * (*less - 1), 100 * (*slower - 1));
      }
    }
    add_sentence(text, sentence + ".");
  }
  return text;
}

std::string answer_roofline(const RecordSet& set) {
  std::string text;
  for (const RunData* run : timed(set)) {
    std::map<std::string, double> by_bound;
    double all_s = 0;
    for (const Group& part : parts_of(*run)) {
      by_bound[part.work.bound] += part.work.device_s;
      all_s += part.work.device_s;
    }
    if (all_s <= 0) continue;
    const auto most = std::ranges::max_element(by_bound, {}, &std::pair<const std::string, double>::second);
    add_sentence(
        text, fmt::format(
                  "{0}: {2} of the time in kernels is bound by {1}; the roof of the step is {3} of its time.",
                  name_of(set, *run), most->first, percent(most->second / all_s),
                  percent(figures_of(*run).roof_share)));
  }
  return text;
}

/// The largest model that fits, for each dtype.
std::string answer_limits(const RecordSet& set) {
  std::map<std::string, const RunData*> largest;
  for (const RunData& run : set.runs) {
    if (run.run.status == "oom") continue;
    const RunData*& best = largest[run.setting("dtype")];
    if (best == nullptr || size_of(run, "params") > size_of(*best, "params")) best = &run;
  }
  std::string text;
  for (const auto& [dtype, run] : largest) {
    add_sentence(text, fmt::format("{}: the largest preset that fits is {} ({} parameters, B={}).", dtype,
                                   run->setting("model"),
                                   core::format_si(static_cast<double>(size_of(*run, "params"))),
                                   run->setting("batch")));
  }
  add_sentence(text, answer_solved(set));
  return text;
}

std::string answer_input(const RecordSet& set) {
  std::string text;
  for (const RunData* run : timed(set)) {
    const auto wait = run->number("loader_wait_s");
    if (!wait) continue;
    add_sentence(text, fmt::format("{}: {} of the {} of a step are spent waiting for tokens ({}).",
                                   name_of(set, *run), core::format_seconds(*wait),
                                   core::format_seconds(phase_median(*run, kStep).value_or(0)),
                                   percent(ratio_of(wait, phase_median(*run, kStep)))));
  }
  return text;
}

struct Answer {
  std::string_view name;
  std::string (*make)(const RecordSet& set);
};
constexpr std::array kAnswers = {Answer{"blocks", answer_blocks},
                                 Answer{"heads", answer_heads},
                                 Answer{"growth", answer_growth},
                                 Answer{"end_to_end", answer_end_to_end},
                                 Answer{"context", answer_context},
                                 Answer{"precision", answer_precision},
                                 Answer{"warmup", answer_warmup},
                                 Answer{"decode", answer_decode},
                                 Answer{"overhead", answer_overhead},
                                 Answer{"gap", answer_gap},
                                 Answer{"ops", answer_ops},
                                 Answer{"attention_parts", answer_attention_parts},
                                 Answer{"memory", answer_memory},
                                 Answer{"roofline", answer_roofline},
                                 Answer{"limits", answer_limits},
                                 Answer{"input", answer_input},
                                 Answer{"formats", answer_formats},
                                 Answer{"gemm", answer_gemm},
                                 Answer{"attention_sweep", answer_attention_sweep},
                                 Answer{"plan", answer_plan},
                                 Answer{"serving", answer_serving}};

/// Those whose answers are of sizes alone, whatever else runs on the machine.
constexpr std::array<std::string_view, 3> kUntimed = {"context", "limits", "plan"};

std::string environment_of(const RecordFile& file, std::string_view key) {
  const auto found = std::ranges::find(file.environment, key, &record::Environment::key);
  return found == file.environment.end() ? "" : found->value;
}

/// The names in a list with commas between them.
std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream text(list);
  for (std::string name; std::getline(text, name, ',');) names.push_back(name);
  return names;
}

}  // namespace

StudyText study_of(const RecordSet& set) {
  for (const RecordFile& file : set.files) {
    StudyText text{.name = environment_of(file, "study_name"),
                   .title = environment_of(file, "study"),
                   .question = environment_of(file, "question"),
                   .views = names_in(environment_of(file, "study_views")),
                   .answer = environment_of(file, "study_answer")};
    if (text.answer.empty()) text.answer = text.name;
    if (!text.title.empty()) return text;
  }
  return {};
}

std::vector<std::string> answer_names() {
  std::vector<std::string> names;
  for (const Answer& answer : kAnswers) names.emplace_back(answer.name);
  return names;
}

std::string answer_of(const RecordSet& set) {
  const std::string name = study_of(set).answer;
  const auto* const found = std::ranges::find(kAnswers, name, &Answer::name);
  std::string text = found == kAnswers.end() ? "" : found->make(set);
  if (text.empty() || std::ranges::find(kUntimed, name) != kUntimed.end()) return text;
  if (const std::string load = load_sentence(set); !load.empty())
    text += " " + load + " The answer may differ on a quiet machine.";
  return text;
}

}  // namespace rooflm::report

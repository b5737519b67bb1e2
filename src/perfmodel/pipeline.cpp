// The stages of a pipeline in time.
#include "perfmodel/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/error.h"

namespace rooflm::perfmodel {
namespace {

/// A stage on its way through its work: forward passes until `warm_up` of them are ahead, then one backward
/// for each forward.
struct Stage {
  std::int64_t forwards = 0, backwards = 0;  ///< done
  double free_s = 0;
  double busy_s = 0;
};

/// Interleaved 1F1B: the passes of all stages, each in its own order.
class Interleaved {
 public:
  Interleaved(std::span<const StageTimes> stages, std::int64_t micro_batches, int parts)
      : stages_(stages),
        count_(static_cast<int>(stages.size())),
        parts_(parts),
        passes_(micro_batches * parts),
        at_(stages.size()),
        forward_s_(stages.size() * static_cast<std::size_t>(passes_), kNotYet),
        backward_s_(forward_s_) {}

  /// Until no stage can go on.
  const std::vector<Stage>& run(std::vector<StageSpan>* spans) {
    for (bool moved = true; moved;) {
      moved = false;
      for (int s = 0; s < count_; ++s)
        while (step(s, spans)) moved = true;
    }
    return at_;
  }

 private:
  static constexpr double kNotYet = -1;
  struct Pass {
    std::int64_t micro_batch = 0;
    int part = 0;
  };

  /// The n-th forward pass of every stage. Backward passes come in the same order, the last part first.
  [[nodiscard]] Pass pass_of(std::int64_t n, bool is_forward) const {
    const std::int64_t round = std::int64_t{count_} * parts_;
    const int part = static_cast<int>(n % round / count_);
    return {.micro_batch = n / round * count_ + n % count_, .part = is_forward ? part : parts_ - 1 - part};
  }
  [[nodiscard]] bool is_next_forward(int s) const {
    const Stage& stage = at_[static_cast<std::size_t>(s)];
    const std::int64_t ahead = std::int64_t{2} * (count_ - s - 1) + std::int64_t{parts_ - 1} * count_ + 1;
    return stage.forwards < passes_ && stage.forwards - stage.backwards < ahead;
  }
  [[nodiscard]] std::size_t place(int s, const Pass& pass) const {
    return static_cast<std::size_t>((pass.micro_batch * parts_ + pass.part) * count_ + s);
  }
  /// When what the pass reads is there; kNotYet.
  [[nodiscard]] double ready_s(int s, const Pass& pass, bool is_forward) const {
    if (is_forward && s > 0) return forward_s_[place(s - 1, pass)];
    if (is_forward) return pass.part == 0 ? 0 : forward_s_[place(count_ - 1, before(pass))];
    if (s + 1 < count_) return backward_s_[place(s + 1, pass)];
    return pass.part == parts_ - 1 ? forward_s_[place(s, pass)] : backward_s_[place(0, behind(pass))];
  }
  static Pass before(Pass pass) { return {.micro_batch = pass.micro_batch, .part = pass.part - 1}; }
  static Pass behind(Pass pass) { return {.micro_batch = pass.micro_batch, .part = pass.part + 1}; }

  bool step(int s, std::vector<StageSpan>* spans) {
    const auto index = static_cast<std::size_t>(s);
    Stage& stage = at_[index];
    if (stage.backwards == passes_) return false;
    const bool is_forward = is_next_forward(s);
    const Pass pass = pass_of(is_forward ? stage.forwards : stage.backwards, is_forward);
    const double ready = ready_s(s, pass, is_forward);
    if (ready < 0) return false;
    const double lasts = (is_forward ? stages_[index].forward_s : stages_[index].backward_s) / parts_;
    const double start_s = std::max(stage.free_s, ready);
    stage.free_s = start_s + lasts;
    stage.busy_s += lasts;
    (is_forward ? forward_s_ : backward_s_)[place(s, pass)] = stage.free_s;
    if (spans != nullptr) {
      spans->push_back({.stage = s,
                        .micro_batch = pass.micro_batch,
                        .part = pass.part,
                        .is_forward = is_forward,
                        .start_s = start_s,
                        .end_s = stage.free_s});
    }
    ++(is_forward ? stage.forwards : stage.backwards);
    return true;
  }

  std::span<const StageTimes> stages_;
  int count_, parts_;
  std::int64_t passes_;  ///< of each stage, in each direction
  std::vector<Stage> at_;
  std::vector<double> forward_s_, backward_s_;  ///< ends, by micro-batch, part and stage
};

/// The stage that ends last, with what follows its passes.
PipelineTimes times_of(std::span<const StageTimes> stages, const std::vector<Stage>& at) {
  PipelineTimes times;
  for (std::size_t s = 0; s < at.size(); ++s) {
    const double end_s = at[s].free_s + stages[s].tail_s;
    if (end_s <= times.step_s) continue;
    times = {.step_s = end_s, .bubble_s = at[s].free_s - at[s].busy_s, .last_stage = static_cast<int>(s)};
  }
  return times;
}

}  // namespace

double in_flight(int stage, const compile::Sharding& sharding, std::int64_t micro_batches) {
  const auto all = static_cast<double>(micro_batches);
  if (sharding.schedule == compile::PipelineSchedule::gpipe) return all;
  const int after = sharding.pipeline - stage - 1;
  if (sharding.interleave == 1) return std::min(all, after + 1.0);
  const int parts = 2 * after + (sharding.interleave - 1) * sharding.pipeline + 1;
  return std::min(all, static_cast<double>(parts) / sharding.interleave);
}

PipelineTimes pipeline_times(std::span<const StageTimes> stages, std::int64_t micro_batches,
                             compile::PipelineSchedule schedule, int interleave,
                             std::vector<StageSpan>* spans) {
  constexpr std::int64_t kMostMicroBatches = std::int64_t{1} << 20U;
  if (micro_batches > kMostMicroBatches) {
    throw core::UsageError(fmt::format("--pp {}: {} micro-batches of a step are too many to plan one by one",
                                       stages.size(), micro_batches));
  }
  if (interleave > 1) return times_of(stages, Interleaved(stages, micro_batches, interleave).run(spans));
  const auto count = static_cast<int>(stages.size());
  std::vector<Stage> at(stages.size());
  const auto m = static_cast<std::size_t>(micro_batches);
  const compile::Sharding order{.pipeline = count, .schedule = schedule};
  // Ends of the forward and backward pass of each micro-batch on each stage.
  std::vector<std::vector<double>> forward(stages.size(), std::vector<double>(m));
  std::vector<std::vector<double>> backward = forward;
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < count; ++s) {
      const auto index = static_cast<std::size_t>(s);
      Stage& stage = at[index];
      while (stage.backwards < micro_batches) {
        const std::int64_t ahead = stage.forwards - stage.backwards;
        const bool is_forward =
            stage.forwards < micro_batches && static_cast<double>(ahead) < in_flight(s, order, micro_batches);
        const auto i = static_cast<std::size_t>(is_forward ? stage.forwards : stage.backwards);
        double ready = 0;
        if (is_forward && s > 0) {
          if (at[index - 1].forwards <= stage.forwards) break;
          ready = forward[index - 1][i];
        } else if (!is_forward && s + 1 < count) {
          if (at[index + 1].backwards <= stage.backwards) break;
          ready = backward[index + 1][i];
        }
        const double lasts = is_forward ? stages[index].forward_s : stages[index].backward_s;
        stage.free_s = std::max(stage.free_s, ready) + lasts;
        stage.busy_s += lasts;
        (is_forward ? forward : backward)[index][i] = stage.free_s;
        if (spans != nullptr) {
          spans->push_back({.stage = s,
                            .micro_batch = static_cast<std::int64_t>(i),
                            .is_forward = is_forward,
                            .start_s = stage.free_s - lasts,
                            .end_s = stage.free_s});
        }
        ++(is_forward ? stage.forwards : stage.backwards);
        moved = true;
      }
    }
  }
  return times_of(stages, at);
}

}  // namespace rooflm::perfmodel

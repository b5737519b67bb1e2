// The stages of a pipeline in time.
#include "perfmodel/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/error.h"

namespace rooflm::perfmodel {
namespace {

/// A stage on its way through its passes: forward ones until `most_ahead` of them are, then one backward for
/// each forward.
struct Stage {
  std::int64_t forwards = 0, backwards = 0;  ///< done
  double free_s = 0;
  double busy_s = 0;
};

/// How many forward passes, each of one micro-batch over one part of the model, a stage is at most ahead of
/// its backward ones. `passes`: all of them, in one direction.
std::int64_t most_ahead(int stage, const compile::Sharding& order, std::int64_t passes) {
  if (order.schedule == compile::PipelineSchedule::gpipe) return passes;
  const std::int64_t after = order.pipeline - stage - 1;
  if (order.interleave == 1) return std::min(passes, after + 1);
  return std::min(passes, 2 * after + std::int64_t{order.interleave - 1} * order.pipeline + 1);
}

/// The passes of all stages, each in its own order.
class Passes {
 public:
  Passes(std::span<const StageTimes> stages, std::int64_t micro_batches, const compile::Sharding& order)
      : stages_(stages),
        order_(order),
        count_(order.pipeline),
        parts_(order.interleave),
        passes_(micro_batches * parts_),
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
    if (parts_ == 1) return {.micro_batch = n};
    const std::int64_t round = std::int64_t{count_} * parts_;
    const int part = static_cast<int>(n % round / count_);
    return {.micro_batch = n / round * count_ + n % count_, .part = is_forward ? part : parts_ - 1 - part};
  }
  [[nodiscard]] bool is_next_forward(int s) const {
    const Stage& stage = at_[static_cast<std::size_t>(s)];
    return stage.forwards < passes_ && stage.forwards - stage.backwards < most_ahead(s, order_, passes_);
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
  [[nodiscard]] double lasts_s(int s, int part, bool is_forward) const {
    const StageTimes& times = stages_[static_cast<std::size_t>(s)];
    const bool is_end = (s == 0 && part == 0) || (s == count_ - 1 && part == parts_ - 1);
    const double end_s = is_forward ? times.end_forward_s : times.end_backward_s;
    const double all_s = is_forward ? times.forward_s : times.backward_s;
    return (all_s - end_s) / parts_ + (is_end ? end_s : 0);
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
    const double lasts = lasts_s(s, pass.part, is_forward);
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
  compile::Sharding order_;
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
  const int parts = sharding.interleave;
  return static_cast<double>(most_ahead(stage, sharding, micro_batches * parts)) / parts;
}

std::int64_t heads_in_flight(const compile::Sharding& sharding, std::int64_t micro_batches) {
  return sharding.schedule == compile::PipelineSchedule::gpipe ? micro_batches : 1;
}

PipelineTimes pipeline_times(std::span<const StageTimes> stages, std::int64_t micro_batches,
                             compile::PipelineSchedule schedule, int interleave,
                             std::vector<StageSpan>* spans) {
  constexpr std::int64_t kMostMicroBatches = std::int64_t{1} << 20U;
  if (micro_batches > kMostMicroBatches) {
    throw core::UsageError(fmt::format("--pp {}: {} micro-batches of a step are too many to plan one by one",
                                       stages.size(), micro_batches));
  }
  const compile::Sharding order{
      .pipeline = static_cast<int>(stages.size()), .schedule = schedule, .interleave = interleave};
  return times_of(stages, Passes(stages, micro_batches, order).run(spans));
}

}  // namespace rooflm::perfmodel

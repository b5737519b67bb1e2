// The stages of a pipeline in time.
#include "perfmodel/pipeline.h"

#include <algorithm>
#include <vector>

namespace rooflm::perfmodel {
namespace {

/// A stage on its way through its work: forward passes until `warm_up` of them are ahead, then one backward
/// for each forward.
struct Stage {
  std::int64_t forwards = 0, backwards = 0;  ///< done
  double free_s = 0;
  double busy_s = 0;
};

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
  PipelineTimes times;
  for (int s = 0; s < count; ++s) {
    const Stage& stage = at[static_cast<std::size_t>(s)];
    const double bubble_s = (stage.free_s - stage.busy_s) / interleave;
    const double end_s = stage.busy_s + bubble_s + stages[static_cast<std::size_t>(s)].tail_s;
    if (end_s <= times.step_s) continue;
    times = {.step_s = end_s, .bubble_s = bubble_s, .last_stage = s};
  }
  return times;
}

}  // namespace rooflm::perfmodel

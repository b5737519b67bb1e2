// The stages of a pipeline in time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compile/sharding.h"

namespace rooflm::perfmodel {

/// What one stage does in a step.
struct StageTimes {
  double forward_s = 0;   ///< of one micro-batch
  double backward_s = 0;  ///< of one micro-batch
  double tail_s = 0;      ///< after the last of them: sums over ranks, optimizer
  /// Of the above, by how much the part at the model's end (the first of the first stage, the last of the
  /// last one) takes longer than the stage's other parts: embedding, head and loss, less the layers it lacks.
  double end_forward_s = 0, end_backward_s = 0;
};

struct PipelineTimes {
  double step_s = 0;    ///< until the last stage is done with its tail
  double bubble_s = 0;  ///< of the stage that ends last: neither forward, backward nor tail
  int last_stage = 0;   ///< that ends last
};

/// A pass of a stage, or of one of its parts, over one micro-batch.
struct StageSpan {
  int stage = 0;
  std::int64_t micro_batch = 0;
  int part = 0;  ///< of those that the stage has of the model
  bool is_forward = true;
  double start_s = 0, end_s = 0;
};

/// Each stage works on its micro-batches in the order of the schedule; a forward waits for that of the stage
/// before, a backward for that of the stage after. With equal stages both schedules take (m + p - 1) (F + B),
/// so the bubble is (p - 1) / m of the work. With `interleave` parts of the model on a stage, each an
/// equal share of its times but for what only a part at an end has, p micro-batches at a time go through a
/// part before the next one, and a stage begins with 2 (p - 1 - stage) + (interleave - 1) p forward passes of
/// parts, so the bubble is `interleave` times smaller (Narayanan et al., 2021, section 2.2); p divides the
/// micro-batches. `spans`, unless it is nullptr, gets every pass of every stage.
PipelineTimes pipeline_times(std::span<const StageTimes> stages, std::int64_t micro_batches,
                             compile::PipelineSchedule schedule, int interleave = 1,
                             std::vector<StageSpan>* spans = nullptr);

/// Micro-batches whose activations a stage keeps at most; interleaved, parts of them.
double in_flight(int stage, const compile::Sharding& sharding, std::int64_t micro_batches);
/// Of those, micro-batches for which the head is kept: on the last part of the last stage a backward pass
/// follows each forward one, but in GPipe.
std::int64_t heads_in_flight(const compile::Sharding& sharding, std::int64_t micro_batches);

}  // namespace rooflm::perfmodel

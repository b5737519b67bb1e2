// What a layer takes at least, however the step is split over data and stages: bounds for searches.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>

#include "perfmodel/op_times.h"
#include "perfmodel/plan.h"
#include "perfmodel/role.h"

namespace rooflm::perfmodel {

/// Of one layer and one micro-batch on one of the tensor-parallel ranks.
struct LayerLeast {
  double seconds = 0;  ///< forward and backward, with what tensor-parallel ranks wait for: no update, no cast
  double saved_bytes = 0;  ///< kept for the backward pass
};

/// Bounds of plans that differ in tensor-parallel ranks, micro-batch and recompute: a layer is built and
/// priced once for each of these. For several threads.
class LayerBook {
 public:
  explicit LayerBook(const Setting& setting) : setting_(&setting), times_(op_times_of(setting)) {}

  LayerLeast of(const PlanPoint& point);

  /// The least that a step takes: the layers of a stage for all its micro-batches, and the bubble, in which
  /// the others are waited for; or what data-parallel ranks say to each other, one message after the other.
  double least_seconds(const PlanPoint& point);
  /// The least that the first stage keeps: masters and moments of its layers, and, of several micro-batches,
  /// whole gradients where ranks do not keep parts. No layer is built for it.
  [[nodiscard]] double least_model_bytes(const PlanPoint& point) const;
  /// The same with what micro-batches in flight keep for their backward passes.
  double least_bytes(const PlanPoint& point);
  /// What an optimizer keeps of a parameter.
  static double state_bytes(const PlanPoint& point);

 private:
  double least_computing_s(const PlanPoint& point);
  [[nodiscard]] double least_talking_s(const PlanPoint& point) const;
  /// Of the layers of the first stage.
  static double parameters_of_rank(const PlanPoint& point);

  /// Ranks of a sequence, micro-batch, recompute, and all ranks, the slowest of which counts.
  using Key = std::tuple<int, int, std::int64_t, passes::Recompute, int>;
  const Setting* setting_;
  OpTimes times_;
  std::mutex mutex_;
  std::map<Key, LayerLeast> known_;
};

}  // namespace rooflm::perfmodel

// What a layer takes at least, however the step is split over data and stages: bounds for searches.
#include "perfmodel/layer_book.h"

#include <algorithm>
#include <string>

namespace rooflm::perfmodel {
namespace {

/// Below what a plan says, to be safe: times and bytes of many layers are those of few, drawn out.
constexpr double kLeastShare = 0.97;

/// Work of layers that every micro-batch and every rank does, whatever is split over data.
constexpr const char* kOwnWork[] = {"matmul", "attention", "norm", "softmax", "elementwise"};

double own_seconds(const RoleStep& role) {
  double sum = 0;
  for (const char* work : kOwnWork) {
    if (const auto found = role.work.find(work); found != role.work.end()) sum += found->second.seconds;
  }
  return sum;
}

}  // namespace

LayerLeast LayerBook::of(const PlanPoint& point) {
  const compile::Sharding& sharding = point.step.sharding;
  const Key key{sharding.tensor, sharding.context, point.micro_batch, point.step.recompute};
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
  }
  // Two threads may do the same at the same time: with the same result.
  Forwards forwards;
  constexpr std::int64_t kFew = 2;
  constexpr std::int64_t kMore = 4;  // layers may come in pairs
  PlanPoint alone = point;
  Setting setting = *setting_;
  setting.at_table_clock = true;
  alone.step.sharding = {.context = sharding.context,
                         .tensor = sharding.tensor,
                         .sequence_parallel = sharding.sequence_parallel,
                         .vocab_parallel = sharding.vocab_parallel};
  const auto simulated = [&](std::int64_t layers) {
    alone.config.layers = layers;
    return simulate_role(alone, setting, times_, forwards, 0, 1);
  };
  RoleStep more = simulated(kMore);
  more.add(simulated(kFew), -1);
  const double slower_s = more.mix.arithmetic_s * (1 / clock_share(times_.power(), more.mix) - 1);
  const LayerLeast least{.seconds = (own_seconds(more) + slower_s) / (kMore - kFew),
                         .saved_bytes = more.memory.saved_bytes / (kMore - kFew)};
  const std::lock_guard lock(mutex_);
  known_.emplace(key, least);
  return least;
}

double LayerBook::least_seconds(const PlanPoint& point) {
  const compile::Sharding& sharding = point.step.sharding;
  const auto m = static_cast<double>(point.micro_batches);
  const double layers = static_cast<double>(point.config.layers) / sharding.pipeline;
  const double bubble = (sharding.pipeline - 1.0) / sharding.interleave;
  return kLeastShare * layers * of(point).seconds * (m + bubble);
}

double LayerBook::least_bytes(const PlanPoint& point) {
  const compile::Sharding& sharding = point.step.sharding;
  const model::ModelConfig& config = point.config;
  const auto in_layers =
      static_cast<double>(model::matmul_parameter_count(config) - config.padded_vocab * config.d_model);
  const std::int64_t of_part = sharding.layers_per_part(config.layers);
  const auto layers = static_cast<double>(of_part * sharding.interleave - (sharding.short_ends ? 1 : 0));
  const double of_rank = in_layers * layers / static_cast<double>(config.layers) / sharding.tensor /
                         (sharding.zero > 0 ? sharding.data_ranks() : 1);
  const double each_bytes = point.step.optimizer.kind == passes::OptimizerKind::adamw ? 12 : 4;
  const double in_flight_of_first = sharding.pipeline > 1 ? in_flight(0, sharding, point.micro_batches) : 1;
  return kLeastShare * (of_rank * each_bytes + in_flight_of_first * layers * of(point).saved_bytes) +
         setting_->framework.context_bytes;
}

}  // namespace rooflm::perfmodel

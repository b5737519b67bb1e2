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
  const Key key{sharding.tensor, sharding.context, point.micro_batch, point.step.recompute, sharding.ranks()};
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
  const double clock =
      clock_share(times_.power(), more.mix) * slowest_clock_share(setting.cluster, sharding.ranks());
  const double slower_s = more.mix.seconds_at(clock) - more.mix.seconds_at(1);
  // Sums of norms' gradients are there once in a step, not for each micro-batch.
  constexpr double kOfMicroBatch = 0.9;
  const double exposed_s = kOfMicroBatch * std::max(0.0, more.timeline.exposed_s);
  const LayerLeast least{.seconds = (own_seconds(more) + slower_s + exposed_s) / (kMore - kFew),
                         .saved_bytes = more.memory.saved_bytes / (kMore - kFew)};
  const std::lock_guard lock(mutex_);
  known_.emplace(key, least);
  return least;
}

double LayerBook::least_seconds(const PlanPoint& point) {
  return kLeastShare * std::max(least_computing_s(point), least_talking_s(point));
}

double LayerBook::least_computing_s(const PlanPoint& point) {
  const compile::Sharding& sharding = point.step.sharding;
  const auto m = static_cast<double>(point.micro_batches);
  const double layers = static_cast<double>(point.config.layers) / sharding.pipeline;
  const double bubble = (sharding.pipeline - 1.0) / sharding.interleave;
  return layers * of(point).seconds * (m + bubble);
}

double LayerBook::least_talking_s(const PlanPoint& point) const {
  const compile::Sharding& sharding = point.step.sharding;
  const Ranks ranks{.size = sharding.data_ranks(), .stride = sharding.tensor, .of = sharding.ranks()};
  constexpr double kHalf = 2;  // bytes
  const double bytes = kHalf * parameters_of_rank(point);
  const auto seconds = [&](Collective kind) {
    return collective_seconds(setting_->cluster, kind, bytes, ranks);
  };
  const auto m = static_cast<double>(point.micro_batches);
  switch (sharding.zero) {
    case 0:
      return seconds(Collective::all_reduce);
    case 1:
      return seconds(Collective::reduce_scatter) + seconds(Collective::all_gather);
    case 2:
      return m * seconds(Collective::reduce_scatter) + seconds(Collective::all_gather);
    default:
      return m * (seconds(Collective::reduce_scatter) + 2 * seconds(Collective::all_gather));
  }
}

double LayerBook::parameters_of_rank(const PlanPoint& point) {
  const compile::Sharding& sharding = point.step.sharding;
  const model::ModelConfig& config = point.config;
  const auto in_layers =
      static_cast<double>(model::matmul_parameter_count(config) - config.padded_vocab * config.d_model);
  const std::int64_t of_part = sharding.layers_per_part(config.layers);
  const auto layers = static_cast<double>(of_part * sharding.interleave - (sharding.short_ends ? 1 : 0));
  return in_layers * layers / static_cast<double>(config.layers) / sharding.tensor;
}

double LayerBook::state_bytes(const PlanPoint& point) {
  switch (point.step.optimizer.kind) {
    case passes::OptimizerKind::sgd:
      return 4;
    case passes::OptimizerKind::adamw:
      return 12;
    default:  // what Shampoo has more depends on shapes
      return 8;
  }
}

double LayerBook::least_model_bytes(const PlanPoint& point) const {
  const compile::Sharding& sharding = point.step.sharding;
  const double parameters = parameters_of_rank(point);
  double bytes = state_bytes(point) * parameters / (sharding.zero > 0 ? sharding.data_ranks() : 1);
  // Whole gradients of the micro-batches before are there while the next one runs.
  constexpr double kHalf = 2;
  if (sharding.zero < 2 && point.micro_batches > 1) bytes += kHalf * parameters;
  return kLeastShare * bytes + setting_->framework.context_bytes;
}

double LayerBook::least_bytes(const PlanPoint& point) {
  const compile::Sharding& sharding = point.step.sharding;
  const std::int64_t of_part = sharding.layers_per_part(point.config.layers);
  const auto layers = static_cast<double>(of_part * sharding.interleave - (sharding.short_ends ? 1 : 0));
  const double in_flight_of_first = sharding.pipeline > 1 ? in_flight(0, sharding, point.micro_batches) : 1;
  const double saved_bytes = in_flight_of_first * layers / sharding.interleave * of(point).saved_bytes;
  return least_model_bytes(point) + kLeastShare * saved_bytes;
}

}  // namespace rooflm::perfmodel

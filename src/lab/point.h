// One configuration of a run: from the fields that were typed to a model, a recipe and a device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/provider.h"
#include "compile/recipe.h"
#include "devices/device.h"
#include "lab/model_file.h"
#include "model/config.h"
#include "record/config.h"
#include "train/overlap_trial.h"

namespace rooflm::lab {

using compile::RunPhase;

/// A configuration with everything checked.
struct Point {
  model::ModelConfig config;
  std::string device;
  std::int64_t batch = 0;  ///< sequences of one micro-batch
  std::int64_t seq = 0;
  std::optional<std::int64_t> positions{};  ///< of the model, where they were typed
  compile::StepOptions step;
  RunPhase phase = RunPhase::step;
  int threads = 0;  ///< 0: one per core
  std::uint64_t seed = 0;
  int warmup = 2;
  train::CollectiveWishes collectives{};  ///< of steps that are split over ranks
  bool deterministic = true;
  int device_ranks = 1;  ///< of the job that use the device, this one included
  backends::GemmSearch gemm_search = backends::GemmSearch::full;
  /// Tokens of a sequence that one rank trains on.
  [[nodiscard]] std::int64_t own_seq() const { return seq / step.sharding.context; }
  /// Tokens that one text has in the step's program.
  [[nodiscard]] std::int64_t rows() const { return phase == RunPhase::decode ? 1 : seq; }
  /// Tokens of one step of all ranks: batch * rows * micro-batches * data-parallel copies.
  [[nodiscard]] std::int64_t tokens() const {
    return batch * rows() * step.micro_batches * step.sharding.data;
  }
};

template <core::MaybeConst<Point> T, class Visit>
void visit_options(T& point, const Visit& visit) {
  visit("device", point.device);
  visit("batch", point.batch);
  visit("seq", point.seq);
  visit_options(point.step, visit);
  visit("phase", point.phase);
  visit_options(point.collectives, visit);
  visit("deterministic", point.deterministic);
  visit("search_products", point.gemm_search);
  visit("threads", point.threads);
  visit("seed", point.seed);
  visit("warmup", point.warmup);
}

/// The keys of the options that make up a step: model, sizes, device, dtypes and splits.
std::vector<std::string_view> step_keys();
/// "eager|fused": the names that the option of a field takes; "" where it takes others.
std::string accepted_names(std::string_view key);

/// Whether kernels have to be there for all of a model, or its program is only looked at.
enum class ModelUse : std::uint8_t { compute, plan };

/// Points from values of the fields of record::config_fields() as they are typed; absent ones are their
/// initial values. Throws core::UsageError when one cannot be (sizes that do not divide, a sequence beyond
/// the positions of the model), core::InputError for bad model files, core::Unavailable for dtypes that a
/// device does not compute, and for models of which no kernel computes a part: before anything runs.
std::vector<Point> make_points(std::span<const record::Config> configs, ModelUse use = ModelUse::compute);

/// The whole configuration of a point, with what follows from it: what a record keeps.
record::Config config_of(const Point& point);

/// What the point runs (Point::phase).
program::Program program_of(const Point& point);

/// "gpt2 B=4 T=64 fp32 fused flash", and what is not as it is by default, for progress lines.
std::string describe(const Point& point);

/// A backend for the point, see make_backend in lab/devices.h.
std::unique_ptr<backends::Backend> make_backend(const Point& point);

}  // namespace rooflm::lab

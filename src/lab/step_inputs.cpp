// What a measured training step computes on: initial weights, and random tokens or a text.
#include "lab/step_inputs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/rng.h"
#include "model/parameters.h"
#include "train/adapter_files.h"

namespace rooflm::lab {
namespace {

/// Stream of the random tokens; weights use the hash of their names.
constexpr std::uint64_t kTokenStream = 0x746f6b656e73;
constexpr std::uint64_t kRoutingStream = 0x726f757465;
constexpr double kLearningRate = 3e-4;

}  // namespace

StepInputs::StepInputs(engines::Engine& engine, const Point& point, std::uint64_t seed,
                       const std::vector<std::filesystem::path>& shards)
    : engine_(&engine), point_(&point) {
  if (!shards.empty()) {
    loader_ = std::make_unique<train::DataLoader>(
        shards, train::DataLoaderOptions{.batch = point.batch,
                                         .seq = point.seq,
                                         .seed = seed,
                                         .vocab_size = static_cast<std::uint32_t>(point.config.vocab),
                                         .ranks = point.step.sharding.data,
                                         .rank = point.step.sharding.copy_of(point.step.rank)});
  }
  for (const model::Parameter& parameter : model::parameters(point.config)) {
    engine.store().write_from(parameter.name, [&](std::int64_t first, std::span<float> out) {
      model::initial_values(parameter, point.config, seed, first, out);
    });
  }
  engine.setup();
  write_adapters(seed);
  if (!loader_) write_random_tokens(seed);
  if (point.step.routing != passes::Routing::learned) write_routing();
  // All texts are as long as their caches with the tokens at hand; what is in these does not matter.
  const auto of_each = [&](std::int64_t tokens) {
    return std::vector(static_cast<std::size_t>(point.batch), static_cast<std::int32_t>(tokens));
  };
  write_ids("lengths", of_each(point.seq));
  write_ids("first", of_each(point.seq - 1));
}

/// Magnitudes begin as lengths of rows, which setup has computed; adapters have copies, too.
void StepInputs::write_adapters(std::uint64_t seed) {
  if (point_->step.adapters.empty()) return;
  engines::TensorStore& store = engine_->store();
  train::initialise_adapters(
      point_->step.adapters, point_->config, seed,
      [&](const std::string& name, std::span<float> values) {
        store.read_bytes(name, std::as_writable_bytes(values));
      },
      [&](const std::string& name, std::span<const float> values) { store.write_part(name, values); });
  engine_->setup();
}

void StepInputs::write_random_tokens(std::uint64_t seed) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(point_->batch * point_->rows()));
  const int inputs = 2 * point_->step.micro_batches;
  std::uint64_t stream =
      kTokenStream + static_cast<std::uint64_t>(inputs * point_->step.sharding.copy_of(point_->step.rank));
  for (int i = 0; i < point_->step.micro_batches; ++i) {
    for (const char* input : {"tokens", "targets"}) {
      for (std::size_t k = 0; k < ids.size(); ++k) {
        const std::uint64_t word = core::philox(seed, stream, k)[0];
        ids[k] = static_cast<std::int32_t>(word * static_cast<std::uint64_t>(point_->config.vocab) >> 32U);
      }
      write_ids(compile::micro_batch_name(input, i), ids);
      ++stream;
    }
  }
}

/// Balanced: choice i of all tokens takes expert i mod E. Random: K of E, each as likely as the others, in
/// each step others.
void StepInputs::write_routing() {
  const auto experts = static_cast<std::uint64_t>(point_->config.experts.count);
  const auto active = static_cast<std::size_t>(point_->config.experts.active);
  const bool is_random = point_->step.routing == passes::Routing::random;
  for (int i = 0; i < point_->step.micro_batches; ++i) {
    const std::string name = compile::micro_batch_name(passes::kRoutingInput, i);
    const program::TensorId id = engine_->program().find(name);
    if (id == program::kNone) continue;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(engine_->program().shape(id).numel()));
    const std::uint64_t stream =
        kRoutingStream + static_cast<std::uint64_t>(step_ * point_->step.micro_batches + i);
    for (std::size_t k = 0; k < ids.size(); ++k) {
      ids[k] = static_cast<std::int32_t>(k % experts);
      if (!is_random) continue;
      const auto taken = std::span(ids).subspan(k - k % active, k % active);
      const std::uint64_t word = core::philox(point_->seed, stream, k)[0];
      // One of those that are left: so many after the taken ones, in their order.
      auto expert = static_cast<std::int32_t>(word * (experts - taken.size()) >> 32U);
      std::vector<std::int32_t> sorted(taken.begin(), taken.end());
      std::ranges::sort(sorted);
      for (const std::int32_t one : sorted) expert += one <= expert ? 1 : 0;
      ids[k] = expert;
    }
    engine_->io().write<std::int32_t>(name, ids);
  }
}

/// Not every stage of a pipeline has tokens, or targets.
void StepInputs::write_ids(const std::string& name, std::span<const std::int32_t> ids) {
  if (engine_->program().find(name) == program::kNone) return;
  const compile::StepOptions& step = point_->step;
  if (step.sharding.context == 1) return engine_->io().write<std::int32_t>(name, ids);
  engine_->io().write<std::int32_t>(name, step.sharding.pieces_of(step.rank).cut(ids, point_->seq));
}

void StepInputs::write_next_batch() {
  for (int i = 0; i < point_->step.micro_batches; ++i) {
    const train::Batch& batch = loader_->next();
    write_ids(compile::micro_batch_name("tokens", i), batch.tokens);
    write_ids(compile::micro_batch_name("targets", i), batch.targets);
  }
  waited_s_ = loader_->wait_s();
  ++batches_;
}

void StepInputs::write_hyper(double learning_rate) {
  if (point_->phase != RunPhase::step) return;  // no optimizer
  const auto& optimizer = point_->step.optimizer;
  const std::array<float, 4> hyper = {static_cast<float>(learning_rate),
                                      static_cast<float>(1 - std::pow(optimizer.beta1, step_ + 1)),
                                      static_cast<float>(1 - std::pow(optimizer.beta2, step_ + 1)), 0.0F};
  engine_->io().write<float>("hyper", hyper);
}

void StepInputs::write(int step) {
  if (loader_) write_next_batch();
  step_ = step;
  if (point_->step.routing == passes::Routing::random) write_routing();
  write_hyper(kLearningRate);
}

void StepInputs::hold() { write_hyper(0); }

}  // namespace rooflm::lab

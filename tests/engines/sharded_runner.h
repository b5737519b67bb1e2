// Runs whole training steps of a small model on all ranks of a split step, a thread each, and puts together
// what they have.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/comm/kernels.h"
#include "backends/comm/summing_update.h"
#include "backends/cpu/cpu_backend.h"
#include "engines/engine.h"
#include "model/forward.h"
#include "program/groups.h"
#include "tests/engines/part_kernels.h"
#include "tests/engines/step_runner.h"
#include "tests/engines/store_values.h"
#include "tests/in_process/run_ranks.h"

namespace rooflm::tests {

/// What a training gives: the losses and norms of its steps, the weights after the last.
struct Training {
  std::vector<double> losses, norms;
  StepRunner::Weights weights;
};

/// One kind of splitting, on one kind of model.
struct SplitStep {
  model::ModelConfig config;
  std::int64_t batch = 1;  ///< of a rank's micro-batch
  std::int64_t seq = 5;
  compile::StepOptions options{};
  engines::Order order = engines::Order::lanes;

  [[nodiscard]] std::int64_t rows() const { return batch * seq; }
  [[nodiscard]] std::int64_t tokens() const { return rows() * options.sharding.data * options.micro_batches; }
  /// Token ids of a step: micro-batches one after another, in each the rows of all ranks.
  [[nodiscard]] Batch data(int step) const {
    return random_batch(tokens(), config.vocab, static_cast<std::uint64_t>(step) + 7);
  }
  [[nodiscard]] std::unique_ptr<backends::Backend> backend() const {
    const auto kernels = options.engine == compile::EngineKind::fused ? backends::CpuKernels::fast
                                                                      : backends::CpuKernels::reference;
    return backends::make_cpu_backend(kernels, 1);
  }
};

/// Of two data-parallel ranks, in next to no time.
inline SplitStep small_step(int zero) {
  SplitStep split{.config = {.name = "small",
                             .arch = model::Arch::llama,
                             .layers = 2,
                             .heads = 2,
                             .kv_heads = 2,
                             .d_model = 16,
                             .d_ff = 32,
                             .head_dim = 8,
                             .vocab = 24,
                             .padded_vocab = 24},
                  .batch = 1,
                  .seq = 4};
  split.options.engine = compile::EngineKind::fused;
  split.options.attention = passes::AttentionKind::flash;
  split.options.sharding = {.data = 2, .zero = zero};
  return split;
}

/// The same training on one rank.
inline Training train_whole(const SplitStep& split, int steps) {
  compile::StepOptions options = split.options;
  options.sharding = {};
  StepRunner runner(split.config, split.batch * split.options.sharding.data, split.seq, options,
                    initial_weights(split.config), split.backend());
  Training result;
  for (int step = 0; step < steps; ++step) {
    result.losses.push_back(runner.step(split.data(step)));
    if (options.optimizer.clip_norm > 0) result.norms.push_back(runner.gradient_norm());
  }
  for (const auto& parameter : model::parameters(split.config))
    result.weights[parameter.name] = runner.weight(parameter.name);
  return result;
}

/// One rank: its engine, and the parts of the weights that it has.
class RankRunner {
 public:
  RankRunner(const SplitStep& split, int rank,
             const std::shared_ptr<backends::comm::Communicator>& communicator)
      : split_(&split), backend_(split.backend()), store_(*backend_) {
    backend_->add_kernels(backends::comm::kernels_of(communicator));
    backend_->prefer_kernels(backends::comm::summing_updates(communicator, *backend_));
    backend_->add_kernels(part_kernels());
    compile::StepOptions options = split.options;
    options.rank = at_ = options.sharding.mesh().coordinates_of(rank);
    engine_ = std::make_unique<engines::Engine>(
        compile::training_step(
            model::forward(split.config, split.batch, split.seq / options.sharding.context), options),
        options.engine, store_);
    engine_->set_order(split.order);
    const auto whole = initial_weights(split.config);
    for (const program::Tensor& tensor : engine_->program().tensors) {
      if (!is_master(tensor)) continue;
      std::vector<double> part;
      for (const std::int64_t element : program::elements_of(tensor))
        part.push_back(whole.at(tensor.name)[static_cast<std::size_t>(element)]);
      write_values(store_, tensor.name, part);
    }
    engine_->setup();
  }

  engines::StepTimes step(int index, engines::Observer* observer = nullptr) {
    const auto rows = static_cast<std::size_t>(split_->rows());
    const Batch batch = split_->data(index);
    for (int i = 0; i < split_->options.micro_batches; ++i) {
      const compile::Sharding& sharding = split_->options.sharding;
      const auto first = static_cast<std::size_t>(i * sharding.data + sharding.copy_of(at_)) * rows;
      const auto own = [&](const std::vector<std::int32_t>& ids) {
        return sharding.pieces_of(at_).cut(std::span<const std::int32_t>(&ids[first], rows), split_->seq);
      };
      write_ids(compile::micro_batch_name("tokens", i), own(batch.tokens));
      write_ids(compile::micro_batch_name("targets", i), own(batch.targets));
    }
    const auto& o = split_->options.optimizer;
    write_values(engine_->io(), "hyper",
                 {1e-3, 1 - std::pow(o.beta1, index + 1), 1 - std::pow(o.beta2, index + 1), 0});
    return engine_->run(observer);
  }

  [[nodiscard]] bool has(const std::string& result) const {
    return engine_->program().find(result) != program::kNone;
  }
  [[nodiscard]] double result(const std::string& name) const {
    return read_values(engine_->io(), name).at(0);
  }
  /// Writes the rank's parts of the weights into whole ones.
  void put(StepRunner::Weights& whole) const {
    for (const program::Tensor& tensor : engine_->program().tensors) {
      if (!is_master(tensor)) continue;
      auto& values = whole[tensor.name];
      values.resize(static_cast<std::size_t>(program::whole_shape(tensor).numel()));
      const auto elements = program::elements_of(tensor);
      const auto part = read_values(store_, tensor.name);
      for (std::size_t i = 0; i < part.size(); ++i) values[static_cast<std::size_t>(elements[i])] = part[i];
    }
  }
  [[nodiscard]] engines::Engine& engine() const { return *engine_; }

 private:
  /// A weight, and not its copy in the compute dtype.
  [[nodiscard]] static bool is_master(const program::Tensor& tensor) {
    return tensor.role == program::Role::weight && tensor.full_precision;
  }
  void write_ids(const std::string& name, std::span<const std::int32_t> ids) {
    if (has(name)) engine_->io().write<std::int32_t>(name, ids);
  }
  const SplitStep* split_;
  program::Coordinates at_;
  std::unique_ptr<backends::Backend> backend_;
  engines::TensorStore store_;
  std::unique_ptr<engines::Engine> engine_;
};

/// The training on all ranks. Losses are those of the last rank, which every kind of splitting tells.
inline Training train_split(const SplitStep& split, int steps) {
  const program::Mesh mesh = split.options.sharding.mesh();
  compile::check(split.options.sharding, split.config, split.batch, split.seq, split.options.micro_batches);
  Training result;
  std::mutex mutex;
  backends::comm::run_ranks(mesh, [&](int rank, const auto& communicator) {
    RankRunner runner(split, rank, communicator);
    Training own;
    for (int step = 0; step < steps; ++step) {
      runner.step(step);
      if (runner.has("loss")) own.losses.push_back(runner.result("loss"));
      if (runner.has("grad_norm")) own.norms.push_back(runner.result("grad_norm"));
    }
    const std::lock_guard lock(mutex);
    if (rank == mesh.size() - 1) {
      result.losses = own.losses;
      result.norms = own.norms;
    }
    runner.put(result.weights);
  });
  return result;
}

}  // namespace rooflm::tests

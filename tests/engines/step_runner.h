// Runs whole training steps of a small model, on the CPU backend unless told otherwise, for tests that
// compare engines with each other and with PyTorch.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "engines/engine.h"
#include "model/forward.h"
#include "model/parameters.h"
#include "tests/engines/store_values.h"

namespace rooflm::tests {

/// Token ids of one step, [batch * seq] each, micro-batches one after another.
struct Batch {
  std::vector<std::int32_t> tokens, targets;
};

inline Batch random_batch(std::int64_t tokens, std::int64_t vocab, std::uint64_t seed) {
  Batch batch;
  std::uint64_t state = seed * 6364136223846793005ULL + 1442695040888963407ULL;
  const auto next = [&] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::int32_t>((state >> 33U) % static_cast<std::uint64_t>(vocab));
  };
  for (std::int64_t i = 0; i < tokens; ++i) batch.tokens.push_back(next());
  for (std::int64_t i = 0; i < tokens; ++i) batch.targets.push_back(next());
  return batch;
}

/// One engine on its own backend. Weights are given as doubles by parameter name.
class StepRunner {
 public:
  using Weights = std::map<std::string, std::vector<double>>;

  StepRunner(const model::ModelConfig& config, std::int64_t micro_batch, std::int64_t seq,
             const compile::StepOptions& options, const Weights& weights, int threads = 2)
      : StepRunner(config, micro_batch, seq, options, weights,
                   backends::make_cpu_backend(options.engine == compile::EngineKind::fused
                                                  ? backends::CpuKernels::fast
                                                  : backends::CpuKernels::reference,
                                              threads)) {}
  StepRunner(const model::ModelConfig& config, std::int64_t micro_batch, std::int64_t seq,
             const compile::StepOptions& options, const Weights& weights,
             std::unique_ptr<backends::Backend> backend)
      : config_(config),
        options_(options),
        backend_(std::move(backend)),
        store_(*backend_),
        engine_(compile::training_step(model::forward(config, micro_batch, seq), options), options.engine,
                store_),
        rows_(static_cast<std::size_t>(micro_batch * seq)) {
    for (const auto& [name, values] : weights) write_values(store_, name, values);
    engine_.setup();
  }

  /// One step; returns the loss before the update.
  double step(const Batch& batch, double lr = 1e-3, engines::Observer* observer = nullptr) {
    ++steps_;
    for (int i = 0; i < options_.micro_batches; ++i) {
      const auto first = static_cast<std::size_t>(i) * rows_;
      engine_.io().write<std::int32_t>(compile::micro_batch_name("tokens", i), {&batch.tokens[first], rows_});
      engine_.io().write<std::int32_t>(compile::micro_batch_name("targets", i),
                                       {&batch.targets[first], rows_});
    }
    const auto& o = options_.optimizer;
    write_values(engine_.io(), "hyper",
                 {lr, 1 - std::pow(o.beta1, steps_), 1 - std::pow(o.beta2, steps_), 0});
    engine_.run(observer);
    return read_values(engine_.io(), "loss").at(0);
  }

  [[nodiscard]] std::vector<double> weight(const std::string& name) const {
    return read_values(store_, name);
  }
  [[nodiscard]] double gradient_norm() { return read_values(engine_.io(), "grad_norm").at(0); }
  [[nodiscard]] engines::Engine& engine() { return engine_; }
  [[nodiscard]] backends::Backend& backend() { return *backend_; }

 private:
  model::ModelConfig config_;
  compile::StepOptions options_;
  std::unique_ptr<backends::Backend> backend_;
  engines::TensorStore store_;
  engines::Engine engine_;
  std::size_t rows_;
  int steps_ = 0;
};

inline StepRunner::Weights initial_weights(const model::ModelConfig& config, std::uint64_t seed = 1) {
  StepRunner::Weights weights;
  for (const auto& parameter : model::parameters(config)) {
    const auto values = model::initial_values(parameter, config, seed);
    weights[parameter.name] = {values.begin(), values.end()};
  }
  return weights;
}

}  // namespace rooflm::tests

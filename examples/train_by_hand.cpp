// Trains a small GPT with the library's own parts, as `rooflm train` does: it learns to repeat one batch of
// tokens.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "engines/engine.h"
#include "model/forward.h"
#include "model/parameters.h"

int main() {
  using namespace rooflm;
  constexpr std::int64_t kBatch = 2;
  constexpr std::int64_t kSeq = 32;
  const model::ModelConfig config = model::with_overrides(
      model::preset("gpt2"), {.layers = 2, .heads = 4, .d_model = 64, .d_ff = 256, .vocab = 97});

  // A step with the CPU's fast kernels; the store owns weights and optimizer state.
  const auto backend = backends::make_cpu_backend(backends::CpuKernels::fast);
  engines::TensorStore store(*backend);
  const compile::StepOptions options;
  engines::Engine engine(compile::training_step(model::forward(config, kBatch, kSeq), options),
                         options.engine, store);
  for (const model::Parameter& parameter : model::parameters(config)) {
    store.write<float>(parameter.name, model::initial_values(parameter, config, /*seed=*/1));
  }
  engine.setup();

  // Each token's target is the next one of a fixed pattern.
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
  for (std::int32_t i = 0; i < kBatch * kSeq; ++i) {
    tokens.push_back(i * i % 97);
    targets.push_back((i + 1) * (i + 1) % 97);
  }
  engine.io().write<std::int32_t>("tokens", tokens);
  engine.io().write<std::int32_t>("targets", targets);

  float first = 0;
  float loss = 0;
  for (int step = 1; step <= 50; ++step) {
    const auto& o = options.optimizer;
    const std::vector<float> hyper = {3e-3F, static_cast<float>(1 - std::pow(o.beta1, step)),
                                      static_cast<float>(1 - std::pow(o.beta2, step)), 0};
    engine.io().write<float>("hyper", hyper);
    const engines::StepTimes times = engine.run();
    loss = engine.io().read<float>("loss").at(0);
    if (step == 1) first = loss;
    if (step % 10 == 0) fmt::print("step {:>2}  loss {:.4f}  {:.2f} ms\n", step, loss, times.step_s * 1e3);
  }
  return loss < 0.5F * first ? 0 : 1;
}

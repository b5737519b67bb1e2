// Whole models against PyTorch: loss, every gradient, ten AdamW steps. The goldens are made by
// scripts/make_goldens.py.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/huggingface.h"
#include "tests/engines/step_runner.h"

namespace rooflm {
namespace {

namespace fs = std::filesystem;
using compile::EngineKind;
using compile::StepOptions;
using passes::AttentionKind;
using tests::StepRunner;

/// One directory of tests/goldens.
struct Golden {
  fs::path directory;
  model::ModelConfig config;
  nlohmann::json facts;

  explicit Golden(const std::string& kind)
      : directory(fs::path(ROOFLM_TESTS_DIR) / "goldens" / kind), config(model::read_config(directory)) {
    std::ifstream(directory / "golden.json") >> facts;
  }

  /// Parameters of a safetensors file in Hugging Face layout, by rooflm's names.
  [[nodiscard]] StepRunner::Weights read(const std::string& file) const {
    const fs::path copy =
        fs::path(testing::TempDir()) / ("golden_" + config.name + "_" + file + std::to_string(::getpid()));
    fs::create_directories(copy);
    const auto overwrite = fs::copy_options::overwrite_existing;
    fs::copy_file(directory / file, copy / "model.safetensors", overwrite);
    fs::copy_file(directory / "config.json", copy / "config.json", overwrite);
    StepRunner::Weights weights;
    model::load_weights(copy, config, [&](const std::string& name, std::span<const float> values) {
      weights[name] = {values.begin(), values.end()};
    });
    fs::remove_all(copy);
    return weights;
  }

  [[nodiscard]] tests::Batch batch(std::size_t step) const {
    tests::Batch batch;
    for (const auto& row : facts["batches"][step]["tokens"]) {
      for (const std::int32_t id : row) batch.tokens.push_back(id);
    }
    for (const auto& row : facts["batches"][step]["targets"]) {
      for (const std::int32_t id : row) batch.targets.push_back(id);
    }
    return batch;
  }

  [[nodiscard]] compile::StepOptions options(compile::EngineKind engine, AttentionKind attention,
                                             core::DType dtype) const {
    const auto& o = facts["optimizer"];
    return {.engine = engine,
            .attention = attention,
            .dtype = dtype,
            .optimizer = {.beta1 = o["beta1"],
                          .beta2 = o["beta2"],
                          .eps = o["eps"],
                          .weight_decay = o["weight_decay"],
                          .clip_norm = o["clip"]}};
  }
};

/// Half-open range of indices.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] bool holds(std::size_t i) const { return begin <= i && i < end; }
};

/// The bias of the keys inside a packed qkv bias. It adds the same to every score of a row, which softmax
/// ignores: its true gradient is zero. What is computed is rounding, and AdamW scales that up to whole steps
/// in directions that differ from one processor to the next.
Range without_gradient(const std::string& name, std::size_t size) {
  if (!name.ends_with("attention.qkv.bias")) return {};
  return {size / 3, size / 3 * 2};
}

/// Largest difference outside `ignored`, relative to the largest magnitude of the expected tensor.
double distance(const std::vector<double>& actual, const std::vector<double>& expected, Range ignored = {}) {
  EXPECT_EQ(actual.size(), expected.size());
  double worst = 0;
  double scale = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (ignored.holds(i)) continue;
    worst = std::max(worst, std::abs(actual.at(i) - expected[i]));
    scale = std::max(scale, std::abs(expected[i]));
  }
  return worst / std::max(scale, 1e-12);
}

class Goldens : public testing::TestWithParam<std::string> {
 protected:
  void expect_ten_steps(compile::EngineKind engine, AttentionKind attention, core::DType dtype,
                        double loss_tolerance, double weight_tolerance) {
    SCOPED_TRACE(std::string(compile::name_of(engine)) + " " + std::string(passes::name_of(attention)) + " " +
                 std::string(core::name_of(dtype)));
    const Golden golden(GetParam());
    StepRunner runner(golden.config, golden.facts["batch"], golden.facts["seq"],
                      golden.options(engine, attention, dtype), golden.read("model.safetensors"));
    for (std::size_t i = 0; i < golden.facts["losses"].size(); ++i) {
      const double expected = golden.facts["losses"][i];
      EXPECT_NEAR(runner.step(golden.batch(i), golden.facts["optimizer"]["lr"]), expected,
                  loss_tolerance * expected)
          << "step " << i;
      const double norm = golden.facts["gradient_norms"][i];
      EXPECT_NEAR(runner.gradient_norm(), norm, 10 * loss_tolerance * norm) << "step " << i;
    }
    for (const auto& [name, expected] : golden.read("trained.safetensors")) {
      const auto ignored = without_gradient(name, expected.size());
      EXPECT_LT(distance(runner.weight(name), expected, ignored), weight_tolerance) << name;
    }
  }

  /// Gradients are transient; as results they can be read.
  void expect_gradients(compile::EngineKind engine, AttentionKind attention, core::DType dtype,
                        double tolerance) {
    SCOPED_TRACE(std::string(compile::name_of(engine)) + " " + std::string(passes::name_of(attention)));
    const Golden golden(GetParam());
    const auto options = golden.options(engine, attention, dtype);
    auto step = compile::training_step(
        model::forward(golden.config, golden.facts["batch"], golden.facts["seq"]), options);
    for (auto& tensor : step.tensors) {
      if (tensor.role == program::Role::gradient) tensor.role = program::Role::result;
    }
    const auto backend = backends::make_cpu_backend(
        engine == compile::EngineKind::fused ? backends::CpuKernels::fast : backends::CpuKernels::reference,
        2);
    engines::TensorStore store(*backend);
    engines::Engine run(std::move(step), engine, store);
    const auto write = [&](engines::TensorStore& to, const std::string& name,
                           const std::vector<double>& values) {
      if (dtype == core::DType::f64) return to.write<double>(name, values);
      to.write<float>(name, std::vector<float>(values.begin(), values.end()));
    };
    for (const auto& [name, values] : golden.read("model.safetensors")) write(store, name, values);
    run.io().write<std::int32_t>("tokens", golden.batch(0).tokens);
    run.io().write<std::int32_t>("targets", golden.batch(0).targets);
    write(run.io(), "hyper", {0, 1, 1, 0});
    run.setup();
    run.run();
    for (const auto& [name, expected] : golden.read("gradients.safetensors")) {
      std::vector<double> actual;
      if (dtype == core::DType::f64) {
        actual = run.io().read<double>("d_" + name);
      } else {
        const auto values = run.io().read<float>("d_" + name);
        actual.assign(values.begin(), values.end());
      }
      EXPECT_LT(distance(actual, expected), tolerance) << name;
    }
  }
};

/// The golden gradients pass through fp32 when read, hence 1e-6 and not less.
TEST_P(Goldens, EveryGradientInFp64) {
  for (const auto attention : {AttentionKind::looped, AttentionKind::batched, AttentionKind::flash}) {
    expect_gradients(compile::EngineKind::eager, attention, core::DType::f64, 1e-6);
  }
}

/// fp32 rounding of about 1e-7 per operation, over the depth of the model.
TEST_P(Goldens, EveryGradientInFp32) {
  expect_gradients(compile::EngineKind::eager, AttentionKind::batched, core::DType::f32, 2e-5);
  expect_gradients(compile::EngineKind::fused, AttentionKind::flash, core::DType::f32, 2e-5);
  expect_gradients(compile::EngineKind::fused, AttentionKind::batched, core::DType::f32, 2e-5);
}

TEST_P(Goldens, TenStepsInFp64) {
  expect_ten_steps(compile::EngineKind::eager, AttentionKind::batched, core::DType::f64, 1e-9, 1e-6);
}

/// AdamW divides by the root of the second moment, which amplifies rounding where gradients are tiny: weights
/// agree within a tenth of the distance that ten steps of 1e-3 can cover.
TEST_P(Goldens, TenStepsInFp32) {
  expect_ten_steps(compile::EngineKind::eager, AttentionKind::batched, core::DType::f32, 1e-5, 1e-3);
  expect_ten_steps(compile::EngineKind::eager, AttentionKind::looped, core::DType::f32, 1e-5, 1e-3);
  expect_ten_steps(compile::EngineKind::fused, AttentionKind::flash, core::DType::f32, 1e-5, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(PyTorch, Goldens, testing::Values("gpt2", "llama"),
                         [](const auto& kind) { return kind.param; });

}  // namespace
}  // namespace rooflm

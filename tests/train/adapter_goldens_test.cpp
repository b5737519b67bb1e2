// Adapters against PyTorch: ten AdamW steps, and the loss of merged weights. The goldens are made by
// scripts/make_adapter_goldens.py, in the layout of PEFT.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "model/huggingface.h"
#include "model/safetensors.h"
#include "tests/engines/step_runner.h"
#include "train/adapter_files.h"

namespace rooflm::train {
namespace {

namespace fs = std::filesystem;
using compile::EngineKind;
using compile::StepOptions;
using tests::StepRunner;

nlohmann::json read_json(const fs::path& path) {
  nlohmann::json facts;
  std::ifstream(path) >> facts;
  return facts;
}

/// "llama_dora" beside "llama".
struct AdapterGolden {
  fs::path directory, base;
  model::ModelConfig config;
  nlohmann::json facts, run;
  std::vector<passes::Adapter> adapters;

  explicit AdapterGolden(const std::string& name)
      : directory(fs::path(ROOFLM_TESTS_DIR) / "goldens" / name),
        base(directory.parent_path() / name.substr(0, name.find('_'))),
        config(model::read_config(base)),
        facts(read_json(directory / "golden.json")),
        run(read_json(base / "golden.json")),
        adapters(adapters_of(read_peft_config(directory), config)) {}

  [[nodiscard]] StepRunner::Weights weights() const {
    StepRunner::Weights weights;
    const auto keep = [&](const std::string& name, std::span<const float> values) {
      weights[name] = {values.begin(), values.end()};
    };
    model::load_weights(base, config, keep);
    load_adapters(directory, adapters, keep);
    return weights;
  }

  [[nodiscard]] tests::Batch batch(std::size_t step) const {
    tests::Batch batch;
    for (const auto& row : run["batches"][step]["tokens"])
      for (const std::int32_t id : row) batch.tokens.push_back(id);
    for (const auto& row : run["batches"][step]["targets"])
      for (const std::int32_t id : row) batch.targets.push_back(id);
    return batch;
  }

  [[nodiscard]] StepOptions options(EngineKind engine, core::DType dtype) const {
    const auto& o = run["optimizer"];
    return {.engine = engine,
            .attention = compile::default_attention(engine),
            .dtype = dtype,
            .optimizer = {.beta1 = o["beta1"],
                          .beta2 = o["beta2"],
                          .eps = o["eps"],
                          .weight_decay = o["weight_decay"],
                          .clip_norm = o["clip"]},
            .lora = "2",
            .adapters = adapters};
  }
};

class AdapterGoldens : public ::testing::TestWithParam<const char*> {
 protected:
  static void expect_ten_steps(EngineKind engine, core::DType dtype, double loss_tolerance,
                               double weight_tolerance) {
    SCOPED_TRACE(std::string(name_of(engine)) + " " + std::string(core::name_of(dtype)));
    const AdapterGolden golden(GetParam());
    StepRunner runner(golden.config, golden.run["batch"], golden.run["seq"], golden.options(engine, dtype),
                      golden.weights());
    for (std::size_t i = 0; i < golden.facts["losses"].size(); ++i) {
      const double expected = golden.facts["losses"][i];
      EXPECT_NEAR(runner.step(golden.batch(i), golden.run["optimizer"]["lr"]), expected,
                  loss_tolerance * expected)
          << "step " << i;
      const double norm = golden.facts["gradient_norms"][i];
      EXPECT_NEAR(runner.gradient_norm(), norm, 10 * loss_tolerance * norm) << "step " << i;
    }
    const model::SafetensorsFile trained(golden.directory / "trained.safetensors");
    ASSERT_FALSE(trained.tensors().empty());
    for (const model::StoredTensor& tensor : trained.tensors()) {
      std::vector<double> expected(static_cast<std::size_t>(tensor.shape.numel()));
      model::read_doubles(tensor, expected);
      const std::vector<double> actual =
          runner.weight(tensor.name.substr(std::string("base_model.model.").size()));
      ASSERT_EQ(actual.size(), expected.size()) << tensor.name;
      double worst = 0, scale = 0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        worst = std::max(worst, std::abs(actual[i] - expected[i]));
        scale = std::max(scale, std::abs(expected[i]));
      }
      EXPECT_LT(worst, weight_tolerance * scale) << tensor.name;
    }
  }
};

/// Trained weights are stored in fp32, hence 1e-6 and not less.
TEST_P(AdapterGoldens, TenStepsInFp64) { expect_ten_steps(EngineKind::eager, core::DType::f64, 1e-9, 1e-6); }

/// As Goldens.TenStepsInFp32 has them.
TEST_P(AdapterGoldens, TenStepsInFp32) {
  expect_ten_steps(EngineKind::eager, core::DType::f32, 1e-5, 1e-3);
  expect_ten_steps(EngineKind::fused, core::DType::f32, 1e-5, 1e-3);
}

TEST_P(AdapterGoldens, MergedWeightsHaveTheLossOfTheFirstStep) {
  const AdapterGolden golden(GetParam());
  StepRunner::Weights merged;
  load_merged(golden.directory, golden.config, [&](const std::string& name, std::span<const float> values) {
    merged[name] = {values.begin(), values.end()};
  });
  StepOptions options = golden.options(EngineKind::eager, core::DType::f64);
  options.lora.clear();
  options.adapters.clear();
  StepRunner runner(golden.config, golden.run["batch"], golden.run["seq"], options, merged);
  const double expected = golden.facts["losses"][0];
  EXPECT_NEAR(runner.step(golden.batch(0), 0), expected, 1e-6 * expected);
}

INSTANTIATE_TEST_SUITE_P(PyTorch, AdapterGoldens,
                         ::testing::Values("gpt2_lora", "gpt2_dora", "llama_lora", "llama_dora"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace rooflm::train

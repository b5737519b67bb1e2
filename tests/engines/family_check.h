// Small models of each family against transformers, on any backend: loss, logits of the last position, every
// gradient in the layout of the family's files.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "model/huggingface_layout.h"
#include "tests/engines/step_runner.h"
#include "tests/model/family_golden.h"

namespace rooflm::tests {

/// How a family's model is run.
struct FamilyRun {
  compile::EngineKind engine = compile::EngineKind::eager;
  std::function<std::unique_ptr<backends::Backend>()> backend{};
  core::DType dtype = core::DType::f32;

  [[nodiscard]] compile::StepOptions options() const {
    return {.engine = engine, .attention = compile::default_attention(engine), .dtype = dtype};
  }
};

/// By name: the loss, the logits, and the gradients "d_" + parameter.
using FamilyResults = std::map<std::string, std::vector<double>>;

/// Runs a program with the golden's weights and tokens.
inline FamilyResults family_values(const FamilyGolden& golden, const model::ModelConfig& config,
                                   const FamilyRun& how, program::Program program) {
  const auto backend = how.backend();
  engines::TensorStore store(*backend);
  std::vector<std::string> names;
  for (const program::Tensor& tensor : program.tensors)
    if (tensor.role == program::Role::result || tensor.name == "loss") names.push_back(tensor.name);
  engines::Engine run(std::move(program), how.engine, store);
  model::load_weights(golden.directory(), config,
                      [&](const std::string& name, std::span<const float> values) {
                        store.write<float>(name, std::vector<float>(values.begin(), values.end()));
                      });
  std::vector<std::int32_t> tokens, targets;
  for (const auto& row : golden.facts.at("tokens")) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      tokens.push_back(row[i]);
      targets.push_back(row[i + 1]);
    }
  }
  run.io().write<std::int32_t>("tokens", tokens);
  if (run.io().entries().contains("targets")) {
    run.io().write<std::int32_t>("targets", targets);
    write_values(run.io(), "hyper", {0, 1, 1, 0});
  }
  run.setup();
  run.run();
  FamilyResults results;
  for (const std::string& name : names) results[name] = read_values(run.io(), name);
  return results;
}

/// Of a training step, and of the forward pass to the logits.
inline FamilyResults family_results(const FamilyGolden& golden, const model::ModelConfig& config,
                                    const FamilyRun& how) {
  const auto& rows = golden.facts.at("tokens");
  const auto batch = static_cast<std::int64_t>(rows.size());
  const auto seq = static_cast<std::int64_t>(rows[0].size()) - 1;
  program::Program step = compile::training_step(model::forward(config, batch, seq), how.options());
  for (program::Tensor& tensor : step.tensors) {
    if (tensor.role == program::Role::gradient) tensor.role = program::Role::result;
  }
  FamilyResults results = family_values(golden, config, how, std::move(step));
  results.merge(family_values(
      golden, config, how,
      compile::inference_step(model::forward(config, batch, seq, model::Head::logits), how.options())));
  return results;
}

inline void expect_family_logits(const FamilyGolden& golden, const model::ModelConfig& config,
                                 const std::vector<double>& logits, double tolerance) {
  const auto& expected = golden.facts.at("logits");
  const auto width = static_cast<std::size_t>(config.padded_vocab);
  const std::size_t seq = logits.size() / width / expected.size();
  for (std::size_t b = 0; b < expected.size(); ++b) {
    for (std::size_t i = 0; i < expected[b].size(); ++i)
      EXPECT_NEAR(logits[((b + 1) * seq - 1) * width + i], expected[b][i].get<double>(), tolerance)
          << b << " " << i;
  }
}

/// `tolerance`: of a gradient's norm. `rounding`: of the largest norm, since gradients that are zero but for
/// rounding, as those of the keys' biases, have no accuracy of their own.
inline void expect_family_gradients(const FamilyGolden& golden, const model::ModelConfig& config,
                                    const FamilyResults& results, double tolerance, double rounding) {
  const auto& gradients = golden.facts.at("gradients");
  double largest = 0;
  for (const auto& gradient : gradients) largest = std::max(largest, gradient.at("norm").get<double>());
  const auto parameters = model::parameters(config);
  std::size_t compared = 0;
  for (model::FileTensor tensor : model::file_tensors(parameters, config)) {
    const auto expected = gradients.find(tensor.name);
    if (expected == gradients.end()) continue;
    ++compared;
    if (parameters[tensor.pieces.front().parameter].name.ends_with("router.score_bias"))
      continue;       // no loss trains it: what the file has is the bias itself
    tensor.less = 0;  // of weights, not of gradients
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.numel()));
    for (const model::Piece& piece : tensor.pieces) {
      const auto& all = results.at("d_" + parameters[piece.parameter].name);
      model::to_file(tensor, piece, std::vector<float>(all.begin(), all.end()), values);
    }
    double squares = 0;
    for (const float value : values) squares += static_cast<double>(value) * value;
    const double norm = expected->at("norm");
    const double distance = tolerance * norm + rounding * largest;
    EXPECT_NEAR(std::sqrt(squares), norm, distance) << tensor.name;
    const auto& first = expected->at("first");
    for (std::size_t i = 0; i < first.size(); ++i)
      EXPECT_NEAR(values[i], first[i].get<double>(), distance) << tensor.name << " " << i;
  }
  EXPECT_EQ(compared, gradients.size());
}

/// The golden's model, or why it cannot be compared.
struct ComparedFamily {
  model::ModelConfig config{};
  std::string lacking{};

  explicit ComparedFamily(const FamilyGolden& golden, const std::string& name) {
    try {
      config = model::read_config(golden.directory());
    } catch (const core::Unavailable& error) {
      lacking = error.what();
      return;
    }
    if (golden.facts.at("loss").is_null()) lacking = "the golden has names and shapes alone";
    if (const std::string part = model::uncomputed(config); !part.empty())
      lacking = "not computed yet: " + part;
    // The golden is of transformers' eager attention, which adds Falcon's biases twice: in the mask and to
    // the scores. Its other kinds of attention, and the model, add them once.
    if (name == "falcon_alibi") config.alibi_slopes *= 2;
  }
};

}  // namespace rooflm::tests

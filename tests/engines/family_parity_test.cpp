// Small models of each family against transformers: loss, logits of the last position, every gradient in the
// layout of the family's files. What cannot run yet is skipped with the reason.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/error.h"
#include "model/huggingface_layout.h"
#include "tests/engines/step_runner.h"
#include "tests/model/family_golden.h"

namespace rooflm {
namespace {

using compile::EngineKind;
using passes::AttentionKind;
using tests::FamilyGolden;

/// Relative to the largest norm of a gradient: gradients that are zero but for rounding, as those of the
/// keys' biases, have no accuracy of their own.
constexpr double kRounding = 1e-7;
constexpr double kTolerance = 1e-5;

class FamilyParity : public testing::TestWithParam<std::string> {
 protected:
  /// By name: the loss, the logits, and the gradients "d_" + parameter.
  using Results = std::map<std::string, std::vector<double>>;

  static Results run(const FamilyGolden& golden, const model::ModelConfig& config, EngineKind engine,
                     AttentionKind attention) {
    const auto& rows = golden.facts.at("tokens");
    const auto batch = static_cast<std::int64_t>(rows.size());
    const auto seq = static_cast<std::int64_t>(rows[0].size()) - 1;
    const compile::StepOptions options{.engine = engine, .attention = attention};
    program::Program step = compile::training_step(model::forward(config, batch, seq), options);
    for (program::Tensor& tensor : step.tensors) {
      if (tensor.role == program::Role::gradient) tensor.role = program::Role::result;
    }
    Results results = values_of(golden, config, engine, std::move(step));
    const auto logits =
        compile::inference_step(model::forward(config, batch, seq, model::Head::logits), options);
    results.merge(values_of(golden, config, engine, logits));
    return results;
  }

  /// Runs a program with the golden's weights and tokens.
  static Results values_of(const FamilyGolden& golden, const model::ModelConfig& config, EngineKind engine,
                           program::Program program) {
    const auto backend = backends::make_cpu_backend(
        engine == EngineKind::fused ? backends::CpuKernels::fast : backends::CpuKernels::reference, 2);
    engines::TensorStore store(*backend);
    std::vector<std::string> names;
    for (const program::Tensor& tensor : program.tensors)
      if (tensor.role == program::Role::result || tensor.name == "loss") names.push_back(tensor.name);
    engines::Engine run(std::move(program), engine, store);
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
      tests::write_values(run.io(), "hyper", {0, 1, 1, 0});
    }
    run.setup();
    run.run();
    Results results;
    for (const std::string& name : names) results[name] = tests::read_values(run.io(), name);
    return results;
  }

  static void expect_logits(const FamilyGolden& golden, const model::ModelConfig& config,
                            const std::vector<double>& logits) {
    const auto& expected = golden.facts.at("logits");
    const auto width = static_cast<std::size_t>(config.padded_vocab);
    const std::size_t seq = logits.size() / width / expected.size();
    for (std::size_t b = 0; b < expected.size(); ++b) {
      for (std::size_t i = 0; i < expected[b].size(); ++i)
        EXPECT_NEAR(logits[((b + 1) * seq - 1) * width + i], expected[b][i].get<double>(), 2e-5)
            << b << " " << i;
    }
  }

  static void expect_gradients(const FamilyGolden& golden, const model::ModelConfig& config,
                               const Results& results) {
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
      const double tolerance = kTolerance * norm + kRounding * largest;
      EXPECT_NEAR(std::sqrt(squares), norm, tolerance) << tensor.name;
      const auto& first = expected->at("first");
      for (std::size_t i = 0; i < first.size(); ++i)
        EXPECT_NEAR(values[i], first[i].get<double>(), tolerance) << tensor.name << " " << i;
    }
    EXPECT_EQ(compared, gradients.size());
  }
};

TEST_P(FamilyParity, LossLogitsAndGradientsAreThoseOfTransformers) {
  const FamilyGolden golden(GetParam());
  model::ModelConfig config;
  try {
    config = model::read_config(golden.directory());
  } catch (const core::Unavailable& error) {
    GTEST_SKIP() << error.what();
  }
  if (golden.facts.at("loss").is_null()) GTEST_SKIP() << "the golden has names and shapes alone";
  if (const std::string lacking = model::uncomputed(config); !lacking.empty())
    GTEST_SKIP() << "not computed yet: " << lacking;
  // The golden is of transformers' eager attention, which adds Falcon's biases twice: in the mask and to the
  // scores. Its other kinds of attention, and the model, add them once.
  if (GetParam() == "falcon_alibi") config.alibi_slopes *= 2;
  for (const auto& [engine, attention] : {std::pair{EngineKind::eager, AttentionKind::batched},
                                          std::pair{EngineKind::fused, AttentionKind::flash}}) {
    SCOPED_TRACE(std::string(compile::name_of(engine)));
    const Results results = run(golden, config, engine, attention);
    const double loss = golden.facts.at("loss");
    EXPECT_NEAR(results.at("loss").at(0), loss, kTolerance * loss);
    expect_logits(golden, config, results.at("logits"));
    expect_gradients(golden, config, results);
  }
}

INSTANTIATE_TEST_SUITE_P(Transformers, FamilyParity, testing::ValuesIn(FamilyGolden::all()),
                         [](const auto& golden) { return golden.param; });

}  // namespace
}  // namespace rooflm

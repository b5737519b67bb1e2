// Small models of each family against transformers. What cannot run yet is skipped with the reason.
#include "tests/engines/family_check.h"

namespace rooflm {
namespace {

using compile::EngineKind;

constexpr double kTolerance = 1e-5;
constexpr double kRounding = 1e-7;

class FamilyParity : public testing::TestWithParam<std::string> {};

TEST_P(FamilyParity, LossLogitsAndGradientsAreThoseOfTransformers) {
  const tests::FamilyGolden golden(GetParam());
  const tests::ComparedFamily family(golden, GetParam());
  if (!family.lacking.empty()) GTEST_SKIP() << family.lacking;
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    SCOPED_TRACE(std::string(compile::name_of(engine)));
    const auto backend = [engine] {
      const bool is_fused = engine == EngineKind::fused;
      return backends::make_cpu_backend(
          is_fused ? backends::CpuKernels::fast : backends::CpuKernels::reference, 2);
    };
    const auto results = tests::family_results(golden, family.config, {.engine = engine, .backend = backend});
    const double loss = golden.facts.at("loss");
    EXPECT_NEAR(results.at("loss").at(0), loss, kTolerance * loss);
    tests::expect_family_logits(golden, family.config, results.at("logits"), 2 * kTolerance);
    tests::expect_family_gradients(golden, family.config, results, kTolerance, kRounding);
  }
}

INSTANTIATE_TEST_SUITE_P(Transformers, FamilyParity, testing::ValuesIn(tests::FamilyGolden::all()),
                         [](const auto& golden) { return golden.param; });

}  // namespace
}  // namespace rooflm

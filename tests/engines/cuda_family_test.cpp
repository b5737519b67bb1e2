// Small models of each family on an NVIDIA GPU against transformers: in fp32 as closely as on a processor, in
// bf16 to its rounding; and decoding from the caches of latent attention.
#include <algorithm>
#include <array>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/device.h"
#include "tests/engines/decode_check.h"
#include "tests/engines/family_check.h"

namespace rooflm {
namespace {

using compile::EngineKind;

/// Linear biases with scaled slopes, and windows in chunks: no kernel.
constexpr std::array<std::string_view, 2> kRefused = {"falcon_alibi", "llama4"};

/// The goldens are found when tests are listed; a machine that has the program alone still lists others.
constexpr const char* kNone = "no_goldens_here";
std::vector<std::string> families() {
  const auto folder = std::filesystem::path(ROOFLM_TESTS_DIR) / "model/goldens";
  return std::filesystem::exists(folder) ? tests::FamilyGolden::all() : std::vector<std::string>{kNone};
}

class CudaFamilies : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto status = backends::cuda::query_cuda();
    if (status.devices.empty()) GTEST_SKIP() << status.reason;
    if (GetParam() == kNone) GTEST_SKIP() << "no goldens under " << ROOFLM_TESTS_DIR;
  }

  struct Tolerance {
    double loss, logits, gradients, rounding;
  };
  /// On both engines.
  static void expect_as_transformers(core::DType dtype, const Tolerance& tolerance) {
    const tests::FamilyGolden golden(GetParam());
    const tests::ComparedFamily family(golden, GetParam());
    if (!family.lacking.empty()) GTEST_SKIP() << family.lacking;
    for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
      SCOPED_TRACE(std::string(compile::name_of(engine)));
      const tests::FamilyRun how{.engine = engine,
                                 .backend = [] { return backends::cuda::make_cuda_backend(0, {}); },
                                 .dtype = dtype};
      if (std::ranges::find(kRefused, GetParam()) != kRefused.end()) {
        EXPECT_THROW(tests::family_results(golden, family.config, how), core::Unavailable);
        continue;
      }
      const auto results = tests::family_results(golden, family.config, how);
      const double loss = golden.facts.at("loss");
      EXPECT_NEAR(results.at("loss").at(0), loss, tolerance.loss * loss);
      tests::expect_family_logits(golden, family.config, results.at("logits"), tolerance.logits);
      tests::expect_family_gradients(golden, family.config, results, tolerance.gradients, tolerance.rounding);
    }
  }
};

TEST_P(CudaFamilies, AreThoseOfTransformersInFp32) {
  expect_as_transformers(core::DType::f32,
                         {.loss = 1e-5, .logits = 2e-5, .gradients = 1e-5, .rounding = 2e-7});
}

/// What processors are in bf16, too. A sparse mixer mixes the scores that are near the highest: rounding
/// moves some in and out, and logits and gradients with them.
TEST_P(CudaFamilies, AreThoseOfTransformersInBf16) {
  const bool is_mixer = GetParam() == "phimoe";
  expect_as_transformers(core::DType::bf16, {.loss = 1e-2,
                                             .logits = is_mixer ? 5e-2 : 2e-2,
                                             .gradients = is_mixer ? 1e-1 : 1e-2,
                                             .rounding = is_mixer ? 1e-1 : 1e-2});
}

INSTANTIATE_TEST_SUITE_P(Transformers, CudaFamilies, testing::ValuesIn(families()),
                         [](const auto& golden) { return golden.param; });

/// From the cache of compressed keys, whatever makes the queries; sizes that are whole packs, and others.
TEST(CudaLatentDecoding, IsReadingWhole) {
  const auto status = backends::cuda::query_cuda();
  if (status.devices.empty()) GTEST_SKIP() << status.reason;
  const auto gpu = backends::cuda::make_cuda_backend(0, {});
  for (const bool is_even : {false, true}) {
    model::ModelConfig config = tests::decoding_model(model::Arch::llama);
    config.kv_heads = config.heads;
    config.latent = {.q_rank = is_even ? 0 : 10, .kv_rank = 6, .plain_dim = 5, .rotary_dim = 4, .v_dim = 7};
    if (is_even) config.latent = {.kv_rank = 64, .plain_dim = 16, .rotary_dim = 8, .v_dim = 16};
    config.head_dim = config.latent.plain_dim + config.latent.rotary_dim;
    if (is_even) config.query_scale = 0.5;
    for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
      for (const auto& [dtype, tolerance] : {std::pair{core::DType::f32, 1e-4}, {core::DType::bf16, 5e-2}}) {
        SCOPED_TRACE(std::string(compile::name_of(engine)) + " " + std::string(core::name_of(dtype)));
        tests::check_decoding(
            *gpu, config, {.engine = engine, .attention = compile::default_attention(engine), .dtype = dtype},
            {1, 70, 33}, 5, tolerance);
      }
    }
  }
}

}  // namespace
}  // namespace rooflm

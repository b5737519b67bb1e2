// Plans of inference: bounds by hand, published rates of calibration, memory.
#include "perfmodel/inference.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/perfmodel/plan_case.h"

namespace rooflm {
namespace {

using perfmodel::InferencePhase;
using perfmodel::InferencePlan;
using perfmodel::InferencePoint;

struct InferenceCase {
  InferencePoint point{};
  perfmodel::Setting setting{};
  perfmodel::InferenceEngine engine{};

  [[nodiscard]] InferencePlan plan() const { return perfmodel::plan_inference(point, setting, engine); }
};

InferenceCase inference_case(const char* device, const char* weights = "bf16",
                             const char* engine = "gpt-fast") {
  InferenceCase made{.engine = perfmodel::find_inference_engine(engine)};
  const tests::PlanCase kernels = tests::plan_case("llama3-8b", {}, 1, made.engine.framework.c_str(), device);
  made.setting = kernels.setting;
  made.point = {.config = kernels.point.config,
                .step = kernels.point.step,
                .weights = perfmodel::parse_stored_weights(weights),
                .batch = 1,
                .seq = 128};
  return made;
}

TEST(StoredWeights, BitsCountScales) {
  EXPECT_EQ(perfmodel::parse_stored_weights("bf16").bits, 16);
  EXPECT_EQ(perfmodel::parse_stored_weights("int8").bits, 8);
  EXPECT_EQ(perfmodel::parse_stored_weights("int4").bits, 4.5);   // 32 bits for 64 weights
  EXPECT_EQ(perfmodel::parse_stored_weights("int4:32").bits, 5);  // and for 32
  EXPECT_EQ(perfmodel::parse_stored_weights("nf4:128").bits, 4.25);
  EXPECT_THROW(perfmodel::parse_stored_weights("int3"), core::UsageError);
  EXPECT_THROW(perfmodel::parse_stored_weights("int4:0"), core::UsageError);
  EXPECT_THROW(perfmodel::parse_stored_weights("fp8:32"), core::UsageError);
}

/// Those that the engine's shares of the bandwidth are from: pytorch/ao, torchao/quantization/README.md.
TEST(Inference, DecodingOnAnA100IsWhatItWasCalibratedWith) {
  for (const auto& [weights, measured] :
       {std::pair{"bf16", 95.64}, std::pair{"int8", 153.03}, std::pair{"int4:64", 180.80}}) {
    EXPECT_NEAR(inference_case("a100-sxm", weights).plan().token_per_s / measured, 1, 0.08) << weights;
  }
}

TEST(Inference, OneTextIsBoundByBytesOfWeights) {
  const InferencePlan plan = inference_case("h100-sxm").plan();
  EXPECT_EQ(plan.pass.bound(), "bytes of weights");
  // 16 bits of each parameter but those of the embedding, which is not multiplied.
  const double bytes = 2.0 * static_cast<double>(model::matmul_parameter_count(model::preset("llama3-8b")));
  EXPECT_NEAR(plan.pass.weight_bytes / bytes, 1, 1e-3);
  const double roof_s = bytes / devices::find_device("h100-sxm").memory.back().byte_per_s;
  EXPECT_GT(plan.next_s, roof_s);
  EXPECT_LT(plan.next_s, 1.6 * roof_s);
  EXPECT_NEAR(plan.token_per_s * plan.next_s, 1, 1e-9);
}

TEST(Inference, PartsAddUpAndCachesGrowWithTheText) {
  InferenceCase made = inference_case("h100-sxm");
  made.point.batch = 32;
  const InferencePlan near = made.plan();
  made.point.seq = 4096;
  const InferencePlan far = made.plan();
  EXPECT_NEAR(far.pass.total(), far.next_s, 1e-12);
  // 32 layers of 8 heads of 128 elements, keys and values.
  EXPECT_EQ(far.memory.cache_byte_per_token, 2.0 * 32 * 8 * 128 * 2);
  EXPECT_NEAR(far.pass.cache_bytes / (32 * 4096 * far.memory.cache_byte_per_token), 1, 0.01);
  EXPECT_GT(far.pass.cache_s, 20 * near.pass.cache_s);
  EXPECT_EQ(far.pass.bound(), "bytes of the cache");
}

TEST(Inference, TensorRanksShareWeightsAndCaches) {
  InferenceCase made = inference_case("h100-sxm");
  const InferencePlan one = made.plan();
  made.point.step.sharding.tensor = 2;
  const InferencePlan two = made.plan();
  EXPECT_NEAR(two.memory.cache_byte_per_token, one.memory.cache_byte_per_token / 2, 1);
  EXPECT_LT(two.memory.weight_bytes, 0.6 * one.memory.weight_bytes);
  EXPECT_GT(two.pass.collective_s, 0);
  EXPECT_EQ(one.pass.collective_s, 0);
  EXPECT_LT(two.next_s, one.next_s);
}

TEST(Inference, TheLargestBatchFitsAndOneMoreDoesNot) {
  InferenceCase made = inference_case("rtx-4090");
  made.point.batch = made.plan().largest_batch;
  EXPECT_GT(made.point.batch, 1);
  EXPECT_TRUE(made.plan().fits);
  ++made.point.batch;
  EXPECT_FALSE(made.plan().fits);
  EXPECT_EQ(made.plan().gpus_needed, 2);
}

TEST(Inference, PromptsAreBoundByArithmetic) {
  InferenceCase made = inference_case("h100-sxm");
  made.point.phase = InferencePhase::prefill;
  made.point.seq = 4096;
  const InferencePlan plan = made.plan();
  EXPECT_EQ(plan.pass.bound(), "arithmetic");
  const double flop = 2.0 * 7e9 * 4096;  // of the layers, without the head
  const double peak = devices::find_device("h100-sxm").peak("bf16").value();
  EXPECT_GT(plan.first_s, flop / peak);
  EXPECT_LT(plan.first_s, 2 * flop / peak);
}

TEST(Inference, ServersTradeLatencyForThroughput) {
  InferenceCase made = inference_case("h100-sxm", "fp8", "tensorrt-llm");
  made.point.phase = InferencePhase::serve;
  made.point.seq = made.point.output = 1000;
  made.point.batch = 8;
  const InferencePlan few = made.plan();
  made.point.batch = 0;
  const InferencePlan many = made.plan();
  EXPECT_EQ(many.batch, std::min(many.largest_batch, made.engine.most_texts));
  EXPECT_GT(many.token_per_s, 3 * few.token_per_s);
  EXPECT_GT(many.next_s, few.next_s);
  EXPECT_EQ(many.kept_tokens, 2000);  // this engine keeps room for the whole answer
}

TEST(Inference, EagerOpsWaitForTheHost) {
  const InferencePlan plan = inference_case("h100-sxm", "bf16", "transformers").plan();
  EXPECT_EQ(plan.pass.bound(), "the host");
  const auto& engine = perfmodel::find_inference_engine("transformers");
  EXPECT_GT(plan.next_s, 32 * engine.launches_per_layer * engine.launch_host_s);
}

TEST(Inference, ARecordCalibratesItsOps) {
  InferenceCase made = inference_case("h100-sxm");
  const InferencePlan before = made.plan();
  made.setting.calibration = {{"matmul", 2.0}};
  const InferencePlan after = made.plan();
  EXPECT_NEAR(after.pass.weights_s / before.pass.weights_s, 2, 0.01);
  EXPECT_EQ(after.pass.cache_s, before.pass.cache_s);
}

TEST(Inference, FewTokensReadFewExperts) {
  InferenceCase made = inference_case("h200");
  made.point.config = model::preset("mixtral-8x7b");
  const InferencePlan one = made.plan();
  made.point.batch = 64;
  const InferencePlan many = made.plan();
  // Two of eight experts of one token, all of them of 64.
  EXPECT_LT(one.pass.weight_bytes, 0.35 * many.pass.weight_bytes);
  EXPECT_EQ(one.memory.weight_bytes, many.memory.weight_bytes);
}

}  // namespace
}  // namespace rooflm

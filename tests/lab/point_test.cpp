// From the fields of a configuration to a point, and back to what a record keeps.
#include "lab/point.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "lab/devices.h"
#include "lab/job.h"
#include "record/options.h"

namespace rooflm::lab {
namespace {

Point point_of(const record::Config& config) { return make_points(std::array{config}).at(0); }

TEST(Point, AbsentFieldsAreTheirInitialValues) {
  const Point point = point_of({});
  EXPECT_EQ(point.config.name, "gpt2");
  EXPECT_EQ(point.batch, 4);
  EXPECT_EQ(point.seq, 64);
  EXPECT_EQ(point.step.engine, compile::EngineKind::fused);
  EXPECT_EQ(point.step.attention, passes::AttentionKind::flash);
  EXPECT_DOUBLE_EQ(point.step.optimizer.clip_norm, 1);
  EXPECT_TRUE(point.deterministic);
  EXPECT_EQ(point.gemm_search, backends::GemmSearch::full);
}

TEST(Point, WhatWasTypedIsWhatTheRecordKeeps) {
  record::Config typed;
  typed.set("model", "tiny");
  typed.set("engine", "eager");
  typed.set("dtype", "fp8");
  typed.set("fp8_gradients", "e5m2");
  typed.set("clip", record::Config::Value(0.5));
  typed.set("deterministic", record::Config::Value(false));
  typed.set("search_products", "kept");
  typed.set("warmup", 5);
  typed.set("head_dim", 48);
  typed.set("positions", 2048);
  typed.set("lora", "2,targets=q_proj");
  const record::Config kept = config_of(point_of(typed));
  for (const auto& [key, value] : typed.entries())
    EXPECT_EQ(kept.text(key), record::format_value(value)) << key;
  for (const record::Field& field : record::config_fields())
    EXPECT_NE(kept.find(field.key), nullptr) << field.key;
  const Point point = point_of(typed);
  EXPECT_TRUE(point.step.fp8);
  EXPECT_EQ(point.step.dtype, core::DType::bf16);
  EXPECT_EQ(point.step.fp8_options.gradients, passes::Fp8Gradients::e5m2);
  typed.set("dtype", "bf16");
  for (const record::Field& field : record::config_fields()) {
    const bool is_of_fp8 = field.key.starts_with("fp8_");
    EXPECT_EQ(config_of(point_of(typed)).find(field.key) == nullptr, is_of_fp8) << field.key;
  }
}

TEST(Point, TheTableAndTheMembersHaveTheSameOptionsAndDefaults) {
  Point none;
  none.batch = 4;
  none.seq = 64;
  none.device = "cpu";
  record::Config defaults;
  record::write_options(none, defaults);
  for (const auto& [key, value] : defaults.entries()) {
    const record::Field* field = record::find_field(key);
    ASSERT_NE(field, nullptr) << key;
    if (!field->initial.empty()) {
      EXPECT_EQ(record::format_value(value), field->initial) << key;
    }
  }
  std::vector<std::string_view> members = record::keys_of(model::Overrides{});
  for (const record::Field& field : record::config_fields()) {
    const bool is_member = defaults.find(field.key) != nullptr ||
                           std::ranges::find(members, field.key) != members.end() || field.key == "model";
    EXPECT_EQ(is_member, !field.option.empty()) << field.key;
    const bool needs_names = field.type == record::FieldType::text && !field.option.empty();
    EXPECT_EQ(field.values.empty() && needs_names, !accepted_names(field.key).empty()) << field.key;
  }
  EXPECT_EQ(accepted_names("overlap"), "auto|on|off");
  EXPECT_EQ(accepted_names("dtype"), "fp32|bf16x6|tf32|bf16|fp16|fp8");
}

TEST(Point, NumbersHaveLimits) {
  record::Config typed;
  const auto message = [&](const char* key, std::int64_t value) -> std::string {
    record::Config config = typed;
    config.set(key, value);
    try {
      point_of(config);
    } catch (const core::UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message("zero", 4), "--zero must be at most 3, got 4");
  EXPECT_EQ(message("warmup", 1'000'001), "--warmup must be at most 1000000, got 1000001");
  EXPECT_EQ(message("grad_accum", 0), "--grad-accum must be at least 1, got 0");
}

TEST(Point, DescriptionsNameWhatIsNotAsByDefault) {
  record::Config typed;
  EXPECT_EQ(describe(point_of(typed)), "gpt2 B=4 T=64 fp32 fused flash");
  typed.set("device", "null:h100-sxm");
  typed.set("dp", 2);
  typed.set("overlap", "on");
  typed.set("deterministic", record::Config::Value(false));
  typed.set("seed", 7);
  EXPECT_EQ(describe(point_of(typed)),
            "gpt2 B=4 T=64 fp32 fused flash dp=2 overlap=on nondeterministic seed=7");
}

TEST(Point, NullStandsForADeviceOfTheCatalog) {
  record::Config typed;
  typed.set("dtype", "bf16");
  typed.set("device", "null:h100-sxm");
  const Point gpu = point_of(typed);
  EXPECT_TRUE(gpu.step.rewrites.has(compile::Rewrite::compact_state));
  EXPECT_TRUE(gpu.step.rewrites.has(compile::Rewrite::gelu_in_epilogue));
  EXPECT_TRUE(gpu.step.rewrites.has(compile::Rewrite::bias_in_gradients));
  EXPECT_TRUE(gpu.step.rewrites.has(compile::Rewrite::early_norm));
  EXPECT_EQ(gpu.step.logits_padding, 64);
  EXPECT_EQ(gpu.step.loss_chunk_bytes, std::int64_t{4} << 30U);
  EXPECT_DOUBLE_EQ(make_backend(gpu)->free_bytes(), 80e9);
  typed.set("device", "null");
  const Point processor = point_of(typed);
  EXPECT_TRUE(processor.step.rewrites.has(compile::Rewrite::compact_state));
  EXPECT_FALSE(processor.step.rewrites.has(compile::Rewrite::gelu_in_epilogue));
  EXPECT_FALSE(processor.step.rewrites.has(compile::Rewrite::bias_in_gradients));
  EXPECT_FALSE(processor.step.rewrites.has(compile::Rewrite::early_norm));
  EXPECT_EQ(processor.step.logits_padding, 1);
  EXPECT_EQ(processor.step.loss_chunk_bytes, std::int64_t{128} << 20U);
}

TEST(Point, RefusesWhatCannotBe) {
  const auto refuses = [](const char* key, const record::Config::Value& value) {
    record::Config typed;
    typed.set(key, value);
    EXPECT_THROW(point_of(typed), core::UsageError) << key;
  };
  refuses("batch", record::Config::Value(std::int64_t{0}));
  refuses("threads", record::Config::Value(std::int64_t{5000}));
  refuses("seq", record::Config::Value(std::int64_t{4096}));
  refuses("search_products", record::Config::Value(std::string("al")));
  refuses("device", record::Config::Value(std::string("null:h100-smx")));
  record::Config typed;
  typed.set("dtype", "tf32");
  EXPECT_THROW(point_of(typed), core::Unavailable);
}

/// Blocks are those of flash attention, in the eager engine, too.
TEST(Point, RanksShareSequencesByFlashAttention) {
  record::Config typed;
  typed.set("model", "tiny");
  typed.set("engine", "eager");
  EXPECT_EQ(point_of(typed).step.attention, passes::AttentionKind::batched);
  typed.set("cp", 2);
  const Point point = point_of(typed);
  EXPECT_EQ(point.step.attention, passes::AttentionKind::flash);
  EXPECT_EQ(point.tokens(), point.batch * point.seq);
  EXPECT_EQ(config_of(point).integer("cp"), 2);
}

TEST(Point, OneRankSharesNoSequences) {
  record::Config typed;
  typed.set("model", "tiny");
  typed.set("cp", 2);
  Point point = point_of(typed);
  EXPECT_THROW(take_place(point, nullptr), core::UsageError) << "one rank is not two";
  point.device = "cuda:0";
  EXPECT_THROW(take_place(point, nullptr), core::UsageError);
}

TEST(Devices, OneProviderForEachName) {
  EXPECT_EQ(parse_device("cuda"), "cuda:0");
  EXPECT_EQ(parse_device("null:h200"), "null:h200");
  EXPECT_THROW(parse_device("cuda:x"), core::UsageError);
  EXPECT_EQ(parse_device("gpu:1"), "cuda:1") << "what people call it";
  EXPECT_THROW(parse_device("tpu"), core::UsageError);
  EXPECT_TRUE(is_host("cpu"));
  EXPECT_FALSE(is_host("cuda:0"));
  EXPECT_FALSE(runs("null:h200"));
  EXPECT_THROW(require_runs("null", "measured"), core::UsageError);
}

}  // namespace
}  // namespace rooflm::lab

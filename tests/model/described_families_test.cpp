// Families by made-up files: what is counted, and what is refused by name, with exit code 5.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "core/error.h"
#include "model/forward.h"
#include "model/huggingface.h"
#include "model/parameters.h"

namespace rooflm::model {
namespace {

/// One layer of width 8 with two heads, a feed-forward layer of 16 and ten tokens.
std::string small(const std::string& more) {
  return R"({"hidden_size":8,"intermediate_size":16,"num_hidden_layers":1,"num_attention_heads":2,"vocab_size":10,)"
         R"("max_position_embeddings":32,"tie_word_embeddings":false,"hidden_act":"silu",)" +
         more + "}";
}

ModelConfig read(const std::string& text) { return parse_config(text, "config.json", "model"); }
std::int64_t count(const std::string& more) { return parameter_count(read(small(more))); }

std::string lacks(const std::string& text) {
  try {
    static_cast<void>(read(text));
  } catch (const core::Unavailable& error) {
    return error.what();
  }
  return "nothing";
}

void expect_lacks(const std::string& text, const std::string& part) {
  EXPECT_PRED_FORMAT2(testing::IsSubstring, part, lacks(text)) << text;
}

constexpr std::int64_t kAttention = 4 * 8 * 8, kFeedForward = 3 * 8 * 16, kEnds = 2 * 10 * 8, kNorms = 3 * 8;
constexpr std::int64_t kLlama = kAttention + kFeedForward + kEnds + kNorms;

TEST(DescribedFamilies, NamesOfOldFilesAreLlama) {
  for (const char* type : {"llama", "Yi", "aquila", "telechat3", "xverse"})
    EXPECT_EQ(count(R"("model_type":")" + std::string(type) + '"'), kLlama) << type;
  EXPECT_EQ(count(R"("model_type":"xverse","architectures":["XverseForCausalLM"])"), kLlama);
  EXPECT_EQ(count(R"("architectures":["LlamaForCausalLM"])"), kLlama) << "without a type";
}

TEST(DescribedFamilies, BiasesOfInternLmAreWhereItHasThem) {
  EXPECT_EQ(count(R"("model_type":"internlm","bias":true)"), kLlama + 4 * 8)
      << "none in the feed-forward layer";
  EXPECT_EQ(count(R"("model_type":"internlm","bias":false)"), kLlama);
  EXPECT_EQ(count(R"("model_type":"internlm")"), kLlama + 4 * 8);
  EXPECT_EQ(count(R"("model_type":"internlm2","bias":true)"), kLlama + 4 * 8);
  EXPECT_EQ(count(R"("model_type":"internlm3","bias":true)"), kLlama + 8 + 16 + 16 + 8)
      << "none of q, k and v";
  EXPECT_EQ(count(R"("model_type":"internlm3","bias":false,"qkv_bias":true)"), kLlama + 3 * 8);
}

TEST(DescribedFamilies, OrionHasLayerNorms) {
  EXPECT_EQ(count(R"("model_type":"orion","architectures":["OrionForCausalLM"])"), kLlama + kNorms);
}

TEST(DescribedFamilies, YoutuHasLatentAttentionWithoutExperts) {
  const std::string ranks =
      R"("kv_lora_rank":4,"q_lora_rank":6,"qk_nope_head_dim":2,"qk_rope_head_dim":2,"v_head_dim":2)";
  constexpr std::int64_t kLatent = 8 * 6 + 6 + 6 * 2 * 4 + 8 * 6 + 4 + 4 * 2 * 4 + 2 * 2 * 8;
  EXPECT_EQ(count(R"("model_type":"youtu",)" + ranks), kLatent + kFeedForward + kEnds + kNorms);
}

TEST(DescribedFamilies, LayersMayShareTheKeysThatOneChose) {
  const auto glm = [](const std::string& types) {
    return R"({"model_type":"glm_moe_dsa","architectures":["GlmMoeDsaForCausalLM"],"hidden_size":8,"intermediate_size":16,)"
           R"("num_hidden_layers":4,"num_attention_heads":2,"vocab_size":10,"kv_lora_rank":4,"q_lora_rank":6,)"
           R"("qk_nope_head_dim":2,"qk_rope_head_dim":2,"v_head_dim":2,"n_routed_experts":2,"num_experts_per_tok":1,)"
           R"("moe_intermediate_size":4,"n_shared_experts":1,"n_group":1,"topk_group":1,"index_n_heads":2,)"
           R"("index_head_dim":4)" +
           types + "}";
  };
  const ModelConfig all = read(glm("")),
                    some = read(glm(R"(,"indexer_types":["full","shared","shared","full"])"));
  constexpr std::int64_t kIndexer = 2 * 4 * 6 + 4 * 8 + 2 * 4 + 2 * 8;  // queries, keys, their norm, weights
  EXPECT_EQ(parameter_count(all) - parameter_count(some), 2 * kIndexer);
  EXPECT_EQ(some.attention_of(1).index_heads, 0);
  EXPECT_EQ(read(config_json(some, {})), some) << "it is written, too";
  EXPECT_NO_THROW((void)forward(some, 1, 16));
}

TEST(DescribedFamilies, DeepSeekV2MayHavePlainAttention) {
  const std::string experts =
      R"("architectures":["DeepseekV2ForCausalLM"],"n_routed_experts":2,"num_experts_per_tok":1,)"
      R"("moe_intermediate_size":4,"n_shared_experts":1,"use_mla":false,"kv_lora_rank":null,"q_lora_rank":null)";
  EXPECT_EQ(count(experts), kAttention + 8 * 2 + 3 * 3 * 8 * 4 + kEnds + kNorms);
}

TEST(DescribedFamilies, TextModelsOfExaone) {
  const std::string text =
      R"("model_type":"exaone4_5_text","architectures":["Exaone4ForCausalLM"],"sliding_window":4,)"
      R"("num_nextn_predict_layers":1)";
  const ModelConfig config =
      read(R"({"model_type":"exaone4_5","architectures":["Exaone4_5_ForConditionalGeneration"],)"
           R"("vision_config":{},"text_config":)" +
           small(text) + "}");
  EXPECT_EQ(parameter_count(config), kLlama + 2 * 4) << "norms of queries and keys";
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "one layer that predicts", config.other_parts);
}

TEST(DescribedFamilies, WeightsThatAreNotReadDoNotKeepAShapeFromBeingRead) {
  const ModelConfig config = read(small(
      R"("model_type":"llama","quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]})"));
  EXPECT_EQ(parameter_count(config), kLlama);
  EXPECT_EQ(config.stored_as, "fp8");
  EXPECT_EQ(read(small(R"("model_type":"llama")")).stored_as, "");
}

TEST(DescribedFamilies, WhatIsNoCausalModelIsRefusedByName) {
  for (const char* type : {"bert", "roberta", "xlm-roberta", "modernbert", "distilbert", "electra"})
    expect_lacks(small(R"("model_type":")" + std::string(type) + '"'), "no causal attention");
  for (const char* type : {"t5", "bart", "whisper", "m2m_100"})
    expect_lacks(small(R"("model_type":")" + std::string(type) + '"'), "an encoder");
  expect_lacks(small(R"("architectures":["BertForMaskedLM"])"), "no causal attention");
  expect_lacks(small(R"("model_type":"newbert","type_vocab_size":2)"), "no causal attention");
  expect_lacks(small(R"("model_type":"new","is_encoder_decoder":true)"), "which has");
  expect_lacks(small(R"("model_type":"llama","architectures":["LlamaForSequenceClassification"])"),
               "a classifier");
  EXPECT_EQ(count(R"("model_type":"llama","is_encoder_decoder":false)"), kLlama) << "old files say so";
}

TEST(DescribedFamilies, FeaturesThatNoProgramDescribesAreNotAvailable) {
  expect_lacks(small(R"("model_type":"hunyuan_v1_dense","use_cla":true)"), "use_cla is true");
  EXPECT_GT(count(R"("model_type":"hunyuan_v1_dense","use_cla":false)"), 0);
  expect_lacks(small(R"("model_type":"gemma3_text","head_dim":4,"use_bidirectional_attention":true)"),
               "use_bidirectional_attention is true");
  expect_lacks(small(R"("architectures":["LongcatFlashForCausalLM"])"), "LongcatFlashForCausalLM");
  const std::string unknown = lacks(small(R"("model_type":"mobilellm")"));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "model_type is \"mobilellm\": not described yet", unknown);
  EXPECT_LT(unknown.size(), 240U) << "three lines of a terminal";
}

TEST(DescribedFamilies, NumbersAsPythonWritesThemAreNoFault) {
  expect_lacks(R"({"model_type":"nemotron_h","hidden_size":8,"time_step_limit":[0.0, Infinity]})",
               "state-space");
  EXPECT_EQ(count(R"("model_type":"llama","a":NaN,"b":[-Infinity],"c":"Infinity \" NaN")"), kLlama);
  EXPECT_THROW(count(R"("model_type":"llama","rope_theta":NaN)"), core::InputError)
      << "where it is asked for";
}

}  // namespace
}  // namespace rooflm::model

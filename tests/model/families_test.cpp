// Configurations of published models: their parameters to the last one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string>
#include <utility>

#include "core/error.h"
#include "model/family_table.h"
#include "model/flop_conventions.h"
#include "model/forward.h"
#include "model/huggingface.h"
#include "model/parameters.h"

namespace rooflm::model {
namespace {

namespace fs = std::filesystem;
const fs::path kConfigs = fs::path(ROOFLM_TESTS_DIR) / "model" / "configs";

struct Published {
  const char* name;
  std::int64_t parameters, active;  ///< active 0: all
};

class Families : public testing::TestWithParam<Published> {};

TEST_P(Families, CountsAreThePublishedOnes) {
  const Published& model = GetParam();
  const ModelConfig config = read_config(kConfigs / model.name);
  EXPECT_EQ(parameter_count(config), model.parameters);
  EXPECT_EQ(active_parameter_count(config), model.active == 0 ? model.parameters : model.active);
  EXPECT_NO_THROW((void)forward(config, 1, 16));
}

/// Totals of the text models, without layers that predict further tokens.
constexpr std::array kPublished{
    Published{"DeepSeek-V3", 671026419200, 37552297472},
    Published{"DeepSeek-V2-Lite", 15706484224, 2661150208},  // its q_lora_rank is null: there is none
    Published{"GLM-5", 743911218432, 41784728832},
    Published{"Llama-3.2-1B-Instruct", 1235814400, 0},
    Published{"Llama-4-Scout-17B-16E-Instruct", 107769861120, 17172894720},
    Published{"Meta-Llama-3.1-8B", 8030261248, 0},
    Published{"MiniMax-M2.5", 228689764864, 11030553088},
    Published{"Mistral-7B-v0.1", 7241732096, 0},
    Published{"Mixtral-8x7B-v0.1", 46702792704, 12879925248},
    Published{"OLMo-2-0425-1B", 1484916736, 0},
    Published{"Qwen-7B", 7721324544, 0},
    Published{"Qwen2.5-7B-Instruct", 7615616512, 0},
    Published{"Qwen3-0.6B", 596049920, 0},
    Published{"Qwen3-30B-A3B", 30532122624, 3353032704},
    Published{"Qwen3-VL-2B-Instruct", 1720574976, 0},
    Published{"SmolLM3-3B", 3075098624, 0},
    Published{"bloom", 176247271424, 0},
    Published{"chatglm3", 6243584000, 0},
    Published{"distilgpt2", 81912576, 0},
    Published{"falcon-7b", 7217189760, 0},
    Published{"gemma", 2506172416, 0},
    Published{"gemma-2-2b", 2614341888, 0},
    Published{"gemma-4-26B-A4B", 25233141760, 3822530560},
    Published{"gpt-oss-20b", 20914757184, 4187440704},
    Published{"gpt2-xl", 1557611200, 0},
    Published{"granite-3.1-1b-a400m-instruct", 1334628352, 428658688},
    Published{"granite-3.1-2b", 2533525504, 0},
    Published{"mpt-7b", 6649286656, 0},
    Published{"opt-125m", 125239296, 0},
    Published{"phi-2", 2779683840, 0},
    Published{"pythia-6.9b", 6857302016, 0},
    // Counted by hand from the sizes of their configs; not all are published to the last parameter.
    Published{"Apertus-8B", 8053338176, 0},
    Published{"ERNIE-4.5-21B-A3B", 21825437888, 3352150208},
    Published{"FlexOlmo-7x7B", 33270665216, 24613621760},
    Published{"GLM-4.5-Air", 106852251264, 13424129664},
    Published{"GLM-4.7-Flash", 29943393920, 3896766080},  // 20 heads, which do not divide its width
    Published{"Hunyuan-A13B", 80393183232, 12747448320},
    Published{"Kimi-K2-Instruct", 1026408232448, 32861500928},
    Published{"MiMo-7B", 7622619136, 0},
    Published{"MiniMax-M2", 228689764864, 11030553088},  // says that all its attention is softmax
    Published{"Seed-OSS-36B", 36151104512, 0},
    Published{"Solar-Open-100B", 102651799552, 12054833152},
    Published{"granite-4.0-micro", 3402836480, 0},  // a hybrid without state-space layers
    Published{"vaultgemma-1b", 1038741120, 0},
};

INSTANTIATE_TEST_SUITE_P(Published, Families, testing::ValuesIn(kPublished), [](const auto& each) {
  std::string name = each.param.name;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

/// Presets leave out of the files only what no program needs.
TEST(Presets, PublishedModelsAreTheirFiles) {
  for (const auto& [name, file] : {std::pair{"mixtral-8x7b", "Mixtral-8x7B-v0.1"},
                                   {"qwen3-30b-a3b", "Qwen3-30B-A3B"},
                                   {"gpt-oss-20b", "gpt-oss-20b"},
                                   {"deepseek-v3", "DeepSeek-V3"}}) {
    const ModelConfig config = preset(name);
    const ModelConfig whole = read_config(kConfigs / file);
    EXPECT_EQ(config.name, name);
    EXPECT_EQ(parameter_count(config), parameter_count(whole)) << name;
    EXPECT_EQ(active_parameter_count(config), active_parameter_count(whole)) << name;
    EXPECT_EQ(model_flop_per_token(config, 4096), model_flop_per_token(whole, 4096)) << name;
    EXPECT_EQ(config_json(config, core::DType::bf16), config_json(whole, core::DType::bf16)) << name;
  }
  EXPECT_EQ(parameter_count(preset("gemma3-1b")), 999885952);
}

TEST(FamilyTable, EveryRowReadsItsOwnDefaults) {
  for (const Family& family : families()) {
    for (const std::string& type : family.types)
      EXPECT_EQ(find_family(type), &family) << type << " is there twice";
    EXPECT_FALSE(family.architectures.empty());
  }
}

/// The corrected numbers of torchtitan for T = 4096 (issue 4300), beside what it printed before.
TEST(FlopConventions, WindowsCountAsInTorchtitan) {
  ModelConfig config = read_config(kConfigs / "gpt-oss-20b");
  const auto flop = [&](std::string_view name) {
    const auto all = flop_conventions(config, 4096);
    return std::ranges::find(all, name, &FlopConvention::name)->training;
  };
  EXPECT_EQ(flop("6n"), 6 * 3608307264);
  EXPECT_EQ(flop("full"), 26481681792);
  EXPECT_EQ(flop("windowed"), 24141260160);
  config.layers = 36;
  config.windowed.insert(config.windowed.end(), config.windowed.begin(), config.windowed.begin() + 12);
  config.experts.count = 128;
  EXPECT_EQ(flop("full"), 38044854144);
  EXPECT_EQ(flop("windowed"), 34534221696);
}

/// 2 layers of 2 heads of 4 and T = 4, W = 2: a token sees 4, 2, or on average (1 + 2 + 3 + 4) / 4 = 2.5 and
/// (1
/// + 2 + 2 + 2) / 4 = 1.75 keys.
TEST(FlopConventions, ByHand) {
  ModelConfig config =
      with_overrides(preset("tiny"), {.layers = 2, .heads = 2, .d_model = 8, .d_ff = 16, .vocab = 32});
  config.window = 2;
  config.windowed = {true, false};
  const std::int64_t layer = (4 * 8 * 8) + (3 * 16 * 8) + (2 * 8);
  const std::int64_t n = (2 * layer) + 8 + (32 * 8);
  const auto of = [&](std::size_t i) { return flop_conventions(config, 4)[i]; };
  EXPECT_EQ(of(0).training, 6 * n);
  EXPECT_EQ(of(0).forward, 2 * n);
  EXPECT_EQ(of(0).frozen, 4 * n);
  const std::int64_t key = 2 * 2 * (4 + 4);  // FLOPs for each key, forward, in one layer
  EXPECT_EQ(of(1).forward, 2 * n + key * 8);
  EXPECT_EQ(of(2).forward, 2 * n + key * 6);
  EXPECT_EQ(of(3).forward, 2 * n + key * 17 / 4);
  EXPECT_EQ(of(3).training, 6 * n + 3 * key * 17 / 4);
  EXPECT_EQ(of(4).training, of(3).training + 2 * (n - 32 * 8) + key * 17 / 4);
}

TEST(FlopConventions, ParametersByBlockAddUp) {
  for (const Published& model : kPublished) {
    const ModelConfig config = read_config(kConfigs / model.name);
    std::int64_t sum = 0;
    for (const auto& [block, count] : parameters_by_block(config)) sum += count;
    EXPECT_EQ(sum - padding_count(config), model.parameters) << model.name;
  }
}

TEST(FamilyTable, StateSpaceLayersAreNamed) {
  for (const char* name : {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "Qwen3.5-35B-A3B"}) {
    try {
      (void)read_config(kConfigs / name);
      FAIL() << name;
    } catch (const core::Unavailable& error) {
      EXPECT_NE(std::string(error.what()).find("layers"), std::string::npos) << error.what();
    }
  }
}

ModelConfig parsed(const std::string& more) {
  return parse_config(
      R"({"hidden_size":8,"intermediate_size":8,"num_hidden_layers":4,"num_attention_heads":2,)"
      R"("vocab_size":9,"max_position_embeddings":64,)" +
          more + "}",
      "config.json", "small");
}

/// A list of layers says what a model has, whatever keys it has besides.
TEST(FamilyTable, LayersThatNoProgramHasAreNamed) {
  const auto reason = [](const std::string& more) -> std::string {
    try {
      (void)parsed(more);
    } catch (const core::Unavailable& error) {
      return error.what();
    }
    return "none";
  };
  const auto of_layers = [](const std::string& kind) {
    return R"("model_type":"granitemoehybrid","mamba_d_state":128,"shared_intermediate_size":8,"layer_types":)"
           R"(["attention","attention","attention",")" +
           kind + R"("])";
  };
  EXPECT_EQ(reason(of_layers("attention")), "none");
  for (const auto& [more, part] :
       {std::pair{of_layers("mamba"), "state-space layers"},
        {R"("model_type":"granitemoehybrid","mamba_d_state":128)", "state-space layers"},
        {R"("model_type":"lfm2")", "short convolutions"},
        {R"("model_type":"qwen3_next")", "linear attention"},
        {R"("model_type":"gemma3n_text")", "several residuals"},
        {R"("model_type":"minimax_m1")", "linear attention"},
        {R"("model_type":"mllama_text_model")", "attention to images"},
        {R"("model_type":"longcat_flash")", "two attentions in a layer"},
        {R"("model_type":"of_tomorrow","layer_types":["full_attention","linear_attention"])",
         "linear attention"}})
    EXPECT_NE(reason(more).find(part), std::string::npos) << reason(more);
}

/// Dynamic scaling changes nothing up to the length of training; no kernel has it beyond.
TEST(FamilyTable, DynamicPositionsAreThoseOfTrainingUpToItsLength) {
  const ModelConfig config =
      parsed(R"("model_type":"internlm2","rope_scaling":{"type":"dynamic","factor":2.0})");
  EXPECT_EQ(uncomputed(config), "");
  const auto is_scaled = [&](std::int64_t seq) {
    const auto p = forward(config, 1, seq);
    return std::ranges::any_of(p.ops, [](const auto& op) { return op.attrs.has("scaling"); });
  };
  EXPECT_FALSE(is_scaled(64));
  EXPECT_TRUE(is_scaled(65));
}

/// A text model inside of another says what differs from its family's usual sizes; a file of its own says
/// all.
TEST(FamilyTable, NestedModelsHaveTheUsualSizes) {
  const ModelConfig llava =
      parse_config(R"({"model_type":"llava","vision_config":{},"text_config":{"model_type":"llama",)"
                   R"("vocab_size":32064}})",
                   "config.json", "llava");
  EXPECT_EQ(parameter_count(llava), 6'738'939'904);  // Llama 2 7B with 64 more tokens, twice
  EXPECT_THROW((void)parse_config(R"({"model_type":"llama","vocab_size":32064})", "config.json", "llama"),
               core::InputError);
}

TEST(FamilyTable, ChoicesOfExperts) {
  const auto of = [&](const std::string& type, const std::string& active = "2") {
    return parsed(R"("n_routed_experts":8,"moe_intermediate_size":4,"n_group":4,"topk_group":2,)"
                  R"("num_experts_per_tok":)" +
                  active + R"(,"model_type":")" + type)
        .experts;
  };
  const Experts v3 = of(R"(deepseek_v3")");
  EXPECT_TRUE(v3.groups == 4 && v3.active_groups == 2 && v3.group_best == 2 && v3.score_bias);
  const Experts v2 = of(R"(deepseek_v2","topk_method":"group_limited_greedy")");
  EXPECT_TRUE(v2.groups == 4 && v2.active_groups == 2 && v2.group_best == 1);
  EXPECT_EQ(of(R"(deepseek_v2")").groups, 1) << "greedy: groups are not looked at";
  EXPECT_TRUE(of(R"(dots1","scoring_func":"noaux_tc")").sigmoid_scores) << "dots.llm1's own file says so";
  EXPECT_THROW((void)of(R"(deepseek_v3")", "5"), core::InputError) << "2 groups have 4";
  const ModelConfig falcon = parsed(R"("model_type":"falcon","alibi":true)");
  EXPECT_EQ(falcon.alibi_slopes, 0.5) << "1 / sqrt(4)";
}

/// 10000 * 1000^(128 / 126); no program scales positions then.
TEST(FamilyTable, AlphaIsAnotherTheta) {
  const ModelConfig config = read_config(kConfigs / "Hunyuan-A13B");
  EXPECT_NEAR(config.rope_theta, 11158839.925077, 1e-3);
  EXPECT_EQ(config.rope_scaling, "");
}

TEST(FamilyTable, PartsThatProgramsHave) {
  const auto read = [](const char* name) { return read_config(kConfigs / name); };
  const ModelConfig gemma = read("gemma-2-2b");
  EXPECT_EQ(gemma.arch.norm_place, NormPlace::both);
  EXPECT_EQ(gemma.window_of(0), 4096);
  EXPECT_EQ(gemma.window_of(1), 0);
  EXPECT_EQ(gemma.score_cap, 50);
  EXPECT_EQ(gemma.query_scale, 0) << "1 / sqrt(256) is usual";
  const ModelConfig phi = read("phi-2");
  EXPECT_EQ(phi.arch.residual, Residual::parallel_one_norm);
  EXPECT_EQ(phi.rotary.dims, 32);
  const ModelConfig smol = read("SmolLM3-3B");
  EXPECT_TRUE(smol.rotary.is_in(2) && !smol.rotary.is_in(3));
  const ModelConfig gemma4 = read("gemma-4-26B-A4B");
  EXPECT_EQ(gemma4.attention_of(5).qk_dim, 512);
  EXPECT_EQ(gemma4.attention_of(5).kv_heads, 2);
  EXPECT_EQ(gemma4.attention_of(0).qk_dim, 256);
  const ModelConfig v3 = read("DeepSeek-V3");
  EXPECT_EQ(v3.attention_of(0).qk_dim, 192);
  EXPECT_FALSE(v3.experts.are_in(2));
  EXPECT_TRUE(v3.experts.are_in(3));
  EXPECT_EQ(v3.other_parts, "one layer that predicts further tokens");
  EXPECT_NE(read("Qwen3-VL-2B-Instruct").other_parts.find("qwen3_vl"), std::string::npos);
}

}  // namespace
}  // namespace rooflm::model

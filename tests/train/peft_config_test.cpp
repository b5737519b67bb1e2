// adapter_config.json as PEFT writes it for others: which modules have adapters, and of which rank; what
// cannot be read is named.
#include "train/peft_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "model/safetensors.h"
#include "tests/compile/passes/recipes.h"
#include "train/adapter_files.h"
#include "training_testing.h"

namespace rooflm::train {
namespace {

using Json = nlohmann::json;
using passes::Adapter;

/// As PEFT 0.18 writes it.
Json usual() {
  return {{"alora_invocation_tokens", nullptr},
          {"alpha_pattern", Json::object()},
          {"arrow_config", nullptr},
          {"auto_mapping", nullptr},
          {"base_model_name_or_path", "base"},
          {"bias", "none"},
          {"corda_config", nullptr},
          {"ensure_weight_tying", false},
          {"eva_config", nullptr},
          {"exclude_modules", nullptr},
          {"fan_in_fan_out", false},
          {"inference_mode", true},
          {"init_lora_weights", true},
          {"layer_replication", nullptr},
          {"layers_pattern", nullptr},
          {"layers_to_transform", nullptr},
          {"loftq_config", Json::object()},
          {"lora_alpha", 16},
          {"lora_bias", false},
          {"lora_dropout", 0.05},
          {"megatron_config", nullptr},
          {"megatron_core", "megatron.core"},
          {"modules_to_save", nullptr},
          {"peft_type", "LORA"},
          {"peft_version", "0.18.0"},
          {"qalora_group_size", 16},
          {"r", 8},
          {"rank_pattern", Json::object()},
          {"revision", nullptr},
          {"target_modules", {"q_proj", "v_proj"}},
          {"target_parameters", nullptr},
          {"task_type", "CAUSAL_LM"},
          {"trainable_token_indices", nullptr},
          {"use_dora", false},
          {"use_qalora", false},
          {"use_rslora", false}};
}

class PeftConfigs : public ::testing::Test {
 protected:
  PeftConfigs() { std::filesystem::create_directories(directory_ / "base"); }

  std::vector<Adapter> read(const Json& changes) {
    Json config = usual();
    if (!changes.is_null()) config.update(changes);
    testing::write_text(directory_ / kAdapterConfig, config.dump());
    return adapters_of(read_peft_config(directory_.path()), tests::small_config(model::Arch::llama));
  }
  /// "l0.q_proj:8 l1.v_proj:8": layer, module and rank.
  std::string modules(const Json& changes) {
    std::string text;
    for (const Adapter& adapter : read(changes)) {
      const std::string& path = adapter.module;
      text += (text.empty() ? "l" : " l") + path.substr(std::string("model.layers.").size(), 1) + "." +
              path.substr(path.rfind('.') + 1) + ":" + std::to_string(adapter.rank);
    }
    return text;
  }
  std::string refusal(const Json& changes) {
    try {
      static_cast<void>(read(changes));
    } catch (const core::InputError& error) {
      return error.what();
    }
    return "";
  }

  testing::ScratchDirectory directory_;
};

TEST_F(PeftConfigs, TargetsAreNamesPathsOrAPattern) {
  const std::string q_and_v = "l0.q_proj:8 l0.v_proj:8 l1.q_proj:8 l1.v_proj:8";
  EXPECT_EQ(modules({}), q_and_v);
  EXPECT_EQ(modules({{"target_modules", R"(.*\.(q|v)_proj)"}}), q_and_v);
  EXPECT_EQ(modules({{"target_modules", R"(model\.layers\.1\..*(gate|up)_proj$)"}}),
            "l1.gate_proj:8 l1.up_proj:8");
  EXPECT_EQ(modules({{"target_modules", {"model.layers.1.self_attn.o_proj", "mlp.down_proj"}}}),
            "l0.down_proj:8 l1.o_proj:8 l1.down_proj:8");
  EXPECT_EQ(read({{"target_modules", "all-linear"}}).size(), 14U);
  EXPECT_EQ(modules({{"target_modules", "all-linear"}, {"exclude_modules", R"(.*mlp.*|.*layers\.0.*)"}}),
            "l1.q_proj:8 l1.k_proj:8 l1.v_proj:8 l1.o_proj:8");
  EXPECT_EQ(modules({{"exclude_modules", {"v_proj"}}}), "l0.q_proj:8 l1.q_proj:8");
  // An end of a name is none of a path; names that the model does not have are nobody's.
  EXPECT_EQ(modules({{"target_modules", {"proj", "q_proj", "w1"}}}), "l0.q_proj:8 l1.q_proj:8");
}

TEST_F(PeftConfigs, LayersAreChosen) {
  EXPECT_EQ(modules({{"layers_to_transform", 1}}), "l1.q_proj:8 l1.v_proj:8");
  EXPECT_EQ(modules({{"layers_to_transform", {0}}, {"layers_pattern", "layers"}}), "l0.q_proj:8 l0.v_proj:8");
  EXPECT_EQ(modules({{"layers_to_transform", {0, 1}}, {"layers_pattern", {"h", "layers"}}}),
            "l0.q_proj:8 l0.v_proj:8 l1.q_proj:8 l1.v_proj:8");
  EXPECT_NE(refusal({{"layers_to_transform", {7}}}).find("target_modules"), std::string::npos);
}

TEST_F(PeftConfigs, RanksAndAlphasGoByPattern) {
  EXPECT_EQ(modules({{"rank_pattern", {{"v_proj", 2}}}}), "l0.q_proj:8 l0.v_proj:2 l1.q_proj:8 l1.v_proj:2");
  EXPECT_EQ(modules({{"rank_pattern", {{R"(^model\.layers\.1\.self_attn\.q_proj)", 3}}}}),
            "l0.q_proj:8 l0.v_proj:8 l1.q_proj:3 l1.v_proj:8");
  const std::vector<Adapter> adapters =
      read({{"alpha_pattern", {{"layers.0.self_attn.v_proj", 4}}}, {"rank_pattern", {{"v_proj", 4}}}});
  EXPECT_EQ(adapters[0].factor(), 2);
  EXPECT_EQ(adapters[1].factor(), 1);
  EXPECT_EQ(adapters[3].factor(), 4);
  EXPECT_EQ(read({{"use_rslora", true}, {"r", 4}})[0].factor(), 8);
  EXPECT_TRUE(read({{"use_dora", true}})[0].is_dora);
  EXPECT_NE(refusal({{"alpha_pattern", {{"v_proj", 4}, {"self_attn.v_proj", 8}}}}).find("both"),
            std::string::npos);
}

TEST_F(PeftConfigs, WhatIsNotReadIsNamed) {
  for (const auto& [changes, says] : std::initializer_list<std::pair<Json, const char*>>{
           {{{"peft_type", "IA3"}}, "peft_type is \"IA3\", expected \"LORA\""},
           {{{"modules_to_save", {"lm_head"}}}, "modules_to_save is [\"lm_head\"]"},
           {{{"lora_bias", true}}, "lora_bias is true"},
           {{{"bias", "lora_only"}}, "bias is \"lora_only\""},
           {{{"layer_replication", {{0, 1}}}}, "layer_replication"},
           {{{"trainable_token_indices", {1}}}, "trainable_token_indices"},
           {{{"target_parameters", {"experts.gate_up_proj"}}}, "target_parameters"},
           {{{"init_lora_weights", "pissa_niter_4"}}, "changes the base's weights"},
           {{{"r", 0}}, "r is 0"},
           {{{"lora_alpha", "16"}}, "lora_alpha"},
           {{{"use_dora", "yes"}}, "use_dora"},
           {{{"target_modules", nullptr}}, "target_modules is null"},
           {{{"target_modules", {"lm_head"}}}, "expected some of the matrices of"},
           {{{"target_modules", "(q_proj"}}, "target_modules: the pattern"},
           {{{"rank_pattern", {{"v_proj", 0.5}}}}, "rank_pattern"},
           {{{"layers_to_transform", "all"}}, "layers_to_transform"},
           {{{"base_model_name_or_path", "meta-llama/Llama-3.1-8B"}}, "ln -s DIR"},
           {{{"base_model_name_or_path", nullptr}}, "ln -s DIR"}}) {
    const std::string message = refusal(changes);
    EXPECT_NE(message.find(says), std::string::npos) << message;
    EXPECT_NE(message.find(kAdapterConfig), std::string::npos) << message;
  }
  EXPECT_EQ(refusal({{"modules_to_save", Json::array()}, {"init_lora_weights", "gaussian"}}), "");
  std::filesystem::create_directory_symlink(directory_ / "base", directory_ / kBaseLink);
  EXPECT_EQ(refusal({{"base_model_name_or_path", "meta-llama/Llama-3.1-8B"}}), "")
      << "the link names the base";
  std::filesystem::remove(directory_ / kBaseLink);
  std::filesystem::create_directory_symlink(directory_.path(), directory_ / kBaseLink);
  const std::string endless = refusal({});
  EXPECT_NE(endless.find("a model: 16 adapters follow, each upon the next"), std::string::npos) << endless;
}

/// Tensors in 16 bits, without config.json: everything else is the base's.
TEST_F(PeftConfigs, FilesOfOthersAreMerged) {
  const model::ModelConfig config = testing::tiny_model(model::Arch::llama);
  std::map<std::string, std::vector<float>> weights;
  for (const model::Parameter& p : model::parameters(config))
    weights[p.name] = model::initial_values(p, config, 1);
  model::save_model(directory_ / "base", config, [&](const std::string& name, std::span<float> values) {
    std::ranges::copy(weights.at(name), values.begin());
  });
  Json text = usual();
  text.update({{"use_dora", true}, {"target_modules", R"(.*\.1\..*\.o_proj)"}, {"r", 2}, {"lora_alpha", 3}});
  testing::write_text(directory_ / kAdapterConfig, text.dump());
  const std::filesystem::path adapter = directory_.path();
  EXPECT_EQ(read_model_config(adapter).d_model, config.d_model) << "of the base";
  const std::vector<Adapter> adapters = adapters_of(read_peft_config(adapter), config);
  ASSERT_EQ(adapters.size(), 1U);
  const Adapter& o = adapters[0];
  const auto values_of = [](std::int64_t count, float start) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(start + 0.125F * static_cast<float>(i % 5));
    return values;
  };
  const std::vector<float> a = values_of(2 * o.in, -0.25F), b = values_of(2 * o.out, 0.125F),
                           m = values_of(o.out, 1);
  const auto write = [&](core::DType dtype, const std::string& prefix, bool has_more) {
    std::vector<model::TensorSource> tensors;
    const auto add = [&](const std::string& name, const std::vector<float>& values,
                         const core::Shape& shape) {
      tensors.push_back(
          {.name = prefix + name, .dtype = dtype, .shape = shape, .write = [=](const core::ByteSink& to) {
             model::write_floats(to, values, dtype);
           }});
    };
    add(o.a(), a, {2, o.in});
    add(o.b(), b, {o.out, 2});
    add(o.magnitude(), m, {o.out});
    if (has_more) add("lm_head.lora_A.weight", a, {2, o.in});
    model::write_safetensors(adapter / kAdapterWeights, tensors);
  };
  for (const core::DType dtype : {core::DType::bf16, core::DType::f16, core::DType::f32}) {
    write(dtype, "base_model.model.", false);
    check_merged(adapter, config);
    std::map<std::string, std::vector<float>> merged;
    load_merged(adapter, config, [&](const std::string& name, std::span<const float> values) {
      merged[name] = {values.begin(), values.end()};
    });
    for (const auto& [name, before] : weights) {
      if (name != o.weight) {
        EXPECT_EQ(merged.at(name), before) << name;
        continue;
      }
      for (std::int64_t row = 0; row < o.out; ++row) {
        const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(row * o.in + i); };
        std::vector<double> sum;
        double square = 0;
        for (std::int64_t i = 0; i < o.in; ++i) {
          const auto r = static_cast<std::size_t>(2 * row), in = static_cast<std::size_t>(i);
          sum.push_back(before[at(i)] +
                        1.5 * (b[r] * a[in] + b[r + 1] * a[static_cast<std::size_t>(o.in) + in]));
          square += sum.back() * sum.back();
        }
        for (std::int64_t i = 0; i < o.in; ++i) {
          EXPECT_NEAR(merged.at(name)[at(i)],
                      m[static_cast<std::size_t>(row)] * sum[static_cast<std::size_t>(i)] / std::sqrt(square),
                      1e-6);
        }
      }
    }
  }
  const auto refused = [&] {
    try {
      check_merged(adapter, config);
    } catch (const core::InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  write(core::DType::bf16, "base_model.model.", true);
  EXPECT_NE(refused().find("lm_head.lora_A.weight is not of an adapter"), std::string::npos) << refused();
  write(core::DType::bf16, "model.", false);
  EXPECT_NE(refused().find("there is no tensor base_model.model."), std::string::npos) << refused();
  std::filesystem::rename(adapter / kAdapterWeights, adapter / "adapter_model.bin");
  EXPECT_NE(refused().find("safe_serialization=True"), std::string::npos) << refused();
}

}  // namespace
}  // namespace rooflm::train

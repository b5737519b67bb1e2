// Hugging Face directories: the goldens that PyTorch wrote, round trips, and directories that do not fit.
#include "model/huggingface.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/rng.h"
#include "model/huggingface_layout.h"
#include "model/parameters.h"

namespace rooflm::model {
namespace {

namespace fs = std::filesystem;
using testing::IsSubstring;
using Values = std::map<std::string, std::vector<float>>;

const fs::path kGoldens = fs::path(ROOFLM_TESTS_DIR) / "goldens";

Values load(const fs::path& directory, const ModelConfig& config) {
  Values all;
  load_weights(directory, config, [&](const std::string& name, std::span<const float> values) {
    EXPECT_TRUE(all.emplace(name, std::vector<float>(values.begin(), values.end())).second) << name;
  });
  return all;
}

std::vector<float> stored(const SafetensorsFile& file, const std::string& name) {
  std::vector<float> values(static_cast<std::size_t>(file.at(name).shape.numel()));
  read_floats(file.at(name), values);
  return values;
}

class HuggingFace : public testing::Test {
 protected:
  HuggingFace() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    directory_ =
        fs::temp_directory_path() / (std::string("rooflm_hf_") + test->name() + std::to_string(::getpid()));
    fs::create_directories(directory_);
  }
  ~HuggingFace() override { fs::remove_all(directory_); }

  void write_config(const std::string& text) const { std::ofstream(directory_ / "config.json") << text; }
  /// The message with which reading config.json fails.
  std::string config_error(const std::string& text) const {
    write_config(text);
    try {
      read_config(directory_);
    } catch (const core::InputError& error) {
      EXPECT_PRED_FORMAT2(IsSubstring, (directory_ / "config.json").string(), error.what());
      return error.what();
    }
    return "no error";
  }
  /// The message with which loading `tensors` as the golden of `kind` fails.
  std::string load_error(const char* kind, const std::vector<TensorSource>& tensors) const {
    write_safetensors(directory_ / "model.safetensors", tensors);
    try {
      load(directory_, read_config(kGoldens / kind));
    } catch (const core::InputError& error) {
      return error.what();
    }
    return "no error";
  }

  fs::path directory_;
};

/// The tensors of a golden, to be changed and written again.
std::vector<TensorSource> golden_tensors(const char* kind) {
  const SafetensorsFile file(kGoldens / kind / "model.safetensors");
  std::vector<TensorSource> tensors;
  for (const StoredTensor& tensor : file.tensors()) {
    const std::vector<std::byte> bytes(tensor.bytes.begin(), tensor.bytes.end());
    tensors.push_back(
        {tensor.name, core::DType::f32, tensor.shape, [=](const core::ByteSink& sink) { sink(bytes); }});
  }
  return tensors;
}

TensorSource constant(const std::string& name, const core::Shape& shape, float value) {
  const std::vector<float> values(static_cast<std::size_t>(shape.numel()), value);
  return {name, core::DType::f32, shape,
          [=](const core::ByteSink& sink) { write_floats(sink, values, core::DType::f32); }};
}

/// A whole number per element that differs between parameters; exact in bf16.
float marker(const std::string& name, std::size_t i) {
  return static_cast<float>((std::hash<std::string>()(name) + i * 7) % 251);
}

/// Saves a model of markers and checks that loading gives them back, padding rows as zeros.
void expect_round_trip(const fs::path& directory, const ModelConfig& config, core::DType dtype,
                       std::uint64_t max_shard_bytes = kMaxShardBytes) {
  save_model(
      directory, config,
      [](const std::string& name, std::span<float> values) {
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = marker(name, i);
      },
      dtype, max_shard_bytes);
  const ModelConfig read = read_config(directory);
  EXPECT_EQ(config_json(read, dtype), config_json(config, dtype));
  EXPECT_EQ(read.padded_vocab, config.padded_vocab);
  const Values values = load(directory, read);
  const auto all = parameters(config);
  ASSERT_EQ(values.size(), all.size());
  for (const Parameter& p : all) {
    const bool has_padding = p.name == "wte" || p.name == "lm_head.weight";
    const auto& v = values.at(p.name);
    ASSERT_EQ(v.size(), static_cast<std::size_t>(p.shape.numel()));
    const auto used = has_padding ? static_cast<std::size_t>(config.vocab * config.d_model) : v.size();
    for (std::size_t i = 0; i < v.size(); ++i) {
      ASSERT_EQ(v[i], i < used ? marker(p.name, i) : 0.0F) << p.name << " element " << i;
    }
  }
}

ModelConfig small(Arch arch) {
  return with_overrides(preset(arch == Arch::gpt2 ? "gpt2" : "tiny"),
                        {.layers = 2, .heads = 3, .d_model = 18, .d_ff = 20, .vocab = 37});
}

TEST_F(HuggingFace, TheEndsOfTextsAreWrittenWhereTheVocabularyHasThem) {
  for (const Arch arch : {Arch::gpt2, Arch::llama}) {
    const std::string ends = config_json(small(arch), core::DType::f32, {.begin = 35, .end = 36});
    EXPECT_NE(ends.find("\"bos_token_id\": 35"), std::string::npos) << ends;
    EXPECT_NE(ends.find("\"eos_token_id\": 36"), std::string::npos) << ends;
    const std::string beyond = config_json(small(arch), core::DType::f32, {.begin = {}, .end = 37});
    EXPECT_EQ(beyond, config_json(small(arch), core::DType::f32));
  }
}

TEST_F(HuggingFace, ReadsTheConfigurationsOfTheGoldens) {
  const ModelConfig gpt2 = read_config(kGoldens / "gpt2");
  EXPECT_EQ(gpt2.name, "gpt2");
  EXPECT_EQ(gpt2.arch, Arch::gpt2);
  EXPECT_EQ(gpt2.d_ff, 34);
  EXPECT_EQ(gpt2.head_dim, 5);
  EXPECT_EQ(gpt2.padded_vocab, 67);
  EXPECT_TRUE(gpt2.tied_head);
  const ModelConfig llama = read_config((kGoldens / "llama").string() + "/");
  EXPECT_EQ(llama.name, "llama");
  EXPECT_EQ(llama.arch, Arch::llama);
  EXPECT_EQ(llama.kv_heads, 2);
  EXPECT_EQ(llama.head_dim, 6);
  EXPECT_EQ(llama.max_seq, 13);
  EXPECT_FALSE(llama.tied_head);
}

TEST_F(HuggingFace, Gpt2WeightsAreTransposed) {
  const ModelConfig config = read_config(kGoldens / "gpt2");
  const Values values = load(kGoldens / "gpt2", config);
  EXPECT_EQ(values.size(), parameters(config).size());
  const SafetensorsFile file(kGoldens / "gpt2/model.safetensors");
  const auto conv = stored(file, "transformer.h.1.mlp.c_fc.weight");  // [15, 34]
  const auto& linear = values.at("h.1.feed_forward.fc1.weight");      // [34, 15]
  for (std::size_t in = 0; in < 15; ++in) {
    for (std::size_t out = 0; out < 34; ++out) ASSERT_EQ(linear[out * 15 + in], conv[in * 34 + out]);
  }
  EXPECT_EQ(values.at("wpe"), stored(file, "transformer.wpe.weight"));
  EXPECT_EQ(values.at("h.0.ln2.bias"), stored(file, "transformer.h.0.ln_2.bias"));
  EXPECT_EQ(values.at("ln_f.weight"), stored(file, "transformer.ln_f.weight"));
}

TEST_F(HuggingFace, LlamaWeightsArePacked) {
  const ModelConfig config = read_config(kGoldens / "llama");
  const Values values = load(kGoldens / "llama", config);
  EXPECT_EQ(values.size(), parameters(config).size());
  const SafetensorsFile file(kGoldens / "llama/model.safetensors");
  const auto packed = [&](const std::vector<std::string>& names) {
    std::vector<float> all;
    for (const std::string& name : names) {
      const auto part = stored(file, "model.layers.1." + name + ".weight");
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };
  EXPECT_EQ(values.at("h.1.attention.qkv.weight"),
            packed({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}));
  EXPECT_EQ(values.at("h.1.feed_forward.fc1.weight"), packed({"mlp.gate_proj", "mlp.up_proj"}));
  EXPECT_EQ(values.at("h.1.ln2.weight"), packed({"post_attention_layernorm"}));
  EXPECT_EQ(values.at("lm_head.weight"), stored(file, "lm_head.weight"));
}

TEST_F(HuggingFace, RoundTrips) {
  ModelConfig llama = small(Arch::llama);
  llama.kv_heads = 1;
  llama.head_dim = 8;  // not d_model / heads
  expect_round_trip(directory_ / "llama", llama, core::DType::f32);
  llama.tied_head = true;
  expect_round_trip(directory_ / "tied", llama, core::DType::bf16);
  ModelConfig qwen2 = llama;
  qwen2.qkv_bias = true;
  qwen2.window = 8;
  qwen2.windowed = {false, true};
  expect_round_trip(directory_ / "qwen2", qwen2, core::DType::f32);
  ModelConfig mistral = llama;
  mistral.window = 8;
  expect_round_trip(directory_ / "mistral", mistral, core::DType::f32);
  ModelConfig biased = llama;
  biased.qkv_bias = biased.proj_bias = biased.mlp_bias = true;
  expect_round_trip(directory_ / "biased", biased, core::DType::f32);
  ModelConfig scaled = llama;
  scaled.rope_scaling = "llama3";
  scaled.rotary = {.factor = 8, .original = 64};
  expect_round_trip(directory_ / "scaled", scaled, core::DType::f32);
  ModelConfig without = llama;
  without.rotary.in_layer = {true, false};
  expect_round_trip(directory_ / "smollm3", without, core::DType::f32);
  ModelConfig mixed = biased;  // of no family
  mixed.sinks = true;
  EXPECT_THROW((void)config_json(mixed, core::DType::f32), core::Unavailable);
  expect_round_trip(directory_ / "gpt2", small(Arch::gpt2), core::DType::f16);
  expect_round_trip(directory_ / "shards", small(Arch::gpt2), core::DType::f32, 3000);
  EXPECT_TRUE(fs::exists(directory_ / "shards/model.safetensors.index.json"));
}

TEST_F(HuggingFace, PaddingRowsAreDroppedAndComeBackAsZeros) {
  ModelConfig config = small(Arch::gpt2);
  config.vocab = 50257;
  config.padded_vocab = 50304;
  expect_round_trip(directory_, config, core::DType::bf16);
  const SafetensorsFile file(directory_ / "model.safetensors");
  EXPECT_EQ(file.at("transformer.wte.weight").shape, (core::Shape{50257, 18}));
}

TEST_F(HuggingFace, AcceptsWhatOldFilesCarry) {
  auto tensors = golden_tensors("gpt2");
  for (TensorSource& tensor : tensors) tensor.name = tensor.name.substr(std::string("transformer.").size());
  tensors.push_back(constant("h.0.attn.bias", {1, 1, 13, 13}, 1));
  tensors.push_back(constant("h.0.attn.masked_bias", {}, -1e4F));
  tensors.push_back(constant("lm_head.weight", {67, 15}, 0));
  EXPECT_EQ(load_error("gpt2", tensors), "no error");
  tensors = golden_tensors("llama");
  tensors.push_back(constant("model.layers.0.self_attn.rotary_emb.inv_freq", {3}, 1));
  EXPECT_EQ(load_error("llama", tensors), "no error");
}

/// Each expert's tensors are rows of one parameter; what is written is what transformers reads.
TEST_F(HuggingFace, ExpertsAreReadAndWritten) {
  ModelConfig mixtral = preset("tiny-moe");
  mixtral.layers = 1;
  mixtral.d_model = 4;
  mixtral.heads = mixtral.kv_heads = 2;
  mixtral.head_dim = 2;
  mixtral.d_ff = mixtral.experts.d_ff = 3;
  mixtral.vocab = mixtral.padded_vocab = 5;
  ModelConfig qwen = mixtral;
  qwen.qk_norm = QkNorm::head;
  for (const ModelConfig& config : {mixtral, qwen}) {
    const bool has_norms = config.qk_norm != QkNorm::none;
    const std::string block = has_norms ? "mlp." : "block_sparse_moe.";
    const auto all = parameters(config);
    const auto tensors = file_tensors(all, config);
    const auto find = [&](const std::string& name) {
      const auto found =
          std::ranges::find(tensors, "model.layers.0." + block + name + ".weight", &FileTensor::name);
      return found == tensors.end() ? FileTensor{} : *found;
    };
    EXPECT_EQ(find("gate").shape, (core::Shape{8, 4}));
    const FileTensor up = find(has_norms ? "experts.7.up_proj" : "experts.7.w3");
    EXPECT_EQ(up.shape, (core::Shape{3, 4}));
    ASSERT_EQ(up.pieces.size(), 1U);
    EXPECT_EQ(plain_row(up, up.pieces[0]), 15 * 3);
    const FileTensor down = find(has_norms ? "experts.7.down_proj" : "experts.7.w2");
    EXPECT_EQ(down.shape, (core::Shape{4, 3}));
    ASSERT_EQ(down.pieces.size(), 1U);
    EXPECT_EQ(plain_row(down, down.pieces[0]), 7 * 4);
  }
  Values values;
  for (const Parameter& p : parameters(mixtral)) values[p.name] = initial_values(p, mixtral, 1);
  save_model(directory_, mixtral, [&](const std::string& name, std::span<float> to) {
    std::ranges::copy(values.at(name), to.begin());
  });
  EXPECT_EQ(load(directory_, mixtral), values);
  const ModelConfig read = read_config(directory_);
  EXPECT_EQ(read.experts.count, 8);
  EXPECT_EQ(read.experts.active, 2);
  EXPECT_EQ(read.experts.d_ff, 3);
  EXPECT_EQ(read.experts.balance_loss, 0.01);
  mixtral.experts.sigmoid_scores = true;
  EXPECT_THROW(config_json(mixtral, core::DType::f32, {}), core::Unavailable);
}

TEST_F(HuggingFace, RefusesTensorsThatDoNotFit) {
  const auto tensors = golden_tensors("llama");
  auto changed = tensors;
  std::erase_if(changed, [](const auto& t) { return t.name == "model.layers.1.self_attn.k_proj.weight"; });
  EXPECT_PRED_FORMAT2(
      IsSubstring, "there is no tensor model.layers.1.self_attn.k_proj.weight, expected with shape [12, 24]",
      load_error("llama", changed));
  changed.push_back(constant("model.layers.1.self_attn.k_proj.weight", {24, 24}, 1));
  EXPECT_PRED_FORMAT2(IsSubstring, "k_proj.weight has the shape [24, 24], config.json asks for [12, 24]",
                      load_error("llama", changed));
  changed = tensors;
  changed.push_back(constant("model.layers.2.mlp.up_proj.weight", {2, 2}, 1));
  EXPECT_PRED_FORMAT2(IsSubstring,
                      "model.layers.2.mlp.up_proj.weight [2, 2] does not belong to a llama model",
                      load_error("llama", changed));
  changed = golden_tensors("gpt2");
  changed.push_back(constant("wte.weight", {67, 15}, 1));
  EXPECT_PRED_FORMAT2(IsSubstring, "is there twice", load_error("gpt2", changed));
}

TEST_F(HuggingFace, RefusesValuesThatAreNotFinite) {
  auto tensors = golden_tensors("gpt2");
  for (TensorSource& tensor : tensors) {
    if (!tensor.name.ends_with("h.0.attn.c_proj.weight")) continue;
    tensor = constant(tensor.name, tensor.shape, std::numeric_limits<float>::quiet_NaN());
  }
  EXPECT_PRED_FORMAT2(IsSubstring, "attn.c_proj.weight [15, 15] holds nan at element 0",
                      load_error("gpt2", tensors));
}

TEST_F(HuggingFace, FamiliesAreRowsOfATable) {
  const auto read = [&](const std::string& more) {
    write_config(
        R"({"vocab_size":9,"hidden_size":8,"intermediate_size":8,"num_hidden_layers":4,"num_attention_heads":2,)"
        R"("max_position_embeddings":64,)" +
        more + "}");
    return read_config(directory_);
  };
  const ModelConfig mistral = read(R"("model_type":"mistral","sliding_window":16)");
  EXPECT_EQ(mistral.window, 16);  // of attention
  EXPECT_EQ(mistral.max_seq, 64);
  EXPECT_EQ(uncomputed(mistral), "");
  EXPECT_EQ(read(R"("model_type":"mistral","sliding_window":null)").window, 0);
  for (const char* window : {"0", "-4", "\"8\"", "1.5"})
    EXPECT_THROW(read(R"("model_type":"mistral","sliding_window":)" + std::string(window)), core::InputError);

  EXPECT_EQ(read(R"("model_type":"qwen2","sliding_window":16)").window, 0);
  const ModelConfig qwen2 = read(R"("model_type":"qwen2","sliding_window":16,"use_sliding_window":true,)"
                                 R"("max_window_layers":3)");
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.proj_bias && qwen2.has_unlike_layers());
  EXPECT_EQ(qwen2.window_of(2), 0);
  EXPECT_EQ(qwen2.window_of(3), 16);
  const ModelConfig listed =
      read(R"("model_type":"qwen2","sliding_window":16,"use_sliding_window":true,"layer_types":)"
           R"(["sliding_attention","full_attention","sliding_attention","sliding_attention"])");
  EXPECT_EQ(listed.window_of(1), 0);
  EXPECT_EQ(listed.window_of(2), 16);
  const ModelConfig pattern =
      read(R"("model_type":"mistral","sliding_window":16,"sliding_window_pattern":2)");
  EXPECT_EQ(pattern.window_of(0), 16);
  EXPECT_EQ(pattern.window_of(1), 0);

  const ModelConfig gemma3 =
      read(R"("model_type":"gemma3_text","head_dim":4,"num_key_value_heads":2,"sliding_window":16,)"
           R"("layer_types":["sliding_attention",)"
           R"("full_attention","sliding_attention","full_attention"],"rope_parameters":{"full_attention":)"
           R"({"rope_theta":1e6,"rope_type":"linear","factor":8},"sliding_attention":{"rope_theta":1e4}})");
  EXPECT_EQ(gemma3.rope_theta, 1e6);
  EXPECT_EQ(gemma3.rope_scaling, "linear");
  EXPECT_EQ(gemma3.window_theta, 1e4);
  EXPECT_EQ(gemma3.left_out, "");
  EXPECT_EQ(uncomputed(read(R"("model_type":"bloom")")), "");
  EXPECT_PRED_FORMAT2(IsSubstring, "other slopes",
                      uncomputed(read(R"("model_type":"mpt","attn_config":{"alibi_bias_max":4})")));
  const ModelConfig deepseek =
      read(R"("model_type":"deepseek_v3","q_lora_rank":4,"kv_lora_rank":6,"qk_nope_head_dim":3,)"
           R"("qk_rope_head_dim":2,"v_head_dim":3,"n_routed_experts":4,"n_group":1,"num_experts_per_tok":2,)"
           R"("moe_intermediate_size":3,"rope_scaling":{"type":"yarn","factor":40,"mscale":1.0,)"
           R"("mscale_all_dim":1.0,"original_max_position_embeddings":4096})");
  EXPECT_EQ(deepseek.rotary.attention, 1);
  EXPECT_NEAR(deepseek.query_scale, std::pow(0.1 * std::log(40.0) + 1, 2) / std::sqrt(5.0), 1e-12);

  const ModelConfig qwen3 = read(R"("model_type":"qwen3","head_dim":6)");
  EXPECT_TRUE(qwen3.qk_norm == QkNorm::head && !qwen3.qkv_bias);
  EXPECT_EQ(uncomputed(qwen3), "");

  const ModelConfig bias = read(R"("model_type":"llama","attention_bias":true,"mlp_bias":true)");
  EXPECT_TRUE(bias.qkv_bias && bias.proj_bias && bias.mlp_bias);
  EXPECT_EQ(uncomputed(bias), "");

  const ModelConfig scaled =
      read(R"("model_type":"llama","rope_theta":7,"rope_scaling":{"rope_type":"llama3","factor":8.0})");
  EXPECT_EQ(scaled.rope_theta, 7);
  EXPECT_EQ(uncomputed(scaled), "");
  EXPECT_PRED_FORMAT2(IsSubstring, "scaled by longrope",
                      uncomputed(read(R"("model_type":"llama","rope_scaling":{"type":"longrope"})")));
  EXPECT_EQ(read(R"("model_type":"llama","rope_scaling":{"type":"yarn","factor":8.0})").rope_scaling, "yarn");
  EXPECT_EQ(read(R"("model_type":"llama","rope_scaling":{"rope_type":"default"})").rope_scaling, "");

  const ModelConfig mixtral = read(R"("model_type":"mixtral","num_local_experts":4,"num_experts_per_tok":2)");
  EXPECT_EQ(mixtral.experts.count, 4);
  EXPECT_EQ(mixtral.experts.d_ff, 8);
  EXPECT_EQ(uncomputed(mixtral), "");
  EXPECT_TRUE(mixtral.experts.normalised);
  const ModelConfig qwen3_moe =
      read(R"("model_type":"qwen3_moe","num_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":3,)"
           R"("mlp_only_layers":[0],"decoder_sparse_step":2)");
  EXPECT_EQ(qwen3_moe.experts.d_ff, 3);
  EXPECT_FALSE(qwen3_moe.experts.are_in(0));
  EXPECT_TRUE(qwen3_moe.experts.are_in(1));
  EXPECT_FALSE(qwen3_moe.experts.are_in(2));
  EXPECT_THROW(read(R"("model_type":"mixtral","num_local_experts":4,"num_experts_per_tok":5)"),
               core::InputError);
  EXPECT_THROW(read(R"("model_type":"mixtral","num_local_experts":0)"), core::InputError);

  EXPECT_THROW(read(R"("model_type":"deepseek_v3","kv_lora_rank":512)"), core::InputError);
  EXPECT_THROW(read(R"("model_type":"mamba")"), core::Unavailable);
  write_config(R"({"architectures":["GPT2LMHeadModel"],"n_layer":1,"n_head":2,"n_embd":8,"vocab_size":9,)"
               R"("n_positions":64})");
  EXPECT_EQ(read_config(directory_).arch, Arch::gpt2);  // as files of distilgpt2 are
}

/// Published numbers of parameters, from the configurations that were published with them.
TEST_F(HuggingFace, ParametersAreCountedToTheLastOne) {
  struct Case {
    const char* config;
    std::int64_t parameters, active;
  };
  const Case cases[] = {
      {R"({"model_type":"mixtral","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,)"
       R"("num_attention_heads":32,"num_key_value_heads":8,"num_local_experts":8,"num_experts_per_tok":2,)"
       R"("vocab_size":32000})",
       46702792704, 12879925248},
      {R"({"model_type":"qwen3_moe","head_dim":128,"hidden_size":2048,"intermediate_size":6144,)"
       R"("moe_intermediate_size":768,"num_attention_heads":32,"num_key_value_heads":4,"num_experts":128,)"
       R"("num_experts_per_tok":8,"num_hidden_layers":48,"vocab_size":151936})",
       30532122624, 3353032704},
      {R"({"model_type":"qwen2","hidden_size":3584,"intermediate_size":18944,"num_attention_heads":28,)"
       R"("num_key_value_heads":4,"num_hidden_layers":28,"vocab_size":152064})",
       7615616512, 7615616512},
      {R"({"model_type":"qwen3","head_dim":128,"hidden_size":1024,"intermediate_size":3072,)"
       R"("num_attention_heads":16,"num_key_value_heads":8,"num_hidden_layers":28,"vocab_size":151936,)"
       R"("tie_word_embeddings":true})",
       596049920, 596049920},
      {R"({"model_type":"mistral","hidden_size":4096,"intermediate_size":14336,"num_attention_heads":32,)"
       R"("num_key_value_heads":8,"num_hidden_layers":32,"vocab_size":32000,"sliding_window":4096})",
       7241732096, 7241732096},
      {R"({"model_type":"llama","hidden_size":2048,"intermediate_size":8192,"num_attention_heads":32,)"
       R"("num_key_value_heads":8,"head_dim":64,"num_hidden_layers":16,"vocab_size":128256,)"
       R"("tie_word_embeddings":true,"rope_scaling":{"rope_type":"llama3"}})",
       1235814400, 1235814400},
  };
  for (const Case& each : cases) {
    write_config(each.config);
    const ModelConfig config = read_config(directory_);
    EXPECT_EQ(parameter_count(config), each.parameters) << each.config;
    EXPECT_EQ(active_parameter_count(config), each.active) << each.config;
    EXPECT_EQ(padding_count(config), 0);
  }
}

TEST_F(HuggingFace, RefusesConfigurationsThatRooflmDoesNotCompute) {
  const std::string llama =
      R"("model_type":"llama","vocab_size":9,"hidden_size":8,"intermediate_size":8,"num_hidden_layers":1,)";
  const auto with = [&](const std::string& more) { return config_error("{" + llama + more + "}"); };
  EXPECT_EQ(with(R"("num_attention_heads":2,"rope_scaling":null,"attention_bias":false)"), "no error");
  EXPECT_EQ(with(R"("num_attention_heads":2,"rope_parameters":{"rope_theta":5e5,"rope_type":"default"})"),
            "no error");
  EXPECT_EQ(read_config(directory_).rope_theta, 5e5);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("num_attention_heads":2,"rope_scaling":"llama3")", "rope_scaling is \"llama3\", expected"},
      {R"("num_attention_heads":2,"rope_parameters":{"rope_type":7})", "rope_parameters is"},
      {R"("num_attention_heads":2,"attention_bias":"yes")",
       "attention_bias is \"yes\", expected true or false"},
      {R"("num_attention_heads":2,"hidden_act":"cubic")", "hidden_act is \"cubic\", expected silu or swish"},
      {R"("num_attention_heads":2,"architectures":["MixtralForCausalLM"])", "LlamaForCausalLM"},
      {R"("num_attention_heads":3)", "num_attention_heads 3 does not divide hidden_size 8"},
      {R"("num_attention_heads":8)", "a head size of 1 is odd"},
      {R"("num_attention_heads":4,"num_key_value_heads":3)", "num_key_value_heads 3 does not divide"},
      {R"("num_attention_heads":0)", "num_attention_heads is 0, expected a positive integer"},
      {R"("num_attention_heads":-2)", "num_attention_heads is -2"},
      {R"("num_attention_heads":"2")", "num_attention_heads is \"2\""},
      {R"("num_attention_heads":2,"rms_norm_eps":0)", "rms_norm_eps is 0, expected a positive number"},
      {R"("num_attention_heads":2,"tie_word_embeddings":1)",
       "tie_word_embeddings is 1, expected true or false"},
      {R"("num_key_value_heads":2)", "the key num_attention_heads is missing"},
  };
  for (const auto& [more, message] : cases) EXPECT_PRED_FORMAT2(IsSubstring, message, with(more));
  EXPECT_PRED_FORMAT2(IsSubstring, "model_type is \"mambo\", expected one of llama, ",
                      config_error(R"({"model_type":"mambo"})"));
  EXPECT_PRED_FORMAT2(IsSubstring, "model_type is missing", config_error("{}"));
  EXPECT_PRED_FORMAT2(IsSubstring, "not valid JSON", config_error("{"));
  EXPECT_PRED_FORMAT2(IsSubstring, "n_layer is 2000000000, expected at most",
                      config_error(R"({"model_type":"gpt2","n_layer":2000000000})"));
  EXPECT_PRED_FORMAT2(IsSubstring, "activation_function is \"cubic\"",
                      config_error(R"({"model_type":"gpt2","activation_function":"cubic"})"));
}

TEST_F(HuggingFace, UnwritableDirectoryIsAnInputError) {
  const auto zeros = [](const std::string&, std::span<float>) {};
  EXPECT_THROW(save_model("/proc/nowhere", small(Arch::gpt2), zeros), core::InputError);
  EXPECT_THROW(read_config("/nowhere"), core::InputError);
}

}  // namespace
}  // namespace rooflm::model

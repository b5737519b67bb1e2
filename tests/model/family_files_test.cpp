// The tensors that transformers writes for each family are those that rooflm reads and writes.
#include <gtest/gtest.h>

#include <map>

#include "core/error.h"
#include "model/huggingface_layout.h"
#include "tests/model/family_golden.h"

namespace rooflm::model {
namespace {

namespace fs = std::filesystem;
using tests::FamilyGolden;
using Loaded = std::map<std::string, std::vector<float>>;

Loaded load_all(const fs::path& directory, const ModelConfig& config) {
  Loaded all;
  load_weights(directory, config, [&](const std::string& name, std::span<const float> values) {
    all[name] = {values.begin(), values.end()};
  });
  return all;
}

std::vector<float> floats(const StoredTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.numel()));
  read_floats(tensor, values);
  return values;
}

class FamilyFiles : public testing::TestWithParam<std::string> {};

TEST_P(FamilyFiles, AreReadAndWrittenAsTransformersDoes) {
  const FamilyGolden golden(GetParam());
  ModelConfig config;
  try {
    config = read_config(golden.directory());
  } catch (const core::Unavailable& error) {
    GTEST_SKIP() << error.what();
  }
  const Loaded weights = load_all(golden.directory(), config);
  EXPECT_EQ(weights.size(), parameters(config).size());

  const fs::path copy = golden.directory() / "copy";
  fs::create_directories(copy);
  save_model(copy, config, [&](const std::string& name, std::span<float> values) {
    std::ranges::copy(weights.at(name), values.begin());
  });
  const SafetensorsFile before(golden.directory() / "model.safetensors");
  const SafetensorsFile after(copy / "model.safetensors");
  for (const StoredTensor& tensor : after.tensors())
    EXPECT_EQ(floats(tensor), floats(before.at(tensor.name))) << tensor.name;
  for (const StoredTensor& tensor : before.tensors()) {
    if (!weight_name(tensor.name, config).empty()) {
      EXPECT_NE(after.find(tensor.name), nullptr) << tensor.name;
    }
  }

  ModelConfig read = read_config(copy);
  EXPECT_EQ(read.family, config.family);
  EXPECT_EQ(config_json(read, core::DType::f32), config_json(config, core::DType::f32));
  EXPECT_EQ(parameter_count(read), parameter_count(config));
  read.name = config.name;
  EXPECT_EQ(load_all(copy, read), weights);
}

TEST_P(FamilyFiles, ThatDoNotFitAreRefusedInOneLine) {
  const FamilyGolden golden(GetParam());
  ModelConfig config;
  try {
    config = read_config(golden.directory());
  } catch (const core::Unavailable& error) {
    GTEST_SKIP() << error.what();
  }
  const std::vector<TensorSource> all = golden.tensors();
  const auto last = std::ranges::find_if(all, [&](const TensorSource& tensor) {
    return tensor.shape.rank() > 0 && tensor.name.find(".1.") != std::string::npos &&
           !weight_name(tensor.name, config).empty();
  });
  ASSERT_NE(last, all.end());
  const auto expect_refused = [&](const std::vector<TensorSource>& tensors, const std::string& name,
                                  const std::string& what) {
    golden.write(tensors);
    try {
      check_weights(golden.directory(), config);
      ADD_FAILURE() << "accepted: " << name << " " << what;
    } catch (const core::InputError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(name), std::string::npos) << message;
      EXPECT_NE(message.find(what), std::string::npos) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
  };
  const auto at = static_cast<std::size_t>(last - all.begin());
  auto tensors = all;
  tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(at));
  expect_refused(tensors, last->name, "there is no tensor");
  tensors.push_back(FamilyGolden::source(last->name, {3, 1}, {1, 2, 3}));
  expect_refused(tensors, last->name, "has the shape [3, 1], config.json asks for " + last->shape.str());
  tensors = all;
  tensors.push_back(FamilyGolden::source(last->name + ".more", {1}, {1}));
  expect_refused(tensors, last->name + ".more", "does not belong to");
  tensors = all;
  tensors.push_back(all[at]);
  tensors.back().name = all[at].name.substr(all[at].name.find('.') + 1);
  expect_refused(tensors, last->name.substr(last->name.find('.') + 1), "is there twice");
}

/// Of published models, and of presets.
TEST(ConfigJson, IsWrittenUnderTheFamilysKeysAndReadBack) {
  const fs::path configs = fs::path(ROOFLM_TESTS_DIR) / "model/configs";
  const fs::path directory = fs::temp_directory_path() / ("rooflm_json_" + std::to_string(::getpid()));
  fs::create_directories(directory);
  const auto expect_same = [&](const ModelConfig& config) {
    SCOPED_TRACE(config.name);
    const std::string text = config_json(config, core::DType::bf16);
    std::ofstream(directory / "config.json") << text;
    const ModelConfig read = read_config(directory);
    EXPECT_EQ(parameter_count(read), parameter_count(config)) << text;
    EXPECT_EQ(config_json(read, core::DType::bf16), text);
  };
  for (const auto& entry : fs::directory_iterator(configs)) {
    ModelConfig config;
    try {
      config = read_config(entry.path());
    } catch (const core::Unavailable&) {
      continue;  // layers that no program describes
    }
    // Positions that differ by kind of layer are described by one of the two.
    if (config.name != "gemma-4-26B-A4B") {
      EXPECT_NO_THROW(expect_same(config)) << config.name;
    } else {
      EXPECT_THROW(expect_same(config), core::Unavailable);
    }
    EXPECT_NO_THROW((void)file_tensors(parameters(config), config)) << config.name;
  }
  for (const std::string& name : preset_names()) EXPECT_NO_THROW(expect_same(preset(name))) << name;
  fs::remove_all(directory);
}

/// Newer files hold all experts of a layer in one tensor, some of them [in, out].
TEST(PackedExperts, AreReadLikeSeparateOnes) {
  for (const char* name : {"qwen3_moe", "deepseek_v3", "mixtral"}) {
    const FamilyGolden golden(name);
    const ModelConfig config = read_config(golden.directory());
    const Loaded weights = load_all(golden.directory(), config);
    const auto all = parameters(config);
    for (const ExpertPacking packing : {ExpertPacking::packed, ExpertPacking::packed_transposed}) {
      std::vector<TensorSource> tensors;
      for (const FileTensor& tensor : file_tensors(all, config, packing)) {
        std::vector<float> values(static_cast<std::size_t>(tensor.shape.numel()));
        for (const Piece& piece : tensor.pieces)
          to_file(tensor, piece, weights.at(all[piece.parameter].name), values);
        tensors.push_back(FamilyGolden::source(tensor.name, tensor.shape, values));
      }
      golden.write(tensors);
      EXPECT_LT(tensors.size(), golden.facts.at("tensors").size());
      EXPECT_EQ(load_all(golden.directory(), config), weights) << name;
    }
  }
}

/// The text model is read under the names of its family and under those that wrappers use.
TEST(OtherParts, AreLeftInTheFile) {
  const FamilyGolden golden("gemma3");
  const Loaded weights = load_all(golden.directory(), read_config(golden.directory()));
  nlohmann::json wrapper{{"model_type", "gemma3"}, {"vision_config", {{"hidden_size", 8}}}};
  wrapper["text_config"] = golden.facts.at("config");
  std::ofstream(golden.directory() / "config.json") << wrapper;
  const ModelConfig config = read_config(golden.directory());
  EXPECT_NE(config.other_parts, "");
  EXPECT_EQ(config.family, "gemma3_text");
  for (const std::string prefix : {"language_model.model.", "model.language_model.", "model."}) {
    auto tensors = golden.tensors();
    for (TensorSource& tensor : tensors) tensor.name = prefix + tensor.name.substr(6);
    tensors.push_back(FamilyGolden::source("vision_tower.layers.0.weight", {2}, {1, 2}));
    golden.write(tensors);
    EXPECT_EQ(load_all(golden.directory(), config), weights) << prefix;
    tensors.push_back(FamilyGolden::source(prefix + "layers.0.more.weight", {2}, {1, 2}));
    golden.write(tensors);
    EXPECT_THROW(check_weights(golden.directory(), config), core::InputError) << prefix;
  }
}

TEST(OtherParts, LayersThatPredictFurtherTokens) {
  const FamilyGolden golden("deepseek_v3");
  auto tensors = golden.tensors();
  tensors.push_back(FamilyGolden::source("model.layers.2.eh_proj.weight", {2}, {1, 2}));
  golden.write(tensors);
  EXPECT_NO_THROW(check_weights(golden.directory(), read_config(golden.directory())));
}

/// What no golden of transformers has: names and shapes as the models' own code has them.
TEST(OwnNames, OfFamiliesWithCodeOfTheirOwn) {
  const auto shapes = [](const char* text) {
    const fs::path directory = fs::temp_directory_path() / ("rooflm_own_" + std::to_string(::getpid()));
    fs::create_directories(directory);
    std::ofstream(directory / "config.json") << text;
    const ModelConfig config = read_config(directory);
    fs::remove_all(directory);
    std::map<std::string, std::string> all;
    for (const FileTensor& tensor : file_tensors(parameters(config), config))
      all[tensor.name] = tensor.shape.str();
    return all;
  };
  const auto glm = shapes(
      R"({"model_type":"chatglm","hidden_size":16,"kv_channels":4,"num_attention_heads":4,"ffn_hidden_size":24,)"
      R"("multi_query_group_num":2,"num_layers":1,"padded_vocab_size":9,"seq_length":8,"add_qkv_bias":true})");
  EXPECT_EQ(glm.at("transformer.embedding.word_embeddings.weight"), "[9, 16]");
  EXPECT_EQ(glm.at("transformer.encoder.layers.0.self_attention.query_key_value.weight"), "[32, 16]");
  EXPECT_EQ(glm.at("transformer.encoder.layers.0.self_attention.query_key_value.bias"), "[32]");
  EXPECT_EQ(glm.at("transformer.encoder.layers.0.mlp.dense_h_to_4h.weight"), "[48, 16]");
  EXPECT_EQ(glm.at("transformer.encoder.final_layernorm.weight"), "[16]");
  EXPECT_EQ(glm.at("transformer.output_layer.weight"), "[9, 16]");
  const auto dbrx =
      shapes(R"({"model_type":"dbrx","d_model":16,"n_heads":4,"n_layers":1,"vocab_size":9,"max_seq_len":8,)"
             R"("attn_config":{"kv_n_heads":2,"rope_theta":500000.0},)"
             R"("ffn_config":{"ffn_hidden_size":24,"moe_num_experts":4,"moe_top_k":2}})");
  EXPECT_EQ(dbrx.at("transformer.blocks.0.ffn.experts.mlp.w1"), "[96, 16]");
  EXPECT_EQ(dbrx.at("transformer.blocks.0.ffn.experts.mlp.v1"), "[96, 16]");
  EXPECT_EQ(dbrx.at("transformer.blocks.0.ffn.experts.mlp.w2"), "[96, 16]");
  EXPECT_EQ(dbrx.at("transformer.blocks.0.norm_attn_norm.attn.Wqkv.weight"), "[32, 16]");
}

/// Layouts by hand: heads of 4 with two key/value heads; pairs of positions become halves.
TEST(Packing, RowsByHand) {
  ModelConfig config = with_overrides(
      preset("tiny"), {.layers = 1, .heads = 4, .kv_heads = 2, .d_model = 16, .d_ff = 4, .vocab = 5});
  const auto rows_of = [&](const std::string& name) {
    const auto all = parameters(config);
    std::vector<std::int64_t> rows;
    for (const FileTensor& tensor : file_tensors(all, config)) {
      if (!tensor.name.ends_with(name)) continue;
      rows.assign(static_cast<std::size_t>(tensor.rows), -1);
      for (const auto& run : tensor.pieces.front().runs)
        for (std::int64_t i = 0; i < run.count; ++i)
          rows[static_cast<std::size_t>(run.file_row + i * run.file_step)] = run.row + i;
    }
    return rows;
  };
  using Rows = std::vector<std::int64_t>;
  config.family = "llama";
  EXPECT_EQ(rows_of("k_proj.weight"), (Rows{16, 17, 18, 19, 20, 21, 22, 23}));
  config.rotary.interleaved = true;
  EXPECT_EQ(rows_of("k_proj.weight"), (Rows{16, 18, 17, 19, 20, 22, 21, 23}));
  EXPECT_EQ(rows_of("v_proj.weight"), (Rows{24, 25, 26, 27, 28, 29, 30, 31}));
  config.rotary.interleaved = false;
  config.family = "internlm2";
  EXPECT_EQ(rows_of("wqkv.weight"), (Rows{0, 1, 2,  3,  4,  5,  6,  7,  16, 17, 18, 19, 24, 25, 26, 27,
                                          8, 9, 10, 11, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31}));
}

INSTANTIATE_TEST_SUITE_P(Transformers, FamilyFiles, testing::ValuesIn(FamilyGolden::all()),
                         [](const auto& golden) { return golden.param; });

}  // namespace
}  // namespace rooflm::model

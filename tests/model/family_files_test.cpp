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

INSTANTIATE_TEST_SUITE_P(Transformers, FamilyFiles, testing::ValuesIn(FamilyGolden::all()),
                         [](const auto& golden) { return golden.param; });

}  // namespace
}  // namespace rooflm::model

// What transformers computes for a small model of each family: tests/model/goldens, made by
// scripts/make_family_goldens.py. Weights are made here by the rule that made them there.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/huggingface.h"
#include "model/safetensors.h"

namespace rooflm::tests {

/// A golden and a directory with its config.json and weights.
class FamilyGolden {
 public:
  explicit FamilyGolden(const std::string& name)
      : directory_(std::filesystem::temp_directory_path() /
                   ("rooflm_family_" + name + "_" + std::to_string(::getpid()))) {
    std::ifstream(std::filesystem::path(ROOFLM_TESTS_DIR) / "model/goldens" / (name + ".json")) >> facts;
    std::filesystem::create_directories(directory_);
    std::ofstream(directory_ / "config.json") << facts.at("config");
    write(tensors());
  }
  FamilyGolden(const FamilyGolden&) = delete;
  FamilyGolden& operator=(const FamilyGolden&) = delete;
  ~FamilyGolden() { std::filesystem::remove_all(directory_); }

  [[nodiscard]] static std::vector<std::string> all() {
    std::vector<std::string> names;
    for (const auto& file :
         std::filesystem::directory_iterator(std::filesystem::path(ROOFLM_TESTS_DIR) / "model/goldens"))
      names.push_back(file.path().stem().string());
    std::ranges::sort(names);
    return names;
  }

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }

  /// The tensors of the file, to be changed and written again.
  [[nodiscard]] std::vector<model::TensorSource> tensors() const {
    std::vector<model::TensorSource> list;
    for (const auto& tensor : facts.at("tensors")) {
      const auto extents = tensor.at("shape").get<std::vector<std::int64_t>>();
      const core::Shape shape{std::span<const std::int64_t>(extents)};
      const float around = tensor.at("around");
      if (tensor.value("exact", false)) {
        list.push_back(source(tensor.at("name"), shape,
                              std::vector<float>(static_cast<std::size_t>(shape.numel()), around)));
        continue;
      }
      list.push_back(source(tensor.at("name"), shape, values(tensor.at("name"), shape.numel(), around)));
    }
    return list;
  }
  void write(const std::vector<model::TensorSource>& list) const {
    model::write_safetensors(directory_ / "model.safetensors", list);
  }

  [[nodiscard]] static model::TensorSource source(const std::string& name, const core::Shape& shape,
                                                  std::vector<float> of) {
    return {name, core::DType::f32, shape, [of = std::move(of)](const core::ByteSink& sink) {
              model::write_floats(sink, of, core::DType::f32);
            }};
  }

  nlohmann::json facts;

 private:
  static std::vector<float> values(const std::string& name, std::int64_t count, float around) {
    std::uint64_t hash = 0xCBF29CE484222325ULL;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
    std::vector<float> list;
    for (std::int64_t i = 0; i < count; ++i) {
      std::uint64_t z = hash + (static_cast<std::uint64_t>(i) + 1) * 0x9E3779B97F4A7C15ULL;
      z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
      z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
      z ^= z >> 31U;
      list.push_back(around + (static_cast<float>(z >> 48U) - 32768.0F) / 262144.0F);
    }
    return list;
  }

  std::filesystem::path directory_;
};

}  // namespace rooflm::tests

// The tensors of a directory: one file, or the shards of an index.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"
#include "core/printable.h"
#include "model/safetensors.h"

namespace rooflm::model {
namespace {

using core::InputError;
using nlohmann::json;

/// weight_map of an index: tensor name to the file name of its shard, in the same directory.
std::map<std::string, std::string> read_weight_map(const std::filesystem::path& index) {
  const core::MappedFile file(index);
  const json root = core::parse_json_object(file.text(), index.string(), "the index");
  const auto map = root.find("weight_map");
  const auto is_string = [](const json& text) { return text.is_string(); };
  if (map == root.end() || !map->is_object() || map->empty() || !std::ranges::all_of(*map, is_string)) {
    throw InputError(
        fmt::format("{}: expected a weight_map from tensor names to file names", index.string()));
  }
  auto weight_map = map->get<std::map<std::string, std::string>>();
  for (const auto& [name, shard] : weight_map) {
    if (shard.empty() || shard.find('/') != std::string::npos || shard == "." || shard == "..") {
      throw InputError(
          fmt::format("{}: tensor {} is in '{}', expected the name of a file in the same directory",
                      index.string(), core::printable(name), core::printable(shard)));
    }
  }
  return weight_map;
}

}  // namespace

std::vector<SafetensorsFile> open_safetensors_directory(const std::filesystem::path& directory) {
  const auto single = directory / "model.safetensors";
  const auto index = directory / "model.safetensors.index.json";
  std::vector<SafetensorsFile> files;
  std::error_code ignored;
  if (std::filesystem::exists(single, ignored)) {
    files.emplace_back(single);
    return files;
  }
  if (!std::filesystem::exists(index, ignored)) {
    throw InputError(fmt::format("{}: expected model.safetensors or model.safetensors.index.json there",
                                 directory.string()));
  }
  const auto weight_map = read_weight_map(index);
  for (const auto& [name, shard] : weight_map) {
    if (std::filesystem::exists(directory / shard, ignored)) continue;
    throw InputError(fmt::format("{}: the shard {} is missing; {} says that tensor {} is in it",
                                 directory.string(), core::printable(shard), index.filename().string(),
                                 core::printable(name)));
  }
  std::map<std::string, std::size_t> opened;
  for (const auto& [name, shard] : weight_map) {
    const auto [place, is_new] = opened.emplace(shard, files.size());
    if (is_new) files.emplace_back(directory / shard);
    static_cast<void>(files[place->second].at(name));
  }
  for (const SafetensorsFile& file : files) {
    for (const StoredTensor& tensor : file.tensors()) {
      const auto listed = weight_map.find(tensor.name);
      if (listed == weight_map.end() || listed->second != file.path().filename()) {
        throw InputError(fmt::format("{}: holds tensor {}, which {} does not place there",
                                     file.path().string(), core::printable(tensor.name),
                                     index.filename().string()));
      }
    }
  }
  return files;
}

}  // namespace rooflm::model

// Reads the table of families.
#include "model/family_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/json.h"

namespace rooflm::model {
namespace {

using nlohmann::json;

const json& table() {
  static const json kTable = core::parse_json_object(families_text(), "data/families.json", "the table");
  return kTable;
}

Family family_of(const json& row) {
  const auto object = [&](const char* key) { return row.value(key, json::object()); };
  json tensors = table().at("tensors");
  tensors.update(object("tensors"));
  return {.types = row.at("types"),
          .architectures = row.at("architectures"),
          .keys = object("keys"),
          .defaults = object("defaults"),
          .fixed = object("fixed"),
          .off = row.value("off", std::vector<std::string>{}),
          .tensors = std::move(tensors),
          .nested = object("nested"),
          .written = object("written"),
          .of_presets = row.value("of_presets", false)};
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = [] {
    std::vector<Family> rows;
    for (const json& row : table().at("families")) rows.push_back(family_of(row));
    return rows;
  }();
  return kFamilies;
}

const Family* find_family(std::string_view type) {
  for (const Family& family : families()) {
    if (std::ranges::find(family.types, type) != family.types.end()) return &family;
  }
  return nullptr;
}

const Family* find_family_of(const json& architectures) {
  for (const Family& family : families()) {
    if (has_architecture(family, architectures)) return &family;
  }
  return nullptr;
}

bool has_architecture(const Family& family, const json& architectures) {
  return architectures.is_array() && std::ranges::any_of(architectures, [&](const json& name) {
           return std::ranges::any_of(family.architectures, [&](const std::string& full) {
             const auto end = std::min(full.find("LMHead"), full.find("For"));
             return name == full || name == full.substr(0, end) + "Model";
           });
         });
}

std::string known_families() {
  constexpr std::array<std::string_view, 4> kSome{"llama", "qwen3", "gpt2", "deepseek_v3"};
  return fmt::format("{} and {} others (docs/models.md)", fmt::join(kSome, ", "),
                     families().size() - kSome.size());
}

std::string not_described(std::string_view type, const json& config) {
  const json& types = table().at("not_described");
  if (const auto found = types.find(type); found != types.end()) return *found;
  // A file that says what each layer is may have keys of kinds that it does not use.
  if (const auto layers = config.find("layer_types"); layers != config.end() && layers->is_array()) {
    for (const auto& [kind, part] : table().at("not_described_layers").items()) {
      if (std::ranges::find(*layers, json(kind)) != layers->end()) return part;
    }
    return "";
  }
  for (const auto& [key, part] : table().at("not_described_keys").items()) {
    const auto found = config.find(key);
    if (found != config.end() && !found->is_null() && *found != false) return part;
  }
  return "";
}

std::string not_described_head(const json& architectures) {
  if (!architectures.is_array()) return "";
  for (const json& name : architectures) {
    if (!name.is_string()) continue;
    for (const auto& [end, part] : table().at("not_described_heads").items()) {
      if (name.get_ref<const std::string&>().ends_with(end)) return part;
    }
  }
  return "";
}

std::string written_name(const Family& family, const std::string& key) {
  return family.keys.contains(key) ? names_of(family, key).front() : table().at("written").value(key, key);
}

std::vector<std::string> names_of(const Family& family, const std::string& key) {
  std::vector<std::string> names;
  if (const auto own = family.keys.find(key); own != family.keys.end()) {
    if (own->is_array()) return *own;
    names.push_back(*own);
  }
  names.push_back(key);
  const json& aliases = table().at("aliases");
  if (const auto found = aliases.find(key); found != aliases.end()) {
    for (const json& name : *found) names.push_back(name);
  }
  return names;
}

}  // namespace rooflm::model

// Looks up and checks the keys of a config.json.
#include "model/config_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/json.h"

namespace rooflm::model {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargestSize = std::int64_t{1} << 31;  // keeps every product of two sizes in 64 bits
constexpr std::int64_t kMostLayers = 10000;

const json* in_object(const json& object, const std::string& key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace

const json* ConfigKeys::in_file(const std::string& name) const {
  const auto dot = name.find('.');
  if (dot == std::string::npos) return in_object(root_, name);
  const json* outer = in_object(root_, name.substr(0, dot));
  return outer == nullptr ? nullptr : in_object(*outer, name.substr(dot + 1));
}

const json* ConfigKeys::find(const char* key) const {
  if (const auto fixed = family_.fixed.find(key); fixed != family_.fixed.end())
    return fixed->is_null() ? nullptr : &*fixed;
  bool is_null = false;  // the file says that there is none: no default stands for it
  for (const std::string& name : names_of(family_, key)) {
    if (const json* value = in_file(name)) return value;
    const auto said = root_.find(name);
    is_null = is_null || (said != root_.end() && said->is_null());
  }
  return is_null ? nullptr : in_object(family_.defaults, key);
}

std::string ConfigKeys::name(const char* key) const {
  const std::vector<std::string> names = names_of(family_, key);
  const auto present =
      std::ranges::find_if(names, [&](const std::string& name) { return in_file(name) != nullptr; });
  return present == names.end() ? names.front() : *present;
}

std::int64_t ConfigKeys::size(const char* key) const {
  if (const auto value = optional_size(key)) return *value;
  fail(fmt::format("the key {} is missing, expected a positive integer", name(key)));
}

std::optional<std::int64_t> ConfigKeys::optional_size(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool is_list = value->is_array() && !value->empty() &&
                       std::ranges::all_of(*value, [&](const json& each) { return each == value->front(); });
  const json& number = is_list ? value->front() : *value;
  const bool is_size = number.is_number_integer() && number > 0 && number < kLargestSize;
  if (!is_size) refuse(key, "a positive integer below 2^31");
  return number.get<std::int64_t>();
}

std::int64_t ConfigKeys::count(const char* key, std::int64_t otherwise) const {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  return *value == 0 ? 0 : *optional_size(key);
}

std::int64_t ConfigKeys::layers(const char* key) const {
  const std::int64_t count = size(key);
  if (count > kMostLayers) refuse(key, fmt::format("at most {}", kMostLayers));
  return count;
}

double ConfigKeys::positive(const char* key, double otherwise) const {
  const json* value = find(key);
  return value == nullptr ? otherwise : positive(*value, key);
}

double ConfigKeys::positive(const json& value, const char* key) const {
  if (!value.is_number() || !(value.get<double>() > 0) || !std::isfinite(value.get<double>()))
    refuse(key, "a positive number");
  return value.get<double>();
}

bool ConfigKeys::flag(const char* key, bool otherwise) const {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(key, "true or false");
  return value->get<bool>();
}

std::string ConfigKeys::one_of(const char* key, const std::vector<std::string>& known) const {
  const json* value = find(key);
  if (value == nullptr) return known.front();
  if (value->is_string() && std::ranges::find(known, value->get<std::string>()) != known.end())
    return value->get<std::string>();
  refuse(key, fmt::format("{}", fmt::join(known, " or ")));
}

void ConfigKeys::refuse(const char* key, const std::string& expected) const {
  const json* value = find(key);
  fail(fmt::format("{} is {}, expected {}", name(key), value == nullptr ? "null" : core::shown(*value),
                   expected));
}

void ConfigKeys::fail(const std::string& what) const {
  throw core::InputError(fmt::format("{}: {}", path_, what));
}

void ConfigKeys::lack(const std::string& what) const {
  throw core::Unavailable(fmt::format("{}: {}", path_, what));
}

}  // namespace rooflm::model

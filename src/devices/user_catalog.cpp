// Devices described by the user, in the format of data/devices.json.
#include "devices/user_catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/json.h"
#include "core/text_input.h"

namespace rooflm::devices {
namespace {

using Json = nlohmann::json;

/// Reads members of one entry; error messages name the place.
class Entry {
 public:
  Entry(const Json& json, std::string where) : json_(&json), where_(std::move(where)) {
    if (!json.is_object()) refuse("expected an object");
  }

  [[noreturn]] void refuse(const std::string& message) const {
    throw core::InputError(fmt::format("{}: {}", where_, message));
  }
  void allow(std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, value] : json_->items()) {
      if (std::ranges::find(keys, key) == keys.end()) refuse(fmt::format("unknown key '{}'", key));
    }
  }
  [[nodiscard]] bool has(const char* key) const { return json_->contains(key); }
  [[nodiscard]] const Json& at(const char* key) const {
    if (!has(key)) refuse(fmt::format("'{}' is missing", key));
    return json_->at(key);
  }
  [[nodiscard]] std::string text(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string() || value.get<std::string>().empty())
      refuse(fmt::format("'{}' must be a text, not {}", key, core::shown(value)));
    return value.get<std::string>();
  }
  [[nodiscard]] double positive(const char* key) const { return positive(key, at(key)); }
  [[nodiscard]] double positive(const std::string& key, const Json& value) const {
    constexpr double kMost = 1e30;
    const double number = value.is_number() ? value.get<double>() : 0;
    if (!(number > 0 && number < kMost))
      refuse(fmt::format("'{}' must be a number above 0, not {}", key, core::shown(value)));
    return number;
  }
  [[nodiscard]] const Json& list(const char* key) const {
    if (!at(key).is_array()) refuse(fmt::format("'{}' must be a list", key));
    return at(key);
  }
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  const Json* json_;
  std::string where_;
};

void read_memory(const Entry& entry, Device& device) {
  for (const Json& json : entry.list("memory")) {
    const Entry level(json, entry.where() + ", memory");
    level.allow({"name", "bytes", "byte_per_s"});
    device.memory.push_back({.name = level.text("name"), .bytes = level.positive("bytes")});
    const bool is_last = device.memory.size() == entry.at("memory").size();
    if (is_last || level.has("byte_per_s")) device.memory.back().byte_per_s = level.positive("byte_per_s");
  }
  if (device.memory.empty()) entry.refuse("'memory' is empty");
}

void read_links(const Entry& entry, Device& device) {
  for (const Json& json : entry.list("links")) {
    const Entry link(json, entry.where() + ", links");
    link.allow({"name", "byte_per_s"});
    device.links.push_back({.name = link.text("name"), .byte_per_s = link.positive("byte_per_s")});
  }
}

Device read_device(const Json& json, const std::string& file, std::size_t index) {
  const std::string key = json.is_object() && json.contains("key") && json.at("key").is_string()
                              ? json.at("key").get<std::string>()
                              : fmt::format("number {}", index + 1);
  const Entry entry(json, fmt::format("{}: device {}", file, key));
  entry.allow(
      {"key", "name", "kind", "peak_flop_per_s", "memory", "links", "multiprocessors", "power_w", "source"});
  if (entry.has("kind") && entry.text("kind") != "gpu") entry.refuse("'kind' must be \"gpu\"");
  Device device = device_of_kind(Kind::gpu);
  device.key = entry.text("key");
  device.name = entry.text("name");
  const Json& peaks = entry.at("peak_flop_per_s");
  if (!peaks.is_object()) entry.refuse("'peak_flop_per_s' must have a rate for each dtype");
  for (const auto& [dtype, rate] : peaks.items())
    device.peak_flop_per_s[dtype] = entry.positive("peak_flop_per_s of " + dtype, rate);
  if (!peaks.contains("bf16") && !peaks.contains("fp16"))
    entry.refuse("'peak_flop_per_s' has neither bf16 nor fp16, one of which is needed to estimate matmuls");
  for (auto* names : {&device.dtypes, &device.peak_dtypes})
    std::erase_if(*names, [&](const std::string& dtype) { return !peaks.contains(dtype); });
  read_memory(entry, device);
  read_links(entry, device);
  constexpr double kMostMultiprocessors = 1 << 20;
  const double multiprocessors = entry.positive("multiprocessors");
  if (multiprocessors != std::floor(multiprocessors) || multiprocessors > kMostMultiprocessors)
    entry.refuse("'multiprocessors' must be a whole number");
  device.multiprocessors = static_cast<int>(multiprocessors);
  if (entry.has("power_w")) device.power_w = entry.positive("power_w");
  device.sources["all"] = entry.text("source");
  return device;
}

}  // namespace

std::vector<Device> read_catalog(const std::filesystem::path& path) {
  const std::string file = path.string();
  const Json json =
      core::parse_json_object(core::read_text(path, core::kMostSettingsBytes), file, "a catalog of devices");
  const Entry whole(json, file);
  whole.allow({"about", "devices"});
  std::vector<Device> known = catalog();
  std::vector<Device> devices;
  for (const Json& entry : whole.list("devices")) {
    devices.push_back(read_device(entry, file, devices.size()));
    const std::string& key = devices.back().key;
    if (std::ranges::any_of(known, [&](const Device& device) { return device.key == key; }))
      whole.refuse(fmt::format("there is a device {} already", key));
    known.push_back(devices.back());
  }
  return devices;
}

}  // namespace rooflm::devices

// The device catalog: data/devices.json, embedded.
#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/names.h"
#include "devices/catalog_text.h"
#include "devices/device.h"

namespace rooflm::devices {
namespace {

using Json = nlohmann::json;

Json parse_catalog() { return Json::parse(devices_text()); }

Rewrites rewrites_of(const Json& json) {
  return {.logits_bytes = json.at("logits_bytes"),
          .logits_in_compute_dtype = json.at("logits_in") == "compute dtype",
          .logits_padding = json.at("logits_padding"),
          .background = json.at("background"),
          .names = json.at("names")};
}

Device kind_of(const Json& catalog, Kind kind) {
  const Json& json = catalog.at("kinds").at(std::string(name_of(kind)));
  Device device;
  device.kind = kind;
  device.dtypes = json.at("dtypes");
  device.peak_dtypes = json.at("peak_dtypes");
  device.rewrites = rewrites_of(json.at("rewrites"));
  return device;
}

Device entry_of(const Json& catalog, const Json& json) {
  Device device = kind_of(catalog, json.at("kind") == "cpu" ? Kind::cpu : Kind::gpu);
  device.key = json.at("key");
  device.name = json.at("name");
  if (json.contains("dtypes")) device.dtypes = json.at("dtypes");
  if (json.contains("rewrites")) device.rewrites = rewrites_of(json.at("rewrites"));
  device.peak_flop_per_s = json.at("peak_flop_per_s");
  if (device.kind == Kind::gpu) {
    for (const char* dtype : {"fp8", "bf16x6"}) {
      if (!device.peak(dtype)) device.leave_out(dtype);
    }
  }
  for (const Json& level : json.at("memory")) {
    device.memory.push_back({.name = level.at("name"),
                             .bytes = level.value("bytes", 0.0),
                             .byte_per_s = level.value("byte_per_s", 0.0),
                             .driver_bytes = level.value("driver_bytes", 0.0)});
  }
  for (const Json& link : json.at("links")) {
    device.links.push_back({.name = link.at("name"), .byte_per_s = link.at("byte_per_s")});
  }
  device.multiprocessors = json.value("multiprocessors", 0);
  if (json.contains("launch_s")) device.launch_s = json.at("launch_s").get<double>();
  if (json.contains("power_w")) device.power_w = json.at("power_w").get<double>();
  device.has_any_fp8_layout = json.value("any_fp8_layout", false);
  device.sources = json.at("source");
  return device;
}

/// As people type names: capitals, blanks and dashes make no difference.
std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c != ' ' && c != '-' && c != '_')
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

}  // namespace

std::string_view name_of(Kind kind) { return kind == Kind::cpu ? "cpu" : "gpu"; }

std::optional<double> Device::peak(std::string_view dtype) const {
  const auto found = peak_flop_per_s.find(std::string(dtype));
  if (found == peak_flop_per_s.end()) return std::nullopt;
  return found->second;
}

bool Device::computes(std::string_view dtype) const {
  return std::ranges::find(dtypes, dtype) != dtypes.end();
}

void Device::leave_out(std::string_view dtype) {
  for (auto* names : {&dtypes, &peak_dtypes}) std::erase(*names, dtype);
}

std::vector<Device> catalog() {
  const Json json = parse_catalog();
  std::vector<Device> devices;
  for (const Json& entry : json.at("devices")) devices.push_back(entry_of(json, entry));
  return devices;
}

std::optional<Device> device_called(std::string_view name) {
  const std::string typed = plain(name);
  const auto is_it = [&](const std::string& known) { return plain(known) == typed; };
  const Json json = parse_catalog();
  for (const Json& entry : json.at("devices")) {
    std::vector<std::string> names = entry.value("also", std::vector<std::string>{});
    for (const Json& reported : entry.at("reported")) names.push_back(reported);
    for (const char* one : {"key", "name"}) names.push_back(entry.at(one));
    if (std::ranges::any_of(names, is_it)) return entry_of(json, entry);
  }
  return std::nullopt;
}

Device find_device(std::string_view key) {
  if (std::optional<Device> found = device_called(key)) return std::move(*found);
  std::vector<std::string> keys;
  for (Device& device : catalog()) keys.push_back(std::move(device.key));
  throw core::UsageError(core::unknown_name("device of the catalog", key, keys));
}

Device device_reported_as(std::string_view name, Kind kind) {
  const Json json = parse_catalog();
  for (const Json& entry : json.at("devices")) {
    const auto names = entry.at("reported").get<std::vector<std::string>>();
    if (std::ranges::find(names, name) != names.end()) return entry_of(json, entry);
  }
  Device device = kind_of(json, kind);
  device.name = name;
  return device;
}

Device device_of_kind(Kind kind) { return kind_of(parse_catalog(), kind); }

}  // namespace rooflm::devices

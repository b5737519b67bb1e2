// What data sheets advertise besides the rates that steps run at: data/devices.json, embedded.
#include "devices/advertised.h"

#include <nlohmann/json.hpp>

#include "devices/catalog_text.h"

namespace rooflm::devices {

Advertised advertised(std::string_view key) {
  const auto catalog = nlohmann::json::parse(devices_text());
  for (const auto& entry : catalog.at("devices")) {
    if (entry.at("key") != key) continue;
    Advertised found{.sparsity = entry.value("sparsity", 1.0)};
    if (entry.contains("int8_op_per_s")) found.int8_op_per_s = entry.at("int8_op_per_s").get<double>();
    return found;
  }
  return {};
}

}  // namespace rooflm::devices

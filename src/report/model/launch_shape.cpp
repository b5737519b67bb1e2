// The launch configuration of a kernel, from its record.
#include "report/model/launch_shape.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"

namespace rooflm::report {
namespace {

std::optional<double> number_of(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::optional<std::int64_t> integer_of(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<std::int64_t>();
}

void read_extent(const nlohmann::json& json, const char* key, std::array<std::int64_t, 3>& extent) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array() || found->size() != extent.size()) return;
  // What CUDA allows; beyond it the product of three is no 64-bit number.
  constexpr std::array<std::int64_t, 3> kMost = {2147483647, 65535, 65535};
  std::array<std::int64_t, 3> read{};
  for (std::size_t i = 0; i < extent.size(); ++i) {
    if (!(*found)[i].is_number_integer()) return;
    read.at(i) = (*found)[i].get<std::int64_t>();
    if (read.at(i) < 0 || read.at(i) > kMost.at(i)) return;
  }
  extent = read;
}

}  // namespace

std::int64_t LaunchShape::warps() const {
  constexpr std::int64_t kWarp = 32;
  return (block[0] * block[1] * block[2] + kWarp - 1) / kWarp;
}

std::optional<double> LaunchShape::tail() const {
  if (!waves || *waves < 1) return std::nullopt;
  return 1 - *waves / std::ceil(*waves);
}

LaunchShape parse_launch(std::string_view extra) {
  LaunchShape shape;
  if (extra.empty()) return shape;
  nlohmann::json json;
  try {
    json = core::parse_json_object(extra, "activity.extra", "the launch");
  } catch (const core::InputError&) {  // a record of somebody else: this kernel has no launch to show
    return shape;
  }
  read_extent(json, "grid", shape.grid);
  read_extent(json, "block", shape.block);
  read_extent(json, "cluster", shape.cluster);
  shape.registers = integer_of(json, "registers");
  shape.shared_static = integer_of(json, "shared_static");
  shape.shared_dynamic = integer_of(json, "shared_dynamic");
  shape.local = integer_of(json, "local");
  shape.occupancy = number_of(json, "occupancy");
  shape.waves = number_of(json, "waves");
  const auto limit = json.find("occupancy_limit");
  if (limit != json.end() && limit->is_string()) shape.occupancy_limit = limit->get<std::string>();
  return shape;
}

}  // namespace rooflm::report

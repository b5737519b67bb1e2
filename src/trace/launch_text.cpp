// What a record stores about a kernel launch. Uses no library: the injected library must not.
#include "trace/launch_text.h"

#include <array>
#include <cstdio>

#include "trace/occupancy.h"

namespace rooflm::trace {
namespace {

std::string extent_text(const Extent& extent) {
  return "[" + std::to_string(extent[0]) + "," + std::to_string(extent[1]) + "," + std::to_string(extent[2]) +
         "]";
}

std::string short_number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

}  // namespace

std::string describe_launch(const KernelLaunch& launch, const DeviceLimits* device,
                            std::optional<std::uint64_t> node) {
  std::string text = R"({"grid":)" + extent_text(launch.grid) + R"(,"block":)" + extent_text(launch.block);
  text += R"(,"registers":)" + std::to_string(launch.registers);
  text += R"(,"shared_static":)" + std::to_string(launch.shared_static);
  text += R"(,"shared_dynamic":)" + std::to_string(launch.shared_dynamic);
  text += R"(,"local":)" + std::to_string(launch.local);
  if (launch.cluster[0] > 0) text += R"(,"cluster":)" + extent_text(launch.cluster);
  const Occupancy occupancy = device == nullptr ? Occupancy{} : occupancy_of(launch, *device);
  if (occupancy.blocks > 0) {
    text += R"(,"occupancy":)" + short_number(occupancy.occupancy) + R"(,"occupancy_limit":")";
    text += occupancy.limit;
    text += R"(","waves":)" + short_number(occupancy.waves);
  }
  if (node) text += R"(,"node":)" + std::to_string(*node);
  return text + "}";
}

}  // namespace rooflm::trace

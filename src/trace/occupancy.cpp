// Occupancy of a kernel.
#include "trace/occupancy.h"

#include <algorithm>
#include <limits>

namespace rooflm::trace {
namespace {

constexpr std::int64_t kWarp = 32;
constexpr std::int64_t kParts = 4;
constexpr std::int64_t kRegisterUnit = 256;
constexpr int kAmpere = 8;

std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

/// Resident blocks by registers.
std::int64_t by_registers(const KernelLaunch& launch, const DeviceLimits& device, std::int64_t warps) {
  if (launch.registers <= 0) return std::numeric_limits<std::int64_t>::max();
  const std::int64_t of_warp = round_up(launch.registers * kWarp, kRegisterUnit);
  return device.registers / kParts / of_warp * kParts / warps;
}

std::int64_t by_shared_memory(const KernelLaunch& launch, const DeviceLimits& device) {
  constexpr std::int64_t kSystem = 1024;
  constexpr std::int64_t kUnit = 128;
  const bool is_new = device.major >= kAmpere;
  const std::int64_t bytes = launch.shared_static + launch.shared_dynamic + (is_new ? kSystem : 0);
  if (bytes == 0) return std::numeric_limits<std::int64_t>::max();
  return device.shared_bytes / round_up(bytes, is_new ? kUnit : 2 * kUnit);
}

}  // namespace

Occupancy occupancy_of(const KernelLaunch& launch, const DeviceLimits& device) {
  const std::int64_t warps = (launch.threads() + kWarp - 1) / kWarp;
  if (warps <= 0 || device.multiprocessors <= 0 || device.warps <= 0) return {};
  Occupancy result{.blocks = device.warps / warps, .limit = "threads"};
  const auto take = [&](std::int64_t blocks, std::string_view limit) {
    if (blocks >= result.blocks) return;
    result.blocks = blocks;
    result.limit = limit;
  };
  take(device.blocks, "blocks");
  take(by_registers(launch, device, warps), "registers");
  take(by_shared_memory(launch, device), "shared");
  if (result.blocks <= 0) return {};
  result.occupancy = static_cast<double>(result.blocks * warps) / static_cast<double>(device.warps);
  result.waves =
      static_cast<double>(launch.blocks()) / static_cast<double>(result.blocks * device.multiprocessors);
  return result;
}

}  // namespace rooflm::trace

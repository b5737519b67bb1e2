// Grids and blocks of the parts of a layer.
#include "report/model/launch_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace rooflm::report {
namespace {

/// Launches of one kernel that are configured alike.
struct Launch {
  const TracedKernel* kernel = nullptr;
  double seconds = 0;
};

std::string text_of(const std::array<std::int64_t, 3>& extent) {
  return fmt::format("{}x{}x{}", extent[0], extent[1], extent[2]);
}

struct LaunchesByShape {
  std::size_t launches = 0;
  std::map<std::pair<std::string, std::string>, Launch> by_shape;  ///< of kernel, grid and block
};

}  // namespace

const TypedColumns<PartLaunches>& part_launch_columns() {
  static const TypedColumns<PartLaunches> columns = {
      {"phase", "phase", &PartLaunches::phase},    {"part", "part", &PartLaunches::part},
      {"heads", "H", &PartLaunches::heads},        {"launches", "kernels per step", &PartLaunches::launches},
      {"grid", "grid", &PartLaunches::grid},       {"block", "block", &PartLaunches::block},
      {"blocks", "blocks", &PartLaunches::blocks}, {"kernel", "longest kernel", &PartLaunches::kernel}};
  return columns;
}

std::vector<PartLaunches> part_launches(const RunData& run, const TracedKernels& kernels) {
  std::vector<std::pair<std::string, std::string>> order;
  std::map<std::pair<std::string, std::string>, LaunchesByShape> parts;
  for (const TracedKernel& kernel : kernels.all()) {
    if (kernel.step_kind != kTraced || kernel.op == nullptr || kernel.launch->blocks() == 0) continue;
    const std::pair<std::string, std::string> key{kernel.op->op.phase, kernel.op->part};
    const auto [entry, is_new] = parts.try_emplace(key);
    if (is_new) order.push_back(key);
    ++entry->second.launches;
    const std::string shape = text_of(kernel.launch->grid) + " of " + text_of(kernel.launch->block);
    Launch& launch = entry->second.by_shape[{*kernel.text, shape}];
    launch.kernel = &kernel;
    launch.seconds += kernel.seconds();
  }
  std::vector<PartLaunches> all;
  for (const auto& key : order) {
    const LaunchesByShape& part = parts.at(key);
    const auto longest =
        std::ranges::max_element(part.by_shape, {}, [](const auto& each) { return each.second.seconds; });
    const TracedKernel& kernel = *longest->second.kernel;
    all.push_back({.phase = key.first,
                   .part = key.second,
                   .heads = run.run.config.integer("heads"),
                   .launches = static_cast<double>(part.launches) / static_cast<double>(kernels.steps()),
                   .grid = text_of(kernel.launch->grid),
                   .block = text_of(kernel.launch->block),
                   .blocks = kernel.launch->blocks(),
                   .kernel = kernel.name->short_name});
  }
  return all;
}

}  // namespace rooflm::report

// Grids and blocks of the parts of a layer.
#include "report/launch_parts.h"

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

struct PartLaunches {
  std::size_t launches = 0;
  std::map<std::pair<std::string, std::string>, Launch> by_shape;  ///< of kernel, grid and block
};

}  // namespace

Table launch_parts(const RunData& run, const TracedKernels& kernels) {
  Table table{.columns = {{"phase", "phase"},
                          {"part", "part"},
                          {"heads", "H"},
                          {"launches", "kernels per step"},
                          {"grid", "grid"},
                          {"block", "block"},
                          {"blocks", "blocks"},
                          {"kernel", "longest kernel"}},
              .rows = {},
              .notes = {}};
  std::vector<std::pair<std::string, std::string>> order;
  std::map<std::pair<std::string, std::string>, PartLaunches> parts;
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
  for (const auto& key : order) {
    const PartLaunches& part = parts.at(key);
    const auto longest =
        std::ranges::max_element(part.by_shape, {}, [](const auto& each) { return each.second.seconds; });
    const TracedKernel& kernel = *longest->second.kernel;
    Row row;
    row.set("phase", key.first);
    row.set("part", key.second);
    row.set("heads", run.run.config.integer("heads") ? Cell(*run.run.config.integer("heads")) : Cell());
    row.set("launches", static_cast<double>(part.launches) / static_cast<double>(kernels.steps()));
    row.set("grid", text_of(kernel.launch->grid));
    row.set("block", text_of(kernel.launch->block));
    row.set("blocks", kernel.launch->blocks());
    row.set("kernel", kernel.name->short_name);
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace rooflm::report

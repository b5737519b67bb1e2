// The ways in which a device can run the collectives of data-parallel ranks.
#include "backends/collective_way.h"

#include <string>
#include <vector>

#include "core/error.h"
#include "core/names.h"

namespace rooflm::backends {
namespace {

constexpr std::string_view kMeasured = "auto";

}  // namespace

std::string_view name_of(CollectiveWay way) {
  constexpr std::array<std::string_view, kCollectiveWays.size()> kNames = {"default", "few-blocks",
                                                                           "copy-engine", "peer-memory"};
  return kNames.at(static_cast<std::size_t>(way));
}

std::string_view name_of(CollectiveWish wish) { return wish ? name_of(*wish) : kMeasured; }

CollectiveWish parse_collectives(std::string_view name) {
  if (name == kMeasured) return std::nullopt;
  std::vector<std::string> known{std::string(kMeasured)};
  for (const CollectiveWay way : kCollectiveWays) {
    if (name == name_of(way)) return way;
    known.emplace_back(name_of(way));
  }
  throw core::UsageError(core::unknown_name("--collectives", name, known));
}

}  // namespace rooflm::backends

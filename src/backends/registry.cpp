// Finds a backend by the name of a device.
#include "backends/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/names.h"

namespace rooflm::backends {
namespace {

const Provider* find(std::string_view device) {
  const std::string_view prefix = device.substr(0, device.find(':'));
  const auto all = providers();
  const auto found =
      std::ranges::find(all, prefix, [](const Provider* provider) { return provider->name(); });
  return found == all.end() ? nullptr : *found;
}

}  // namespace

void Provider::join(Backend& backend, const std::shared_ptr<ranks::Transport>& /*transport*/,
                    const program::Mesh& /*mesh*/, CollectiveWish /*wish*/) const {
  throw core::Unavailable(
      fmt::format("{} has no collectives: it is no device for several ranks", backend.device()));
}

std::vector<TimedLoop> Provider::memory_loops(const std::string& /*device*/) const { return {}; }

std::vector<TimedLoop> Provider::link_loops(const std::string& /*device*/) const { return {}; }

std::string parse_device(std::string_view name) {
  // A common name; there is only one kind of GPU so far.
  if (name == "gpu" || name.starts_with("gpu:")) return parse_device(fmt::format("cuda{}", name.substr(3)));
  if (const Provider* provider = find(name)) {
    const auto colon = name.find(':');
    return provider->parse(colon == std::string_view::npos ? "" : name.substr(colon + 1));
  }
  std::vector<std::string> names;
  for (const Provider* provider : providers()) names.emplace_back(provider->name());
  throw core::UsageError(core::unknown_name("device", name, names));
}

DefaultDevice default_device(int first) {
  DefaultDevice chosen{.name = {}, .why = {}};
  for (const Provider* provider : providers()) {
    const FoundDevice found = provider->find_usable(first);
    if (!found.missing.empty() && chosen.why.empty()) chosen.why = found.missing;
    if (found.name.empty()) continue;
    // Any supported GPU is faster than the CPU.
    if (chosen.name.empty() || !provider->is_host()) chosen.name = found.name;
    if (provider->is_host()) continue;
    chosen.why = fmt::format("the fastest here: {}", provider->describe(chosen.name).name);
    break;
  }
  return chosen;
}

std::vector<std::string> offered_dtypes(bool anywhere) {
  std::vector<std::string> offered;
  for (const Provider* provider : providers()) {
    for (std::string& dtype : provider->offered_dtypes(anywhere)) {
      if (std::ranges::find(offered, dtype) == offered.end()) offered.push_back(std::move(dtype));
    }
  }
  return offered;
}

const Provider& provider_of(std::string_view device) {
  if (const Provider* provider = find(device)) return *provider;
  throw core::UsageError("--device " + std::string(device) + ": no backend of this build has it");
}

}  // namespace rooflm::backends

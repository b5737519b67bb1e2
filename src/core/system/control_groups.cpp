// What the control groups of this process allow it. Formats: Documentation/admin-guide/cgroup-v1 and -v2 of
// Linux.
#include "core/system/control_groups.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

namespace rooflm::core {
namespace {

namespace fs = std::filesystem;

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
/// Version 1 writes "no limit" as the largest multiple of a page.
constexpr double kMostBytes = 1e18;

bool lists(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const std::size_t comma = std::min(names.find(','), names.size());
    if (names.substr(0, comma) == name) return true;
    names.remove_prefix(std::min(comma + 1, names.size()));
  }
  return false;
}

/// The folder of a group ("/a/b") and of those around it, to the mount point.
std::vector<fs::path> folders(const fs::path& mount, std::string_view group) {
  std::vector<fs::path> all;
  for (fs::path at = fs::path(group).relative_path(); !at.empty(); at = at.parent_path()) {
    all.push_back(mount / at);
  }
  all.push_back(mount);
  return all;
}

double or_unlimited(double bytes) { return bytes > kMostBytes ? kNoLimit : bytes; }

}  // namespace

double number_in(const fs::path& path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value ? value : kNoLimit;
}

double named_number_in(const fs::path& path, const char* name) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    double value = 0;
    if (word == name && file >> value) return value;
    file.clear();
  }
  return 0;
}

ControlGroups::ControlGroups(const fs::path& memberships, const fs::path& mount)
    : unified_{mount}, processors_{mount / "cpu"}, memory_{mount / "memory"} {
  std::ifstream file(memberships);
  std::string line;  // "4:cpu,cpuacct:/a/b", version 2 "0::/a/b"
  while (std::getline(file, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    const std::string_view group = std::string_view(line).substr(second + 1);
    if (controllers.empty()) unified_ = folders(mount, group);
    if (lists(controllers, "cpu")) processors_ = folders(mount / "cpu", group);
    if (lists(controllers, "memory")) memory_ = folders(mount / "memory", group);
  }
}

double ControlGroups::processors() const {
  double least = kNoLimit;
  const auto limit = [&least](double quota, double period) {
    if (quota > 0 && period > 0) least = std::min(least, quota / period);
  };
  for (const fs::path& folder : unified_) {
    std::ifstream file(folder / "cpu.max");  // "150000 100000", or "max 100000"
    double quota = 0;
    double period = 0;
    if (file >> quota >> period) limit(quota, period);
  }
  for (const fs::path& folder : processors_) {  // -1: no limit
    limit(number_in(folder / "cpu.cfs_quota_us"), number_in(folder / "cpu.cfs_period_us"));
  }
  return least;
}

ControlGroups::Memory ControlGroups::memory() const {
  Memory least{.limit_bytes = kNoLimit, .left_bytes = kNoLimit};
  const auto look = [&least](const fs::path& folder, const char* limit_name, const char* usage_name) {
    const double limit = or_unlimited(number_in(folder / limit_name));
    const double used = or_unlimited(number_in(folder / usage_name));
    if (limit == kNoLimit || used == kNoLimit) return;
    least.limit_bytes = std::min(least.limit_bytes, limit);
    const double cache = named_number_in(folder / "memory.stat", "inactive_file");
    least.left_bytes = std::min(least.left_bytes, std::max(0.0, limit - used + cache));
  };
  for (const fs::path& folder : unified_) look(folder, "memory.max", "memory.current");
  for (const fs::path& folder : memory_) look(folder, "memory.limit_in_bytes", "memory.usage_in_bytes");
  return least;
}

}  // namespace rooflm::core

// What the control groups (cgroups, version 1 and 2) of this process allow it.
#pragma once

#include <filesystem>
#include <vector>

namespace rooflm::core {

/// Reads the limits of this process's groups and of all groups around them, as kubelets and systemd nest
/// them. In a container that sees only its own group, that is the mount point.
class ControlGroups {
 public:
  explicit ControlGroups(const std::filesystem::path& memberships = "/proc/self/cgroup",
                         const std::filesystem::path& mount = "/sys/fs/cgroup");

  /// Processors' worth of time per time ("1.5"); infinity without a limit.
  [[nodiscard]] double processors() const;
  struct Memory {
    double limit_bytes = 0;  ///< infinity without a limit
    double left_bytes = 0;   ///< the limit minus what is used, page cache that can be dropped not counted
  };
  /// The least limit, and the least that is left.
  [[nodiscard]] Memory memory() const;

 private:
  using Folders = std::vector<std::filesystem::path>;
  Folders unified_;     ///< version 2
  Folders processors_;  ///< version 1
  Folders memory_;      ///< version 1
};

/// The first number in a file; infinity without one ("max", or no such file).
double number_in(const std::filesystem::path& path);
/// The value of "name value" in a file, or 0.
double named_number_in(const std::filesystem::path& path, const char* name);

}  // namespace rooflm::core

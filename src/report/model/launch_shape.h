// The launch configuration of a kernel, from its record.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rooflm::report {

/// Read from record::Activity::extra; missing values are nothing.
struct LaunchShape {
  std::array<std::int64_t, 3> grid{}, block{}, cluster{};  ///< zeros: not known
  std::optional<std::int64_t> registers{}, shared_static{}, shared_dynamic{}, local{};
  std::optional<double> occupancy{}, waves{};
  std::string occupancy_limit{};

  [[nodiscard]] std::int64_t blocks() const { return grid[0] * grid[1] * grid[2]; }
  [[nodiscard]] std::int64_t warps() const;  ///< of one block
  /// Share of the kernel's time that the partial last wave wastes: 1 - waves / ceil(waves); nothing below one
  /// wave. One and a half waves give 0.25.
  [[nodiscard]] std::optional<double> tail() const;
};

/// An empty shape for "" and for text that is not a JSON object, since records may come from elsewhere.
LaunchShape parse_launch(std::string_view extra);

}  // namespace rooflm::report

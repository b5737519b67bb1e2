// How a kernel was launched, from what a record keeps of it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rooflm::report {

/// Read from record::Activity::extra; what is missing there is nothing.
struct LaunchShape {
  std::array<std::int64_t, 3> grid{}, block{}, cluster{};  ///< zeros: not known
  std::optional<std::int64_t> registers{}, shared_static{}, shared_dynamic{}, local{};
  std::optional<double> occupancy{}, waves{};
  std::string occupancy_limit{};

  [[nodiscard]] std::int64_t blocks() const { return grid[0] * grid[1] * grid[2]; }
  [[nodiscard]] std::int64_t warps() const;  ///< of one block
  /// Share of the time of the waves in which the last, not full one runs: 0.5 where one and a half take the
  /// time of two, and half of the last is empty: 1 - waves / ceil(waves), nothing below one wave.
  [[nodiscard]] std::optional<double> tail() const;
};

/// An empty shape for "" and for text that is no JSON object: a record may be somebody else's.
LaunchShape parse_launch(std::string_view extra);

}  // namespace rooflm::report

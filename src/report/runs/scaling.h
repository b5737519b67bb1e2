// Blocks over a size: time of each part of a layer in the runs of a sweep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/model/run_data.h"

namespace rooflm::report {

/// One block or, of attention, one part; a value for each size.
struct ScalingPart {
  std::string name;  ///< "feed_forward", "attention/qk"
  std::vector<std::optional<double>> device_s{}, wall_s{};
};

/// A sweep over one size, for one phase or the step.
struct Scaling {
  std::string axis;   ///< "seq", "heads", "batch"
  std::string of;     ///< "B=4"; "" where there is one sweep of the axis
  std::string phase;  ///< "forward", "backward", "step"
  std::vector<std::int64_t> sizes{};
  std::vector<ScalingPart> parts{};  ///< in the order of the step

  /// Of the sum of all parts at that size; nothing where one was not timed.
  [[nodiscard]] std::optional<double> share(const ScalingPart& part, std::size_t size, bool is_wall) const;
  /// The same of several parts together.
  [[nodiscard]] std::optional<double> share_of(const std::vector<std::string>& names, std::size_t size,
                                               bool is_wall) const;
};

/// Of each sweep over T or heads, of sweeps over B where there are no others: forward and the whole step; of
/// runs with one phase that phase. Blocks of a layer stand for themselves, ops outside of layers for their
/// block.
std::vector<Scaling> scalings(const RecordSet& set);

}  // namespace rooflm::report

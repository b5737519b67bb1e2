// A run at a glance: where its time goes, what bounds it, what is idle and why.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/findings/why.h"
#include "report/model/run_data.h"

namespace rooflm::report {

/// Time in kernels of which nobody knows what they need.
inline constexpr const char* kNoPrice = "unknown: no price";

/// A share of a whole.
struct GlancePart {
  std::string name{};
  std::string phase{};  ///< of a block
  double seconds = 0;
  std::optional<double> share{};
  std::string note{};  ///< for a cause, the remedy
};

/// A whole with its parts, the largest first. Without parts, `of` says what is missing.
struct GlanceList {
  std::string of{};  ///< "device time of 12 observed steps"
  std::vector<GlancePart> parts{};
};

struct Glance {
  GlanceList time{};   ///< by phase and block; what is small is one part
  GlanceList bound{};  ///< by cause (Why)
  /// A step: computation, collectives alone, idle by cause; untraced: in kernels and between them.
  GlanceList idle{};
};

/// Seconds of all parts by cause, largest first, without causes that cost nothing.
std::vector<GlancePart> cause_sums(const std::vector<Why>& parts);

/// `parts` are why_of(run).
Glance glance_of(const RunData& run, const std::vector<Why>& parts);

/// "backward attention 31.2%, forward loss 12.0%, others 20.1%": the `most` largest parts in the order of the
/// list, and what the others add up to; "" without parts.
std::string format_parts(const GlanceList& list, std::size_t most);

}  // namespace rooflm::report

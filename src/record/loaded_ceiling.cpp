// Ceilings that are no limit: measured while other programs used the CPU, or with a wide interval.
#include "record/loaded_ceiling.h"

#include <fmt/format.h>

namespace rooflm::record {

std::string why_uncertain(const Ceiling& ceiling) {
  constexpr double kWidest = 0.2;
  if (is_under_load(ceiling)) return ceiling.source;
  if (ceiling.source == kUnknownCaches) return "the system does not report cache sizes";
  const double width = ceiling.ci_high - ceiling.ci_low;
  if (ceiling.samples <= 0 || width <= kWidest * ceiling.value) return "";
  return fmt::format("the interval of its {} samples is {:.0f} % wide", ceiling.samples,
                     100 * width / ceiling.value);
}

}  // namespace rooflm::record

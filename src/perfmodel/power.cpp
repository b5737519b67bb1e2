// The clock that a power limit leaves to a step.
#include "perfmodel/power.h"

#include <cmath>

namespace rooflm::perfmodel {

double clock_share(const PowerLaw& law, const PowerMix& mix) {
  if (!law.is_known() || mix.arithmetic_s + mix.other_s <= 0) return 1;
  const auto watt = [&](double share) {
    // At another clock arithmetic takes that much longer.
    const double lasts_s = mix.arithmetic_s / share + mix.other_s;
    return law.static_w + (mix.byte_j + mix.core_j * std::pow(share, law.exponent)) / lasts_s;
  };
  double high = law.max_hz / law.table_hz;
  if (watt(high) <= law.limit_w) return high;
  double low = 0.01 * high;
  constexpr int kSteps = 40;
  for (int i = 0; i < kSteps; ++i) {
    const double middle = (low + high) / 2;
    (watt(middle) > law.limit_w ? high : low) = middle;
  }
  return low;
}

}  // namespace rooflm::perfmodel

// The clock that a power limit leaves to a step.
#include "perfmodel/power.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace rooflm::perfmodel {

double interpolate(const std::map<double, double>& points, double key) {
  if (points.empty()) return 0;
  const auto above = points.lower_bound(key);
  if (above == points.end()) return points.rbegin()->second;
  if (above == points.begin() || above->first == key) return above->second;
  const auto below = std::prev(above);
  const double share = std::log(key / below->first) / std::log(above->first / below->first);
  return below->second + share * (above->second - below->second);
}

double PowerMix::seconds_at(double share) const {
  double sum_s = other_s;
  for (const auto& [most, work] : arithmetic) sum_s += work.seconds / std::min(share, most);
  for (const auto& [least, seconds] : hidden_s)
    if (share < least) sum_s += seconds * (1 / share - 1 / least);
  return sum_s;
}

double clock_share(const PowerLaw& law, const PowerMix& mix) {
  if (!law.is_known() || mix.seconds_at(1) <= 0) return 1;
  const auto watt = [&](double share) {
    double joule = mix.byte_j;
    for (const auto& [most, work] : mix.arithmetic)
      joule += work.joule * std::pow(std::min(share, most), law.exponent);
    return law.static_w + joule / mix.seconds_at(share);
  };
  double high = law.max_hz / law.table_hz;
  if (watt(high) <= law.limit_w) return high;
  double low = kLeastClock * high;
  constexpr int kSteps = 40;
  for (int i = 0; i < kSteps; ++i) {
    const double middle = (low + high) / 2;
    (watt(middle) > law.limit_w ? high : low) = middle;
  }
  return low;
}

}  // namespace rooflm::perfmodel

// Frequencies of rotary positions.
#include "program/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace rooflm::program {
namespace {

double llama3_frequency(double f, const Attributes& a) {
  const double turns = a.number("original") * f / (2 * std::numbers::pi);
  const double low = a.number("low");
  const double high = a.number("high");
  if (turns < low) return f / a.number("factor");
  if (turns > high) return f;
  const double share = (turns - low) / (high - low);
  return (1 - share) * f / a.number("factor") + share * f;
}

/// Yarn's bounds of the mean, as numbers of frequencies.
struct Ramp {
  double low, high;
};

Ramp ramp_of(const Attributes& a, double dim) {
  const auto index_of = [&](double turns) {
    return dim * std::log(a.number("original") / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(a.number("theta")));
  };
  Ramp ramp{.low = index_of(a.number("beta_fast")), .high = index_of(a.number("beta_slow"))};
  if (a.flag("truncate")) ramp = {.low = std::floor(ramp.low), .high = std::ceil(ramp.high)};
  ramp.low = std::max(ramp.low, 0.0);
  ramp.high = std::min(ramp.high, dim - 1);
  if (ramp.low == ramp.high) ramp.high += 0.001;
  return ramp;
}

}  // namespace

std::int64_t rotated_dims(const Attributes& a) {
  return a.has("dims") ? a.integer("dims") : a.integer("head_dim");
}

std::int64_t rotated_begin(const Attributes& a) { return a.has("begin") ? a.integer("begin") : 0; }

Rotary Rotary::of(const Attributes& a) {
  const std::int64_t dim = rotated_dims(a);
  const auto width = static_cast<double>(dim);
  Rotary rotary;
  for (std::int64_t i = 0; i < dim / 2; ++i)
    rotary.frequencies.push_back(std::pow(a.number("theta"), -2.0 * static_cast<double>(i) / width));
  if (!a.has("scaling")) return rotary;
  const auto scaling = static_cast<RotaryScaling>(a.integer("scaling"));
  if (scaling == RotaryScaling::other)
    throw core::Unavailable("rotary positions scaled in that way have no kernel");
  rotary.amplitude = a.number("amplitude");
  const double factor = a.number("factor");
  if (scaling == RotaryScaling::linear) {
    for (double& f : rotary.frequencies) f /= factor;
  } else if (scaling == RotaryScaling::llama3) {
    for (double& f : rotary.frequencies) f = llama3_frequency(f, a);
  } else {
    const Ramp ramp = ramp_of(a, width);
    for (std::size_t i = 0; i < rotary.frequencies.size(); ++i) {
      const double slow = std::clamp((static_cast<double>(i) - ramp.low) / (ramp.high - ramp.low), 0.0, 1.0);
      rotary.frequencies[i] *= (1 - slow) + slow / factor;
    }
  }
  return rotary;
}

}  // namespace rooflm::program

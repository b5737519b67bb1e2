// The angles of rotary positions: what the attributes of a rope op say about its table of cos and sin.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "program/attributes.h"

namespace rooflm::program {

/// How frequencies are scaled for longer texts; the attribute `scaling` of rope as a number. other: not
/// computed.
enum class RotaryScaling : std::int64_t {
  other,
  linear,  ///< f / factor (Chen et al., 2023)
  llama3,  ///< f / factor of waves longer than original / low, between those and original / high a mean of
           ///< both (Grattafiori et al., 2024)
  yarn,    ///< f / factor of those that turn less than beta_slow times in `original` tokens, f of those that
           ///< turn more than beta_fast times, between them a mean of both (Peng et al., 2023)
};

/// How many elements of a head are rotated: the attribute `dims`, or head_dim.
std::int64_t rotated_dims(const Attributes& attributes);
/// The first of them: the attribute `begin`, or 0.
std::int64_t rotated_begin(const Attributes& attributes);

/// Element t, i of the tables is amplitude * cos(t * frequencies[i]), and sin likewise.
struct Rotary {
  std::vector<double> frequencies{};  ///< [D/2]: theta^(-2i/D), scaled; D: rotated_dims
  double amplitude = 1;

  /// From head_dim, dims and theta, and with `scaling` also factor, low, high, original, beta_fast,
  /// beta_slow, truncate and amplitude. Throws core::Unavailable for RotaryScaling::other.
  static Rotary of(const Attributes& attributes);
  auto operator<=>(const Rotary&) const = default;  // NOLINT(modernize-use-nullptr): of its 0
};

}  // namespace rooflm::program

// A number of a plan: how it came about, and how far it may be off.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace rooflm::perfmodel {

/// measured: of this op on this kind of device. calibrated: by tables that were measured op by op on such a
/// device. assumed: by datasheet rates and the shares of them that another device reaches. From the surest
/// on.
enum class Basis : std::uint8_t { measured, calibrated, assumed };

constexpr std::string_view name_of(Basis basis) {
  return basis == Basis::measured ? "measured" : basis == Basis::calibrated ? "calibrated" : "assumed";
}

/// The less sure of two.
constexpr Basis weaker(Basis a, Basis b) { return std::max(a, b); }

}  // namespace rooflm::perfmodel

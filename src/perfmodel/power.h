// The clock that a power limit leaves to a step.
#pragma once

#include "perfmodel/estimate.h"

namespace rooflm::perfmodel {

/// How power and clock of a chip belong together: watt = watt_at_hz * (share of time that the tensor pipe is
/// busy) * (clock / 1 GHz)^exponent, for all of it. docs/perfmodel.md, "Power".
struct PowerLaw {
  double table_hz = 0;     ///< clock in which the op tables were measured
  double max_hz = 0;       ///< clock where power is no limit
  double watt_at_ghz = 0;  ///< of a tensor pipe that is always busy, at 1 GHz
  double exponent = 0;
  double flop_per_cycle = 0;  ///< of the tensor pipe, 16 bits, the whole device
  double limit_w = 0;         ///< of the device that is planned

  [[nodiscard]] bool is_known() const { return limit_w > 0 && watt_at_ghz > 0; }
};

/// What a step does forward and backward, at the clock of the tables.
struct PowerMix {
  double arithmetic_s = 0;  ///< ops whose time follows the clock
  double other_s = 0;       ///< all others
  double tensor_s = 0;      ///< in which the tensor pipe is busy

  void add(const PowerMix& other, double times) {
    arithmetic_s += times * other.arithmetic_s;
    other_s += times * other.other_s;
    tensor_s += times * other.tensor_s;
  }
};

/// The clock that the limit allows on average over the mix, relative to that of the tables; at most
/// max_hz / table_hz. 1 where the law is not known.
double clock_share(const PowerLaw& law, const PowerMix& mix);

}  // namespace rooflm::perfmodel

// The clock that a power limit leaves to a step.
#pragma once

#include <limits>
#include <map>
#include <string>

namespace rooflm::perfmodel {

/// Of ops that have no clock of their own that is too much for them.
inline constexpr double kAnyClock = std::numeric_limits<double>::infinity();

/// How power and clock of a chip belong together. docs/perfmodel.md, "Power".
struct PowerLaw {
  double table_hz = 0;  ///< clock in which the op tables were measured
  double max_hz = 0;    ///< clock where power is no limit
  double static_w = 0;  ///< with nothing to do, at max_hz
  double exponent = 0;  ///< an arithmetic op takes clock^exponent of energy
  double limit_w = 0;   ///< of the device that is planned

  [[nodiscard]] bool is_known() const { return limit_w > 0 && static_w > 0; }
};

/// Of the highest clock, what no limit takes a mix below: assumed. Energies are those of another board, and a
/// mix may have more of them than any clock saves.
inline constexpr double kLeastClock = 1.0 / 3;

/// What ops take of energy beyond the static power.
struct OpEnergies {
  double joule_per_byte = 0;
  // Of executed FLOP, at the clock of the tables.
  std::map<std::string, double> joule_per_flop{};  ///< of GEMMs, by dtype
  /// By head size: narrow heads have more exponentials for a FLOP. Not empty where the law is known.
  std::map<double, double> attention_forward{}, attention_backward{};
};
/// Between the two nearest keys, linear in the logarithm of the key; beyond the last ones, theirs. 0 of an
/// empty map.
double interpolate(const std::map<double, double>& points, double key);

/// What a step does forward and backward, at the clock of the tables.
struct PowerMix {
  /// Ops whose time follows the clock, by the largest clock that they run at, relative to the tables'.
  struct Arithmetic {
    double seconds = 0, joule = 0;
  };
  std::map<double, Arithmetic> arithmetic{};
  /// Arithmetic of ops that bytes bind, by the clock below which it takes longer than they do.
  std::map<double, double> hidden_s{};
  double other_s = 0;  ///< all others, at any clock that hides their arithmetic
  double byte_j = 0;   ///< of moving bytes

  void add(const PowerMix& other, double times) {
    for (const auto& [most, work] : other.arithmetic) {
      arithmetic[most].seconds += times * work.seconds;
      arithmetic[most].joule += times * work.joule;
    }
    for (const auto& [least, seconds] : other.hidden_s) hidden_s[least] += times * seconds;
    other_s += times * other.other_s;
    byte_j += times * other.byte_j;
  }
  /// What it takes at another clock, relative to that of the tables.
  [[nodiscard]] double seconds_at(double share) const;
};

/// The clock that the limit allows on average over the mix, relative to that of the tables; at most
/// max_hz / table_hz, at least kLeastClock of that. 1 where the law is not known.
double clock_share(const PowerLaw& law, const PowerMix& mix);

}  // namespace rooflm::perfmodel

// Positions and labels of the ticks of an axis.
#include "report/charts/axis_ticks.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace rooflm::report {
namespace {

constexpr double kTen = 10;
/// Slack for values that miss a bound by rounding.
constexpr double kSlack = 1e-9;

/// The nearest step of 1, 2 or 5 times a power of ten that is not below `rough`.
double round_step(double rough) {
  const double power = std::pow(kTen, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * (1 - kSlack)) return factor * power;
  }
  return kTen * power;
}

struct Prefix {
  double factor;
  const char* name;
};
constexpr std::array<Prefix, 9> kPrefixes = {{{1e15, "P"},
                                              {1e12, "T"},
                                              {1e9, "G"},
                                              {1e6, "M"},
                                              {1e3, "k"},
                                              {1, ""},
                                              {1e-3, "m"},
                                              {1e-6, "u"},
                                              {1e-9, "n"}}};

std::string symbol_of(const std::string& unit) {
  if (unit == "byte") return "B";
  if (unit == "byte/s") return "B/s";
  if (unit == "flop") return "FLOP";
  if (unit == "flop/s") return "FLOP/s";
  if (unit == "flop/byte") return "";
  return unit;
}

}  // namespace

std::string tick_label(double value, const std::string& unit) {
  if (unit == "share") return fmt::format("{:.4g}%", 100 * value);
  const std::string symbol = symbol_of(unit);
  const std::string space = symbol.empty() ? "" : " ";
  const double size = std::abs(value);
  if (size == 0) return "0" + space + symbol;
  // Small numbers of things have no prefix: 0.5 of a step is not 500 m.
  const bool takes_small = unit == "s";
  Prefix best{1, ""};
  for (const Prefix& prefix : kPrefixes) {
    if (prefix.factor < 1 && !takes_small) break;
    best = prefix;
    if (size >= prefix.factor * (1 - kSlack)) break;
  }
  const bool is_plain = symbol.empty() && best.factor <= 1e3 && size < 1e5;
  if (is_plain) return fmt::format("{:.6g}", value);
  return fmt::format("{:.4g} {}{}", value / best.factor, best.name, symbol);
}

std::vector<Tick> linear_ticks(double low, double high, int count, const std::string& unit) {
  const double step = round_step((high - low) / count);
  const double first = std::ceil(low / step - kSlack);
  const double last = std::floor(high / step + kSlack);
  std::vector<Tick> ticks;
  // Values that no step tells apart (1e300 and the next number), or ends too far apart: one tick.
  constexpr double kWhole = 0x1p53;
  const bool are_apart = std::abs(first) < kWhole && std::abs(last) < kWhole;
  if (!are_apart) return {{.value = low, .label = tick_label(low, unit)}};
  for (auto i = static_cast<std::int64_t>(first); i <= static_cast<std::int64_t>(last); ++i) {
    const double value = static_cast<double>(i) * step;
    ticks.push_back({.value = value, .label = tick_label(value, unit)});
  }
  return ticks;
}

std::vector<Tick> log_ticks(double low, double high, const std::string& unit) {
  constexpr std::size_t kFew = 3;
  constexpr int kMany = 8;
  const int first = static_cast<int>(std::floor(std::log10(low) + kSlack));
  const int last = static_cast<int>(std::ceil(std::log10(high) - kSlack));
  const int stride = (last - first) / kMany + 1;
  std::vector<Tick> ticks;
  const auto add = [&](double value) {
    const bool is_inside = value >= low * (1 - kSlack) && value <= high * (1 + kSlack);
    if (is_inside) ticks.push_back({.value = value, .label = tick_label(value, unit)});
  };
  for (int power = first; power <= last; power += stride) add(std::pow(kTen, power));
  if (ticks.size() >= kFew) return ticks;
  ticks.clear();
  for (int power = first; power <= last; ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) add(factor * std::pow(kTen, power));
  }
  return ticks;
}

}  // namespace rooflm::report

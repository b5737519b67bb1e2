// Formats numbers for people. Values are SI; this is the only place that scales them.
#include "core/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>

namespace rooflm::core {
namespace {

std::string three_digits(double value) {
  const double magnitude = std::abs(value);
  if (magnitude >= 99.95) return fmt::format("{:.0f}", value);
  return magnitude >= 9.995 ? fmt::format("{:.1f}", value) : fmt::format("{:.2f}", value);
}

}  // namespace

std::string format_si(double value) {
  constexpr std::array<const char*, 11> kPrefix = {"",   " k", " M", " G", " T", " P",
                                                   " E", " Z", " Y", " R", " Q"};
  constexpr double kSmall = 0.5e-3;  // would display as 0.00
  constexpr double kMicro = 1e6;
  const double magnitude = std::abs(value);
  if (magnitude > 0 && magnitude < kSmall) {
    const bool is_micro = magnitude >= 0.9995 / kMicro;
    return three_digits(value * (is_micro ? kMicro : kGiga)) + (is_micro ? " u" : " n");
  }
  std::size_t step = 0;
  while (std::abs(value) >= 999.5 && step + 1 < kPrefix.size()) {
    value /= 1e3;
    ++step;
  }
  const bool whole = step == 0 && value == std::floor(value);
  return (whole ? fmt::format("{:.0f}", value) : three_digits(value)) + kPrefix.at(step);
}

std::string format_bytes(double bytes) {
  const std::string text = format_si(bytes);
  return text + (text.find(' ') == std::string::npos ? " B" : "B");
}

std::string format_seconds(double seconds) {
  if (seconds == 0) return "0 s";
  const double magnitude = std::abs(seconds);
  if (magnitude < 0.9995e-6) return three_digits(seconds * 1e9) + " ns";
  if (magnitude < 0.9995e-3) return three_digits(seconds * 1e6) + " us";
  if (magnitude < 0.9995) return three_digits(seconds * 1e3) + " ms";
  return three_digits(seconds) + " s";
}

std::string format_clock(double seconds) {
  const auto s = static_cast<std::int64_t>(std::ceil(seconds));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace rooflm::core

// Formats numbers for people. Values are SI; this is the only place that scales them.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace rooflm::core {

/// Seconds per nanosecond, and nanoseconds per second.
inline constexpr double kNano = 1e-9, kGiga = 1e9;

/// "1.50 GB" (10^9), three significant digits; exact below 1 kB ("512 B").
std::string format_bytes(double bytes);
/// "412 us", "1.05 s", three significant digits.
std::string format_seconds(double seconds);
/// Remaining time, rounded up to a second: "4:05", "1:02:03".
std::string format_clock(double seconds);
/// "190 G" with an SI prefix, for counts and rates; "2.10 u" below half a thousandth. Append the unit
/// ("FLOP", "tok/s").
std::string format_si(double value);
/// "1 step", "3 steps", "2 batches".
template <std::integral Count>
std::string format_count(Count count, std::string_view noun) {
  const char* const plural = noun.ends_with("ch") ? "es" : "s";
  return std::to_string(count).append(" ").append(noun).append(count == 1 ? "" : plural);
}

}  // namespace rooflm::core

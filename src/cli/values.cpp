// Values of options as they are typed.
#include "cli/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/printable.h"

namespace rooflm::cli {
namespace {

using core::printable;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// The number that all of `text` is, if it is one.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return {};
  return value;
}

void append_range(std::string_view option, std::string_view text, const std::vector<std::string_view>& parts,
                  std::vector<std::int64_t>& values) {
  std::array<std::int64_t, 3> bounds = {0, 0, 1};
  for (std::size_t i = 0; i < parts.size() && i < bounds.size(); ++i) {
    const auto bound = number_in<std::int64_t>(parts[i]);
    if (!bound || parts.size() > 3) {
      throw core::UsageError(
          fmt::format("{} {}: a range is first:last:step, such as 64:1536:64", option, printable(text)));
    }
    bounds.at(i) = *bound;
  }
  const auto [first, last, step] = bounds;
  if (step < 1 || last < first) {
    throw core::UsageError(fmt::format("{} {}: a range rises from first to last by a step of at least 1",
                                       option, printable(text)));
  }
  // Unsigned: the distance of any two numbers fits, and the last step may lead beyond the largest one.
  const std::uint64_t distance = static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(first);
  const std::uint64_t steps = distance / static_cast<std::uint64_t>(step);
  if (steps >= kMaxPoints) throw_too_many_points();
  for (std::uint64_t i = 0; i <= steps; ++i) {
    values.push_back(
        static_cast<std::int64_t>(static_cast<std::uint64_t>(first) + i * static_cast<std::uint64_t>(step)));
  }
}

}  // namespace

void throw_too_many_points() {
  throw core::UsageError(fmt::format("the sweep has more than {} configurations", kMaxPoints));
}

std::vector<std::string> parse_names(std::string_view option, std::string_view text) {
  std::vector<std::string> names;
  if (text.empty()) return names;
  for (const std::string_view part : split(text, ',')) {
    if (part.empty()) {
      throw core::UsageError(
          fmt::format("{} {}: an empty name; lists are written a,b without spaces", option, printable(text)));
    }
    names.emplace_back(part);
  }
  return names;
}

std::vector<std::int64_t> parse_integers(std::string_view option, std::string_view text, std::int64_t least) {
  std::vector<std::int64_t> values;
  if (text.empty()) return values;
  for (const std::string_view part : split(text, ',')) {
    const auto bounds = split(part, ':');
    if (bounds.size() > 1) {
      append_range(option, part, bounds, values);
      continue;
    }
    const auto value = number_in<std::int64_t>(part);
    if (!value) {
      const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
      if (is_number)
        throw core::UsageError(
            fmt::format("{} {}: '{}' is too large", option, printable(text), printable(part)));
      throw core::UsageError(
          fmt::format("{} {}: '{}' is not a whole number; lists are written 128,256 and ranges 64:1536:64",
                      option, printable(text), printable(part)));
    }
    values.push_back(*value);
  }
  for (const std::int64_t value : values) {
    if (value < least) {
      throw core::UsageError(fmt::format("{} must be at least {}, got {}", option, least, value));
    }
  }
  return values;
}

std::int64_t parse_integer(std::string_view option, std::string_view text, std::int64_t least) {
  const auto values = parse_integers(option, text, least);
  if (values.size() != 1)
    throw core::UsageError(fmt::format("{} takes one number, got '{}'", option, printable(text)));
  return values.front();
}

double parse_number(std::string_view option, std::string_view text, double least) {
  const auto value = number_in<double>(text);
  if (!value || !std::isfinite(*value)) {
    throw core::UsageError(fmt::format("{} {}: not a number", option, printable(text)));
  }
  if (*value < least) {
    throw core::UsageError(fmt::format("{} must be at least {}, got {}", option, least, *value));
  }
  return *value;
}

double parse_count(std::string_view option, std::string_view text, double least) {
  constexpr std::string_view kScales = "KMBT";
  const char last = text.empty() ? '0' : text.back();
  const std::size_t scale = kScales.find(static_cast<char>(std::toupper(static_cast<unsigned char>(last))));
  if (scale == std::string_view::npos) return parse_number(option, text, least);
  const double value = parse_number(option, text.substr(0, text.size() - 1));
  return std::max(least, value * std::pow(1e3, static_cast<double>(scale + 1)));
}

double parse_percent(std::string_view option, std::string_view text, double least) {
  constexpr double kPercent = 0.01;
  if (text.ends_with('%')) text.remove_suffix(1);
  return kPercent * parse_number(option, text, least);
}

double parse_share(std::string_view option, std::string_view text) {
  constexpr double kPercent = 0.01;
  if (text.ends_with('%')) return kPercent * parse_number(option, text.substr(0, text.size() - 1));
  const double share = parse_number(option, text);
  if (share >= 1) {
    throw core::UsageError(fmt::format("{} {}: write {}% or a share below 1", option, text, share));
  }
  return share;
}

double parse_bytes(std::string_view option, std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  static constexpr std::array kUnits = {
      Unit{"", 1},      Unit{"b", 1},        Unit{"kb", 1e3},     Unit{"mb", 1e6},     Unit{"gb", 1e9},
      Unit{"tb", 1e12}, Unit{"kib", 0x1p10}, Unit{"mib", 0x1p20}, Unit{"gib", 0x1p30}, Unit{"tib", 0x1p40}};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string name(end, text.data() + text.size());
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto* unit =
      std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return u.name == name; });
  if (error != std::errc() || unit == kUnits.end() || !std::isfinite(value) || value <= 0) {
    throw core::UsageError(fmt::format(
        "{} {}: not a number of bytes above 0; write 8GB (10^9 bytes), 8GiB (2^30 bytes), 512MB, ...", option,
        printable(text)));
  }
  return value * unit->bytes;
}

}  // namespace rooflm::cli

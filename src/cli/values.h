// Values of options as they are typed: numbers, lists, ranges, amounts of memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace rooflm::cli {

// Every function throws core::UsageError naming `option` and what was typed.

/// "fp32,bf16" as {"fp32", "bf16"}; an empty text as {}.
std::vector<std::string> parse_names(std::string_view option, std::string_view text);
/// "128,256" as {128, 256}; "64:256:64" as {64, 128, 192, 256} (first:last:step, both ends included; the step
/// is 1 when left out); also both mixed. All must be at least `least`. An empty text as {}.
std::vector<std::int64_t> parse_integers(std::string_view option, std::string_view text,
                                         std::int64_t least = 1);
/// A single integer of at least `least`.
std::int64_t parse_integer(std::string_view option, std::string_view text, std::int64_t least = 1);
/// A finite number of at least `least`.
double parse_number(std::string_view option, std::string_view text, double least = 0);
/// A number of at least `least` with the letter of a scale, if any: "10B", "1.5T", "300K", "2e9".
double parse_count(std::string_view option, std::string_view text, double least = 0);
/// "1" or "1%" as 0.01: a number of percent, at least `least`.
double parse_percent(std::string_view option, std::string_view text, double least = 0);
/// "3%" or "0.03" as 0.03; at least 0. Shares of 1 and more need the percent sign: "3" could mean either.
double parse_share(std::string_view option, std::string_view text);
/// "8GB" (10^9), "8GiB" (2^30), "512MB", "1000000" (bytes), in bytes; more than 0.
double parse_bytes(std::string_view option, std::string_view text);

/// Most points of a sweep.
inline constexpr std::size_t kMaxPoints = 100'000;
[[noreturn]] void throw_too_many_points();

/// Lists multiply: every item once per value, in the order of the values; items stay as they are without any.
template <class Item, class Value, class Set>
void multiply(std::vector<Item>& items, const std::vector<Value>& values, Set set) {
  if (values.empty()) return;
  if (items.size() > kMaxPoints / values.size()) throw_too_many_points();
  std::vector<Item> product;
  for (const Item& item : items) {
    for (const Value& value : values) {
      product.push_back(item);
      set(product.back(), value);
    }
  }
  items = std::move(product);
}

}  // namespace rooflm::cli

// Structs with options (core/options.h) from and to the configuration of a run.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/named.h"
#include "core/options.h"
#include "record/config.h"

namespace rooflm::record {

template <class T>
constexpr bool kIsOptional = false;
template <class T>
constexpr bool kIsOptional<std::optional<T>> = true;

/// The value of an integer field, which is checked against its limits: throws core::UsageError, "--batch must
/// be at least 1, got 0". Nothing if it is absent and follows from other fields.
std::optional<std::int64_t> integer_of(const Config& config, const Field& field);
/// Throws core::UsageError for one that is negative or not finite.
double number_of(const Config& config, const Field& field);

/// Sets `member` to the value of the field, or to its initial one; leaves it where both are absent. Throws
/// core::UsageError for a name that is unknown and for a number out of range.
template <class T>
void read_option(const Config& config, const Field& field, T& member) {
  if constexpr (core::HasNames<T>) {
    if (const std::string text = text_or_initial(config, field); !text.empty()) member = core::parse<T>(text);
  } else if constexpr (kIsOptional<T>) {
    if (text_or_initial(config, field).empty()) return;
    read_option(config, field, member.emplace());
  } else if constexpr (std::same_as<T, bool>) {
    member = config.find(field.key) != nullptr ? config.flag(field.key) : field.initial == "yes";
  } else if constexpr (std::integral<T>) {
    if (const auto value = integer_of(config, field)) member = static_cast<T>(*value);
  } else if constexpr (std::floating_point<T>) {
    member = number_of(config, field);
  } else {
    member = text_or_initial(config, field);
  }
}

/// Adds the member's value to the configuration; nothing if it is absent.
template <class T>
void write_option(std::string_view key, const T& member, Config& config) {
  if constexpr (core::HasNames<T>) {
    config.set(key, name_of(member));
  } else if constexpr (kIsOptional<T>) {
    if (member) write_option(key, *member, config);
  } else if constexpr (std::same_as<T, bool> || std::floating_point<T>) {
    config.set(key, Config::Value(member));
  } else {
    config.set(key, member);
  }
}

/// All options of a struct.
template <class Options>
void read_options(const Config& config, Options& options) {
  visit_options(options, [&config](std::string_view key, auto& member) {
    read_option(config, *find_field(key), member);
  });
}
template <class Options>
void write_options(const Options& options, Config& config) {
  visit_options(options,
                [&config](std::string_view key, const auto& member) { write_option(key, member, config); });
}

/// The keys of a struct's options.
template <class Options>
std::vector<std::string_view> keys_of(const Options& options) {
  std::vector<std::string_view> keys;
  visit_options(options, [&keys](std::string_view key, const auto& /*member*/) { keys.push_back(key); });
  return keys;
}

/// "eager|fused": the values that the option takes; "" where they have no names.
template <class T>
std::string names_of_values(const T& member) {
  std::string all;
  if constexpr (core::HasNames<T>) {
    for (const std::string& name : names_of(member).names()) all += (all.empty() ? "" : "|") + name;
  } else if constexpr (kIsOptional<T>) {
    all = names_of_values(typename T::value_type{});
  }
  return all;
}

}  // namespace rooflm::record

// Environment entries that say why a device has no instruction peak.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace rooflm::record {

inline constexpr const char* kMissingPeak = "no instruction peak: ";

/// Key of the entry whose value is the reason: "no instruction peak: cuda:0 fp8".
inline std::string missing_peak_key(const std::string& device, const std::string& dtype) {
  return kMissingPeak + device + " " + dtype;
}

/// Device and dtype in such a key; nothing for other keys.
inline std::optional<std::pair<std::string, std::string>> missing_peak_of(const std::string& key) {
  const std::string prefix = kMissingPeak;
  const auto space = key.rfind(' ');
  if (!key.starts_with(prefix) || space < prefix.size()) return std::nullopt;
  return std::pair(key.substr(prefix.size(), space - prefix.size()), key.substr(space + 1));
}

}  // namespace rooflm::record

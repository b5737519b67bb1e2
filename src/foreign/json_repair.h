// JSON with faults that can be read in one way only, as PyTorch and others have written it. Private to the
// room.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rooflm::foreign {

struct RepairedJson {
  std::string text{};
  std::vector<std::string> repairs{};  ///< "2 trailing commas are left out"; empty: nothing to repair

  /// The byte of the original that became that byte of `text`.
  [[nodiscard]] std::size_t original(std::size_t position) const;

  std::vector<std::pair<std::size_t, std::size_t>> moved{};  ///< position in `text`, position in `utf8`
  std::string utf8{};                                        ///< the original, where it was no UTF-8
};

/// Escapes control characters and raw line breaks within strings, and backslashes that escape nothing; turns
/// NaN and Infinity into null; leaves out commas before a closing bracket; keeps bytes that are no UTF-8 as
/// private characters (core/utf8_bytes.h). Whatever else is wrong stays.
RepairedJson repair_json(std::string_view text);

}  // namespace rooflm::foreign

// Devices and links that are faster or larger than those of the catalog.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rooflm::perfmodel {

/// Factors of what a device and its links have.
struct WhatIf {
  double compute = 1;    ///< rates of GEMMs and attention
  double bandwidth = 1;  ///< of memory
  double link = 1;       ///< within a node
  double network = 1;    ///< between nodes
  double memory = 1;     ///< bytes of a device
  double host = 1;       ///< launches that the host submits in a second

  [[nodiscard]] bool is_any() const { return *this != WhatIf{}; }
  bool operator==(const WhatIf&) const = default;
};

/// "compute=2x", "bandwidth=2x", ...: a word for each key.
std::vector<std::string> what_if_words();
/// "bandwidth=2x,link=0.5x". Throws core::UsageError that names the part that is not KEY=FACTORx, with a
/// suggestion for unknown keys; factors are from 0.001 to 1000.
WhatIf parse_what_if(std::string_view text);
/// "bandwidth=2x,link=0.5x" again.
std::string text_of(const WhatIf& what_if);

}  // namespace rooflm::perfmodel

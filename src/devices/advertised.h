// What data sheets advertise besides the rates that steps run at.
#pragma once

#include <optional>
#include <string_view>

namespace rooflm::devices {

struct Advertised {
  std::optional<double> int8_op_per_s{};  ///< dense
  double sparsity = 1;                    ///< factor of 2:4 sparse matmuls of tf32 and of fewer bits
};

/// Of a device of the catalog, by key; nothing known for other keys.
Advertised advertised(std::string_view key);

}  // namespace rooflm::devices

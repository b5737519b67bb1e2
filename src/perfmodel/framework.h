// What a framework costs besides its kernels (data/frameworks.json).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/estimate.h"

namespace rooflm::perfmodel {

struct Framework {
  std::string name{};
  std::string engine{}, attention{};  ///< the recipe whose program stands for it
  double launch_host_s = 0;           ///< of the host, to submit one launch
  bool is_deterministic = true;
  double context_bytes = 0;  ///< CUDA, libraries, workspaces
  double fragmentation = 0;  ///< of what is alive at the peak, lost between tensors
  Basis basis = Basis::assumed;
  std::string source{};
};

const std::vector<Framework>& frameworks();
/// Throws core::UsageError with a suggestion.
const Framework& find_framework(std::string_view name);

}  // namespace rooflm::perfmodel

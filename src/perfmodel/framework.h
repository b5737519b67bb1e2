// What a framework costs besides its kernels (data/frameworks.json).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compile/recipe.h"
#include "perfmodel/estimate.h"

namespace rooflm::perfmodel {

struct Framework {
  std::string name{};
  std::string engine{}, attention{};  ///< the recipe whose program stands for it
  /// Masters in halves, 16-bit gradients, the loss in chunks, GELU in GEMM epilogues, as the device wants
  /// them.
  bool has_rewrites = true;
  bool is_sequence_parallel = true;  ///< where it is tensor-parallel
  bool has_unfused_loss = false;     ///< passes/unfused_loss.h
  bool has_root_unit = false;        ///< compile::Sharding::root_unit
  bool is_vocab_parallel = false;    ///< compile::Sharding::vocab_parallel, where it is tensor-parallel
  /// By the beginning of a device's key, the share of the dense peak that its attention kernels reach,
  /// forward and backward, of what they compute below the diagonal. Elsewhere they are as fast as the
  /// table's.
  std::map<std::string, double> attention_share{};
  double launch_host_s = 0;  ///< of the host, to submit one launch
  bool is_deterministic = true;
  double context_bytes = 0;  ///< CUDA, libraries, workspaces
  double fragmentation = 0;  ///< of what is alive at the peak, lost between tensors
  Basis basis = Basis::assumed;
  std::string source{};
};

const std::vector<Framework>& frameworks();
/// Throws core::UsageError with a suggestion.
const Framework& find_framework(std::string_view name);

/// Takes from a step that is fitted to a device what the framework does not have.
void fit_to_framework(compile::StepOptions& step, const Framework& framework);

}  // namespace rooflm::perfmodel
